"""What became of a branch's theorems from one commit to the next, as the payload of `theorems_followed` says it.

Pure, and standard library only but for the declarations that it compares (`store.matching`). A theorem is a
declaration of kind theorem or lemma. Steps, several at once where several things happened:

- appeared, deleted: it was, or is, no theorem of the branch; one that turned into a definition is deleted;
- renamed: its full name is another, be it by its namespace;
- file_moved;
- restated: the text of its statement is another, more than by white space between words and comments;
- reproved: the same statement with another proof.

What only moved to other lines, was re-formatted, or got another attribute has no step. The scanner reads text: a
changed `variable` or `open` above a theorem changes what it means and not its text, and goes unseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from store.scanned import THEOREM_KINDS

if TYPE_CHECKING:
    from store.matching import Compared, Decl

Step = Literal["appeared", "renamed", "file_moved", "restated", "reproved", "deleted"]
STEPS: tuple[Step, ...] = get_args(Step)


@dataclass(frozen=True, slots=True)
class TheoremBefore:
    """Which theorem it was. Its text stands in an earlier step, or in the scan of its first sight."""

    name: str
    kind: str
    path: str
    statement_hash: str
    text_hash: str


@dataclass(frozen=True, slots=True)
class TheoremAfter:
    """What it is now. `n_sorries` counts the sorrys in its proof."""

    name: str
    kind: str
    path: str
    statement: str
    statement_hash: str
    text_hash: str
    n_sorries: int


@dataclass(frozen=True, slots=True)
class TheoremStep:
    """What became of one theorem in one commit: `before` is None for one that appeared, `after` for a deleted one."""

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
                f"the steps {steps!r} do not fit what is told of before ({before!r}) and after ({after!r})"
            )
        return cls(
            steps=cast("tuple[Step, ...]", steps),
            before=None if before is None else TheoremBefore(**before),
            after=None if after is None else TheoremAfter(**after),
        )


def follow(compared: Compared, *, unread: Collection[str] = ()) -> list[TheoremStep]:
    """Return the steps of one commit, by path and place in the file; the deleted ones come last.

    Args:
        compared: The declarations of the changed and removed files, as they were and as they are.
        unread: Files whose earlier version can not be read any more. What they had is known in part at most, so
            nothing is said to have appeared in them, and only what had a sorry to have been renamed or moved.
    """
    partner = {id(new): old for old, new in compared.pairs}
    kept: set[int] = set()
    steps: list[TheoremStep] = []
    for new in sorted(compared.now, key=_place):
        old = partner.get(id(new))
        if not is_theorem(new):
            continue
        if old is None or not is_theorem(old):
            if new.path not in unread:
                steps.append(TheoremStep(("appeared",), None, _after(new)))
            continue
        kept.add(id(old))
        became = _became(old, new)
        if became:
            steps.append(TheoremStep(became, _before(old), _after(new)))
    steps += (
        TheoremStep(("deleted",), _before(old), None)
        for old in sorted(compared.before, key=_place)
        if is_theorem(old) and id(old) not in kept and old.path not in unread
    )
    return steps


def is_theorem(item: Decl) -> bool:
    """Whether a declaration is followed."""
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
