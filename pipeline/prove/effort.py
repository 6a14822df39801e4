"""Attempts on sorries: their outcomes, costs and proofs, by search or by whole proofs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from pipeline.endpoint.errors import Usage
from pipeline.jobs.protocol import JobError
from pipeline.jobs.specs import SorryToProve
from pipeline.lean.source.scanner import SourceFile, scan_source
from pipeline.lean.source.splice import Replacement, Script, splice
from pipeline.prove.tree import Tree

Outcome = Literal["found", "disproved", "exhausted", "budget", "error"]


class Written(NamedTuple):
    """An author's proof, and the replacement accepted by Lean."""

    text: str
    replacement: Replacement


@dataclass(frozen=True, slots=True)
class Effort:
    """The result of the work on a goal.

    Attributes:
        outcome: as in `store.events.proofs.AttemptFinished`.
        detail: the reason, if it adds to the outcome.
        best: the progress, in a line for people.
        goals_left: open goals of the state nearest to a proof; None without a state.
        nodes: expanded states, or proofs judged by Lean.
        repl_calls: requests to Lean.
        seconds: in all.
        killed: tactics that ended the Lean process each time; they count as failed.
        cost: tokens and money, if they are counted.
        tree: the search's; None without one.
        script: the search's proof; None without one.
        written: the author's proof; None without one.
    """

    outcome: Outcome
    detail: str = ""
    best: str = ""
    goals_left: int | None = None
    nodes: int = 0
    repl_calls: int = 0
    seconds: float = 0.0
    killed: int = 0
    cost: Usage = field(default_factory=Usage)
    tree: Tree | None = None
    script: Script | None = None
    written: Written | None = None

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
    """A sorry's proof: its tactics, and the replacement accepted by Lean; or, if all sorries of its declaration are
    filled together, the tactics and the replacement of all.
    """

    tactics: tuple[str, ...]
    replacement: Replacement
    effort: Effort


@dataclass(slots=True)
class DeclarationResult:
    """The results of a command's declarations: one, or those of a `mutual` block."""

    solved: dict[int, SolvedSorry] = field(default_factory=dict)
    """By the sorry's ordinal in the command."""
    unsolved: list[tuple[int | None, Effort]] = field(default_factory=list)
    """With the ordinal of its sorry; None if Lean's goals cannot be matched to sorries."""
    stopped: JobError | None = None
    """The error that ended the work early; later sorries are unknown."""
    unplaced: str = ""
    """The first complaint about a proof that fits no sorry's place."""


# ---- Attempts, as the prove job records them


AttemptOutcome = Literal["found", "disproved", "exhausted", "budget", "unsupported", "error"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of the work on one sorry; with a proof, `text_hash` is the scanner's of the patched declaration."""

    wanted: SorryToProve
    outcome: AttemptOutcome
    detail: str = ""
    effort: Effort = field(default_factory=lambda: Effort("error"))
    proof: SolvedSorry | None = None
    text_hash: str = ""


def found(one: SorryToProve, solved: SolvedSorry, *, data: bytes, source: SourceFile, path: str) -> Attempt:
    """Return the attempt that found a proof; an error if the proof changes more of the file than the declaration."""
    before, after = source.scanned, scan_source(splice(data, solved.replacement), path=path)
    index = next((sorry.index for sorry in before.sorries if sorry.byte_start == one.byte_start), None)
    if after.error is not None or len(after.declarations) != len(before.declarations) or index is None:
        text = "the patched file does not scan as the same declarations"
        return Attempt(one, "error", text, replace(solved.effort, goals_left=None))
    text_hash = after.declarations[index].text_hash
    return Attempt(one, "found", solved.effort.detail, solved.effort, solved, text_hash)


def in_vain(one: SorryToProve, worked: DeclarationResult) -> Attempt:
    """Sum up the failed efforts for a sorry as one attempt, with the tree and detail of the one nearest to a proof."""
    own = [effort for whose, effort in worked.unsolved if whose in (one.ordinal, None)]
    # A sorry filled through another's goal may leave its own goal to an unfilled one.
    efforts = own or [effort for whose, effort in worked.unsolved if whose in worked.solved]
    best = min(
        efforts,
        key=lambda effort: math.inf if effort.goals_left is None else effort.goals_left,
        default=Effort("exhausted", detail="its goal was proved, and no place in the source takes that"),
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
