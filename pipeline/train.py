"""The training job of the retriever: one task on top of a checkpoint, and how the new one does on every task so far.

`python -m pipeline.train --spec spec.json`. Parameters: those of `pipeline.learning.training`, and

    config      fields of `pipeline.retrieval.config.TrainingConfig`
    indices     the folder of embedding indices

Metrics are in 0..1: "recall@1", "recall@10", "mrr", each with the bounds of its bootstrap interval, "…_low" and
"…_high"; a split without a step that uses a premise has none. A job that is started again goes on from the last step
that was saved.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipeline.learning.datasets import TaskData
from pipeline.learning.jobs import Measuring, read_parameters
from pipeline.learning.training import Order, TrainingJob
from pipeline.protocol import JobSpec, Reporter, run_job
from pipeline.retrieval.chain import Chain, Checkpoint
from pipeline.retrieval.config import TrainingConfig, for_a_job
from pipeline.retrieval.encoder import WEIGHTS
from pipeline.retrieval.frozen import frozen
from pipeline.retrieval.jobs import MODEL, RetrieverMeasuring
from pipeline.retrieval.lifelong import learn
from store.model_events import CheckpointSaved, ModelKind


@dataclass(frozen=True, slots=True)
class _Parameters:
    order: Order
    config: TrainingConfig
    indices: Path

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> _Parameters:
        return cls(
            order=Order.read(parameters),
            config=for_a_job(parameters["config"]),
            indices=Path(parameters["indices"]),
        )


class RetrieverJob(TrainingJob[Checkpoint]):
    model: ClassVar[ModelKind] = MODEL

    def __init__(self, given: _Parameters, spec: JobSpec, reporter: Reporter) -> None:
        self.retrievers = Chain(given.order.chain)
        super().__init__(given.order, self.retrievers, spec, reporter)
        self.config = given.config
        self.indices = given.indices

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

    def learn(self, task: TaskData, on_step: Callable[[int, int], object]) -> Checkpoint:
        return learn(task, self.retrievers, self.config, parent=self.order.parent, on_step=on_step)

    def saved(self, made: Checkpoint, *, simulated: bool) -> CheckpointSaved:
        return CheckpointSaved(
            model=MODEL,
            checkpoint=made.checkpoint,
            parent=made.parent,
            base=made.base,
            data_seq=made.data_seq,
            config=made.config,
            seed=made.seed,
            steps=made.steps,
            weights=made.weights,
            size_bytes=(self.chain.path(made.checkpoint) / WEIGHTS).stat().st_size,
            fisher=made.fisher,
            versions=made.versions,
            device=made.device,
            seconds=made.seconds,
            job=self.spec.job,
            simulated=simulated,
        )

    def measuring(self, checkpoint: str, *, simulated: bool) -> Measuring:
        return RetrieverMeasuring(
            self.retrievers,
            checkpoint,
            self.config,
            self.indices,
            job=self.spec.job,
            reporter=self.reporter,
            simulated=simulated,
        )

    def warnings(self, made: Checkpoint) -> Sequence[str]:
        return made.warnings


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Train a retriever on one task and measure it on all tasks so far."""
    given = read_parameters("train", lambda: _Parameters.read(spec.parameters))
    return RetrieverJob(given, spec, reporter).run()


if __name__ == "__main__":
    sys.exit(run_job(work))
