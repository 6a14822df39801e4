"""How often the promotion rule refuses a model as good as the one in use, and one that lost on one of ten tasks.

Both answer the same steps; a step's score is the share of its premises that are found, each with probability 0.6. Of
the new model a tenth of the steps comes out anew. Three cases of it are as good: all tasks alike; one of whose steps
three times as many come out anew; one whose proofs are of three steps that come out alike. The one that lost forgot a
fixed share of what was found on one of ten alike tasks.

The last figure is the most that any test can find on that task that refuses an equally good model in 5 % of cases, a
tenth of it on each task, though it knew how often a step comes out anew: the likelihood ratio's (Neyman and Pearson
1933), drawn 100,000 times.

    python -m benchmarks.promotion [--times 1000]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence

import numpy as np

from store.promotion import RULES, Measured, decide
from store.view.rows import EvaluationRow

FOUND, ANEW, TASKS, LOST = 0.6, 0.1, 10, 0.04
SHAPES = ((30, 1), (200, 1), (200, 3), (450, 1), (600, 1), (1000, 1))
"""Steps of a task, premises of a step."""


def refused(
    rng: np.random.Generator,
    steps: int,
    premises: int,
    *,
    lost: float = 0.0,
    anew: float = ANEW,
    together: int = 1,
) -> bool:
    """Return whether the rule refuses the new one of two models, which lost `lost` of recall on the first task.

    Of that task `anew` of the steps come out anew, and so many `together` alike.
    """
    sides: list[list[EvaluationRow]] = [[], []]
    for task in range(TASKS):
        each, share = (together, anew) if task == 0 else (1, ANEW)
        before = rng.binomial(premises, FOUND, steps // each)
        again = rng.binomial(premises, FOUND, len(before))
        after = np.where(rng.random(len(before)) < share, again, before)
        if task == 0:
            after = rng.binomial(after, 1 - lost / FOUND)
        for side, found in zip(sides, (after, before), strict=True):
            side.append(_measurement(f"{len(side)}", each, (found / premises).tolist()))
    new, old = (Measured(side) for side in sides)
    decision = decide(new, old, rule=RULES["retriever"], tolerance=2, read_blob=str.encode)
    return decision.verdict == "refuse"


def _measurement(task: str, each: int, scores: Sequence[float]) -> EvaluationRow:
    """A measurement of theorems with `each` steps, which carries its scores in place of their hash."""
    return EvaluationRow(
        evaluation=task,
        model="retriever",
        checkpoint="",
        repository=task,
        split="test",
        dataset=task,
        metrics={"recall@10": sum(scores) / len(scores)},
        n=each * len(scores),
        seconds=0.0,
        job="",
        recorded_at="",
        scores=json.dumps([(each, each * score) for score in scores]),
    )


def most(rng: np.random.Generator, steps: int, premises: int) -> float:
    """Return how often the most powerful test finds the loss on its task."""

    def binomial(n: int, p: float) -> list[float]:
        return [math.comb(n, k) * p**k * (1 - p) ** (n - k) if k <= n else 0.0 for k in range(premises + 1)]

    drawn = np.array(binomial(premises, FOUND))
    as_good = (1 - ANEW) * np.diag(drawn) + ANEW * np.outer(drawn, drawn)
    worse = as_good @ np.array([binomial(found, 1 - LOST / FOUND) for found in range(premises + 1)])
    ratio = np.log(worse / as_good).ravel()
    chance, true = (rng.multinomial(steps, each.ravel(), 100_000) @ ratio for each in (as_good, worse))
    return float((true > np.quantile(chance, 1 - 0.05 / TASKS)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1000)
    times = parser.parse_args().times
    print("% refused:              as good: alike, one anew three times, one with long proofs; lost; at most")
    for steps, premises in SHAPES:
        rng = np.random.default_rng([steps, premises])
        cases: tuple[dict[str, float], ...] = ({}, {"anew": 3 * ANEW}, {"together": 3}, {"lost": LOST})
        shares = [
            100 * sum(refused(rng, steps, premises, **case) for _ in range(times)) / times  # type: ignore[arg-type]
            for case in cases
        ]
        bound = 100 * most(rng, steps, premises)
        alike, anew, long, lost = shares
        print(
            f"{steps:5} steps of {premises} premises: {alike:.1f}, {anew:.1f}, {long:.1f}; {lost:.0f}; {bound:.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
