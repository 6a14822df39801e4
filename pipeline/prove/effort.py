"""The cost and the progress of the work on one sorry, by search or by whole proofs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from pipeline.lean.source.splice import Replacement
from pipeline.prove.search import SearchResult
from pipeline.prove.tree import Tree
from pipeline.prove.whole_proof import Cost, WholeResult

Outcome = Literal["found", "disproved", "exhausted", "budget", "error"]


@dataclass(frozen=True, slots=True)
class Effort:
    """The end of the work on a goal.

    Attributes:
        outcome: as in `store.events.proofs.AttemptFinished`.
        detail: why, in words, where there is more to say than the outcome.
        best: how far it got, in a line for people.
        goals_left: open goals of the state nearest to a proof; None where no state was reached.
        nodes: states expanded, or proofs that Lean judged.
        repl_calls: requests to Lean.
        seconds: in all.
        killed: tactics that ended the Lean process each time; they count as failed.
        cost: tokens and money, where they are counted.
        tree: the search's; None where there was none.
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
        """Return this one with what others took before it for the same sorry."""
        return replace(
            self,
            nodes=self.nodes + sum(one.nodes for one in earlier),
            repl_calls=self.repl_calls + sum(one.repl_calls for one in earlier),
            seconds=self.seconds + sum(one.seconds for one in earlier),
            killed=self.killed + sum(one.killed for one in earlier),
            cost=sum((one.cost for one in earlier), self.cost),
        )


@dataclass(frozen=True, slots=True)
class Solved:
    """A sorry's proof: its tactics and the text that Lean took in its place."""

    tactics: tuple[str, ...]
    replacement: Replacement
    effort: Effort


@dataclass(slots=True)
class Worked:
    """The result of a declaration. `joint` is set when every sorry of several was solved and they fit together."""

    solved: dict[int, Solved] = field(default_factory=dict)
    """By the sorry's ordinal in the declaration."""
    unsolved: list[tuple[int | None, Effort]] = field(default_factory=list)
    """With the ordinal of the sorry that it was for; None where Lean's goals do not say which is whose."""
    joint: Replacement | None = None
    unplaced: str = ""
    """The first complaint about a found proof that no sorry's place would take."""

    def efforts(self, ordinal: int) -> list[Effort]:
        """Return what was in vain for a sorry, or for no sorry in particular."""
        return [effort for whose, effort in self.unsolved if whose in (ordinal, None)]


def nearest(efforts: Iterable[Effort]) -> Effort | None:
    """Return the one that got nearest to a proof; None of none."""
    far = float("inf")
    return min(efforts, key=lambda one: far if one.goals_left is None else one.goals_left, default=None)


def _goals_left(tree: Tree) -> int | None:
    """Count the goals of the state with the fewest; the root, where all begins, does not count."""
    if tree.outcome == "found":
        return 0
    return min((len(node.goals) for node in tree.nodes if node.number), default=None)
