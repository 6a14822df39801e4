"""A server's own folder in the cache: nobody else may read there, and nothing of a server that was killed is left.

A folder belongs to whoever holds its lock (flock), which the kernel gives back however a server ends. A server that
starts takes what is nobody's away: the processes that were begun there, then the files.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from pipeline.children import kill_marked
from pipeline.lean.build.build_cache import remove_tree

BY_HAND = "by-hand-"
"""What the folders of servers begin with that were started by hand: each has one of its own."""
PATIENCE_S = 15.0
"""How long a server waits for one before it, which still takes itself apart."""
_AGAIN_S = 0.05

_log = logging.getLogger(__name__)


class ScratchTakenError(Exception):
    """Another server has the folder."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder that is ours until it is given back. Made with `own`."""

    folder: Path
    _lock: int

    def give_back(self) -> None:
        """Remove the folder, and what was left running there.

        Raises:
            OSError: something in it cannot be removed.
        """
        try:
            _clear(self.folder)
        finally:
            os.close(self._lock)


def own(folder: Path, *, patience_s: float = PATIENCE_S) -> Scratch:
    """Take a folder, empty and for this user alone, and remove those of servers by hand that are no more.

    Raises:
        ScratchTakenError: another server has it, and keeps it.
        OSError: it cannot be made or emptied.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for other in folder.parent.glob(f"{BY_HAND}*"):
        if other != folder:
            _sweep(other)
    deadline = time.monotonic() + patience_s
    while (lock := _taken(folder)) is None:
        if time.monotonic() >= deadline:
            raise ScratchTakenError(f"{folder}: another server has it; end that one")
        time.sleep(_AGAIN_S)
    return Scratch(folder, lock)


def _taken(folder: Path) -> int | None:
    """Return the lock of the folder, made anew; None where somebody else has it, or was faster."""
    if folder.exists() and not _swept(folder):
        return None
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    lock = _locked(folder)
    if lock is None:
        return None
    with contextlib.suppress(FileNotFoundError):
        # Whoever swept it between making and locking has removed what we hold now.
        if os.path.samestat(os.fstat(lock), folder.stat()):
            return lock
    os.close(lock)
    return None


def _sweep(folder: Path) -> None:
    """Remove the folder of a server that is no more. That it cannot be done keeps no other server from starting."""
    try:
        if _swept(folder):
            _log.info("%s was left by a server that is no more, and is removed", folder)
    except OSError as error:
        _log.warning("%s was left by a server that is no more, and stays: %s", folder, error)


def _swept(folder: Path) -> bool:
    """Remove a folder, unless somebody has it; return whether it is gone."""
    lock = _locked(folder)
    if lock is None:
        return not folder.exists()
    try:
        _clear(folder)
    finally:
        os.close(lock)
    return True


def _clear(folder: Path) -> None:
    # First whoever may write there.
    kill_marked(folder, below=True)
    remove_tree(folder)


def _locked(folder: Path) -> int | None:
    """Return a descriptor that holds the folder's lock; None where it is somebody's, or not there."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
