"""What is done against forgetting, behind one setting: `against_forgetting` of the training configuration.

"ewc" pulls weights back by their Fisher information, "average" averages the weights before and after a task, "replay"
learns kept examples of earlier tasks again, "none" does nothing. Each lives for one task of the chain and keeps what
the next one needs in the checkpoint's folder.
"""

# ruff: noqa: ARG002 - all strategies take the same, whether they need it or not

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from torch import Tensor, distributed
from transformers import T5EncoderModel

from pipeline.retrieval.averaging import averaged
from pipeline.retrieval.batches import Batch
from pipeline.retrieval.config import TrainingConfig
from pipeline.retrieval.encoder import Tokens
from pipeline.retrieval.ewc import Penalty
from pipeline.retrieval.fisher import FISHER, Fisher, accumulated, parameters_of
from pipeline.retrieval.fisher_estimate import (
    RetrievalLosses,
    merge_over_processes,
    squared_gradients,
    task_fisher,
)
from pipeline.retrieval.losses import RowLosses
from pipeline.retrieval.replay import REPLAY, ReplayBuffer, ReplayPair

T = TypeVar("T")

CANDIDATES = 8
"""Each example that a Fisher information is estimated on (normalised scale) has at least so many documents to choose
from. Part of what is estimated, so no setting, and apart from the batch size. Time and memory grow with it; 32 kept an
earlier task no better, 2 worse (the letters of tests/retrieval/test_forgetting.py, one seed)."""


class Steps(Protocol):
    """Training batches by number, as `pipeline.retrieval.batches.Batches` makes them."""

    @property
    def steps_per_epoch(self) -> int: ...

    def at(self, step: int) -> Batch: ...


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the chain, as far as a strategy needs it.

    Attributes:
        name: the repository's, or what the chain calls it.
        data: the digest of its training data.
        base: what the chain of checkpoints began with.
        batches: makes its training batches for a batch size, as if by one process; fewer rows where it has fewer pairs.
        losses: the training's loss, row by row.
        pairs: its training pairs as texts.
        tokens: makes ids of texts.
        world: processes of the training run.
    """

    name: str
    data: str
    base: str
    batches: Callable[[int], Steps]
    losses: RowLosses
    pairs: Callable[[], Iterable[ReplayPair]]
    tokens: Tokens
    world: int = 1


@dataclass(frozen=True, slots=True)
class Kept:
    """What the next task needs beside the weights, and what a reader of the job's events should know."""

    fisher: Fisher | None = None
    replay: ReplayBuffer | None = None
    warnings: tuple[str, ...] = ()

    def save(self, folder: Path) -> None:
        """Write it into a checkpoint's folder.

        Raises:
            CheckpointError: the Fisher information cannot be written.
            OSError: the replay buffer cannot be written.
        """
        if self.fisher is not None:
            self.fisher.save(folder / FISHER)
        if self.replay is not None:
            self.replay.save(folder / REPLAY)


class Strategy(Protocol):
    """One way to forget less, for one task. Every process of a run has its own and calls it alike."""

    def before_task(self, encoder: T5EncoderModel, task: Task) -> None:
        """Begin, with the weights that the task starts from in the encoder: also when a cut-off run goes on, before
        the weights of its last step are loaded.

        Raises:
            CheckpointError: what was kept belongs to other weights.
        """

    def replayed(self, step: int, rank: int = 0) -> Batch | None:
        """Return what is learned again in a step, with `replay_share` of the step's loss; None for nothing."""

    def on_gradients(self, encoder: T5EncoderModel) -> None:
        """Change the gradients of a step: in `on_before_optimizer_step`, before they are clipped."""

    def penalty(self, encoder: T5EncoderModel) -> Tensor | None:
        """Return the penalty's value for the log, a float32 on the encoder's device; None where there is none."""

    def after_task(self, encoder: T5EncoderModel, task: Task) -> Kept:
        """End: may change the encoder's weights, and returns what the checkpoint keeps."""


def make_strategy(config: TrainingConfig, state_folder: Path | None) -> Strategy:
    """Return the strategy that a configuration names.

    Args:
        config: `against_forgetting`, and the settings of each.
        state_folder: the folder of the checkpoint that the task starts from; None at the beginning of a chain. What
            it does not have (because it was trained with another setting) counts as empty.

    Raises:
        CheckpointError: what the folder has cannot be read.
    """
    match config.against_forgetting:
        case "ewc":
            return ElasticWeights(config, _kept(state_folder, FISHER, Fisher.load))
        case "average":
            return Average(config.average_weight)
        case "replay":
            return Replay(config, _kept(state_folder, REPLAY, ReplayBuffer.load))
        case "none":
            return NoStrategy()


def _kept(folder: Path | None, name: str, load: Callable[[Path], T]) -> T | None:
    if folder is None or not (folder / name).exists():
        return None
    return load(folder / name)


class NoStrategy:
    """Plain training: the one that the others are compared with, and what they share."""

    def before_task(self, encoder: T5EncoderModel, task: Task) -> None:
        pass

    def replayed(self, step: int, rank: int = 0) -> Batch | None:
        return None

    def on_gradients(self, encoder: T5EncoderModel) -> None:
        pass

    def penalty(self, encoder: T5EncoderModel) -> Tensor | None:
        return None

    def after_task(self, encoder: T5EncoderModel, task: Task) -> Kept:
        return Kept()


class ElasticWeights(NoStrategy):
    """EWC: a penalty while a task is learned, and after it the task's Fisher information beside the earlier ones'."""

    def __init__(self, config: TrainingConfig, fisher: Fisher | None) -> None:
        self._config = config
        self._fisher = fisher
        self._penalty: Penalty | None = None

    def before_task(self, encoder: T5EncoderModel, task: Task) -> None:
        if self._fisher is None:
            return
        # Now, not after hours of training, when the task's own is to be added.
        self._fisher.check_scale(self._config.fisher_scale)
        strength = self._config.penalty_strength
        if strength > 0:
            self._penalty = Penalty(self._fisher, parameters_of(encoder), strength=strength, base=task.base)
        else:
            # What the task adds to has to be its own parent's all the same.
            self._fisher.check(parameters_of(encoder), base=task.base)

    def on_gradients(self, encoder: T5EncoderModel) -> None:
        if self._penalty is not None:
            self._penalty.add_gradients(encoder)

    def penalty(self, encoder: T5EncoderModel) -> Tensor | None:
        return None if self._penalty is None else self._penalty.value(encoder)

    def after_task(self, encoder: T5EncoderModel, task: Task) -> Kept:
        config = self._config
        # Two more copies of the weights are about to be made, and the penalty has done its work.
        self._penalty = None
        compat = config.fisher_scale == "compat"
        group = math.ceil(CANDIDATES / (1 + config.num_negatives))
        rank, world = (
            (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
        )
        part = squared_gradients(
            encoder,
            sample_groups(
                task.batches(config.batch_size if compat else group),
                config.fisher_samples,
                rank=rank,
                world=world,
            ),
            RetrievalLosses(
                task.losses,
                kind=config.loss,
                labels=config.fisher_labels,
                seed=config.seed,
                temperature=config.temperature,
            ),
            per="group" if compat else "example",
        )
        new = task_fisher(
            merge_over_processes(part),
            encoder,
            name=task.name,
            data=task.data,
            base=task.base,
            labels=config.fisher_labels,
            scale=config.fisher_scale,
            # Those here may be fewer: a run that was cut off after its last step is ended by one process.
            world=task.world,
        )
        self._fisher = accumulated(self._fisher, new, decay=config.fisher_decay)
        return Kept(fisher=self._fisher, warnings=self._fisher.warnings)


class Average(NoStrategy):
    """Averages the weights before and after a task (`pipeline.retrieval.averaging`)."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._start: dict[str, Tensor] = {}

    def before_task(self, encoder: T5EncoderModel, task: Task) -> None:
        self._start = {name: value.cpu().clone() for name, value in parameters_of(encoder).items()}

    def after_task(self, encoder: T5EncoderModel, task: Task) -> Kept:
        mixed = averaged(self._start, parameters_of(encoder), share=self._share)
        with torch.no_grad():
            for name, weight in encoder.named_parameters():
                if name in mixed:
                    weight.copy_(mixed[name])
        return Kept()


class Replay(NoStrategy):
    """Learns kept pairs of earlier tasks beside the new ones (`pipeline.retrieval.replay`)."""

    def __init__(self, config: TrainingConfig, buffer: ReplayBuffer | None) -> None:
        self._config = config
        self._buffer = (
            ReplayBuffer(config.replay_size, seed=config.seed)
            if buffer is None
            else buffer.resized(config.replay_size)
        )
        self._tokens: Tokens | None = None

    def before_task(self, encoder: T5EncoderModel, task: Task) -> None:
        self._tokens = task.tokens

    def replayed(self, step: int, rank: int = 0) -> Batch | None:
        config = self._config
        if self._tokens is None or config.replay_share == 0.0:
            return None
        return self._buffer.batch(
            step,
            # As many as make the share of the step's pairs, and where batches are small at least one.
            max(1, round(config.batch_size * config.replay_share)),
            negatives=config.num_negatives,
            tokens=self._tokens,
            max_seq_len=config.data_max_seq_len,
            document_length=config.document_length,
            loss=config.loss,
            rank=rank,
        )

    def after_task(self, encoder: T5EncoderModel, task: Task) -> Kept:
        self._buffer.offer(task.pairs())
        return Kept(replay=self._buffer)


def sample_groups(batches: Steps, examples: int, *, rank: int, world: int) -> Iterator[Batch]:
    """Return one process's groups of a sample of at least `examples` examples, or of all where there are fewer.

    The sample is the first steps of the first epoch: drawn from the seed alone, no pair twice, whole groups. Processes
    take turns.
    """
    groups = min(batches.steps_per_epoch, math.ceil(examples / len(batches.at(0))))
    return (batches.at(number) for number in range(rank, groups, world))
