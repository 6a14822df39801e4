"""What a training of a progress model replays of earlier tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from pipeline.models.config import ProgressConfig
from pipeline.models.datasets import TaskData
from pipeline.models.progress.job import lesson
from pipeline.models.progress.steps import LEARN, read_dataset, split

CONFIG = ProgressConfig(batch_size=2, replay_share=0.5)


def task(folder: Path, name: str, proofs: int, *, of: str = "") -> TaskData:
    """Write the dataset of a task with so many proofs to train on, of one step each, and one on the val side."""
    dataset = folder / f"{name}-{proofs}"
    dataset.mkdir(parents=True)
    rows = [
        {
            "goal": f"⊢ {of or name} {number}",
            "prefix": "",
            "tactic": "rfl",
            "steps_remaining": 0,
            "proof": f"{of or name}.{number}",
            "side": "train" if number else "val",
        }
        for number in range(proofs + 1)
    ]
    (dataset / LEARN).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return TaskData(name, dataset)


def test_a_first_task_is_what_its_file_has(tmp_path: Path) -> None:
    made = task(tmp_path, "A", 5)
    data, replayed = lesson(made, CONFIG)
    assert data == read_dataset(made.dataset / LEARN)
    assert replayed == {}


def test_every_earlier_repository_is_replayed_alike_on_the_training_side_alone(tmp_path: Path) -> None:
    earlier = [task(tmp_path, "Small", 40), task(tmp_path, "Large", 400)]
    new = task(tmp_path, "New", 40)
    data, replayed = lesson(new, CONFIG, earlier)
    assert replayed == {"Small": 20, "Large": 20}
    halves = split(data.rows, eval_ratio=0.2, seed=1)
    assert (len(halves.train), len(halves.held_out), halves.by_side) == (80, 1, True)
    assert halves.held_out[0].step.goal == "⊢ New 0", "the best epoch is chosen on the new task"
    assert data.digest != lesson(new, CONFIG)[0].digest
    assert lesson(new, CONFIG, earlier)[0] == data


def test_a_repository_that_grew_is_trained_on_its_new_proofs_and_replays_the_rest(tmp_path: Path) -> None:
    before, now = task(tmp_path, "A", 20), task(tmp_path, "A", 23)
    data, replayed = lesson(now, CONFIG, [before])
    assert replayed == {"A": 3}
    goals = [row.step.goal for row in data.rows if row.side == "train"]
    assert goals[:3] == ["⊢ A 21", "⊢ A 22", "⊢ A 23"]
    assert len(set(goals)) == 6
    whole, replayed = lesson(now, replace(CONFIG, only_new=False), [before])
    assert (len(whole.rows), replayed) == (24, {})


def test_what_chooses_the_best_epoch_is_not_replayed(tmp_path: Path) -> None:
    earlier = task(tmp_path, "Other", 30, of="A")
    lines = [json.loads(line) for line in (earlier.dataset / LEARN).read_text().splitlines()]
    (earlier.dataset / LEARN).write_text(
        "".join(f"{json.dumps({**row, 'side': 'train', 'tactic': 'simp'})}\n" for row in lines)
    )
    data, replayed = lesson(task(tmp_path, "A", 60), CONFIG, [earlier])
    assert replayed == {"Other": 30}, "of its 31 proofs one is of the statement that is held out"
    assert split(data.rows, eval_ratio=0.2, seed=1).by_side
