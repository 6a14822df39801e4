"""The curve of a training."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pipeline.models.curve import CURVE, MOST, Curve, read_curve


def test_a_curve_is_read_as_it_was_written(tmp_path: Path) -> None:
    Curve([{"step": 1, "loss": 2.5, "learning_rate": 1e-4}, {"step": 2, "loss": 2.25}]).write(tmp_path)
    assert read_curve((tmp_path / CURVE).read_bytes()) == {
        "loss": [(1, 2.5), (2, 2.25)],
        "learning_rate": [(1, 1e-4)],
    }


def test_a_long_run_keeps_its_mean_its_end_and_a_bounded_number_of_points() -> None:
    steps = 20 * MOST + 7
    points = Curve({"step": step, "loss": float(step)} for step in range(1, steps + 1)).as_json()["loss"]
    assert MOST // 2 <= len(points) <= MOST
    assert points[-1][0] == steps
    # Each point is the mean of as many steps as lie behind it.
    begins = [0, *(step for step, _ in points)]
    for before, (step, value) in zip(begins, points, strict=False):
        assert value == pytest.approx((before + 1 + step) / 2)


def test_of_a_trainer_s_log_the_measures_count_and_neither_times_nor_what_is_no_number() -> None:
    history = [
        {"loss": 3.0, "grad_norm": math.nan, "epoch": 0.5, "step": 1},
        {"loss": 2.0, "grad_norm": 1.5, "epoch": 1.0, "step": 2},
        {"eval_mse": 4.0, "eval_runtime": 0.1, "eval_samples_per_second": 9.0, "epoch": 1.0, "step": 2},
        {"train_runtime": 3.0, "train_loss": 2.5, "total_flos": 1e9, "epoch": 1.0, "step": 2},
    ]
    assert Curve(history).as_json() == {
        "loss": [(1, 3.0), (2, 2.0)],
        "grad_norm": [(2, 1.5)],
        "eval_mse": [(2, 4.0)],
    }


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"loss": [1]}', b'{"loss": [["a", 2]]}'])
def test_what_is_no_curve_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_curve(content)
