"""Measures of models: ranking, bootstrap intervals, and forgetting along a chain of tasks.

Ranking. The formulas are LeanDojo's (`RetrievalTrainer._evaluate_retrieval_metrics`), for a step with positives P and
its ranked premises R: recall@k = |P ∩ R[:k]| / |P|, so recall@1 stays below 1 where |P| > 1; the reciprocal rank is one
over the rank of the first hit, 0 without one; MRR is its mean. nDCG@10 (Järvelin and Kekäläinen 2002, with gains of 0
and 1) is the sum of 1 / log2(1 + rank) over the hits among the first ten, over the most that the sum can be. All in
0..1. Steps without a positive do not count.

Steps of one theorem resemble each other, so intervals are from resampling theorems, not steps (the cluster bootstrap:
Cameron, Gelbach and Miller 2008).

Lifelong learning. R[k][j] is the test recall@10 of task j after training on task k (j <= k < N), in percent; A[k] is
the mean over j <= k of R[k][j]; V[k] is the validation recall@10 of task k after training on it. Two forms of the same
names:

- `textbook`: the definitions of the continual-learning literature. Forgetting measure FM: Chaudhry et al. 2018
  (arXiv:1801.10112); backward transfer BWT: Lopez-Paz and Ranzato 2017 (arXiv:1706.08840); windowed forgetting WF:
  De Lange et al. 2023 (arXiv:2205.13452); extended backward transfer EBWT: the mean of BWT's term over all j < k.
- `leanagent`: the formulas of the script behind the table of LeanAgent (arXiv:2410.06209), which differ under
  the same names: its FM compares different tasks, its EBWT is off by one, its WF5 looks at the average A whose set of
  tasks grows, its IP depends on the first and the last task only. Here so that numbers can be laid beside theirs.

The script rounds A to two decimals and nothing else, and so does its form here. The textbook form is rounded to three
decimals at the end, because the two decimals in which it is known for LeanAgent's runs seem to be rounded from three:
their BWT of 1.19 comes out of 1.1847 by way of 1.185 only. A measure that needs more tasks than there are is NaN.
NumPy is loaded only where intervals are computed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real

CUTS = (1, 5, 10, 32, 100)
_GAINS_TO = 10


def metrics_of(retrieved: int) -> tuple[str, ...]:
    """Return the names of what `rate` measures of rankings of this length: no recall beyond it and beyond ten."""
    return (*(f"recall@{k}" for k in _cuts(retrieved)), "mrr", f"ndcg@{_GAINS_TO}")


def _cuts(retrieved: int) -> tuple[int, ...]:
    return tuple(k for k in CUTS if k <= max(retrieved, 10))


METRICS = metrics_of(max(CUTS))


BASELINES: Mapping[str, str] = {"bm25": "BM25", "mepo": "MePo", "fused": "with BM25"}
"""What is measured beside a retriever, by the word before its metrics ("bm25 recall@10"): what people call it.
Selectors that learn nothing, and the retriever's ranking fused with BM25's."""


def baselines_of(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return an evaluation's metrics by whose they are: the model's under "", each baseline's under its word."""
    found: dict[str, dict[str, float]] = {"": {}}
    for name, value in metrics.items():
        word, _, metric = name.rpartition(" ")
        of = word if word in BASELINES else ""
        found.setdefault(of, {})[metric if of else name] = value
    return found


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over steps, and the percentile interval in which it lies when theorems are drawn anew."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The measures of a model on `n` steps of `theorems` theorems, each with its interval.

    `dataset` is the SHA-256 of the questions and the right answers; `scores` what `by_theorem` makes of the metric that
    promotion looks at; `new_embeddings` the number of premises that had to be embedded for it.
    """

    metrics: Mapping[str, Interval]
    n: int
    theorems: int
    dataset: str
    scores: Sequence[tuple[str, int, float]]
    seconds: float
    new_embeddings: int = 0


def rate(
    positives: Collection[int], ranked: Sequence[int], *, retrieved: int = max(CUTS)
) -> tuple[float, ...]:
    """Return the measures of one step's ranking of at most `retrieved` premises, in the order of `metrics_of`.

    Raises:
        ValueError: there is no positive.
    """
    if not positives:
        raise ValueError("a step without a positive cannot be rated")
    wanted = set(positives)
    hits = [index in wanted for index in ranked]
    first = next((rank for rank, hit in enumerate(hits, start=1) if hit), None)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(wanted), _GAINS_TO) + 1))
    gained = sum(1 / math.log2(rank + 1) for rank, hit in enumerate(hits[:_GAINS_TO], start=1) if hit)
    return (
        *(sum(hits[:k]) / len(wanted) for k in _cuts(retrieved)),
        0.0 if first is None else 1 / first,
        gained / ideal,
    )


def summarise(
    rated: Sequence[tuple[float, ...]],
    theorems: Sequence[Hashable],
    *,
    seed: int,
    names: Sequence[str] = METRICS,
    draws: int = 1000,
    level: float = 0.95,
) -> Mapping[str, Interval]:
    """Return the mean of each number over steps, with its interval, by name.

    Args:
        rated: the numbers of each step, from `rate` or another measure.
        theorems: each step's theorem.
        seed: decides the resampling.
        names: of the numbers.
        draws: how often theorems are drawn anew.
        level: the interval's share of the draws.

    Raises:
        ValueError: there is no step.
    """
    if not rated:
        raise ValueError("no step to summarise")
    import numpy as np

    values = np.asarray(rated, dtype=np.float64)
    clusters = {theorem: number for number, theorem in enumerate(dict.fromkeys(theorems))}
    of = np.fromiter((clusters[theorem] for theorem in theorems), dtype=np.intp, count=len(theorems))
    n = len(clusters)
    sums = np.zeros((n, values.shape[1]))
    np.add.at(sums, of, values)
    sizes = np.bincount(of, minlength=n).astype(np.float64)
    rng = np.random.Generator(np.random.Philox(key=seed))
    means = np.empty((draws, values.shape[1]))
    for draw in range(draws):
        # The mean only needs how often each theorem is drawn.
        times = np.bincount(rng.integers(0, n, size=n), minlength=n)
        means[draw] = times @ sums / (times @ sizes)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    mean = values.mean(axis=0)
    return {name: Interval(float(mean[i]), float(low[i]), float(high[i])) for i, name in enumerate(names)}


def by_theorem(values: Sequence[float], theorems: Sequence[tuple[str, ...]]) -> list[tuple[str, int, float]]:
    """Return of each theorem a hash of its name, how many steps it has, and the sum of their values.

    `theorems` has each step's, by what stays the same when the test set grows: no line numbers.
    """
    found: dict[tuple[str, ...], tuple[int, float]] = {}
    for value, theorem in zip(values, theorems, strict=True):
        steps, total = found.get(theorem, (0, 0.0))
        found[theorem] = (steps + 1, total + value)
    return [
        (hashlib.sha256("\0".join(theorem).encode("utf-8", "surrogatepass")).hexdigest()[:16], steps, total)
        for theorem, (steps, total) in found.items()
    ]


def with_bounds(metrics: Mapping[str, Interval]) -> dict[str, float]:
    """Return means by name, and their intervals' bounds as "…_low" and "…_high"."""
    found: dict[str, float] = {}
    for name, interval in metrics.items():
        found |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return found


WINDOW = 5
"""Evaluations in a window: of WF5, five neighbouring ones; of the script's WF5 and WP5, the five before."""
_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class LifelongMetrics:
    """The measures of one chain of `n_tasks` tasks, in points of percent but for CFR, which is a ratio.

    `textbook` has FM, WF5 (lower is better), BWT, EBWT, final_average (A[N-1]) and learning_accuracy (mean R[j][j]).
    `leanagent` has WF5, FM (lower), CFR, EBWT, WP5 and IP (higher).
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
        ValueError: there is no task, a row has another length, or a value is no number in 0..100.
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
    # A row is one task's recall through time: first when it was learned, last at the end. The last task has no later
    # evaluation, so it can neither be forgotten nor gain.
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
