"""What a search asks its rung for: tactics to try on goals, and how many steps a proof still needs after one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.lean.client.messages import Goal
from pipeline.models.progress.steps import Step


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tactic to try.

    Attributes:
        text: the tactic, whole.
        template: what is remembered as unknown to a process that cannot parse it.
        cost: what a step with it adds to a priority; for rungs that know no probabilities.
        commits: when it succeeds nothing that was provable is lost, so the rest of the list need not be tried.
        log_probability: the model's, natural logarithm; 0 where there is no model.
        tokens: how many tokens that is of.
    """

    text: str
    template: str
    cost: float = 0
    commits: bool = False
    log_probability: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """Where a search stands when it asks.

    Attributes:
        goals: the search's own open goals; the tactics are for the first.
        steps: the tactics that led here from the root, in order.
        seed: of what is drawn for this state; the same state of the same search has the same.
    """

    goals: tuple[Goal, ...]
    steps: tuple[str, ...]
    seed: int

    @property
    def at_start(self) -> bool:
        return not self.steps


class Proposer(Protocol):
    """A rung's way to tactics. May be asked by several searches at once."""

    async def propose(self, asked: Asked) -> Iterable[Candidate]:
        """Return what to try, best first. It is read lazily: what `saw` teaches meanwhile may already count."""

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:
        """Hear whether Lean could parse a tactic at all."""


class Remaining(Protocol):
    """A progress model as a search asks it."""

    async def remaining(self, steps: Sequence[Step]) -> list[float]:
        """Return how many steps a proof still needs after each of these."""
