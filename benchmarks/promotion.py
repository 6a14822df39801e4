"""Measure how often the promotion rule refuses an equally good model, and one with a loss on one of ten tasks.

Both answer the same steps; a step's score is the share of its premises found, each with probability 0.6. For
the new model a tenth of the steps is drawn anew. Three cases of it are as good: all tasks alike; one task
with three times as many steps drawn anew; one with proofs of three steps that come out alike. The one with a
loss forgot a fixed share of the found premises on one of ten alike tasks.

The last figure of a line is the best possible rate of finding this loss, for any test on the task that
refuses an equally good model in 5 % of cases, a tenth of it on each task, and knows the rate of steps drawn
anew: the likelihood ratio's (Neyman and Pearson 1933), drawn 100,000 times.

Then with a history: of 1, 4 and 16 checkpoints once in use, the one in use and the new one, each has a tenth
of the steps drawn anew around one base, and none is better than another. And a chain with a loss of 1.9
points, below the tolerance, at each of 12 trainings on a repository: the recall left before the rule stops
it, with a constant test set and with one that grows by a tenth at each training.

    python -m benchmarks.promotion [--times 1000]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from store.promotion import RULES, Measured, decide
from store.view.rows import EvaluationRow

FOUND, ANEW, TASKS, LOST = 0.6, 0.1, 10, 0.04
EARLIER = (1, 4, 16)
BEGINS, FADING, TRAININGS = 0.7, 0.019, 12
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
    """Return whether the rule refuses the new one of two models, after a loss of recall on the first task.

    `anew` of this task's steps are drawn anew, in groups of `together` alike.
    """
    sides: list[list[EvaluationRow]] = [[], []]
    for task in range(TASKS):
        each, share = (together, anew) if task == 0 else (1, ANEW)
        before = rng.binomial(premises, FOUND, steps // each)
        again = rng.binomial(premises, FOUND, len(before))
        after = np.where(rng.random(len(before)) < share, again, before)
        if task == 0:
            after = rng.binomial(after, 1 - lost / FOUND)
        for side, result in zip(sides, (after, before), strict=True):
            side.append(_measurement("", f"{task}", (result / premises).tolist(), each=each))
    new, old = (Measured(side) for side in sides)
    decision = decide(new, old, rule=RULES["retriever"], tolerance=2, read_blob=str.encode)
    return decision.verdict == "refuse"


def refused_after(rng: np.random.Generator, steps: int, earlier: int) -> bool:
    """Return whether the rule refuses the newest of `earlier` + 2 models, none better than another."""
    bases = [rng.binomial(1, FOUND, steps) for _ in range(TASKS)]
    rows = [
        [
            _measurement(f"{number}", f"{task}", _redrawn(rng, base).tolist())
            for task, base in enumerate(bases)
        ]
        for number in range(earlier + 2)
    ]
    once = [row for one in rows[:-1] for row in one]
    decision = decide(
        Measured(rows[-1]),
        Measured(rows[-2], once),
        rule=RULES["retriever"],
        tolerance=2,
        read_blob=str.encode,
    )
    return decision.verdict == "refuse"


def _redrawn(rng: np.random.Generator, base: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.where(rng.random(len(base)) < ANEW, rng.binomial(1, FOUND, len(base)), base)


def fallen_to(rng: np.random.Generator, steps: int, *, grows: bool) -> float:
    """Return the true recall of the last accepted model, in a chain that forgets."""
    luck = rng.random(steps + TRAININGS * steps)
    result, size, true = luck < BEGINS, steps, BEGINS
    once = [_measurement("0", "own", result[:size].tolist(), dataset="0")]
    for training in range(1, TRAININGS + 1):
        before, recall = result, BEGINS - FADING * training
        luck = np.where(rng.random(len(luck)) < ANEW, rng.random(len(luck)), luck)
        result = luck < recall
        size += steps // 10 if grows else 0
        new, in_use = (
            _measurement(f"{number}", "own", scores[:size].tolist(), dataset=f"{size}")
            for number, scores in ((training, result), (training - 1, before))
        )
        decision = decide(
            Measured([new]),
            Measured([in_use], [*once, in_use]),
            rule=RULES["retriever"],
            tolerance=2,
            read_blob=str.encode,
        )
        if decision.verdict == "refuse":
            break
        true = recall
        once.append(new)
    return true


def _measurement(
    checkpoint: str, task: str, scores: Sequence[float], *, each: int = 1, dataset: str | None = None
) -> EvaluationRow:
    """Return a measurement of theorems with `each` steps, with its scores in place of their hash."""
    return EvaluationRow(
        evaluation=task,
        model="retriever",
        checkpoint=checkpoint,
        repository=task,
        split="test",
        dataset=task if dataset is None else dataset,
        metrics={"recall@10": sum(scores) / len(scores)},
        n=each * len(scores),
        seconds=0.0,
        job="",
        recorded_at="",
        scores=json.dumps([(f"theorem{n}", each, each * score) for n, score in enumerate(scores)]),
    )


def most(rng: np.random.Generator, steps: int, premises: int) -> float:
    """Return how often the most powerful test finds the loss on its task."""

    def binomial(n: int, p: float) -> list[float]:
        return [math.comb(n, k) * p**k * (1 - p) ** (n - k) if k <= n else 0.0 for k in range(premises + 1)]

    drawn = np.array(binomial(premises, FOUND))
    as_good = (1 - ANEW) * np.diag(drawn) + ANEW * np.outer(drawn, drawn)
    worse = as_good @ np.array([binomial(item, 1 - LOST / FOUND) for item in range(premises + 1)])
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
    print(f"% refused, as good, after {', '.join(map(str, EARLIER))} that were in use before:")
    for steps in (30, 200, 1000):
        rng = np.random.default_rng(steps)
        again = [
            100 * sum(refused_after(rng, steps, earlier) for _ in range(times)) / times for earlier in EARLIER
        ]
        print(f"{steps:5} steps: {', '.join(f'{one:.1f}' for one in again)}", flush=True)
    print(
        "recall in % that losses of 1.9 points come to, from 70: on a quiet repository, on a growing one; never stopped"
    )
    for steps in (200, 1000):
        rng = np.random.default_rng(steps)
        ends = [
            100 * sum(fallen_to(rng, steps, grows=grows) for _ in range(times // 10)) / (times // 10)
            for grows in (False, True)
        ]
        print(
            f"{steps:5} steps: {', '.join(f'{one:.1f}' for one in ends)}; {70 - 100 * FADING * TRAININGS:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
