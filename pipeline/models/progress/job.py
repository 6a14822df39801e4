"""Train a progress model on a task on top of a checkpoint, and measure its errors; the job `train_progress`.

The configuration is a `ProgressConfig`. The model learns the steps of the training side, and those of the val side
choose the best epoch; without any, proofs of the training side do. Proofs of earlier tasks' training sides are replayed
beside the new ones (`pipeline.models.replay`).

Metrics are "mae" and "mse", in steps and the square of them, lower being better, and "within_1", the share predicted
within one step, 0..1; each with the bounds of its bootstrap interval, "…_low" and "…_high". A split without a step has
none. A job started again continues from the last saved step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from pipeline.lean.tactic_text import Step
from pipeline.models import replay
from pipeline.models.config import ProgressConfig
from pipeline.models.datasets import TaskData
from pipeline.models.errors import NothingToLearnError
from pipeline.models.measures import Evaluation, by_theorem, summarise
from pipeline.models.model_files import Checkpoint
from pipeline.models.progress.model import ProgressModel
from pipeline.models.progress.steps import Dataset, Row, digest_of, held_back, read_split
from pipeline.models.progress.training import ProgressTraining
from pipeline.models.replay import Selection
from pipeline.models.running import Reports, make_checkpoint
from pipeline.models.training_job import OnStep, TrainingJob
from store.events.models import ModelKind

METRICS = ("mae", "mse", "within_1")
"""The mean absolute error and the mean squared error, in steps; the share predicted within one step, 0..1."""
_AT_ONCE = 1024
_HELD_OUT = 0.2
"""The share of the proofs for choosing the best epoch, if none is on the val side."""


def select_rows(
    task: TaskData, config: ProgressConfig, earlier: Sequence[TaskData] = ()
) -> tuple[Selection[Row], tuple[Row, ...]]:
    """Return the rows to learn for a task, and those for choosing the best epoch.

    Args:
        task: with a dataset in LeanDojo's form.
        config: has the share of replayed rows.
        earlier: the tasks to replay (`pipeline.models.replay.select`).

    Raises:
        DatasetError: a dataset cannot be used. NothingToLearnError: it has no step on the training side.
    """

    def read(one: TaskData, side: str) -> dict[Step, Row]:
        return read_split(one.dataset / config.split / f"{side}.json")

    train, held_out = read(task, "train"), read(task, "val")
    if not train:
        raise NothingToLearnError(f"{task.name} has no step to learn from on the training side")
    if not held_out:
        parts = held_back(tuple(train.values()), eval_ratio=_HELD_OUT, seed=config.seed)
        train, held_out = ({row.step: row for row in part} for part in (parts.train, parts.held_out))
    rows_of = {one.name: partial(read, one, "train") for one in earlier}
    known = rows_of[task.name]() if task.name in rows_of else None
    selection = replay.select(task.name, train, known, rows_of, config, but=held_out)
    return selection, tuple(held_out.values())


class ProgressJob(TrainingJob[ProgressConfig, ProgressModel]):
    model: ClassVar[ModelKind] = "progress"

    def measure(self, checkpoint: str, task: TaskData, split: str, on_batch: OnStep) -> Evaluation:
        config = self.measured_with
        rows = tuple(read_split(task.dataset / config.split / f"{split}.json").values())
        if not rows:
            raise NothingToLearnError(f"no step is on the {split} side")
        model = self.loaded(checkpoint, task)
        rated: list[tuple[float, ...]] = []
        for first in range(0, len(rows), _AT_ONCE):
            part = rows[first : first + _AT_ONCE]
            for row, predicted in zip(part, model.predict([row.step for row in part]), strict=True):
                off = abs(predicted - row.steps_remaining)
                rated.append((off, off * off, float(off <= 1)))
            on_batch(first + len(part), len(rows))
        proofs = [row.proof for row in rows]
        return Evaluation(
            metrics=summarise(rated, proofs, seed=config.seed, names=METRICS),
            n=len(rows),
            dataset=digest_of(rows),
            scores=by_theorem([off for off, _, _ in rated], proofs),
        )

    def learn(self, task: TaskData, on_step: OnStep) -> Checkpoint:
        config = self.config
        selection, held_out = select_rows(task, config, self.replayed)
        data = Dataset(selection.rows, held_out)
        step = self.chain.step(task, config, parent=self.order.parent, data=data.digest)
        reports = Reports(on_step, tensorboard=self.tensorboard)
        return make_checkpoint(
            self.chain,
            step,
            lambda: ProgressTraining(config, step.start, reports),
            lambda: (data, {"rows": selection.about()}),
        )

    def load(self, source: str) -> ProgressModel:
        return ProgressModel(source, device=self.config.device)
