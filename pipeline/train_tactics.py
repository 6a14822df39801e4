"""The training job of the tactic model: one task on top of a checkpoint, and how the new one does on all tasks so far.

`python -m pipeline.train_tactics --spec spec.json`. Parameters: those of `pipeline.learning.training`, where `config`
has fields of `pipeline.tactics.config.TacticsConfig`. The task's dataset is in LeanDojo's form; its training split is
learned from, and no step of the others.

Metrics are in 0..1: "tactic@1", "tactic@8", "token_accuracy" (`pipeline.tactics.evaluation`), each with the bounds of
its bootstrap interval, "…_low" and "…_high"; a split without a tactic step has none. A job that is started again trains
anew where its checkpoint is not there yet.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch

from pipeline.learning.datasets import TaskData
from pipeline.learning.errors import LearningError
from pipeline.learning.jobs import Measured, Measuring, read_parameters
from pipeline.learning.training import Order
from pipeline.protocol import JobSpec, Reporter, run_job
from pipeline.retrieval.frozen import frozen
from pipeline.retrieval.ranking import with_bounds
from pipeline.tactics.checkpoints import Chain, Link
from pipeline.tactics.config import TacticsConfig, for_a_job
from pipeline.tactics.errors import NothingToLearnError, RowsError
from pipeline.tactics.evaluation import CANDIDATES, evaluate
from pipeline.tactics.jobs import LinkJob
from pipeline.tactics.learning import learn
from pipeline.tactics.models import TacticModel, load_model
from pipeline.tactics.rows import read_rows
from pipeline.tactics.settings import computes_in_bfloat16, device_of
from store.model_events import ModelKind

MODEL: ModelKind = "tactics"


class TacticsMeasuring(Measuring):
    """Measures one tactic model of a chain."""

    model: ClassVar[ModelKind] = MODEL
    empty: ClassVar[tuple[type[LearningError], ...]] = (NothingToLearnError,)

    def __init__(
        self,
        chain: Chain,
        checkpoint: str,
        config: TacticsConfig,
        *,
        job: str,
        reporter: Reporter,
        simulated: bool,
    ) -> None:
        super().__init__(chain.folder, checkpoint, job=job, reporter=reporter, simulated=simulated)
        self.config = config
        self._loaded: TacticModel | None = None

    def files(self, task: TaskData, split: str) -> tuple[Path, ...]:
        """Return the split's file.

        Raises:
            RowsError: it is not there.
        """
        path = task.dataset / "random" / f"{split}.json"
        if not path.is_file():
            raise RowsError(f"{task.name}: {path} is not there")
        return (path,)

    def settings(self) -> str:
        return json.dumps([CANDIDATES, self.config.eval_steps, self.config.seed])

    def measure(self, task: TaskData, split: str, on_batch: Callable[[int, int], object]) -> Measured:
        """Measure the checkpoint on one split."""
        (path,) = self.files(task, split)
        rows = read_rows(path)
        if self._loaded is None:
            device = device_of(self.config.device)
            # As the provers have it.
            dtype = torch.bfloat16 if computes_in_bfloat16(device) else torch.float32
            self._loaded = load_model(self.chain / self.checkpoint, device=device, dtype=dtype)
        found = evaluate(
            self._loaded, rows, most=self.config.eval_steps, seed=self.config.seed, on_batch=on_batch
        )
        return Measured(with_bounds(found.metrics), found.dataset, found.n, found.seconds)


class TacticsJob(LinkJob):
    model: ClassVar[ModelKind] = MODEL

    def __init__(self, order: Order, config: TacticsConfig, spec: JobSpec, reporter: Reporter) -> None:
        self.models = Chain(order.chain)
        super().__init__(order, self.models, spec, reporter)
        self.config = config

    def export(self) -> TaskData:
        dataset, position = frozen(
            self.order.chain,
            self.spec.job,
            events_db=self.order.events_db,
            database_db=self.order.database_db,
            repository=self.order.repository,
            simulated=self.order.simulated,
        )
        return TaskData(self.order.repository, dataset, position)

    def learn(self, task: TaskData, on_step: Callable[[int, int], object]) -> Link:
        return learn(task, self.models, self.config, parent=self.order.parent, on_step=on_step)

    def measuring(self, checkpoint: str, *, simulated: bool) -> Measuring:
        return TacticsMeasuring(
            self.models,
            checkpoint,
            self.config,
            job=self.spec.job,
            reporter=self.reporter,
            simulated=simulated,
        )


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Train a tactic model on one task and measure it on all tasks so far."""
    order, config = read_parameters(
        "train_tactics", lambda: (Order.read(spec.parameters), for_a_job(spec.parameters["config"]))
    )
    return TacticsJob(order, config, spec, reporter).run()


if __name__ == "__main__":
    sys.exit(run_job(work))
