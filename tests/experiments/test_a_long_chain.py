"""experiments/long: sixteen tasks learned one after another by the product's own training."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from experiments import file
from experiments.file import Learning, Letters
from experiments.lab import Lab
from experiments.learning import final, halves, matrices
from pipeline.models.retriever.config import Loss

LONG = Path(file.__file__).with_name("long")


def experiment(loss: str, *arms: str, tasks: int = 16, seed: int = 1) -> Learning:
    _, result = file.read(LONG / f"chain-{loss}.yaml")
    assert isinstance(result, Learning)
    assert isinstance(result.tasks, Letters)
    return result.model_copy(
        update={
            "arms": {name: result.arms[name] for name in arms},
            "seeds": (seed,),
            "tasks": result.tasks.model_copy(update={"tasks": tasks}),
        }
    )


# 3 to 5 s of processor time a task.
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_plain_training_learns_each_task_and_forgets_the_one_before(tmp_path: Path) -> None:
    given = experiment("contrastive", "none", tasks=2)
    with Lab(tmp_path, "chain", "", print) as lab:
        ((rows,),) = matrices(given, lab).values()
    assert min(row[0] for row in rows) >= 90
    assert rows[0][-1] <= 30


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("loss", get_args(Loss))
def test_sixteen_tasks_do_not_stiffen_two_ways_together_which_keep_more_than_each_alone(
    tmp_path: Path, loss: Loss, seed: int
) -> None:
    both = "replay and averaging"
    given = experiment(loss, both, "none", "replay", "averaging", seed=seed)
    with Lab(tmp_path, "chain", "", print) as lab:
        result = {name: rows for name, (rows,) in matrices(given, lab).items()}
    first, second = halves(result[both])
    assert second >= first - 5
    assert final(result[both]) >= 4 * final(result["none"])
    for way in result.keys() - {both}:
        assert final(result[both]) > final(result[way]), way
