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
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from pipeline.jobs.protocol import JobSpec, Reporter, run_job
from pipeline.learning.datasets import TaskData
from pipeline.learning.jobs import Measuring, Teller, read_parameters
from pipeline.learning.training import Order, TrainingJob
from pipeline.retrieval.chain import Chain, Checkpoint
from pipeline.retrieval.config import TrainingConfig, for_a_job
from pipeline.retrieval.frozen import frozen
from pipeline.retrieval.jobs import MODEL, RetrieverMeasuring
from pipeline.retrieval.lifelong import learn
from store.events.models import ModelKind


class RetrieverJob(TrainingJob[Checkpoint, TrainingConfig]):
    model: ClassVar[ModelKind] = MODEL

    def __init__(
        self, order: Order, config: TrainingConfig, indices: Path, spec: JobSpec, reporter: Reporter
    ) -> None:
        self.retrievers = Chain(order.chain)
        super().__init__(order, config, self.retrievers, spec, reporter)
        self.indices = indices

    def frozen(self) -> tuple[Path, int]:
        return frozen(self.order, self.spec.job)

    def learn(self, task: TaskData, on_step: Callable[[int, int], object]) -> Checkpoint:
        return learn(task, self.retrievers, self.config, parent=self.order.parent, on_step=on_step)

    def measuring(self, checkpoint: str, teller: Teller) -> Measuring:
        return RetrieverMeasuring(self.retrievers, checkpoint, self.config, self.indices, teller)


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Train a retriever on one task and measure it on all tasks so far."""
    given = spec.parameters
    order, config, indices = read_parameters(
        "train", lambda: (Order.read(given), for_a_job(given["config"]), Path(given["indices"]))
    )
    return RetrieverJob(order, config, indices, spec, reporter).run()


if __name__ == "__main__":
    sys.exit(run_job(work))
