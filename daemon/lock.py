"""One daemon a state folder: an exclusive `flock` that the kernel frees when its holder dies, however it dies.

Owns the lock file and the number in it. Standard library only, so that the command line can ask who runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

DAEMON = "daemon"


class AlreadyRunningError(Exception):
    """Another process holds the state folder; `pid` is its process id, None where the file does not say."""

    def __init__(self, path: Path, *, pid: int | None, purpose: str = DAEMON) -> None:
        who = f"process {pid}" if pid is not None else "another process"
        if purpose == DAEMON:
            what = "an unsorry daemon already runs on this state folder; stop it first"
            what += (f" (kill {pid})" if pid is not None else "") + ", or give this one another state_dir"
        else:
            what = f"{purpose} is at work on this state folder; wait for its end"
        super().__init__(f"{path}: held by {who}: {what}")
        self.path = path
        self.pid = pid


class FolderError(Exception):
    """A folder of the daemon cannot be made or written."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, and what for: the daemon, or the command that keeps it away (`unsorry db rebuild`)."""

    pid: int
    purpose: str


class DaemonLock:
    """The held lock. Keep the object for as long as the daemon lives; `release` gives it back."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self.path = path
        self._file = file

    @classmethod
    def acquire(cls, path: Path, *, purpose: str = DAEMON) -> DaemonLock:
        """Take the lock and write our process id and purpose into it.

        Raises:
            AlreadyRunningError: somebody else holds it.
            FolderError: the folder cannot be written.
        """
        make_folder(path.parent)
        try:
            # Python opens with O_CLOEXEC, so no child process keeps the lock alive after us.
            file = path.open("a+", encoding="ascii")
        except OSError as error:
            raise _cannot_write(path, error) from error
        if not _take(file):
            other = _written(file)
            file.close()
            if other is None:
                raise AlreadyRunningError(path, pid=None)
            raise AlreadyRunningError(path, pid=other.pid, purpose=other.purpose)
        try:
            file.truncate(0)
            file.write(f"{os.getpid()}\n" if purpose == DAEMON else f"{os.getpid()} {purpose}\n")
            file.flush()
        except OSError as error:
            _close(file)
            raise _cannot_write(path, error) from error
        return cls(path, file)

    def release(self) -> None:
        """Let the next daemon in. The file stays: removing it would let two daemons lock two different files."""
        if not self._file.closed:
            # A number that a failed disk keeps is nobody's: whoever asks looks at the lock first.
            with contextlib.suppress(OSError):
                self._file.truncate(0)
            _close(self._file)


def make_folder(folder: Path) -> None:
    """Make one of the daemon's folders.

    Raises:
        FolderError: the system refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from error


def _cannot_write(path: Path, error: OSError) -> FolderError:
    return FolderError(
        f"{path}: {error.strerror or error}; give this user write permission there, run as the daemon's user, or set"
        " another folder under [daemon] (`unsorry doctor` shows which are in the way)"
    )


def holder(path: Path) -> int | None:
    """Return the process id of whoever holds the lock file at `path`; None where nobody does.

    Serves the daemon's lock and the locks of job attempts alike. A holder that has not written its number yet
    counts as nobody: it is not running anything either.
    """
    found = who_holds(path)
    return None if found is None else found.pid


def who_holds(path: Path) -> Holder | None:
    """Return the process that holds the lock file at `path` and what for; None where nobody does."""
    try:
        file = path.open("r", encoding="ascii", errors="replace")
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _written(file)
        return None


def _close(file: IO[str]) -> None:
    """Close, which gives the lock back; a full disk refuses what is still in the buffer, once."""
    with contextlib.suppress(OSError):
        file.close()


def _take(file: IO[str]) -> bool:
    # More than one try: somebody who asks `holder` holds a shared lock for an instant.
    for _ in range(5):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


def _written(file: IO[str]) -> Holder | None:
    file.seek(0)
    pid, _, purpose = file.read(80).strip().partition(" ")
    return Holder(int(pid), purpose or DAEMON) if pid.isdecimal() and int(pid) > 1 else None
