"""The rows of a progress model's training: its task's steps, held-out steps, and replayed steps of earlier tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.models.config import ProgressConfig
from pipeline.models.datasets import TaskData
from pipeline.models.errors import NothingToLearnError
from pipeline.models.progress.job import select_rows
from pipeline.models.progress.steps import Row
from tests.support.retrieval import step, theorem

CONFIG = ProgressConfig(batch_size=2, replay_share=0.5)


def task(folder: Path, name: str, proofs: int, *, val: int = 1, of: str = "") -> TaskData:
    """Write the dataset of a task with so many proofs to train on, of one step each, and others on the val side."""
    dataset = folder / f"{name}-{proofs}"
    (dataset / "random").mkdir(parents=True)
    for side, numbers in (("train", range(val, val + proofs)), ("val", range(val))):
        theorems = [
            theorem(f"{name}.{number}", number + 1, step("rfl", f"⊢ {of or name} {number}"))
            for number in numbers
        ]
        (dataset / "random" / f"{side}.json").write_text(json.dumps(theorems))
    return TaskData(name, dataset)


def goals(rows: Sequence[Row]) -> list[str]:
    return [row.step.goal for row in rows]


def test_a_first_task_is_what_its_dataset_has(tmp_path: Path) -> None:
    selection, held_out = select_rows(task(tmp_path, "A", 5), CONFIG)
    assert goals(selection.rows) == [f"⊢ A {number}" for number in range(1, 6)]
    assert (goals(held_out), selection.replayed) == (["⊢ A 0"], ())


def test_without_a_proof_on_the_val_side_some_of_the_others_choose_the_best_epoch(tmp_path: Path) -> None:
    selection, held_out = select_rows(task(tmp_path, "A", 10, val=0), CONFIG)
    assert (len(selection.rows), len(held_out)) == (8, 2)


def test_a_task_without_a_proof_to_train_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingToLearnError, match="A has no step to learn from"):
        select_rows(task(tmp_path, "A", 0), CONFIG)


def test_a_repository_that_grew_is_trained_on_its_new_proofs_and_replays_the_rest(tmp_path: Path) -> None:
    before, now = task(tmp_path, "A", 20), task(tmp_path, "A", 23)
    selection, held_out = select_rows(now, CONFIG, [before])
    assert selection.counts() == {"A": 3}
    assert goals(selection.own) == ["⊢ A 21", "⊢ A 22", "⊢ A 23"]
    assert len(set(goals(selection.rows))) == 6
    assert goals(held_out) == ["⊢ A 0"], "the best epoch is chosen on the new task"


def test_a_step_that_chooses_the_best_epoch_is_not_replayed(tmp_path: Path) -> None:
    earlier = task(tmp_path, "Other", 30, val=0, of="A")
    selection, held_out = select_rows(task(tmp_path, "A", 60, val=3), CONFIG, [earlier])
    assert selection.replayed == (), "all of them are learned as the task's own, or held out"
    assert not {row.step for row in selection.rows} & {row.step for row in held_out}
