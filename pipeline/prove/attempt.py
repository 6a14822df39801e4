"""A sorry that the prove job is asked to fill, and how the work on it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pipeline.jobs.specs import SorryToProve
from pipeline.lean.source.splice import Replacement
from pipeline.prove.effort import Effort, Worked, nearest

AttemptOutcome = Literal["found", "disproved", "exhausted", "budget", "unsupported", "error"]


@dataclass(frozen=True, slots=True)
class FoundProof:
    """A text that Lean took in the sorry's place, by itself or together with its neighbours'."""

    replacement: Replacement
    tactics: tuple[str, ...]
    text_hash: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """The end of the work on one sorry."""

    wanted: SorryToProve
    outcome: AttemptOutcome
    detail: str = ""
    effort: Effort = field(default_factory=lambda: Effort("error"))
    proof: FoundProof | None = None


def in_vain(one: SorryToProve, worked: Worked) -> Attempt:
    """Make one attempt of all that was tried for a sorry; the tree and the words are of what got nearest."""
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
