"""The job `train`: the checkpoints and measures of `pipeline.models.retriever.learning`, as events.

Metrics are in 0..1: "recall@1", "@5", "@10", "@32" and "@100", "mrr" and "ndcg@10", and those of the baselines as "bm25
recall@10", "mepo recall@10" (`pipeline.models.retriever.baselines`); each with the bounds of its bootstrap interval,
"…_low" and "…_high". A split without a premise has none. A job started again continues from the last saved step.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import TrainRetrieverSpec
from pipeline.models.datasets import TaskData
from pipeline.models.measures import Evaluation
from pipeline.models.model_files import Checkpoint
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.index import Retriever, load_retriever
from pipeline.models.retriever.learning import learn, measure
from pipeline.models.running import Reports
from pipeline.models.training_job import OnStep, StepReports, TrainingJob
from store.events.models import ModelKind


class RetrieverJob(TrainingJob[RetrieverConfig, Retriever]):
    model: ClassVar[ModelKind] = "retriever"

    def __init__(
        self, config: RetrieverConfig, spec: JobSpec[TrainRetrieverSpec], reporter: Reporter
    ) -> None:
        super().__init__(config, spec, reporter)
        self.indices = spec.parameters.indices

    def measure(self, checkpoint: str, task: TaskData, split: str, on_batch: OnStep) -> Evaluation:
        retriever = self.loaded(checkpoint, task)
        config = self.measured_with
        return measure(retriever, task, config, split=split, indices=self.indices, on_batch=on_batch)

    def learn(self, task: TaskData, on_step: OnStep) -> Checkpoint:
        return learn(
            task,
            self.chain,
            self.config,
            parent=self.order.parent,
            earlier=self.replayed,
            reports=Reports(on_step, tensorboard=self.tensorboard),
            on_held=StepReports(self.reporter, f"estimating what {task.name} must not change"),
        )

    def load(self, source: str) -> Retriever:
        return load_retriever(source, device=self.config.device, config=self.measured_with)

    def facts_of(self, model: Retriever) -> dict[str, Any]:
        return {"digest": model.weights}
