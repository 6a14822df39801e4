"""The training job of the progress model: one task on top of a checkpoint, and how it does on all tasks so far.

`python -m pipeline.train_progress --spec spec.json`. Parameters: those of `pipeline.learning.training`, where `config`
has fields of `pipeline.progress.config.ProgressConfig`. The steps of the training side are learned, those of the val
side choose the best epoch (both in one file), and those of the test side are in a file that only measuring reads.

Metrics are "mae" and "mse", in steps and the square of them, lower being better, and "within_1", the share predicted
within one step, 0..1; each with the bounds of its bootstrap interval, "…_low" and "…_high". A split without a step has
none. A job that is started again goes on from the last step that was saved.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from pipeline.jobs.protocol import JobSpec, Reporter, run_job
from pipeline.learning.datasets import TaskData
from pipeline.learning.errors import LearningError
from pipeline.learning.jobs import Measured, Measuring, MeasuringOneFile, Teller, read_parameters
from pipeline.learning.training import Order, TrainingJob
from pipeline.progress.config import ProgressConfig, for_a_job
from pipeline.progress.frozen import LEARN, TEST, frozen_progress
from pipeline.progress.learning import evaluate, learn
from pipeline.progress.model import ProgressModel
from pipeline.progress.rows import Row, read_dataset
from pipeline.retrieval.ranking import with_bounds
from pipeline.tactics.checkpoints import Chain, Link
from pipeline.tactics.errors import NothingToLearnError, RowsError
from store.events.models import ModelKind

_FILES = {"test": TEST, "val": LEARN}


class ProgressMeasuring(MeasuringOneFile[ProgressModel]):
    """Measures one progress model of a chain."""

    model: ClassVar[ModelKind] = "progress"
    empty: ClassVar[tuple[type[LearningError], ...]] = (NothingToLearnError,)
    missing: ClassVar[type[LearningError]] = RowsError

    def __init__(self, chain: Path, checkpoint: str, config: ProgressConfig, teller: Teller) -> None:
        super().__init__(chain, checkpoint, teller)
        self.config = config

    def file(self, task: TaskData, split: str) -> Path:
        return task.dataset / _FILES[split]

    def settings(self) -> str:
        return json.dumps([self.config.seed])

    def load(self) -> ProgressModel:
        return ProgressModel(self.chain / self.checkpoint, device=self.config.device)

    def measure(self, task: TaskData, split: str, on_batch: Callable[[int, int], object]) -> Measured:
        """Measure the checkpoint on one split."""
        rows = _rows_of(self.file(task, split), split)
        found = evaluate(self.loaded, rows, seed=self.config.seed, on_batch=on_batch)
        return Measured(with_bounds(found.metrics), found.dataset, found.n, found.seconds)


def _rows_of(path: Path, split: str) -> list[Row]:
    if not path.stat().st_size:
        raise NothingToLearnError(f"no step is on the {split} side")
    rows = [row for row in read_dataset(path).rows if split == "test" or row.side == split]
    if not rows:
        raise NothingToLearnError(f"no step is on the {split} side")
    return rows


class ProgressJob(TrainingJob[Link, ProgressConfig]):
    model: ClassVar[ModelKind] = "progress"

    def __init__(self, order: Order, config: ProgressConfig, spec: JobSpec, reporter: Reporter) -> None:
        self.models = Chain(order.chain)
        super().__init__(order, config, self.models, spec, reporter)

    def frozen(self) -> tuple[Path, int]:
        return frozen_progress(self.order, self.spec.job)

    def learn(self, task: TaskData, on_step: Callable[[int, int], object]) -> Link:
        return learn(task, self.models, self.config, parent=self.order.parent, on_step=on_step)

    def measuring(self, checkpoint: str, teller: Teller) -> Measuring:
        return ProgressMeasuring(self.order.chain, checkpoint, self.config, teller)


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Train a progress model on one task and measure it on all tasks so far."""
    order, config = read_parameters(
        "train_progress", lambda: (Order.read(spec.parameters), for_a_job(spec.parameters["config"]))
    )
    return ProgressJob(order, config, spec, reporter).run()


if __name__ == "__main__":
    sys.exit(run_job(work))
