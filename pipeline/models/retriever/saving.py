"""The saved steps of a run: its whole state, to continue from.

    <folder>/step=N.ckpt   the newest steps; gone with the run's folder when its checkpoint exists

Each file is written beside, flushed and renamed, so a file under its name is always complete. A thread does it, from a
copy in memory, during the next steps. An interrupted run continues from its newest step and ends with the same weights.
"""

from __future__ import annotations

import pickle
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from pipeline.models.errors import CheckpointError, disk_reason
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


class SavedSteps:
    """The saved steps in a folder, each written by a thread."""

    def __init__(self, folder: Path, thread: ThreadPoolExecutor) -> None:
        self._folder = folder
        self._thread = thread
        self._writing: Future[None] | None = None

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Begin to write a step, once the one before is written.

        Raises:
            CheckpointError: the disk refused the one before.
        """
        self.wait()
        self._writing = self._thread.submit(_write, _copied(state), self._folder / f"step={step}.ckpt")

    def wait(self) -> None:
        """Wait until the last step is written.

        Raises:
            CheckpointError: the disk refused it.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def newest(self) -> dict[str, Any] | None:
        """Return the newest whole step; None without one."""
        for path in sorted(self._folder.glob("step=*.ckpt"), key=_step_of, reverse=True):
            try:
                check_whole(path)
                state: dict[str, Any] = torch.load(path, map_location="cpu")
            except UNREADABLE:
                continue
            return state
        return None


def _copied(value: Any) -> Any:
    """Return a copy in the processor's memory: the next step changes tensors and lists in place."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


def _write(state: dict[str, Any], place: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(place, temporary=place.with_name(f".{place.name}.part")) as file:
            torch.save(state, file)
        for old in sorted(place.parent.glob("step=*.ckpt"), key=_step_of)[:-_KEPT]:
            old.unlink()
    # PyTorch turns a disk error into a RuntimeError.
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{place} cannot be written ({disk_reason(error)}). Make room, then run it again: it continues from "
            "the saved files"
        ) from error


def _step_of(path: Path) -> int:
    return int(path.stem.partition("=")[2])
