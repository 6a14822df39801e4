"""One daemon a state folder: an exclusive `flock` that the kernel frees when its holder dies, however it dies.

Owns the lock file and the number in it. Standard library only, so that the command line can ask who runs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

DAEMON = "daemon"
STANDBY = "everlean standby"
"""The purpose of a process that follows another machine's log (`daemon.standby`)."""
_WIDTH = 80
"""The length of the file's content: a holder overwrites the last one's in a single write."""


class AlreadyRunningError(Exception):
    """Another process holds the state folder; `pid` is its process id, None where the file does not say."""

    def __init__(self, path: Path, *, pid: int | None, purpose: str = DAEMON) -> None:
        who = f"process {pid}" if pid is not None else "another process"
        if purpose == DAEMON:
            what = "an everlean daemon already runs on this state folder; stop it first"
            what += (f" (kill {pid})" if pid is not None else "") + ", or give this one another state_dir"
        else:
            what = f"{purpose} is at work on this state folder; wait for its end"
        super().__init__(f"{path}: held by {who}: {what}")
        self.path = path
        self.pid = pid


class FolderError(Exception):
    """A folder of the daemon, `folder`, cannot be made or written."""

    def __init__(self, message: str, *, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock and its purpose: the daemon, or a command that excludes it (`everlean db rebuild`)."""

    pid: int
    purpose: str


class DaemonLock:
    """The held lock. Keep the object for as long as the daemon lives; `release` gives it back."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self.path = path
        self._file = file

    @classmethod
    def acquire(cls, path: Path, *, purpose: str = DAEMON) -> DaemonLock:
        """Acquire the lock and write our process id and purpose into it.

        Raises:
            AlreadyRunningError: another process holds it.
            FolderError: the folder cannot be written.
        """
        make_folder(path.parent)
        try:
            # O_CLOEXEC, so that no child process keeps the lock alive after us. Not to append: see `_write`.
            file = os.fdopen(
                os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+", encoding="ascii"
            )
        except OSError as error:
            raise _cannot_write(path, error, folder=path.parent) from error
        if not _take(file):
            other = _written(file)
            file.close()
            if other is None or not _lives(other.pid):
                raise AlreadyRunningError(path, pid=None)
            raise AlreadyRunningError(path, pid=other.pid, purpose=other.purpose)
        try:
            _write(file, f"{os.getpid()}" if purpose == DAEMON else f"{os.getpid()} {purpose}")
        except OSError as error:
            file.close()
            raise _cannot_write(path, error, folder=path.parent) from error
        return cls(path, file)

    def release(self) -> None:
        """Release the lock. The file stays: removing it would let two daemons lock two different files."""
        # The number in it is stale from now on: readers check the lock first.
        if not self._file.closed:
            self._file.close()


_OURS = frozenset({"events.db", "daemon.lock", "mirrors", "worktrees", "control.sock"})
"""By one of these a folder is known as the daemon's."""


def make_folder(folder: Path) -> None:
    """Make one of the daemon's folders.

    Raises:
        FolderError: the system refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error, folder=folder) from error


def keep_private() -> None:
    """Have all that this process makes be its user's alone.

    A umask that already keeps out whoever is neither user nor group was chosen by someone, as the unit's 0027, whose
    group may read: it stays.
    """
    before = os.umask(0o077)
    if before & 0o007 == 0o007:
        os.umask(before)


def close_folder(folder: Path) -> bool:
    """Take from a folder that is open to every user what the umask takes; return whether it did.

    Only from one that is ours: it has something of the daemon's, or nothing.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    about = folder.stat()
    mode = stat.S_IMODE(about.st_mode)
    if about.st_uid != os.geteuid() or mode & stat.S_ISVTX or not mode & 0o007:
        return False
    names = {entry.name for entry in folder.iterdir()}
    if names and not names & _OURS:
        return False
    try:
        folder.chmod(mode & ~umask)
    except OSError:
        return False  # a disk that takes nothing: what writes there next says so
    return True


def _cannot_write(path: Path, error: OSError, *, folder: Path) -> FolderError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FolderError(f"{path}: {error.strerror or error}; free some space", folder=folder)
    return FolderError(
        f"{path}: {error.strerror or error}; give this user write permission there, run as the daemon's user, or set"
        " another folder under [daemon] (`everlean doctor` shows which are in the way)",
        folder=folder,
    )


def holder(path: Path) -> int | None:
    """Return the process id of the holder of the lock file at `path`; None without one.

    For the locks of jobs and of GPUs, which outlive the process that took them in what it started. A holder that has
    not written its number yet does not count: it is not running anything either.
    """
    found = _noted(path)
    return None if found is None else found.pid


def who_holds(path: Path) -> Holder | None:
    """Return the holder of the daemon's lock at `path` and its purpose; None without one.

    It dies with its holder. If the process in the file is dead, another one has the lock since a moment, and
    does not count until it has written its number.
    """
    found = _noted(path)
    return found if found is not None and _lives(found.pid) else None


def _noted(path: Path) -> Holder | None:
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


def _write(file: IO[str], text: str) -> None:
    """Write over what the last holder left: a full disk has no room for a file's first byte, but for that."""
    os.pwrite(file.fileno(), f"{text:<{_WIDTH - 1}}"[: _WIDTH - 1].encode("ascii") + b"\n", 0)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _take(file: IO[str]) -> bool:
    # More than one try: a caller of `holder` holds a shared lock for an instant.
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
    pid, _, purpose = file.read(_WIDTH).strip().partition(" ")
    return Holder(int(pid), purpose or DAEMON) if pid.isdecimal() and int(pid) > 1 else None
