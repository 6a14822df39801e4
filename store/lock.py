"""One writer for one database file, held by the kernel so that it ends with the process.

The lock lies on a file of its own: opening and closing the database itself a second time in a process would
drop SQLite's POSIX locks on it (https://www.sqlite.org/howtocorrupt.html, section 2.2).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from store.errors import DatabaseIOError, DatabaseLockedError, DatabaseReadOnlyError


class WriterLock:
    """An exclusive `flock` on `<database>.lock`, which holds the writer's process id."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, database: Path) -> WriterLock:
        """Take the lock, without waiting.

        Raises:
            DatabaseLockedError: another writer holds it.
            DatabaseIOError, DatabaseReadOnlyError: the folder is missing or cannot be written.
        """
        path = database.with_name(database.name + ".lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError as error:
            raise DatabaseIOError(
                f"{database}: its folder does not exist; create {database.parent}"
            ) from error
        except OSError as error:
            raise DatabaseReadOnlyError(
                f"{path}: {error.strerror}; give this user write permission in {database.parent}"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise DatabaseLockedError(
                f"{database}: process {holder or 'unknown'} writes it; stop that one first (`unsorry status` "
                "shows the daemon)"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Give the lock back. Safe to repeat; the file stays, for removing it would race with the next writer."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
