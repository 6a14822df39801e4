"""Measures of forgetting along a chain of tasks.

R[k][j] is the test recall@10 of task j after training on task k (j <= k < N), in percent; A[k] is the mean
over j <= k of R[k][j]; V[k] is the validation recall@10 of task k after training on it. Two forms of the same
names:

- `textbook`: the definitions of the continual-learning literature. Forgetting measure FM: Chaudhry et al.
  2018 (arXiv:1801.10112); backward transfer BWT: Lopez-Paz and Ranzato 2017 (arXiv:1706.08840); windowed
  forgetting WF: De Lange et al. 2023 (arXiv:2205.13452); extended backward transfer EBWT: the mean of BWT's
  term over all j < k.
- `leanagent`: the formulas of the script behind the table of LeanAgent (arXiv:2410.06209), different under
  the same names: its FM compares different tasks, its EBWT is off by one, its WF5 looks at the average A over
  a growing set of tasks, its IP depends on the first and the last task only. They are here for comparison
  with LeanAgent's numbers.

The script rounds A to two decimals and nothing else, and so does its form here. The textbook form is rounded
to three decimals at the end, as the two decimals known of LeanAgent's runs seem to be rounded from three:
their BWT of 1.19 comes out of 1.1847 by way of 1.185 only. A measure is NaN if the tasks are too few.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real

WINDOW = 5
"""Evaluations in a window: of WF5, five neighbouring ones; of the script's WF5 and WP5, the five before."""
_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class LifelongMetrics:
    """The measures of one chain of `n_tasks` tasks, in points of percent but for CFR, a ratio.

    `textbook` has FM, WF5 (lower is better), BWT, EBWT, final_average (A[N-1]) and learning_accuracy (mean
    R[j][j]). `leanagent` has WF5, FM (lower), CFR, EBWT, WP5 and IP (higher).
    """

    n_tasks: int
    textbook: Mapping[str, float]
    leanagent: Mapping[str, float]


def lifelong_metrics(
    test_recall_at_10: Sequence[Sequence[float]], validation_recall_at_10: Sequence[float]
) -> LifelongMetrics:
    """Return both forms of the lifelong measures.

    Args:
        test_recall_at_10: N rows; row j lists R[k][j] for k = j..N-1, so it has N - j values, in percent.
        validation_recall_at_10: V[k] for k = 0..N-1, in percent.

    Raises:
        ValueError: no task is given, a row has another length, or a value is no number in 0..100.
    """
    n = len(test_recall_at_10)
    if n == 0:
        raise ValueError("no task: the matrix of recalls is empty")
    for j, row in enumerate(test_recall_at_10):
        if len(row) != n - j:
            raise ValueError(
                f"task {j} has {len(row)} recalls: it needs {n - j}, one after each task from its own on"
            )
        _check(row, f"the recalls of task {j}")
    if len(validation_recall_at_10) != n:
        raise ValueError(
            f"{len(validation_recall_at_10)} validation recalls for {n} tasks: it takes one each"
        )
    _check(validation_recall_at_10, "the validation recalls")
    rows = [list(map(float, row)) for row in test_recall_at_10]
    return LifelongMetrics(
        n_tasks=n,
        textbook={name: round(value, _DECIMALS) for name, value in _textbook(rows).items()},
        leanagent=_script(rows, list(map(float, validation_recall_at_10))),
    )


def averages(test_recall_at_10: Sequence[Sequence[float]]) -> list[float]:
    """Return A[k], the mean recall over the tasks seen, for k = 0..N-1."""
    n = len(test_recall_at_10)
    return [_mean([test_recall_at_10[j][k - j] for j in range(k + 1)]) for k in range(n)]


def _textbook(rows: list[list[float]]) -> dict[str, float]:
    # Return the textbook measures. A row is one task's recall through time: first after its training, last at
    # the end.
    # The last task has no later evaluation, so it can neither be forgotten nor gain.
    earlier = rows[:-1]
    return {
        "FM": _mean([max(row[:-1]) - row[-1] for row in earlier]),
        "BWT": _mean([row[-1] - row[0] for row in earlier]),
        "EBWT": _mean([value - row[0] for row in earlier for value in row[1:]]),
        "WF5": _mean([_deepest_drop(row) for row in earlier]),
        "final_average": _mean([row[-1] for row in rows]),
        "learning_accuracy": _mean([row[0] for row in rows]),
    }


def _deepest_drop(row: list[float]) -> float:
    drops = (row[i] - row[k] for k in range(1, len(row)) for i in range(max(0, k - WINDOW + 1), k))
    return max(0.0, *drops)


def _script(rows: list[list[float]], validation: list[float]) -> dict[str, float]:
    n = len(rows)
    average = [round(value, 2) for value in averages(rows)]
    return {
        "WF5": max(
            (max(average[k - WINDOW : k]) - average[k] for k in range(WINDOW, n)),
            default=math.nan,
        ),
        "FM": _mean([max(rows[j][k - j] for j in range(k + 1)) - rows[k][-1] for k in range(n - 1)]),
        "CFR": min(average) / max(average) if max(average) > 0 else math.nan,
        "EBWT": _mean([rows[j][k - j] - rows[j][0] for k in range(n - 1) for j in range(k + 1)]),
        "WP5": _mean([max(0.0, average[k] - average[max(0, k - WINDOW)]) for k in range(n)]),
        "IP": _mean([after - before for before, after in pairwise(validation)]),
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _check(values: Sequence[object], what: str) -> None:
    for value in values:
        # NaN too is refused: nothing compares with it.
        if not isinstance(value, Real) or not 0 <= float(value) <= 100:
            raise ValueError(f"{what} hold {value!r}: a recall in percent is a number from 0 to 100")
