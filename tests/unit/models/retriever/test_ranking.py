from __future__ import annotations

import numpy as np
import pytest

from pipeline.models.measures import METRICS, baselines_of, rate, summarise

OLD = ("recall@1", "recall@10", "mrr")


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
    result = dict(zip(METRICS, rate(positives, ranked), strict=True))
    assert [result[name] for name in OLD] == pytest.approx(rated)


def test_recall_is_measured_at_five_depths() -> None:
    ranked = [*range(100, 131), 3, *range(200, 267), 4]
    assert len(ranked) == 100
    result = dict(zip(METRICS, rate([3, 4], ranked), strict=True))
    assert [result[f"recall@{k}"] for k in (1, 5, 10, 32, 100)] == [0, 0, 0, 0.5, 1]


@pytest.mark.parametrize(
    ("positives", "ranked", "gain"),
    [
        ([3], [3], 1.0),
        ([3], [1, 3], 1 / np.log2(3)),
        ([3, 4], [4, 1, 3], (1 + 0.5) / (1 + 1 / np.log2(3))),
        (list(range(20)), list(range(20)), 1.0),
        ([3], [*range(10, 20), 3], 0.0),
    ],
)
def test_the_gain_falls_with_the_rank_and_is_a_share_of_the_most_there_is(
    positives: list[int], ranked: list[int], gain: float
) -> None:
    assert rate(positives, ranked)[METRICS.index("ndcg@10")] == pytest.approx(gain)


def test_the_measures_of_baselines_are_told_from_the_model_s() -> None:
    assert baselines_of({"mrr": 0.5, "bm25 mrr": 0.25, "fused mrr_low": 0.125, "odd name": 1.0}) == {
        "": {"mrr": 0.5, "odd name": 1.0},
        "bm25": {"mrr": 0.25},
        "fused": {"mrr_low": 0.125},
    }


def test_a_step_without_a_positive_is_not_rated() -> None:
    with pytest.raises(ValueError, match="without a positive"):
        rate([], [1, 2])


def test_the_mean_is_over_steps_and_one_theorem_has_no_interval() -> None:
    rated = [(0.0, 1.0, 0.5), (1.0, 1.0, 1.0)]
    result = summarise(rated, ["t", "t"], seed=1, names=OLD)
    assert {result[f"recall@1{bound}"] for bound in ("_low", "", "_high")} == {0.5}
    assert result["mrr"] == 0.75


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    inside = 0
    for trial in range(60):
        # Steps of a theorem succeed or fail together; resampling steps would give intervals far too narrow.
        luck = rng.random(60) < 0.4
        rated = [(float(ok), float(ok), float(ok)) for ok in luck for _ in range(8)]
        result = summarise(rated, [number for number in range(60) for _ in range(8)], seed=trial, names=OLD)
        inside += result["recall@1_low"] <= 0.4 <= result["recall@1_high"]
    assert 50 <= inside <= 60


def test_the_same_seed_gives_the_same_interval() -> None:
    rated = [(i / 30, 1.0, 0.5) for i in range(30)]
    one, same, other = (summarise(rated, range(30), seed=seed, names=OLD) for seed in (2, 2, 3))
    assert one == same != other
