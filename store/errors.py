"""What can go wrong in the store: one base class, and the one place where SQLite's errors are translated.

Each class carries its data as attributes; the message names the thing, the reason and the remedy.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LogError(Exception):
    """The store cannot do what was asked. Nothing was written."""


class InvalidAppendError(LogError):
    """An append that could never succeed: empty, without an expectation, or not storable as JSON text."""


class ConcurrencyError(LogError):
    """A stream is not at the version that the caller expected; nothing was written."""

    def __init__(self, stream: str, *, expected: object, actual: int) -> None:
        super().__init__(
            f"stream {stream!r} is at version {actual}, expected {expected}; nothing was written. "
            "Read the stream again and decide anew"
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class IdempotencyError(LogError):
    """An event id is in the log with other content, or only a part of the batch is there."""

    def __init__(self, event_ids: tuple[str, ...], reason: str) -> None:
        shown = ", ".join(event_ids[:3]) + (" …" if len(event_ids) > 3 else "")
        super().__init__(
            f"events {shown}: {reason}; nothing was written. The log keeps what it recorded first"
        )
        self.event_ids = event_ids


class UnknownEventError(LogError):
    """An event type, or a version of it, that this program does not know. It is never skipped."""

    def __init__(self, seq: int, event_type: str, version: int, *, known: int | None) -> None:
        why = "no such type" if known is None else f"the newest known version is {known}"
        super().__init__(
            f"event {seq}: {event_type} version {version} cannot be read ({why}). It was written by a newer "
            "unsorry: install that version or a later one; what lies before it can still be read"
        )
        self.seq = seq
        self.type = event_type
        self.version = version
        self.known = known


class MalformedEventError(LogError):
    """A stored event does not have the shape that its type and version promise."""

    def __init__(self, seq: int, event_type: str, version: int, reason: str) -> None:
        super().__init__(
            f"event {seq}: {event_type} version {version} has not the shape of its type ({reason}). Check the "
            "file with `unsorry db check`, restore a backup, or add the missing upcast"
        )
        self.seq = seq
        self.type = event_type
        self.version = version


class BlobMissingError(LogError):
    """A payload that an event cites is neither in the log nor given with the append."""

    def __init__(self, sha256: str, *, reason: str = "it is not in the log") -> None:
        super().__init__(
            f"blob {sha256}: {reason}. Give its file with the append; the job that staged it can be run again"
        )
        self.sha256 = sha256


class BlobCorruptError(LogError):
    """A payload does not have the hash that it is named by."""

    def __init__(self, sha256: str, *, actual: str, where: str) -> None:
        super().__init__(
            f"blob {sha256} in {where} hashes to {actual}: it was changed or cut short. Stage it again, or restore "
            "the log from a backup if it is the log's own copy"
        )
        self.sha256 = sha256
        self.actual = actual


class LogVersionError(LogError):
    """The file was written by a newer version of this program."""


class NotALogError(LogError):
    """The file is no database, or a database of something else."""


class DatabaseMissingError(LogError):
    """There is no such database file."""


class DatabaseReadOnlyError(LogError):
    """The file or its folder cannot be written."""


class DatabaseLockedError(LogError):
    """Another process holds the database."""


class DatabaseFullError(LogError):
    """The disk, or the quota, is full. What was acknowledged before is safe."""


class DatabaseCorruptError(LogError):
    """SQLite finds the file damaged."""


class DatabaseIOError(LogError):
    """The operating system failed to read or write the file."""


class LogClosedError(LogError):
    """The log was used after `close`."""


class ViewError(LogError):
    """database.db does not have this version's tables. It is only a view and can be made again."""


_KINDS: dict[int, tuple[type[LogError], str]] = {
    sqlite3.SQLITE_FULL: (
        DatabaseFullError,
        "the disk or the quota is full: free some space, what was acknowledged is safe",
    ),
    sqlite3.SQLITE_READONLY: (
        DatabaseReadOnlyError,
        "the file or its folder is read-only: give this user write permission, or remount the disk",
    ),
    sqlite3.SQLITE_BUSY: (
        DatabaseLockedError,
        "another process holds it: stop the other program (a SQLite shell, a backup tool) and try again",
    ),
    sqlite3.SQLITE_LOCKED: (
        DatabaseLockedError,
        "another connection holds it: close it and try again",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        DatabaseIOError,
        "it cannot be opened: this user must be allowed to read it, the folder to be written while a -wal lies there",
    ),
    sqlite3.SQLITE_PERM: (DatabaseReadOnlyError, "access was denied: check the owner of the file"),
    sqlite3.SQLITE_NOTADB: (
        NotALogError,
        "it is no SQLite database: check the path, or restore a backup",
    ),
    sqlite3.SQLITE_CORRUPT: (
        DatabaseCorruptError,
        "it is damaged: copy the folder aside, then restore a backup (a view is made anew by `unsorry db rebuild`)",
    ),
    sqlite3.SQLITE_IOERR: (
        DatabaseIOError,
        "the disk failed: look at the kernel's log, and check that the path is still mounted",
    ),
}


def translate(error: sqlite3.Error, path: Path | str) -> LogError:
    """Return our error for one of SQLite's; the caller raises it `from` the original."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and (code & 0xFF) in _KINDS:
        kind, remedy = _KINDS[code & 0xFF]
        return kind(f"{path}: {error}; {remedy}")
    return LogError(f"{path}: {error}; run `unsorry db check` and report this if the file is sound")


def translate_os(error: OSError, path: Path | str) -> LogError:
    """Return our error for one of the operating system's; the caller raises it `from` the original."""
    what = f"{error.filename or path}: {error.strerror or error}"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DatabaseFullError(f"{what}; free some space, what was acknowledged is safe")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return DatabaseReadOnlyError(f"{what}; give this user write permission there, or remount the disk")
    return DatabaseIOError(f"{what}; check that the path exists and that its disk is mounted")


@contextmanager
def translated(path: Path | str) -> Iterator[None]:
    """Turn any `sqlite3.Error` or `OSError` of the block into a `LogError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except OSError as error:
        raise translate_os(error, path) from error
