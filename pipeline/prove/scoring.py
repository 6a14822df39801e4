"""Which state of a search comes next: lower scores first.

Rung 0 counts: steps so far, the last step's cost, open goals. A model's rung goes by what the model thinks of the
steps: BFS-Prover (Xin and others, arXiv:2502.03438) divides the sum of their log-probabilities by L^alpha, L their
number, so that deep proofs are not starved; alpha 0 is the plain sum, 1 the mean. A progress model's word, how many
steps are left, is mixed in by a weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

_GOAL_WEIGHT = 2


@dataclass(frozen=True, slots=True)
class Reached:
    """A state as a score sees it, on the way that is scored.

    Attributes:
        depth: steps from the root, at least 1.
        goals: how many are open.
        cost: the last candidate's (`Candidate.cost`).
        log_probability: the sum over the steps; natural logarithm.
        remaining: steps that a proof still needs, where a progress model was asked.
    """

    depth: int
    goals: int
    cost: float
    log_probability: float
    remaining: float | None = None


class Scoring(Protocol):
    """How states are ranked. Equal scorings print the same (`repr`): a search is not gone on with under another."""

    def score(self, reached: Reached) -> float:
        """Return the score, lower first; infinite: last."""


@dataclass(frozen=True, slots=True)
class StepScoring:
    """Rung 0's: steps, cost and open goals. `progress_weight` as in `ModelScoring`."""

    progress_weight: float = 0.5

    def __post_init__(self) -> None:
        _check_weight(self.progress_weight)

    def score(self, reached: Reached) -> float:
        counted = reached.depth + reached.cost + _GOAL_WEIGHT * reached.goals
        return _blended(counted, reached.remaining, self.progress_weight)


@dataclass(frozen=True, slots=True)
class ModelScoring:
    """By log-probability, normalised by length.

    Attributes:
        alpha: exponent of the length, 0..1.
        progress_weight: share of the remaining steps in the score, 0..1; the rest is the model's. 0.5 weighs one step
            left like one nat of surprise.
    """

    alpha: float = 0.5
    progress_weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"scoring: alpha is {self.alpha}; it must be between 0 and 1")
        _check_weight(self.progress_weight)

    def score(self, reached: Reached) -> float:
        normalised = (0.0 - reached.log_probability) / reached.depth**self.alpha
        return _blended(normalised, reached.remaining, self.progress_weight)


def _blended(own: float, remaining: float | None, weight: float) -> float:
    """Mix the two. What is not a number ranks last, like what is infinite: a broken model must not come first."""
    mixed = own if remaining is None or not weight else (1 - weight) * own + weight * remaining
    return math.inf if math.isnan(mixed) or (remaining is not None and math.isinf(remaining)) else mixed


def _check_weight(weight: float) -> None:
    if not 0 <= weight <= 1:
        raise ValueError(f"scoring: progress_weight is {weight}; it must be between 0 and 1")
