"""Measures of models: ranking, and bootstrap intervals.

Ranking. The formulas are LeanDojo's (`RetrievalTrainer._evaluate_retrieval_metrics`), for a step with positives P and
its ranked premises R: recall@k = |P ∩ R[:k]| / |P|, so recall@1 stays below 1 where |P| > 1; the reciprocal rank is one
over the rank of the first hit, 0 without one; MRR is its mean. nDCG@10 (Järvelin and Kekäläinen 2002, with gains of 0
and 1) is the sum of 1 / log2(1 + rank) over the hits among the first ten, over the most that the sum can be. All in
0..1. Steps without a positive do not count.

Steps of one theorem resemble each other, so intervals are from resampling theorems, not steps (the cluster bootstrap:
Cameron, Gelbach and Miller 2008).

NumPy is loaded only where intervals are computed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

CUTS = (1, 5, 10, 32, 100)
_GAINS_TO = 10
_DRAWS = 1000


METRICS = (*(f"recall@{k}" for k in CUTS), "mrr", f"ndcg@{_GAINS_TO}")
"""The names of `rate`'s measures."""
RETRIEVED = max(CUTS)
"""The length of a ranking to rate."""
BASELINES: Mapping[str, str] = {"bm25": "BM25", "mepo": "MePo", "fused": "with BM25"}
"""Baselines beside a retriever, by the word before their metrics ("bm25 recall@10"), with their names for people:
selectors that learn nothing, and the retriever's ranking fused with BM25's.
"""


def baselines_of(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Group an evaluation's metrics: the model's under "", each baseline's under its word."""
    found: dict[str, dict[str, float]] = {"": {}}
    for name, value in metrics.items():
        word, _, metric = name.rpartition(" ")
        of = word if word in BASELINES else ""
        found.setdefault(of, {})[metric if of else name] = value
    return found


BOUNDS = ("_low", "_high")
"""The ends of the names of an interval's bounds, beside its measure's own name."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The measures of a model on `n` steps, each with the `BOUNDS` of its interval.

    `dataset` is the SHA-256 of the questions and the right answers; `scores` is `by_theorem` of promotion's metric.
    """

    metrics: Mapping[str, float]
    n: int
    dataset: str
    scores: Sequence[tuple[str, int, float]]


def rate(positives: Collection[int], ranked: Sequence[int]) -> tuple[float, ...]:
    """Return the measures of one step's ranking, in the order of `METRICS`.

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
        *(sum(hits[:k]) / len(wanted) for k in CUTS),
        0.0 if first is None else 1 / first,
        gained / ideal,
    )


def summarise(
    rated: Sequence[tuple[float, ...]],
    theorems: Sequence[Hashable],
    *,
    seed: int,
    names: Sequence[str],
) -> dict[str, float]:
    """Return the mean of each number over steps, by name, and the bounds of its interval of 95%, from new draws of
    theorems.

    Args:
        rated: the numbers of each step, from `rate` or another measure.
        theorems: each step's theorem.
        seed: decides the resampling.
        names: of the numbers.

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
    means = np.empty((_DRAWS, values.shape[1]))
    for draw in range(_DRAWS):
        # The mean only needs how often each theorem is drawn.
        times = np.bincount(rng.integers(0, n, size=n), minlength=n)
        means[draw] = times @ sums / (times @ sizes)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    mean = values.mean(axis=0)
    found: dict[str, float] = {}
    for i, name in enumerate(names):
        found |= {name: float(mean[i]), f"{name}_low": float(low[i]), f"{name}_high": float(high[i])}
    return found


def by_theorem(values: Sequence[float], theorems: Sequence[tuple[str, ...]]) -> list[tuple[str, int, float]]:
    """Map each theorem, by a hash of its name, to its number of steps, and the sum of their values.

    `theorems` has each step's, in terms that do not change when the test set grows: no line numbers.
    """
    found: dict[tuple[str, ...], tuple[int, float]] = {}
    for value, theorem in zip(values, theorems, strict=True):
        steps, total = found.get(theorem, (0, 0.0))
        found[theorem] = (steps + 1, total + value)
    return [
        (hashlib.sha256("\0".join(theorem).encode("utf-8", "surrogatepass")).hexdigest()[:16], steps, total)
        for theorem, (steps, total) in found.items()
    ]
