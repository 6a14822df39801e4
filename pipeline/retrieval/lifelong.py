"""A chain of tasks: train on each from the checkpoint before, then measure every task so far.

What a step of the chain needs is on disk before the next begins, so a chain that is cut off anywhere goes on there.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline.durable import file_digest
from pipeline.learning.datasets import TaskData as TaskData
from pipeline.retrieval.chain import Chain, Checkpoint, checkpoint_id
from pipeline.retrieval.config import TrainingConfig
from pipeline.retrieval.datamodule import RetrievalDataModule
from pipeline.retrieval.encoder import WEIGHTS, load_encoder, weights_digest
from pipeline.retrieval.errors import EmptySplitError, NothingToMeasureError
from pipeline.retrieval.evaluation import EvaluationResult, dataset_digest, evaluate
from pipeline.retrieval.index import EmbeddingIndex
from pipeline.retrieval.training import OnStep, data_module, on_cuda, train_task, validation_examples


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
    identity = checkpoint_id(
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
            weights=weights_digest(encoder.state_dict()),
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
