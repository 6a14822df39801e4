"""The jobs `train` and `evaluate`: the checkpoints and measures of `pipeline.models.retriever.learning`, as events.

Metrics are in 0..1: "recall@1", "@5", "@10", "@32" and "@100", "mrr" and "ndcg@10", and those of the baselines as "bm25
recall@10", "mepo recall@10" (`pipeline.models.retriever.baselines`); each with the bounds of its bootstrap interval,
"…_low" and "…_high". A split without a premise has none. A job started again continues from the last saved step.

`evaluate` measures one checkpoint on one split of one dataset. It emits one `evaluation_finished`; an earlier
measurement is repeated from its file. A split without a premise is a failure, `bad_dataset`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import EvaluateSpec, TrainRetrieverSpec
from pipeline.models.adapters import model_for
from pipeline.models.chain import Chain, Checkpoint
from pipeline.models.datasets import TaskData
from pipeline.models.errors import DatasetError
from pipeline.models.libraries import tensors_digest
from pipeline.models.measures import Evaluation
from pipeline.models.retriever.config import RetrieverConfig, for_a_job
from pipeline.models.retriever.encoder import load_encoder
from pipeline.models.retriever.index import load_retriever
from pipeline.models.retriever.learning import learn, measure
from pipeline.models.retriever.training import NO_WATCHERS, tensorboard
from pipeline.models.training_job import (
    Measuring,
    OnStep,
    StepReports,
    TrainingJob,
    configured,
    failures,
)
from store.events.models import ModelKind

_FOLLOWS_FROM = ("max_seq_len", "data_max_seq_len", "num_retrieved", "seed", "split", "baselines")
"""Fields of a configuration that decide a measurement."""


class RetrieverMeasuring(Measuring[RetrieverConfig]):
    """Measures retrievers of a chain; `indices` is the folder of embedding indices."""

    model: ClassVar[ModelKind] = "retriever"
    indices: Path

    def paths(self, task: TaskData, split: str) -> tuple[Path, ...]:
        return (task.dataset / "corpus.jsonl", task.dataset / self.measured_with.split / f"{split}.json")

    def settings(self) -> list[Any]:
        return [getattr(self.measured_with, name) for name in _FOLLOWS_FROM]

    def measure(self, checkpoint: str, task: TaskData, split: str, on_batch: OnStep) -> Evaluation:
        config = self.measured_with
        folder = model_for(self.chain.path(checkpoint), task.name)
        return measure(
            folder,
            task,
            config,
            split=split,
            indices=self.indices,
            retriever=self.loaded(
                folder, lambda source: load_retriever(source, device=config.device, config=config)
            ),
            on_batch=on_batch,
        )


class RetrieverJob(RetrieverMeasuring, TrainingJob[RetrieverConfig]):
    def __init__(
        self, config: RetrieverConfig, spec: JobSpec[TrainRetrieverSpec], reporter: Reporter
    ) -> None:
        super().__init__(config, spec, reporter)
        self.indices = spec.parameters.indices

    def learn(self, task: TaskData, on_step: OnStep) -> Checkpoint:
        return learn(
            task,
            self.chain,
            self.config,
            parent=self.order.parent,
            earlier=self.replayed,
            indices=self.indices,
            on_step=on_step,
            on_held=StepReports(self.reporter, f"estimating what {task.name} must not change"),
            watchers=NO_WATCHERS if self.tensorboard is None else tensorboard(self.tensorboard),
        )

    def facts_of(self, folder: Path) -> dict[str, Any]:
        return {"digest": tensors_digest(load_encoder(folder).state_dict())}


def train(spec: JobSpec[TrainRetrieverSpec], reporter: Reporter) -> dict[str, Any]:
    """Train a retriever on one task and measure it on all tasks so far."""
    return RetrieverJob(configured(for_a_job, spec.parameters.config), spec, reporter).run()


def evaluate_checkpoint(spec: JobSpec[EvaluateSpec], reporter: Reporter) -> dict[str, Any]:
    """Measure a checkpoint on one split of a dataset."""
    given = spec.parameters
    chain = Chain(given.chain)
    config = None if given.config is None else configured(for_a_job, given.config)
    with failures(f"{given.checkpoint} on {given.name}"):
        checkpoint = chain.read(given.checkpoint, verify=True)
        config = config or RetrieverConfig.of_checkpoint(checkpoint.config)
        measuring = RetrieverMeasuring(chain, config, spec.job, reporter)
        measuring.indices = given.indices
        task = TaskData(given.name, given.dataset)
        found = measuring.record(given.checkpoint, task, given.split, repository=given.repository)
        if isinstance(found, str):
            raise DatasetError(found)
    return {"evaluation": found.evaluation, "n": found.n, "metrics": found.metrics}
