"""One daemon a state folder: an exclusive lock, released by the kernel at any death of its holder.

Owns the lock file and the number in it. It imports next to nothing, so the command line can ask for the
holder.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from store.files import HeldError, Lock, lock

DAEMON = "daemon"
STANDBY = "everlean standby"
"""The purpose of a process that follows another machine's log (`daemon.state.standby`)."""
_PATIENCE_S = 0.25
"""A caller of `holder` holds a shared lock for an instant."""


class AlreadyRunningError(Exception):
    """Another process holds the state folder; `pid` is its process id, None if the file has none."""

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
    """The holder of a lock and its purpose: the daemon, or a command that excludes it (`everlean db
    rebuild`)."""

    pid: int
    purpose: str


class DaemonLock:
    """The held lock. Keep the object while the daemon lives; `release` gives it back."""

    def __init__(self, path: Path, held: Lock) -> None:
        self.path = path
        self._held = held

    @classmethod
    def acquire(cls, path: Path, *, purpose: str = DAEMON) -> DaemonLock:
        """Acquire the lock and write our process id and purpose into it.

        Raises:
            AlreadyRunningError: another process holds it.
            FolderError: the folder cannot be written.
        """
        make_folder(path.parent)
        try:
            held = lock(path, wait_s=_PATIENCE_S)
        except HeldError as error:
            other = _noted(error)
            if other is None or not _lives(other.pid):
                raise AlreadyRunningError(path, pid=None) from None
            raise AlreadyRunningError(path, pid=other.pid, purpose=other.purpose) from None
        except OSError as error:
            raise _cannot_write(path, error, folder=path.parent) from error
        try:
            held.leave_note(f"{os.getpid()}" if purpose == DAEMON else f"{os.getpid()} {purpose}")
        except OSError as error:
            held.release()
            raise _cannot_write(path, error, folder=path.parent) from error
        return cls(path, held)

    def release(self) -> None:
        """Release the lock. The number in it is stale from now on: readers check the lock first."""
        self._held.release()


_OURS = frozenset({"events.db", "daemon.lock", "mirrors", "worktrees", "control.sock"})
"""One of these marks a folder as the daemon's."""


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
    """Reserve this process's new files for its user.

    A umask without rights for others stays, such as the unit's 0027, since an administrator chose it.
    """
    before = os.umask(0o077)
    if before & 0o007 == 0o007:
        os.umask(before)


def close_folder(folder: Path) -> bool:
    """Take the umask's permissions from a folder open to every user; return whether it did.

    Only from one of ours: it has something of the daemon's, or nothing.
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
        return False  # a disk that takes nothing: the next writer there reports it
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

    For the locks of jobs and of GPUs, which outlive their process in its children. A holder without its
    number in the file does not count: it is not running anything either.
    """
    result = _holder(path)
    return None if result is None else result.pid


def who_holds(path: Path) -> Holder | None:
    """Return the holder of the daemon's lock at `path` and its purpose; None without one.

    It dies with its holder. If the process in the file is dead, another one has just taken the lock, and does
    not count until it has written its number.
    """
    result = _holder(path)
    return result if result is not None and _lives(result.pid) else None


def _holder(path: Path) -> Holder | None:
    try:
        lock(path, shared=True, wait_s=0, create=False).release()
    except FileNotFoundError:
        return None
    except HeldError as error:
        return _noted(error)
    return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _noted(error: HeldError) -> Holder | None:
    pid, _, purpose = error.note.partition(" ")
    return Holder(int(pid), purpose or DAEMON) if pid.isdecimal() and int(pid) > 1 else None
