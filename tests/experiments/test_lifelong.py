from __future__ import annotations

import json
import math
import pickle
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.lifelong import averages, lifelong_metrics

# Three tasks. Task 0 is learned at 50, rises to 60 and falls to 40; task 1 is learned at 70 and rises to 75.
RECALLS = [[50.0, 60.0, 40.0], [70.0, 75.0], [80.0]]
VALIDATION = [55.0, 65.0, 85.0]


def test_the_textbook_measures_of_a_small_example_are_those_worked_out_by_hand() -> None:
    textbook = lifelong_metrics(RECALLS, VALIDATION).textbook
    assert textbook == {
        "FM": pytest.approx(((60 - 40) + (70 - 75)) / 2),
        "BWT": pytest.approx(((40 - 50) + (75 - 70)) / 2),
        "EBWT": pytest.approx(((60 - 50) + (40 - 50) + (75 - 70)) / 3, abs=1e-3),
        "WF5": pytest.approx(((60 - 40) + 0) / 2),
        "final_average": pytest.approx((40 + 75 + 80) / 3),
        "learning_accuracy": pytest.approx((50 + 70 + 80) / 3, abs=1e-3),
    }
    assert averages(RECALLS) == [50.0, 65.0, 65.0]


def test_leanagents_script_counts_other_things_under_the_same_names() -> None:
    leanagent = lifelong_metrics(RECALLS, VALIDATION).leanagent
    assert leanagent["FM"] == pytest.approx(((50 - 40) + (70 - 75)) / 2), (
        "the best of any task, not of this one"
    )
    assert leanagent["EBWT"] == pytest.approx(((50 - 50) + (60 - 50) + (70 - 70)) / 3), (
        "one evaluation too early"
    )
    assert leanagent["CFR"] == pytest.approx(50 / 65)
    assert leanagent["WP5"] == pytest.approx((0 + 15 + 15) / 3)
    assert leanagent["IP"] == pytest.approx((85 - 55) / 2)
    assert math.isnan(leanagent["WF5"]), "it takes six tasks"


recalls_of_a_task = st.floats(0, 100, allow_subnormal=False)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_textbook_measures_are_their_formulas_over_the_square_matrix(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 9))
    # R[k, j] after training on task k; what is not measured is never looked at.
    square = np.full((n, n), np.nan)
    for k in range(n):
        for j in range(k + 1):
            square[k, j] = data.draw(recalls_of_a_task)
    ragged = [[float(square[k, j]) for k in range(j, n)] for j in range(n)]
    textbook = lifelong_metrics(ragged, [50.0] * n).textbook
    last = n - 1
    expected = {
        "FM": np.mean([max(square[k, j] for k in range(j, last)) - square[last, j] for j in range(last)]),
        "BWT": np.mean([square[last, j] - square[j, j] for j in range(last)]),
        "EBWT": np.mean([square[k, j] - square[j, j] for k in range(n) for j in range(k)]),
        "WF5": np.mean(
            [
                max(
                    max(0.0, square[i, j] - square[k, j])
                    for first in range(j, n)
                    for i in range(first, min(first + 5, n))
                    for k in range(i, min(first + 5, n))
                )
                for j in range(last)
            ]
        ),
        "final_average": np.mean(square[last]),
        "learning_accuracy": np.mean(np.diag(square)),
    }
    assert textbook == {name: pytest.approx(value, abs=5.1e-4) for name, value in expected.items()}


def test_a_result_can_be_kept_and_sent() -> None:
    result = lifelong_metrics(*chain(50, 1))
    assert pickle.loads(pickle.dumps(result)) == result
    assert json.loads(json.dumps(asdict(result)))["textbook"] == result.textbook


def test_a_window_forgets_a_drop_that_took_longer() -> None:
    fell_at_once = [[90.0, *[50.0] * 7], *[[10.0] * (7 - i) for i in range(7)]]
    slowly = [[90.0 - 5 * i for i in range(8)], *[[10.0] * (7 - i) for i in range(7)]]
    assert lifelong_metrics(fell_at_once, [0.0] * 8).textbook["WF5"] == pytest.approx(40 / 7, abs=1e-3)
    assert lifelong_metrics(slowly, [0.0] * 8).textbook["WF5"] == pytest.approx(4 * 5 / 7, abs=1e-3)


def test_one_task_can_forget_nothing_and_says_so() -> None:
    measured = lifelong_metrics([[42.0]], [40.0])
    assert measured.textbook["final_average"] == 42
    assert all(math.isnan(measured.textbook[name]) for name in ("FM", "BWT", "EBWT", "WF5"))


@pytest.mark.parametrize(
    ("recalls", "validation", "complaint"),
    [
        ([], [], "no task"),
        ([[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0], "task 1 has 2 recalls: it needs 1"),
        ([[1.0, 2.0], [3.0]], [1.0], "1 validation recalls for 2 tasks"),
        ([[1.0, math.nan], [3.0]], [1.0, 2.0], "the recalls of task 0 hold nan"),
        ([[1.0]], [101.0], "the validation recalls hold 101.0"),
        ([[-0.1]], [1.0], "the recalls of task 0 hold -0.1"),
        ([["50"]], [1.0], "the recalls of task 0 hold '50'"),
        ([[1.0]], [None], "the validation recalls hold None"),
        (
            [[1.0], [2.0, 3.0]],
            [1.0, 2.0],
            "task 0 has 1 recalls: it needs 2, one after each task from its own",
        ),
    ],
)
def test_a_matrix_that_is_none_is_refused_with_its_defect(
    recalls: Any, validation: Any, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        lifelong_metrics(recalls, validation)


def chain(level: float, slope: float) -> tuple[list[list[float]], list[float]]:
    n = 8
    return [[level + slope * k for k in range(j, n)] for j in range(n)], [level + slope * k for k in range(n)]
