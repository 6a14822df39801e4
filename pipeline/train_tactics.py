"""The training job of the tactic model: one task on top of a checkpoint, and how the new one does on all tasks so far.

`python -m pipeline.train_tactics --spec spec.json`. Parameters: those of `pipeline.learning.training`, where `config`
has fields of `pipeline.tactics.config.TacticsConfig`. The task's dataset is in LeanDojo's form; its training split is
learned from, and no step of the others.

Metrics are in 0..1: "tactic@1", "tactic@8", "token_accuracy" (`pipeline.tactics.evaluation`), each with the bounds of
its bootstrap interval, "…_low" and "…_high"; a split without a tactic step has none. A job that is started again goes
on from the last step that was saved.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch

from pipeline.jobs.protocol import JobSpec, Reporter, run_job
from pipeline.learning.datasets import TaskData
from pipeline.learning.errors import LearningError
from pipeline.learning.jobs import Measured, Measuring, MeasuringOneFile, Teller, read_parameters
from pipeline.learning.training import Order, TrainingJob
from pipeline.retrieval.frozen import frozen
from pipeline.retrieval.ranking import with_bounds
from pipeline.tactics.checkpoints import Chain, Link
from pipeline.tactics.config import TacticsConfig, for_a_job
from pipeline.tactics.errors import NothingToLearnError, RowsError
from pipeline.tactics.evaluation import CANDIDATES, evaluate
from pipeline.tactics.learning import learn
from pipeline.tactics.models import TacticModel, load_model
from pipeline.tactics.rows import read_rows
from pipeline.tactics.settings import computes_in_bfloat16, device_of
from store.events.models import ModelKind


class TacticsMeasuring(MeasuringOneFile[TacticModel]):
    """Measures one tactic model of a chain."""

    model: ClassVar[ModelKind] = "tactics"
    empty: ClassVar[tuple[type[LearningError], ...]] = (NothingToLearnError,)
    missing: ClassVar[type[LearningError]] = RowsError

    def __init__(self, chain: Path, checkpoint: str, config: TacticsConfig, teller: Teller) -> None:
        super().__init__(chain, checkpoint, teller)
        self.config = config

    def file(self, task: TaskData, split: str) -> Path:
        return task.dataset / "random" / f"{split}.json"

    def settings(self) -> str:
        return json.dumps([CANDIDATES, self.config.eval_steps, self.config.seed])

    def load(self) -> TacticModel:
        device = device_of(self.config.device)
        # As the provers have it.
        dtype = torch.bfloat16 if computes_in_bfloat16(device) else torch.float32
        return load_model(self.chain / self.checkpoint, device=device, dtype=dtype)

    def measure(self, task: TaskData, split: str, on_batch: Callable[[int, int], object]) -> Measured:
        """Measure the checkpoint on one split."""
        rows = read_rows(self.file(task, split))
        found = evaluate(
            self.loaded, rows, most=self.config.eval_steps, seed=self.config.seed, on_batch=on_batch
        )
        return Measured(with_bounds(found.metrics), found.dataset, found.n, found.seconds)


class TacticsJob(TrainingJob[Link, TacticsConfig]):
    model: ClassVar[ModelKind] = "tactics"

    def __init__(self, order: Order, config: TacticsConfig, spec: JobSpec, reporter: Reporter) -> None:
        self.models = Chain(order.chain)
        super().__init__(order, config, self.models, spec, reporter)

    def frozen(self) -> tuple[Path, int]:
        return frozen(self.order, self.spec.job)

    def learn(self, task: TaskData, on_step: Callable[[int, int], object]) -> Link:
        return learn(task, self.models, self.config, parent=self.order.parent, on_step=on_step)

    def measuring(self, checkpoint: str, teller: Teller) -> Measuring:
        return TacticsMeasuring(self.order.chain, checkpoint, self.config, teller)


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Train a tactic model on one task and measure it on all tasks so far."""
    order, config = read_parameters(
        "train_tactics", lambda: (Order.read(spec.parameters), for_a_job(spec.parameters["config"]))
    )
    return TacticsJob(order, config, spec, reporter).run()


if __name__ == "__main__":
    sys.exit(run_job(work))
