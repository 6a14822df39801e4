"""The saved steps of a run, with the weights of its best epoch so far.

Each file is written beside, flushed and renamed, so a file under its name is always complete. A thread does it, from a
copy in memory, during the next steps. An interrupted run continues from its newest step and ends with the same weights.
"""

from __future__ import annotations

import math
import os
import pickle
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning_utilities.core.apply_func import apply_to_collection
from pytorch_lightning.callbacks import Checkpoint
from torch import Tensor

from pipeline.jobs import preemption
from pipeline.models.errors import CheckpointError, disk_reason
from pipeline.models.libraries import check_finite
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


def check_whole(path: Path) -> None:
    """Check the checksums in a file of `torch.save`; `torch.load` ignores them.

    Raises:
        One of UNREADABLE: the file is missing, truncated or damaged.
    """
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"{damaged} in it is damaged")


class WholeFiles(TorchCheckpointIO):
    """Lightning's checkpoints, each written by a thread; the newest ones of a folder stay.

    Lightning ends it with the run, however that ends. Lightning's own writer in a thread copies a GPU's tensors on the
    GPU.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "saving")
        self._writing: Future[None] | None = None

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | os.PathLike[str],
        storage_options: Any | None = None,  # noqa: ARG002 - Lightning's signature
    ) -> None:
        """Begin to write, once the file before is written.

        Raises:
            CheckpointError: the disk refused the file before.
        """
        self.teardown()
        # The next step changes tensors and lists in place.
        copy = apply_to_collection(checkpoint, Tensor, lambda tensor: tensor.detach().to("cpu", copy=True))
        self._writing = self._thread.submit(_write, copy, Path(path))

    def teardown(self) -> None:
        """Wait until the last file is written.

        Raises:
            CheckpointError: the disk refused it.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def _write(checkpoint: dict[str, Any], place: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(place, temporary=place.with_name(f".{place.name}.part")) as file:
            torch.save(checkpoint, file)
        for old in sorted(place.parent.glob("step=*.ckpt"), key=_step_of)[:-_KEPT]:
            old.unlink()
    # PyTorch turns a disk error into a RuntimeError.
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{place} cannot be written ({disk_reason(error)}). Make room, then run it again: it continues from "
            "the saved files"
        ) from error


def newest_step(steps: Path) -> Path | None:
    """Return the file of the newest whole step; None without one."""
    for path in sorted(steps.glob("step=*.ckpt"), key=_step_of, reverse=True):
        try:
            check_whole(path)
        except UNREADABLE:
            continue
        return path
    return None


def _step_of(path: Path) -> int:
    return int(path.stem.partition("=")[2])


class StepCheckpoints(Checkpoint):
    """Saves the run's whole state after an optimiser step, at a fixed interval of seconds.

    A step at an epoch's end is saved after the epoch's validation: resuming from a state between the two, Lightning
    would skip the validation and might choose another best epoch. A state at the end of training is not saved, because
    Lightning does not save the decision to stop.

    If the job is preempted (`pipeline.jobs.preemption`) in any of its processes, all save the current step and end,
    once it is written (`WholeFiles.teardown`).
    """

    def __init__(self, folder: Path, *, every_s: float) -> None:
        self._folder = folder
        self._every_s = every_s
        self._next = time.monotonic() + every_s

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
        if whole and not last:
            self._save_when_due(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.should_stop and trainer.current_epoch + 1 != trainer.max_epochs:
            self._save_when_due(trainer, pl_module)

    def on_train_start(
        self,
        trainer: pl.Trainer,  # noqa: ARG002 - Lightning's signature
        pl_module: pl.LightningModule,  # noqa: ARG002
    ) -> None:
        # Lightning's own handler ends a run between the step and its saving.
        preemption.listen()

    def _save_when_due(self, trainer: pl.Trainer, model: pl.LightningModule) -> None:
        if not any_of(preemption.wanted() or time.monotonic() >= self._next):
            return
        check_finite(model)
        trainer.save_checkpoint(self._folder / f"step={trainer.global_step}.ckpt")
        self._next = time.monotonic() + self._every_s
        if any_of(preemption.wanted()):
            raise preemption.Yielded(f"step {trainer.global_step} is saved")


class BestWeights(Checkpoint):
    """Keeps the weights of the epoch with the best validation, in memory and in the run's saved state.

    An epoch's memory of earlier tasks counts as much as its result on the new one: else the most forgetful epoch would
    win.
    """

    def __init__(
        self,
        *,
        monitor: str,
        highest: float,
        mode: str,
        every_n_epochs: int,
        remembered: Callable[[], float | None],
    ) -> None:
        """Args:
        monitor: the validation's measure.
        highest: its highest value.
        mode: "max" or "min": the best of its values.
        every_n_epochs: between two looks.
        remembered: returns the share still known of earlier tasks; None without any.
        """
        self._monitor = monitor
        self._highest = highest
        self._remembered = remembered
        self._sign = 1.0 if mode == "max" else -1.0
        self._every = every_n_epochs
        self.score = -math.inf
        self.measured: dict[str, float] = {}
        self.weights: dict[str, Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"score": self.score, "measured": self.measured, "weights": self.weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.score, self.measured, self.weights = (
            state_dict[name] for name in ("score", "measured", "weights")
        )

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.sanity_checking or (trainer.current_epoch + 1) % self._every:
            return
        score = self._sign * float(trainer.callback_metrics[self._monitor]) / self._highest
        score += self._remembered() or 0.0
        # Two kinds of GPU may round it differently, and all processes have to keep the same epoch.
        score = trainer.strategy.broadcast(score)
        if score > self.score:
            self.score = score
            self.measured = {key: float(value) for key, value in trainer.callback_metrics.items()}
            self.weights = {name: value.cpu().clone() for name, value in pl_module.state_dict().items()}
