from __future__ import annotations

import math
from itertools import pairwise

import pytest

from pipeline.prove.graph import ModelScoring, ReachedState, StepScoring


def reached(
    *,
    depth: int = 1,
    goals: int = 1,
    cost: float = 0,
    log_probability: float = 0.0,
    remaining: float | None = None,
) -> ReachedState:
    return ReachedState(depth, goals, cost, log_probability, remaining)


def test_rung_0_counts_steps_cost_and_goals() -> None:
    assert StepScoring().score(reached(depth=3, goals=2, cost=1)) == 3 + 1 + 2 * 2


def test_a_model_s_score_is_the_sum_of_log_probabilities_over_a_power_of_the_length() -> None:
    at = reached(depth=4, log_probability=-6.0)
    assert ModelScoring(alpha=0).score(at) == 6.0
    assert ModelScoring(alpha=0.5).score(at) == 3.0
    assert ModelScoring(alpha=1).score(at) == 1.5


def test_a_longer_proof_of_equally_likely_steps_is_not_starved() -> None:
    """BFS-Prover's point: without the length each step pushes a state back, with the mean none does."""
    paths = [reached(depth=depth, log_probability=-0.5 * depth) for depth in range(1, 9)]
    plain, mean = ModelScoring(alpha=0), ModelScoring(alpha=1)
    assert all(plain.score(one) < plain.score(two) for one, two in pairwise(paths))
    assert len({mean.score(path) for path in paths}) == 1


def test_the_number_of_goals_is_no_matter_of_the_model_s() -> None:
    assert ModelScoring().score(reached(goals=1)) == ModelScoring().score(reached(goals=9))


@pytest.mark.parametrize("scoring", [StepScoring, ModelScoring])
def test_the_progress_model_s_word_is_mixed_in_by_its_weight(
    scoring: type[StepScoring] | type[ModelScoring],
) -> None:
    alone = scoring().score(reached(log_probability=-2.0))
    both = reached(log_probability=-2.0, remaining=10.0)
    assert scoring(progress_weight=0).score(both) == alone
    assert scoring(progress_weight=0.25).score(both) == 0.75 * alone + 2.5
    assert scoring(progress_weight=1).score(both) == 10.0


@pytest.mark.parametrize("broken", [math.inf, math.nan])
@pytest.mark.parametrize("weight", [0, 0.5, 1])
def test_a_broken_estimate_ranks_last_and_is_no_error(broken: float, weight: float) -> None:
    score = ModelScoring(progress_weight=weight).score(reached(remaining=broken))
    assert score == (math.inf if weight or math.isinf(broken) else 0)
    assert ModelScoring().score(reached(log_probability=math.nan)) == math.inf
    assert ModelScoring().score(reached(log_probability=-math.inf)) == math.inf


def test_weights_outside_their_range_are_refused() -> None:
    with pytest.raises(ValueError, match="alpha is 2"):
        ModelScoring(alpha=2)
    with pytest.raises(ValueError, match=r"progress_weight is -0\.1"):
        StepScoring(progress_weight=-0.1)
