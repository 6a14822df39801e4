"""How good a ranking is: recall at 1 and 10 and the reciprocal rank, with intervals over theorems.

The formulas are LeanDojo's (`RetrievalTrainer._evaluate_retrieval_metrics`), for a step with positives P and its
ranked premises R: recall@k = |P ∩ R[:k]| / |P|, so recall@1 stays below 1 where |P| > 1; the reciprocal rank is one
over the rank of the first hit, 0 without one; MRR is its mean. All in 0..1. Steps without a positive do not count.

Steps of one theorem resemble each other, so intervals are from resampling theorems, not steps (the cluster bootstrap:
Cameron, Gelbach and Miller 2008).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

METRICS = ("recall@1", "recall@10", "mrr")


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over steps, and the percentile interval in which it lies when theorems are drawn anew."""

    mean: float
    low: float
    high: float


def rate(positives: Collection[int], ranked: Sequence[int]) -> tuple[float, float, float]:
    """Return recall@1, recall@10 and the reciprocal rank of one step's ranking.

    Raises:
        ValueError: there is no positive.
    """
    if not positives:
        raise ValueError("a step without a positive cannot be rated")
    wanted = set(positives)
    hits = [index in wanted for index in ranked]
    first = next((rank for rank, hit in enumerate(hits, start=1) if hit), None)
    return (
        sum(hits[:1]) / len(wanted),
        sum(hits[:10]) / len(wanted),
        0.0 if first is None else 1 / first,
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
        rated: the numbers of each step: what `rate` says, or those of another measure.
        theorems: which theorem each step is of.
        seed: decides the resampling.
        names: what the numbers are called.
        draws: how often theorems are drawn anew.
        level: the interval's share of the draws.

    Raises:
        ValueError: there is no step.
    """
    if not rated:
        raise ValueError("no step to summarise")
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
        # How often each theorem is drawn says all that the mean needs.
        times = np.bincount(rng.integers(0, n, size=n), minlength=n)
        means[draw] = times @ sums / (times @ sizes)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    mean = values.mean(axis=0)
    return {name: Interval(float(mean[i]), float(low[i]), float(high[i])) for i, name in enumerate(names)}


def with_bounds(metrics: Mapping[str, Interval]) -> dict[str, float]:
    """Return means by name, and their intervals' bounds as "…_low" and "…_high"."""
    found: dict[str, float] = {}
    for name, interval in metrics.items():
        found |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return found
