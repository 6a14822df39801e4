"""Attempts on sorries: their outcomes, costs and proofs, by search or by whole proofs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from pipeline.jobs.specs import SorryToProve
from pipeline.lean.source.scanner import SourceFile, scan_source
from pipeline.lean.source.splice import Replacement
from pipeline.prove.search import SearchResult
from pipeline.prove.tree import Tree
from pipeline.prove.whole_proof import Cost, WholeResult

Outcome = Literal["found", "disproved", "exhausted", "budget", "error"]


@dataclass(frozen=True, slots=True)
class Effort:
    """The result of the work on a goal.

    Attributes:
        outcome: as in `store.events.proofs.AttemptFinished`.
        detail: the reason, where it adds to the outcome.
        best: the progress, in a line for people.
        goals_left: open goals of the state nearest to a proof; None without a state.
        nodes: expanded states, or proofs that Lean judged.
        repl_calls: requests to Lean.
        seconds: in all.
        killed: tactics that ended the Lean process each time; they count as failed.
        cost: tokens and money, if they are counted.
        tree: the search's; None without one.
    """

    outcome: Outcome
    detail: str = ""
    best: str = ""
    goals_left: int | None = None
    nodes: int = 0
    repl_calls: int = 0
    seconds: float = 0.0
    killed: int = 0
    cost: Cost = field(default_factory=Cost)
    tree: Tree | None = None

    @classmethod
    def of_search(cls, result: SearchResult, *, detail: str = "") -> Effort:
        return cls(
            result.outcome,
            detail,
            result.best,
            _goals_left(result.tree),
            result.nodes,
            result.repl_calls,
            result.seconds,
            result.killed,
            tree=result.tree,
        )

    @classmethod
    def of_whole(cls, result: WholeResult, *, repl_calls: int) -> Effort:
        return cls(
            result.outcome,
            result.detail,
            result.best,
            0 if result.outcome == "found" else None,
            result.tried,
            repl_calls,
            result.seconds,
            cost=result.cost,
        )

    def after(self, *earlier: Effort) -> Effort:
        """Return this effort with the cost of earlier ones for the same sorry added."""
        return replace(
            self,
            nodes=self.nodes + sum(one.nodes for one in earlier),
            repl_calls=self.repl_calls + sum(one.repl_calls for one in earlier),
            seconds=self.seconds + sum(one.seconds for one in earlier),
            killed=self.killed + sum(one.killed for one in earlier),
            cost=sum((one.cost for one in earlier), self.cost),
        )


@dataclass(frozen=True, slots=True)
class SolvedSorry:
    """A sorry's proof: its tactics, and the text that Lean accepted in its place."""

    tactics: tuple[str, ...]
    replacement: Replacement
    effort: Effort


@dataclass(frozen=True, slots=True)
class Joint:
    """The proofs of all sorries of one declaration, as one replacement."""

    replacement: Replacement
    ordinals: tuple[int, ...]


@dataclass(slots=True)
class DeclarationResult:
    """The results of a command's declarations: one, or those of a `mutual` block."""

    solved: dict[int, SolvedSorry] = field(default_factory=dict)
    """By the sorry's ordinal in the command."""
    unsolved: list[tuple[int | None, Effort]] = field(default_factory=list)
    """With the ordinal of its sorry; None if Lean's goals cannot be matched to sorries."""
    joint: list[Joint] = field(default_factory=list)
    """Of each declaration with several sorries of which every one was solved, if they fit together."""
    unplaced: str = ""
    """The first complaint about a found proof that fits no sorry's place."""

    def joint_of(self, ordinal: int) -> Joint | None:
        """Return what fills a sorry and the others of its declaration."""
        return next((one for one in self.joint if ordinal in one.ordinals), None)

    def efforts(self, ordinal: int) -> list[Effort]:
        """Return the failed efforts for a sorry, or for no sorry in particular."""
        return [effort for whose, effort in self.unsolved if whose in (ordinal, None)]


def nearest(efforts: Iterable[Effort]) -> Effort | None:
    """Return the effort that came nearest to a proof; None of none."""
    far = float("inf")
    return min(efforts, key=lambda one: far if one.goals_left is None else one.goals_left, default=None)


def _goals_left(tree: Tree) -> int | None:
    """Count the goals of the state with the fewest; the root does not count."""
    if tree.outcome == "found":
        return 0
    return min((len(node.goals) for node in tree.nodes if node.number), default=None)


# ---- Attempts, as the prove job records them


AttemptOutcome = Literal["found", "disproved", "exhausted", "budget", "unsupported", "error"]


@dataclass(frozen=True, slots=True)
class FoundProof:
    """A text that Lean accepted in the sorry's place, alone or together with the neighbours' texts."""

    replacement: Replacement
    tactics: tuple[str, ...]
    text_hash: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of the work on one sorry."""

    wanted: SorryToProve
    outcome: AttemptOutcome
    detail: str = ""
    effort: Effort = field(default_factory=lambda: Effort("error"))
    proof: FoundProof | None = None


def text_hash(source: SourceFile, one: SorryToProve, patched: bytes, *, path: str) -> str | None:
    """Return the scanner's hash of the patched declaration; None if the patch changed more than that."""
    before, after = source.scanned, scan_source(patched, path=path)
    if after.error is not None or len(after.declarations) != len(before.declarations):
        return None
    index = next((sorry.index for sorry in before.sorries if sorry.byte_start == one.byte_start), None)
    return None if index is None else after.declarations[index].text_hash


def in_vain(one: SorryToProve, worked: DeclarationResult) -> Attempt:
    """Sum the failed efforts for a sorry up as one attempt, with the tree and detail of the nearest to a proof."""
    efforts = worked.efforts(one.ordinal)
    best = nearest(efforts) or Effort(
        "exhausted", detail="its goal was proved, and no place in the source takes that"
    )
    whole = best.after(*(effort for effort in efforts if effort is not best))
    outcomes = {effort.outcome for effort in efforts}
    outcome: AttemptOutcome
    if "disproved" in outcomes:
        outcome, detail = "disproved", "a proof of the negation was accepted"
    elif "budget" in outcomes:
        outcome, detail = "budget", "the budget ended the search"
    elif worked.unplaced:
        outcome, detail = "error", f"a proof was found and no sorry's place takes it: {worked.unplaced}"
    elif "error" in outcomes:
        outcome, detail = "error", "it could not be tried to the end"
    else:
        outcome, detail = "exhausted", "no tactic is left to try"
    said = [detail, best.detail] if best.detail else [detail]
    if whole.killed:
        said.append(f"tactics that ended the process each time, and count as failed: {whole.killed}")
    return Attempt(one, outcome, "; ".join(said), whole)
