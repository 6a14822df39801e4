"""The lives of sorries and theorems: compare two versions of a branch and say which facts follow.

Pure: `store.domain.matching` has the rules by which declarations match. Declarations are matched first, sorries inside
matched declarations second, so that a line that moved, a file that was renamed and a theorem that was restated keep
their identity.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from store.domain.identity import sorry_id
from store.domain.matching import Compared, Decl, LivingSorry
from store.domain.records import THEOREM_KINDS
from store.events.scans import (
    SorryChanged,
    SorryEvent,
    SorryFilled,
    SorryMoved,
    SorryOpened,
    SorryPlace,
    SorryRemoved,
)

if TYPE_CHECKING:
    from store.domain.matching import Compared, Decl

_MOST_PAIRS = (
    1_000_000  # sorries before times sorries now that are aligned by context; more are paired in order
)
_PART = 4  # hex digits of each part of a context hash
_SAME_DECLARATION = 0.5  # two sorries of one declaration are rather one that was edited around than two


@dataclass(frozen=True, slots=True)
class GivenProof:
    """A proof of ours; `declaration_text_hash` is the patched declaration's `text_hash`."""

    proof: str
    sorry: str
    declaration_text_hash: str


def align(before: Sequence[str], now: Sequence[str]) -> list[tuple[int, int]]:
    """Pair the sorries of one declaration by their context hashes: in order, so that surroundings agree best."""
    start = 0
    while start < min(len(before), len(now)) and before[start] == now[start]:
        start += 1
    end = 0
    while end < min(len(before), len(now)) - start and before[-1 - end] == now[-1 - end]:
        end += 1
    middle_before = before[start : len(before) - end]
    middle_now = now[start : len(now) - end]
    pairs = [(index, index) for index in range(start)]
    if len(middle_before) * len(middle_now) > _MOST_PAIRS:
        middle = [(index, index) for index in range(min(len(middle_before), len(middle_now)))]
    else:
        middle = _best(middle_before, middle_now)
    pairs += [(start + old, start + new) for old, new in middle]
    pairs += [(len(before) - back, len(now) - back) for back in range(end, 0, -1)]
    return pairs


def _likeness(one: str, other: str) -> float:
    parts = range(0, min(len(one), len(other)), _PART)
    return _SAME_DECLARATION + sum(one[at : at + _PART] == other[at : at + _PART] for at in parts)


def _best(before: Sequence[str], now: Sequence[str]) -> list[tuple[int, int]]:
    rows, columns = len(before), len(now)
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            paired = best[row + 1][column + 1] + _likeness(before[row], now[column])
            best[row][column] = max(paired, best[row + 1][column], best[row][column + 1])
    pairs = []
    row = column = 0
    while row < rows and column < columns:
        if best[row][column] == best[row + 1][column + 1] + _likeness(before[row], now[column]):
            pairs.append((row, column))
            row, column = row + 1, column + 1
        elif best[row][column] == best[row + 1][column]:
            row += 1
        else:
            column += 1
    return pairs


@dataclass(frozen=True, slots=True)
class Commit:
    """The branch and commit of the present declarations."""

    repository: str
    branch: str
    sha: str


@dataclass(frozen=True, slots=True)
class Lives:
    """The events of one commit, and by path how many sorries of the compared files are followed from now on."""

    events: list[SorryEvent]
    followed: Counter[str]


def live(
    commit: Commit,
    compared: Compared,
    *,
    proofs: Iterable[GivenProof] = (),
    elsewhere: Collection[str] = (),
    closed: Collection[str] = (),
    most: int | None = None,
    most_of_file: int | None = None,
) -> Lives:
    """The events of one commit, at most one a sorry.

    Args:
        compared: The declarations of the changed and removed files, as they were and as they are.
        proofs: Our proofs of living sorries; decide whether a sorry was filled by us.
        elsewhere: The sorries that live in files that did not change; their ids are taken.
        closed: The sorries that were filled or removed earlier; one that comes back is reopened.
        most, most_of_file: Sorries that are followed at most, with those elsewhere, and in one file. Those that are
            followed already stay; of new ones the first are taken.
    """
    followed: Counter[str] = Counter()
    given: dict[str, list[GivenProof]] = defaultdict(list)
    for proof in proofs:
        given[proof.sorry].append(proof)
    taken = {*elsewhere, *(item.sorry for old in compared.before for item in old.living)}
    events: list[SorryEvent] = []
    new: list[tuple[Decl, SorryPlace]] = []
    partner = {id(new): old for old, new in compared.pairs}
    gone = {id(old): old for old in compared.before if old.living}
    for item in sorted(compared.now, key=lambda item: (item.path, item.index)):
        old = partner.get(id(item))
        if old is None:
            new.extend((item, place) for place in item.places)
            continue
        gone.pop(id(old), None)
        pairs = align(
            [living.place.context_hash for living in old.living],
            [place.context_hash for place in item.places],
        )
        kept_before, kept_now = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
        for index, living in enumerate(old.living):
            if index not in kept_before:
                events.append(_filled(commit, living, item, given[living.sorry]))
        followed[item.path] += len(pairs)
        for index_before, index_now in pairs:
            event = _kept(commit, old.living[index_before], item.places[index_now])
            if event:
                events.append(event)
        new.extend((item, place) for index, place in enumerate(item.places) if index not in kept_now)
    for old in gone.values():
        events += (SorryRemoved(**_about(commit, living.sorry)) for living in old.living)
    total = len(elsewhere) + followed.total()
    twins: Counter[tuple[str, str, int]] = Counter()
    for _, place in new:
        if (most is not None and total >= most) or (
            most_of_file is not None and followed[place.path] >= most_of_file
        ):
            continue
        total += 1
        followed[place.path] += 1
        identity = _fresh(commit.repository, place, taken, twins)
        taken.add(identity)
        events.append(SorryOpened(**_about(commit, identity), place=place, reopened=identity in closed))
    return Lives(events, followed)


def _about(commit: Commit, sorry: str) -> dict[str, str]:
    return {"repository": commit.repository, "branch": commit.branch, "sha": commit.sha, "sorry": sorry}


def _filled(commit: Commit, living: LivingSorry, now: Decl, proofs: Iterable[GivenProof]) -> SorryFilled:
    ours = next((item.proof for item in proofs if item.declaration_text_hash == now.text_hash), None)
    return SorryFilled(**_about(commit, living.sorry), by="us" if ours else "people", proof=ours)


def _kept(commit: Commit, living: LivingSorry, place: SorryPlace) -> SorryMoved | SorryChanged | None:
    """Nothing where place and file are as they were; `context` where only the file around it changed.

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
    repository: str, place: SorryPlace, taken: Collection[str], twins: Counter[tuple[str, str, int]]
) -> str:
    """The id of a sorry at first sight. Twins (two `example : p := sorry`) are counted off, in `twins`."""
    key = (place.declaration, place.statement_hash, place.ordinal)
    while True:
        twin = twins[key]
        twins[key] += 1
        statement = place.statement_hash if not twin else f"{place.statement_hash}#{twin}"
        identity = sorry_id(repository, place.declaration, statement, place.ordinal)
        if identity not in taken:
            return identity


Step = Literal["appeared", "renamed", "file_moved", "restated", "reproved", "deleted"]
STEPS: tuple[Step, ...] = get_args(Step)


@dataclass(frozen=True, slots=True)
class TheoremBefore:
    """The theorem that it was. Its text is in an earlier step, or in the scan of its first sight."""

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
            ValueError: a step that this version does not know, none at all, or neither a before nor an after.
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
        unread: Files whose earlier version can not be read any more. What they had is known in part at most, so
            nothing is said to have appeared in them, and only what had a sorry to have been renamed or moved.
        taken: Whether a declaration, before or now, is within the limits. Of the others nothing is said, but what
            is followed already stays followed.
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


def is_theorem(item: Decl) -> bool:
    """Return whether a declaration is followed."""
    return item.kind in THEOREM_KINDS


def counted(steps: Iterable[TheoremStep]) -> dict[str, int]:
    """Return how many theorems took each step; a step that none took is left out."""
    numbers = Counter(step for item in steps for step in item.steps)
    return {step: numbers[step] for step in STEPS if numbers[step]}


def _became(old: Decl, new: Decl) -> tuple[Step, ...]:
    same_statement = old.statement_hash == new.statement_hash
    # A file that can not be read any more leaves no hash of its proofs, and nothing is claimed of them then.
    reproved = same_statement and bool(old.text_hash) and old.proof_hash != new.proof_hash
    happened: tuple[tuple[Step, bool], ...] = (
        ("renamed", old.name != new.name),
        ("file_moved", old.path != new.path),
        ("restated", not same_statement),
        ("reproved", reproved),
    )
    return tuple(step for step, did in happened if did)


def _place(item: Decl) -> tuple[str, int]:
    return item.path, item.index


def _before(item: Decl) -> TheoremBefore:
    return TheoremBefore(
        name=item.name,
        kind=item.kind,
        path=item.path,
        statement_hash=item.statement_hash,
        text_hash=item.text_hash,
    )


def _after(item: Decl) -> TheoremAfter:
    return TheoremAfter(
        name=item.name,
        kind=item.kind,
        path=item.path,
        statement=item.statement,
        statement_hash=item.statement_hash,
        text_hash=item.text_hash,
        n_sorries=len(item.places),
    )


def _fields(item: TheoremBefore | TheoremAfter | None) -> dict[str, Any] | None:
    return None if item is None else {name: getattr(item, name) for name in item.__slots__}
