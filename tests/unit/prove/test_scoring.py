from __future__ import annotations

import math

import pytest

from pipeline.lean.client.messages import Goal
from pipeline.lean.source.splice import Step
from pipeline.prove.graph import Edge, ModelScoring, Node, by_steps


def reached(
    *,
    depth: int = 1,
    goals: int = 1,
    cost: float = 0,
    log_probability: float = 0.0,
    remaining: float | None = None,
) -> Edge:
    target, step = Goal("g", "p", ()), Step("t", 1, goals)
    return Edge(Node(0, (), ""), step, (target,) * goals, 0, depth, cost, log_probability, None, remaining)


def test_rung_0_counts_steps_cost_and_goals() -> None:
    assert by_steps(reached(depth=3, goals=2, cost=1)) == 3 + 1 + 2 * 2


def test_a_longer_proof_of_equally_likely_steps_is_not_starved() -> None:
    """BFS-Prover's point: without the length, eight steps would score eight times as much as one."""
    assert ModelScoring()(reached(depth=4, log_probability=-6.0)) == 3.0
    one, eight = (reached(depth=depth, log_probability=-0.5 * depth) for depth in (1, 8))
    assert ModelScoring()(eight) == pytest.approx(math.sqrt(8) * ModelScoring()(one))


def test_the_number_of_goals_is_no_matter_of_the_model_s() -> None:
    assert ModelScoring()(reached(goals=1)) == ModelScoring()(reached(goals=9))


def test_the_progress_model_s_word_is_mixed_in_by_its_weight() -> None:
    alone = ModelScoring()(reached(log_probability=-2.0))
    both = reached(log_probability=-2.0, remaining=10.0)
    assert ModelScoring(progress_weight=0)(both) == alone
    assert ModelScoring(progress_weight=0.25)(both) == 0.75 * alone + 2.5
    assert ModelScoring(progress_weight=1)(both) == 10.0


@pytest.mark.parametrize("broken", [math.inf, math.nan])
@pytest.mark.parametrize("weight", [0, 0.5, 1])
def test_a_broken_estimate_ranks_last_and_is_no_error(broken: float, weight: float) -> None:
    score = ModelScoring(progress_weight=weight)(reached(remaining=broken))
    assert score == (math.inf if weight or math.isinf(broken) else 0)
    assert ModelScoring()(reached(log_probability=math.nan)) == math.inf
    assert ModelScoring()(reached(log_probability=-math.inf)) == math.inf
