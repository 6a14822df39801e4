from __future__ import annotations

import numpy as np
import pytest

from pipeline.models.measures import Interval, rate, summarise


@pytest.mark.parametrize(
    ("positives", "ranked", "rated"),
    [
        ([3], [3, 1, 2], (1.0, 1.0, 1.0)),
        ([3, 4], [3, 1, 4], (0.5, 1.0, 1.0)),
        ([3, 4], [1, 2, 4], (0.0, 0.5, 1 / 3)),
        ([3], [*range(10, 20), 3], (0.0, 0.0, 1 / 11)),
        ([3], [1, 2], (0.0, 0.0, 0.0)),
        ([3], [], (0.0, 0.0, 0.0)),
    ],
)
def test_recall_divides_by_the_positives_and_the_rank_is_of_the_first_hit(
    positives: list[int], ranked: list[int], rated: tuple[float, float, float]
) -> None:
    assert rate(positives, ranked) == pytest.approx(rated)


def test_a_step_without_a_positive_is_not_rated() -> None:
    with pytest.raises(ValueError, match="without a positive"):
        rate([], [1, 2])


def test_the_mean_is_over_steps_and_one_theorem_has_no_interval() -> None:
    rated = [(0.0, 1.0, 0.5), (1.0, 1.0, 1.0)]
    found = summarise(rated, ["t", "t"], seed=1)
    assert found["recall@1"] == Interval(0.5, 0.5, 0.5)
    assert found["mrr"].mean == 0.75


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    inside = 0
    for trial in range(60):
        # Steps of a theorem succeed or fail together; resampling steps would give intervals far too narrow.
        luck = rng.random(60) < 0.4
        rated = [(float(ok), float(ok), float(ok)) for ok in luck for _ in range(8)]
        found = summarise(rated, [number for number in range(60) for _ in range(8)], seed=trial, draws=100)
        inside += found["recall@1"].low <= 0.4 <= found["recall@1"].high
    assert 50 <= inside <= 60


def test_the_same_seed_gives_the_same_interval() -> None:
    rated = [(i / 30, 1.0, 0.5) for i in range(30)]
    assert summarise(rated, range(30), seed=2) == summarise(rated, range(30), seed=2)
    assert summarise(rated, range(30), seed=2) != summarise(rated, range(30), seed=3)
