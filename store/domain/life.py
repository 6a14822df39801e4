"""The lives of sorries and theorems: compare two versions of a branch and return the facts.

Pure: `store.domain.matching` has the rules for matching declarations and the sorries inside of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from store.domain.identity import sorry_id
from store.domain.keywords import THEOREM_KINDS
from store.domain.matching import (
    Compared,
    Decl,
    Filled,
    Judge,
    Kept,
    LivingSorry,
    Opened,
    Outcome,
    Removed,
    sorry_steps,
)
from store.events.places import SorryPlace
from store.events.scans import (
    SorryChanged,
    SorryEvent,
    SorryFilled,
    SorryMoved,
    SorryOpened,
    SorryRemoved,
)


@dataclass(frozen=True, slots=True)
class GivenProof:
    """A verified proof of ours; `declaration_text_hash` is the patched declaration's `text_hash`."""

    proof: str
    sorry: str
    declaration_text_hash: str


@dataclass(frozen=True, slots=True)
class Commit:
    """The branch and commit of the present declarations."""

    repository: str
    branch: str
    sha: str


@dataclass(frozen=True, slots=True)
class Lives:
    """The events of one commit, and by path the number of followed sorries in the compared files."""

    events: list[SorryEvent]
    followed: Counter[str]


def live(
    commit: Commit,
    compared: Compared,
    *,
    judge: Judge,
    proofs: Iterable[GivenProof] = (),
    elsewhere: Collection[str] = (),
    closed: Collection[str] = (),
    most: int | None = None,
    most_of_file: int | None = None,
) -> Lives:
    """Return the events of one commit, at most one a sorry.

    Args:
        compared: The declarations of the changed and removed files, as they were and as they are.
        judge: Decides the end of each sorry that left.
        proofs: Our proofs of living sorries; decide whether a sorry was filled by us.
        elsewhere: The sorries in unchanged files; their ids are taken.
        closed: The sorries filled or removed earlier; a returning one is reopened.
        most, most_of_file: The most sorries to follow, with those elsewhere, and in one file. Followed ones
            stay; of new ones the first are taken.
    """
    followed: Counter[str] = Counter()
    ours: dict[str, list[GivenProof]] = defaultdict(list)
    for proof in proofs:
        ours[proof.sorry].append(proof)
    ids = {*elsewhere, *(sorry.sorry for old in compared.before for sorry in old.living)}
    events: list[SorryEvent] = []
    total = len(elsewhere)
    twins: Counter[tuple[str, str, int]] = Counter()
    for step in sorry_steps(compared):
        match step:
            case Kept(_, living, now, place):
                followed[now.path] += 1
                total += 1
                if event := _change(commit, living, place):
                    events.append(event)
            case Filled(old, living, now):
                events.append(_end_event(commit, living, now, judge.outcome(old, now), ours[living.sorry]))
            case Removed(old, living):
                hidden = judge.hidden_by(old)
                events.append(
                    SorryRemoved(**_about(commit, living.sorry))
                    if hidden is None
                    else SorryRemoved(**_about(commit, living.sorry), how="hidden", detail=hidden.detail)
                )
            case Opened(_, place):
                if (most is not None and total >= most) or (
                    most_of_file is not None and followed[place.path] >= most_of_file
                ):
                    continue
                followed[place.path] += 1
                total += 1
                identity = _fresh(commit.repository, place, ids, twins)
                ids.add(identity)
                opened = SorryOpened(**_about(commit, identity), place=place, reopened=identity in closed)
                events.append(opened)
    return Lives(events, followed)


def _about(commit: Commit, sorry: str) -> dict[str, str]:
    return {"repository": commit.repository, "branch": commit.branch, "sha": commit.sha, "sorry": sorry}


def _end_event(
    commit: Commit, living: LivingSorry, now: Decl, outcome: Outcome, proofs: Iterable[GivenProof]
) -> SorryFilled | SorryRemoved:
    about = _about(commit, living.sorry)
    if outcome.how == "filled":
        ours = next((proof.proof for proof in proofs if proof.declaration_text_hash == now.text_hash), None)
        by: Literal["us", "people"] = "us" if ours else "people"
        return SorryFilled(**about, by=by, proof=ours, rests_on=outcome.rests_on)
    return SorryRemoved(
        **about,
        how=outcome.how,
        detail=outcome.detail,
        statement_before=living.place.statement,
        statement_after=outcome.statement,
    )


def _change(commit: Commit, living: LivingSorry, place: SorryPlace) -> SorryMoved | SorryChanged | None:
    """Return None if place and file are unchanged; a change of `context` if only the file around it changed.

    That one is an event because the view needs the new blob and byte range.
    """
    before = living.place
    if before == place:
        return None
    about = _about(commit, living.sorry)
    if before.statement_hash != place.statement_hash:
        return SorryChanged(**about, place=place, statement_before=before.statement)
    what: list[Literal["line", "file", "rename"]] = []
    if (before.line, before.column) != (place.line, place.column):
        what.append("line")
    if before.path != place.path:
        what.append("file")
    if before.declaration != place.declaration:
        what.append("rename")
    return SorryMoved(**about, place=place, what=tuple(what) or ("context",))


def _fresh(
    repository: str, place: SorryPlace, ids: Collection[str], twins: Counter[tuple[str, str, int]]
) -> str:
    """Return the id of a sorry at first sight. `twins` numbers equal ones (two `example : p := sorry`)."""
    key = (place.declaration, place.statement_hash, place.ordinal)
    while True:
        twin = twins[key]
        twins[key] += 1
        statement = place.statement_hash if not twin else f"{place.statement_hash}#{twin}"
        identity = sorry_id(repository, place.declaration, statement, place.ordinal)
        if identity not in ids:
            return identity


Step = Literal["appeared", "renamed", "file_moved", "restated", "reproved", "deleted"]
STEPS: tuple[Step, ...] = get_args(Step)


@dataclass(frozen=True, slots=True)
class TheoremBefore:
    """The earlier state of a theorem. Its text is in an earlier step, or in the scan of its first sight."""

    name: str
    kind: str
    path: str
    statement_hash: str
    text_hash: str


@dataclass(frozen=True, slots=True)
class TheoremAfter:
    """The present state of a theorem. `n_sorries` counts the sorries in its proof."""

    name: str
    kind: str
    path: str
    statement: str
    statement_hash: str
    text_hash: str
    n_sorries: int


@dataclass(frozen=True, slots=True)
class TheoremStep:
    """The change of one theorem in one commit: `before` is None for a new one, `after` for a deleted one."""

    steps: tuple[Step, ...]
    before: TheoremBefore | None
    after: TheoremAfter | None

    def as_json(self) -> dict[str, Any]:
        return {
            "steps": list(self.steps),
            "before": _fields(self.before),
            "after": _fields(self.after),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TheoremStep:
        """Read one step.

        Raises:
            ValueError: an unknown step, none at all, or neither a before nor an after.
            KeyError, TypeError: it has not the fields of a step.
        """
        steps, before, after = tuple(data["steps"]), data["before"], data["after"]
        if not steps or not set(steps) <= set(STEPS):
            raise ValueError(f"{steps!r} are no steps of a theorem; known: {', '.join(STEPS)}")
        if ("appeared" in steps) != (before is None) or ("deleted" in steps) != (after is None):
            raise ValueError(
                f"the steps {steps!r} do not fit the versions before ({before!r}) and after ({after!r})"
            )
        return cls(
            steps=cast("tuple[Step, ...]", steps),
            before=None if before is None else TheoremBefore(**before),
            after=None if after is None else TheoremAfter(**after),
        )


def follow(
    compared: Compared, *, unread: Collection[str] = (), taken: Callable[[Decl], bool] = lambda _: True
) -> list[TheoremStep]:
    """Return the steps of one commit, by path and place in the file; the deleted ones come last.

    Args:
        compared: The declarations of the changed and removed files, as they were and as they are.
        unread: Files without a readable earlier version. Their earlier content is known in part at most:
            nothing counts as new in them, and only declarations with a sorry count as renamed or moved.
        taken: Whether a declaration, before or now, is within the limits. The others have no steps, but
            followed ones stay followed.
    """
    partner = {id(new): old for old, new in compared.pairs}
    kept: set[int] = set()
    steps: list[TheoremStep] = []
    for new in sorted(compared.now, key=_place):
        old = partner.get(id(new))
        if not is_theorem(new):
            continue
        if old is None or not is_theorem(old) or not taken(old):
            if new.path not in unread and taken(new):
                steps.append(TheoremStep(("appeared",), None, _after(new)))
            continue
        kept.add(id(old))
        became = _became(old, new)
        if became:
            steps.append(TheoremStep(became, _before(old), _after(new)))
    steps += (
        TheoremStep(("deleted",), _before(old), None)
        for old in sorted(compared.before, key=_place)
        if is_theorem(old) and id(old) not in kept and old.path not in unread and taken(old)
    )
    return steps


def is_theorem(decl: Decl) -> bool:
    """Return whether a declaration is followed."""
    return decl.kind in THEOREM_KINDS


def counted(steps: Iterable[TheoremStep]) -> dict[str, int]:
    """Return the number of theorems with each step, without steps of none."""
    numbers = Counter(step for change in steps for step in change.steps)
    return {step: numbers[step] for step in STEPS if numbers[step]}


def _became(old: Decl, new: Decl) -> tuple[Step, ...]:
    same_statement = old.statement_hash == new.statement_hash
    # An unreadable file leaves no hash of its proofs, and nothing is claimed of them then.
    reproved = same_statement and bool(old.text_hash) and old.proof_hash != new.proof_hash
    happened: tuple[tuple[Step, bool], ...] = (
        ("renamed", old.name != new.name),
        ("file_moved", old.path != new.path),
        ("restated", not same_statement),
        ("reproved", reproved),
    )
    return tuple(step for step, did in happened if did)


def _place(decl: Decl) -> tuple[str, int]:
    return decl.path, decl.index


def _before(decl: Decl) -> TheoremBefore:
    return TheoremBefore(
        name=decl.name,
        kind=decl.kind,
        path=decl.path,
        statement_hash=decl.statement_hash,
        text_hash=decl.text_hash,
    )


def _after(decl: Decl) -> TheoremAfter:
    return TheoremAfter(
        name=decl.name,
        kind=decl.kind,
        path=decl.path,
        statement=decl.statement,
        statement_hash=decl.statement_hash,
        text_hash=decl.text_hash,
        n_sorries=len(decl.places),
    )


def _fields(version: TheoremBefore | TheoremAfter | None) -> dict[str, Any] | None:
    return None if version is None else {name: getattr(version, name) for name in version.__slots__}
