"""Files of a training run: its newest steps, the best epoch's weights, and at the end the weights it made.

Each file is written beside, flushed and renamed, so that a file under its name is always complete. An interrupted run
continues from its newest step and ends with the same weights.
"""

from __future__ import annotations

import math
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from pytorch_lightning.callbacks import Checkpoint
from torch import Tensor

from pipeline.jobs import preemption
from pipeline.models.errors import CheckpointError, DivergedError, disk_reason
from pipeline.models.ranks import any_of
from store.files import written_whole

UNREADABLE = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    EOFError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
)
"""Errors of `check_whole` and `torch.load` for a file that is truncated, damaged, or of another kind."""
_KEPT = 2
"""Steps whose files stay: a failing disk may damage the newest one."""


def save_whole(content: object, path: Path) -> None:
    """Save with `torch.save`, atomically and flushed to the disk.

    Raises:
        CheckpointError: the disk refused.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path, temporary=path.with_name(f".{path.name}.part")) as file:
            torch.save(content, file)
    # PyTorch turns a disk error into a RuntimeError.
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} cannot be written ({disk_reason(error)}). Make room, then run it again: it continues from the "
            "saved files"
        ) from error


def check_whole(path: Path) -> None:
    """Check the checksums in a file of `torch.save`, which `torch.load` ignores.

    Raises:
        One of UNREADABLE: the file is missing, truncated or damaged.
    """
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"{damaged} in it is damaged")


class WholeFiles(TorchCheckpointIO):
    """Lightning's checkpoints by `save_whole`. Its own go through a second copy in memory and the system's /tmp."""

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | os.PathLike[str],
        storage_options: Any | None = None,  # noqa: ARG002 - Lightning's signature
    ) -> None:
        save_whole(checkpoint, Path(path))


def newest_step(steps: Path) -> tuple[Path, int] | None:
    """Return the newest step's file that is whole, and its step; None without one."""
    for path in sorted(steps.glob("step=*.ckpt"), key=_step_of, reverse=True):
        try:
            check_whole(path)
        except UNREADABLE:
            continue
        return path, _step_of(path)
    return None


def _step_of(path: Path) -> int:
    return int(path.stem.partition("=")[2])


class StepCheckpoints(Checkpoint):
    """Saves the run's whole state every so many optimiser steps, and after each epoch but the last.

    A step that ends an epoch is saved after the epoch's validation: resuming from a state between the two, Lightning
    would skip the validation and might choose another best epoch. A state in which training is to stop is not saved,
    because Lightning does not save the decision to stop.

    If the job is preempted (`pipeline.jobs.preemption`) in any of its processes, all save the current step and end.
    """

    def __init__(self, folder: Path, *, every: int) -> None:
        self._folder = folder
        self._every = every

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,  # noqa: ARG002 - Lightning's signature
        batch: Any,  # noqa: ARG002
        batch_idx: int,
    ) -> None:
        whole = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        last = batch_idx + 1 == trainer.num_training_batches
        if not whole or last:
            return
        wanted = any_of(preemption.wanted())
        if wanted or trainer.global_step % self._every == 0:
            self._save(trainer, pl_module, then_end=wanted)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.should_stop and trainer.current_epoch + 1 != trainer.max_epochs:
            self._save(trainer, pl_module, then_end=any_of(preemption.wanted()))

    def on_train_start(
        self,
        trainer: pl.Trainer,  # noqa: ARG002 - Lightning's signature
        pl_module: pl.LightningModule,  # noqa: ARG002
    ) -> None:
        # Lightning's own handler ends a run between the step and its saving.
        preemption.listen()

    def _save(self, trainer: pl.Trainer, model: pl.LightningModule, *, then_end: bool) -> None:
        check_finite(model.state_dict(), f"step {trainer.global_step}")
        trainer.save_checkpoint(self._folder / f"step={trainer.global_step}.ckpt")
        if trainer.is_global_zero:
            for old in sorted(self._folder.glob("step=*.ckpt"), key=_step_of)[:-_KEPT]:
                old.unlink()
        if then_end:
            raise preemption.Yielded(f"step {trainer.global_step} is saved")


class BestWeights(Checkpoint):
    """Keeps the weights of the epoch with the best validation, whose number and score are in the run's saved state.

    What an epoch keeps of earlier tasks counts as much as what it has of the new one: else that which forgot most
    would win.
    """

    def __init__(
        self,
        folder: Path,
        *,
        monitor: str,
        highest: float,
        mode: str,
        every_n_epochs: int,
        remembered: Callable[[], float | None],
    ) -> None:
        """Args:
        folder: for the weights.
        monitor: the validation's measure to go by.
        highest: its highest value.
        mode: "max" or "min": which of its values is the best.
        every_n_epochs: how often to look.
        remembered: returns the share that is kept of earlier tasks; None where there are none.
        """
        self._folder = folder
        self._monitor = monitor
        self._highest = highest
        self._remembered = remembered
        self._sign = 1.0 if mode == "max" else -1.0
        self._every = every_n_epochs
        self.epoch: int | None = None
        self.score = -math.inf
        self.measured: dict[str, float] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "score": self.score, "measured": dict(self.measured)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch, self.score = state_dict["epoch"], state_dict["score"]
        self.measured = state_dict["measured"]

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.sanity_checking or (trainer.current_epoch + 1) % self._every:
            return
        score = self._sign * float(trainer.callback_metrics[self._monitor]) / self._highest
        score += self._remembered() or 0.0
        # Two kinds of GPU may round it differently, and all processes have to keep the same epoch.
        score = trainer.strategy.broadcast(score)
        if not score > self.score:
            return
        before, self.epoch, self.score = self.epoch, trainer.current_epoch, score
        self.measured = {key: float(value) for key, value in trainer.callback_metrics.items()}
        if trainer.is_global_zero:
            save_whole(pl_module.state_dict(), self._path(self.epoch))
            # The previous best stays: a run that is interrupted now resumes from a state in which it was the best.
            for old in self._folder.glob("epoch=*.pt"):
                if _step_of(old) not in (before, self.epoch):
                    old.unlink()
        trainer.strategy.barrier("best weights")

    def load_into(self, model: pl.LightningModule) -> None:
        """Load the best epoch's weights into the model, if an epoch was measured.

        Raises:
            CheckpointError: they are gone, or damaged.
        """
        if self.epoch is None:
            return
        path = self._path(self.epoch)
        try:
            check_whole(path)
            model.load_state_dict(torch.load(path, map_location=model.device, weights_only=True))
        except UNREADABLE as error:
            raise CheckpointError(
                f"{path}, the best epoch's weights, cannot be read ({error}). Remove {self._folder.parent}: the run "
                "then begins anew"
            ) from error

    def _path(self, epoch: int) -> Path:
        return self._folder / f"epoch={epoch}.pt"


def check_finite(weights: dict[str, Tensor], when: str) -> None:
    """Check weights before they are saved.

    Raises:
        DivergedError: one is no finite number.
    """
    for name, value in weights.items():
        if not bool(torch.isfinite(value).all()):
            raise DivergedError(
                f"the weights of {when} are no finite numbers ({name}): training has diverged. Train with a smaller "
                "learning rate, or with precision 32-true"
            )
