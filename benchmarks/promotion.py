"""How often the promotion rule refuses a model as good as the one in use, and one that lost on one of ten tasks.

Both answer the same steps; a step's score is the share of its premises that are found, each with probability 0.6. Of
the new model a tenth of the steps comes out anew. The one that lost forgot a fixed share of what was found on one task.

    python -m benchmarks.promotion [--times 500]
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence

from store.promotion import RULES, Measured, decide
from store.view.rows import EvaluationRow

FOUND, ANEW, TASKS, LOST = 0.6, 0.1, 10, 0.04
SHAPES = ((30, 1), (200, 1), (200, 3), (450, 1), (1000, 1))
"""Steps of a task, premises of a step."""


def refused(rng: random.Random, steps: int, premises: int, lost: float) -> bool:
    """Return whether the rule refuses the new one of two models, which lost `lost` of recall on the first task."""

    def drawn() -> float:
        return sum(rng.random() < FOUND for _ in range(premises)) / premises

    def kept(score: float) -> float:
        return sum(rng.random() >= lost / FOUND for _ in range(round(score * premises))) / premises

    before = [[drawn() for _ in range(steps)] for _ in range(TASKS)]
    after = [[drawn() if rng.random() < ANEW else score for score in scores] for scores in before]
    after[0] = [kept(score) for score in after[0]]
    new, old = (
        Measured(False, [_measurement(name, number, scores) for number, scores in enumerate(side)])
        for name, side in (("new", after), ("old", before))
    )
    decision = decide(new, old, rule=RULES["retriever"], tolerance=2, read_blob=str.encode)
    return decision.verdict == "refuse"


def _measurement(checkpoint: str, task: int, scores: Sequence[float]) -> EvaluationRow:
    """A measurement that carries its scores in place of their hash."""
    return EvaluationRow(
        evaluation=f"{checkpoint} {task}",
        model="retriever",
        checkpoint=checkpoint,
        repository=str(task),
        split="test",
        dataset=str(task),
        metrics={"recall@10": sum(scores) / len(scores)},
        n=len(scores),
        seconds=0.0,
        job="",
        simulated=False,
        recorded_at="",
        scores=json.dumps([(1, score) for score in scores]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=500)
    times = parser.parse_args().times
    for steps, premises in SHAPES:
        rng = random.Random(steps * premises)
        as_good, worse = (
            sum(refused(rng, steps, premises, lost) for _ in range(times)) / times for lost in (0.0, LOST)
        )
        print(
            f"{steps:5} steps of {premises} premises: {100 * as_good:.1f} % of those as good are refused, "
            f"{100 * worse:.0f} % of those that lost {100 * LOST:g} points on one of {TASKS} tasks",
            flush=True,
        )


if __name__ == "__main__":
    main()
