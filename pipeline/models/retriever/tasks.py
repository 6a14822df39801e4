"""A task of the chain, and the interface of what protects earlier tasks while it is learned.

`pipeline.models.retriever.strategies` has the ways and makes the one that a configuration names;
`pipeline.models.retriever.ewc` has elastic weight consolidation. A strategy lives for one task; what the next one needs
of it is in the checkpoint's folder.
"""

# ruff: noqa: ARG002 - all strategies take the same, whether they need it or not
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from pipeline.models.model_files import FISHER
from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.encoder import Encoder, Tokens
from pipeline.models.retriever.fisher import Fisher
from pipeline.models.retriever.losses import RowLosses


class Steps(Protocol):
    """Training batches by number, as `pipeline.models.retriever.batches.Batches` makes them."""

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
        tokens: makes ids of texts.
    """

    name: str
    data: str
    base: str
    batches: Callable[[int], Steps]
    losses: RowLosses
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state for the next task besides the weights, and warnings for the job's events."""

    fisher: Fisher | None = None
    warnings: tuple[str, ...] = ()

    def save(self, folder: Path) -> None:
        """Write it into a checkpoint's folder.

        Raises:
            CheckpointError: the Fisher information cannot be written.
        """
        if self.fisher is not None:
            self.fisher.save(folder / FISHER)


class Strategy(Protocol):
    """Protection against forgetting, for one task. Every process of a run has its own and makes the same calls."""

    def before_task(self, encoder: Encoder, task: Task) -> None:
        """Begin, with the weights that the task starts from in the encoder: also when an interrupted run continues,
        before the weights of its last step are loaded.

        Raises:
            CheckpointError: what was kept belongs to other weights.
        """

    def replayed(self, step: int, rank: int = 0, world: int = 1) -> Batch | None:
        """Return a process's part of the batch replayed in a step, with `replay_share` of its loss; None for none."""

    def on_gradients(self, encoder: Encoder, step_size: float = 1.0) -> None:
        """Change the gradients of a step: in `on_before_optimizer_step`, before they are clipped.

        `step_size` is the step's learning rate as a share of the full one.
        """

    def progress(self) -> tuple[float, ...]:
        """Return what an interrupted run needs beside its weights to go on in the same way."""

    def resume(self, progress: Sequence[float]) -> None:
        """Take the `progress` of the saved step that a run continues from, after `before_task`."""

    def penalty(self, encoder: Encoder) -> Tensor | None:
        """Return the penalty's value for the log, a float32 on the encoder's device; None without one."""

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        """End: may change the encoder's weights, and returns what the checkpoint keeps."""


class NoStrategy:
    """Plain training: the one that the others are compared with, and what they share."""

    def before_task(self, encoder: Encoder, task: Task) -> None:
        pass

    def replayed(self, step: int, rank: int = 0, world: int = 1) -> Batch | None:
        return None

    def on_gradients(self, encoder: Encoder, step_size: float = 1.0) -> None:
        pass

    def progress(self) -> tuple[float, ...]:
        return ()

    def resume(self, progress: Sequence[float]) -> None:
        pass

    def penalty(self, encoder: Encoder) -> Tensor | None:
        return None

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        return TaskState()
