"""A retriever's tasks: train on each from the checkpoint before, measure all so far; the jobs `train` and `evaluate`.

    <folder>/<id>/model.safetensors     the encoder's weights, with config.json and the tokenizer beside them
    <folder>/<id>/fisher.safetensors    what EWC keeps, or replay.jsonl what replay keeps, where either does

Every step of the chain is on disk before the next begins, so a chain that is interrupted anywhere continues there.

Parameters of `train`: those of `pipeline.models.training_job`, and

    config      fields of `pipeline.models.retriever.config.TrainingConfig`
    indices     the folder of embedding indices

Metrics are in 0..1: "recall@1", "recall@10", "mrr", each with the bounds of its bootstrap interval, "…_low" and
"…_high"; a split without a step that uses a premise has none. A job that is started again continues from the last step
that was saved.

Parameters of `evaluate`, which measures one checkpoint on one split of one dataset:

    chain       the folder of checkpoints (`pipeline.models.chain`)
    checkpoint  the id of one of them
    dataset     a folder with corpus.jsonl and random/
    name        the dataset's name, to tell it from others
    repository  the key of the repository that it is of; null where it is of several (optional)
    split       "test" or "val" (optional, "test")
    config      fields of `pipeline.models.retriever.config.TrainingConfig`, of which lengths, device, seed and
                `num_retrieved` count (optional: those that the checkpoint was trained with)
    indices     the folder of embedding indices
    simulated   whether the checkpoint or the dataset comes from the simulator (optional, false)

Emits one `evaluation_finished`; a measurement that was made before is repeated from its file. A split without a step
that uses a premise is a failure, `bad_dataset`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from pipeline.durable import file_digest
from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.models import chain as checkpoints
from pipeline.models.chain import Checkpoints
from pipeline.models.datasets import TaskData as TaskData
from pipeline.models.datasets import frozen
from pipeline.models.errors import (
    CheckpointError,
    DatasetError,
    EmptySplitError,
    LearningError,
    NothingToMeasureError,
)
from pipeline.models.libraries import tensors_digest
from pipeline.models.measures import with_bounds
from pipeline.models.retriever.batches import RetrievalDataModule
from pipeline.models.retriever.config import TrainingConfig, for_a_job
from pipeline.models.retriever.encoder import WEIGHTS, load_encoder
from pipeline.models.retriever.evaluation import EvaluationResult, dataset_digest, evaluate
from pipeline.models.retriever.fisher import FISHER
from pipeline.models.retriever.index import EmbeddingIndex
from pipeline.models.retriever.retriever import PremiseRetriever
from pipeline.models.retriever.strategies import Kept
from pipeline.models.retriever.training import OnStep, data_module, on_cuda, train_task, validation_examples
from pipeline.models.training_job import (
    Measured,
    Measuring,
    Order,
    Teller,
    TrainingJob,
    Unmeasured,
    failures,
    read_parameters,
)
from store.events.models import ModelKind


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A link of a chain.

    Attributes:
        checkpoint: its id.
        parent: the checkpoint that it was trained from; None where that was `base`.
        base: the hub name or folder that the chain began with.
        task: what it was trained on last: a repository's key, or what the caller calls it.
        data: the SHA-256 of the corpus, the training examples, and those that chose the best epoch.
        data_seq: the log position of the data; 0 where it is from no log.
        config: the training configuration.
        seed: of the run.
        steps: of the optimiser.
        files: the SHA-256 of each of its other files, by name.
        digest: the SHA-256 of the weights by name and value (`encoder.weights_digest`).
        versions: of this program, Python and the libraries that made it.
        device: what it was trained on.
        seconds: how long that took; of a run that was cut off, its last attempt.
        warnings: what a reader should know of what it keeps for the next task.
    """

    checkpoint: str
    parent: str | None
    base: str
    task: str
    data: str
    data_seq: int
    config: dict[str, Any]
    seed: int
    steps: int
    files: dict[str, str]
    digest: str
    versions: dict[str, str]
    device: str
    seconds: float
    warnings: tuple[str, ...]

    @property
    def weights(self) -> str:
        """The SHA-256 of the weights' file."""
        return self.files[WEIGHTS]

    @property
    def fisher(self) -> str | None:
        """The SHA-256 of the Fisher information's file, if there is one."""
        return self.files.get(FISHER)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Chain(Checkpoints[Checkpoint]):
    """The retriever's checkpoints of one folder."""

    error: ClassVar[type[LearningError]] = CheckpointError

    def described(self, found: Any) -> Checkpoint:
        """Return what a checkpoint.json says."""
        if not isinstance(found, dict) or WEIGHTS not in found.get("files", {}):
            raise ValueError("it describes no checkpoint")
        return Checkpoint(**{**found, "warnings": tuple(found["warnings"])})

    def ancestors(self, checkpoint: str) -> list[Checkpoint]:
        """Return a checkpoint and those it was trained from, the newest first.

        Raises:
            CheckpointError: a link is missing, or is an ancestor of itself.
        """
        found = [self.read(checkpoint)]
        seen = {checkpoint}
        while (parent := found[-1].parent) is not None:
            if parent in seen:
                raise CheckpointError(
                    f"the checkpoint {parent} goes back to itself: a checkpoint.json in {self.folder} was changed. "
                    "Restore it from a backup"
                )
            seen.add(parent)
            found.append(self.read(parent))
        return found

    def save(
        self,
        checkpoint: str,
        model: PremiseRetriever,
        kept: Kept,
        *,
        parent: str | None,
        base: str,
        task: str,
        data: str,
        data_seq: int,
        config: TrainingConfig,
        steps: int,
        device: str,
        seconds: float,
    ) -> Checkpoint:
        """Write a checkpoint, as `put` does.

        Raises:
            CheckpointError: it could not be written (a full disk): there is no checkpoint then, and the run's folder
                stays, so that a repeated run only writes.
        """

        def write(folder: Path) -> None:
            model.save(folder)
            kept.save(folder)

        return self.put(
            checkpoint,
            write,
            lambda files: Checkpoint(
                checkpoint=checkpoint,
                parent=parent,
                base=base,
                task=task,
                data=data,
                data_seq=data_seq,
                config=config.to_dict(),
                seed=config.seed,
                steps=steps,
                files=files,
                digest=tensors_digest(model.encoder.state_dict()),
                versions=versions(),
                device=device,
                seconds=seconds,
                warnings=kept.warnings,
            ),
        )


def retriever_id(
    *, parent: str | None, base: str, begun: str, task: str, data: str, config: Mapping[str, Any]
) -> str:
    """Return the id of the retriever that follows from these, as `pipeline.models.chain.checkpoint_id`."""
    # How often a run is saved, how it is watched and what an evaluation takes at once do not change what it makes.
    named = {key: value for key, value in config.items() if key not in _NOT_ITS_CONTENT}
    return checkpoints.checkpoint_id(
        parent=parent, base=base, begun=begun, task=task, data=data, config=named
    )


_NOT_ITS_CONTENT = frozenset(
    {"num_workers", "timeout_seconds", "log_every_n_steps", "checkpoint_every_n_steps", "eval_batch_size"}
)


def versions() -> dict[str, str]:
    """Return the versions of what decides a checkpoint's weights: this program, Python, and who computes and draws."""
    names = ("unsorry", "torch", "transformers", "pytorch-lightning", "numpy")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}


@dataclass(frozen=True, slots=True)
class Step:
    """A task on top of a checkpoint: the `checkpoint` that it makes, made or not, and what it is made from."""

    checkpoint: str
    start: str | Path
    base: str
    digest: str
    data: RetrievalDataModule


def plan(task: TaskData, chain: Chain, config: TrainingConfig, *, parent: str | None) -> Step:
    """Say which checkpoint a task leads to from a checkpoint (None: from `config.model_name`). Trains nothing.

    Raises:
        RetrievalError: the dataset or the parent cannot be used.
    """
    base = config.model_name if parent is None else chain.read(parent).base
    start: str | Path = config.model_name if parent is None else chain.path(parent)
    data = data_module(task.dataset, config, tokens_of=start)
    digest = _data_digest(data)
    weights = Path(config.model_name, WEIGHTS)
    identity = retriever_id(
        parent=parent,
        base=base,
        begun=file_digest(weights) if parent is None and weights.is_file() else "",
        task=task.name,
        data=digest,
        config=config.to_dict(),
    )
    return Step(identity, start, base, digest, data)


def learn(
    task: TaskData,
    chain: Chain,
    config: TrainingConfig,
    *,
    parent: str | None,
    on_step: OnStep = lambda _done, _total: None,
) -> Checkpoint:
    """Train a task from a checkpoint (None: from `config.model_name`) and add the new one to the chain.

    One that is there already, from the same parent, data and configuration, is not made again.

    Raises:
        RetrievalError: the dataset or the parent cannot be used, the loss diverged, the disk is full, or another
            process is at it.
    """
    step = plan(task, chain, config, parent=parent)
    if chain.has(step.checkpoint):
        return chain.read(step.checkpoint, verify=True)
    if parent is not None:
        chain.read(parent, verify=True)
    # The other processes take part in what the first one holds.
    first = first_process()
    with chain.making(step.checkpoint) if first else nullcontext(chain.run(step.checkpoint)) as run:
        if chain.has(step.checkpoint):
            return chain.read(step.checkpoint, verify=True)
        model, kept, trained = train_task(
            step.start,
            step.data,
            config,
            run=run,
            state=None if parent is None else chain.path(parent),
            name=task.name,
            base=step.base,
            on_step=on_step,
        )
        if first:
            chain.save(
                step.checkpoint,
                model,
                kept,
                parent=parent,
                base=step.base,
                task=task.name,
                data=step.digest,
                data_seq=task.data_seq,
                config=config,
                steps=trained.steps,
                device=trained.device,
                seconds=trained.seconds,
            )
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
    return chain.read(step.checkpoint)


def first_process() -> bool:
    """Whether this is the program itself: Lightning starts it once more for each further GPU."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _data_digest(data: RetrievalDataModule) -> str:
    """Return the SHA-256 of all that a run reads: the val split too, as it chooses the epoch that is kept."""
    parts = [
        dataset_digest(data.corpus, data.examples("train").with_premises),
        dataset_digest(data.corpus, validation_examples(data)),
    ]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def measure(
    checkpoint: Path | str,
    task: TaskData,
    config: TrainingConfig,
    *,
    split: str = "test",
    indices: Path | None = None,
    on_batch: Callable[[int, int], object] = lambda _done, _total: None,
) -> EvaluationResult:
    """Measure a checkpoint's folder (or a hub name) on one split of a task's dataset.

    Args:
        checkpoint: whose encoder.
        task: whose dataset.
        config: lengths, precision's device and seed.
        split: "test" or "val".
        indices: the folder of embedding indices; None computes the embeddings and forgets them.
        on_batch: told (steps done, steps in all).

    Raises:
        RetrievalError: the dataset or the checkpoint cannot be used.
    """
    encoder = load_encoder(checkpoint)
    if on_cuda(config):
        torch.nn.Module.to(encoder, "cuda")
    data: RetrievalDataModule = data_module(task.dataset, config, tokens_of=checkpoint)
    index = None
    if indices is not None:
        index = EmbeddingIndex(
            indices,
            weights=tensors_digest(encoder.state_dict()),
            max_seq_len=data.document_length,
            d_model=encoder.config.d_model,
        )
    return evaluate(
        encoder,
        data.tokens,
        data.corpus,
        data.examples(split).with_premises,
        index=index,
        max_seq_len=data.document_length,
        query_length=data.max_seq_len,
        retrieved=config.num_retrieved,
        batch_size=config.eval_batch_size,
        seed=config.seed,
        on_batch=on_batch,
    )


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What a chain of tasks became.

    `recall` is ragged as `metrics.lifelong_metrics` takes it: row j has the test recall@10 of task j after each task
    from its own on; `validation` the recall@10 of each task's val split after it. In percent; NaN where a task has no
    such split.
    """

    checkpoints: tuple[Checkpoint, ...]
    recall: tuple[tuple[float, ...], ...]
    validation: tuple[float, ...]
    results: dict[tuple[int, int], EvaluationResult]


def learn_all(
    tasks: Sequence[TaskData], chain: Chain, config: TrainingConfig, *, indices: Path | None = None
) -> ChainReport:
    """Train on each task in turn and measure all tasks so far after each.

    Raises:
        RetrievalError: as `learn` and `measure`.
    """
    checkpoints: list[Checkpoint] = []
    recall: list[list[float]] = []
    validation: list[float] = []
    results: dict[tuple[int, int], EvaluationResult] = {}
    for k, task in enumerate(tasks):
        parent = checkpoints[-1].checkpoint if checkpoints else None
        checkpoints.append(learn(task, chain, config, parent=parent))
        at = chain.path(checkpoints[-1].checkpoint)
        recall.append([])
        for j in range(k + 1):
            found = _measured(at, tasks[j], config, "test", indices)
            if found is not None:
                results[k, j] = found
            recall[j].append(_recall_at_10(found))
        validation.append(_recall_at_10(_measured(at, task, config, "val", indices)))
    return ChainReport(tuple(checkpoints), tuple(map(tuple, recall)), tuple(validation), results)


def _measured(
    checkpoint: Path, task: TaskData, config: TrainingConfig, split: str, indices: Path | None
) -> EvaluationResult | None:
    try:
        return measure(checkpoint, task, config, split=split, indices=indices)
    except (EmptySplitError, NothingToMeasureError):
        return None


def _recall_at_10(found: EvaluationResult | None) -> float:
    return math.nan if found is None else 100 * found.metrics["recall@10"].mean


MODEL: ModelKind = "retriever"
_FOLLOWS_FROM = ("max_seq_len", "data_max_seq_len", "num_retrieved", "seed")
"""What of a configuration decides what a measurement says."""


class RetrieverMeasuring(Measuring):
    """Measures one retriever of a chain; `indices` is the folder of embedding indices."""

    model: ClassVar[ModelKind] = MODEL
    empty: ClassVar[tuple[type[LearningError], ...]] = (EmptySplitError, NothingToMeasureError)

    def __init__(
        self,
        chain: Chain,
        checkpoint: str,
        config: TrainingConfig,
        indices: Path,
        teller: Teller,
    ) -> None:
        super().__init__(chain.folder, checkpoint, teller)
        self.config = config
        self.indices = indices

    def files(self, task: TaskData, split: str) -> tuple[Path, ...]:
        """Return the corpus and the split's file.

        Raises:
            DatasetError: one is not there.
        """
        found = tuple(task.dataset / name for name in ("corpus.jsonl", f"random/{split}.json"))
        for path in found:
            if not path.is_file():
                raise DatasetError(f"{task.name}: {path} cannot be read (No such file or directory)")
        return found

    def settings(self) -> str:
        return json.dumps([getattr(self.config, name) for name in _FOLLOWS_FROM])

    def measure(self, task: TaskData, split: str, on_batch: Callable[[int, int], object]) -> Measured:
        """Measure the checkpoint on one split: metrics as `pipeline.models.retriever.job` says."""
        found = measure(
            self.chain / self.checkpoint,
            task,
            self.config,
            split=split,
            indices=self.indices,
            on_batch=on_batch,
        )
        return Measured(with_bounds(found.metrics), found.dataset, found.n, found.seconds)


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


def train(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Train a retriever on one task and measure it on all tasks so far."""
    given = spec.parameters
    order, config, indices = read_parameters(
        "train", lambda: (Order.read(given), for_a_job(given["config"]), Path(given["indices"]))
    )
    return RetrieverJob(order, config, indices, spec, reporter).run()


_SPLITS = ("test", "val")


@dataclass(frozen=True, slots=True)
class EvaluateOrder:
    """The job's parameters."""

    chain: Chain
    checkpoint: str
    task: TaskData
    repository: str | None
    split: str
    config: TrainingConfig | None
    indices: Path
    simulated: bool

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> EvaluateOrder:
        repository, config = parameters.get("repository"), parameters.get("config")
        split = str(parameters.get("split", "test"))
        if split not in _SPLITS:
            raise ValueError(f"split is {split!r}: it takes one of {', '.join(_SPLITS)}")
        return cls(
            chain=Chain(Path(parameters["chain"])),
            checkpoint=str(parameters["checkpoint"]),
            task=TaskData(str(parameters["name"]), Path(parameters["dataset"])),
            repository=None if repository is None else str(repository),
            split=split,
            config=None if config is None else for_a_job(config),
            indices=Path(parameters["indices"]),
            simulated=bool(parameters.get("simulated", False)),
        )


def evaluate_checkpoint(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Measure a checkpoint on one split of a dataset."""
    order = read_parameters("evaluate", lambda: EvaluateOrder.read(spec.parameters))
    with failures(f"{order.checkpoint} on {order.task.name}"):
        checkpoint = order.chain.read(order.checkpoint, verify=True)
        config = order.config or TrainingConfig.from_dict(checkpoint.config)
        measuring = RetrieverMeasuring(
            order.chain,
            order.checkpoint,
            config,
            order.indices,
            Teller(spec.job, reporter, order.simulated),
        )
        found = measuring.tell(order.task, order.split, repository=order.repository)
        if isinstance(found, Unmeasured):
            raise DatasetError(found.reason)
    return {"evaluation": found.evaluation, "n": found.n, "metrics": found.metrics}
