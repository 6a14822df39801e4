"""SQLite for the store: connections, its errors translated, the lock of the one writer, SQL files.

Standard library only: the command line's `status` pays for every import here.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

from store.errors import (
    DatabaseCorruptError,
    DatabaseFullError,
    DatabaseIOError,
    DatabaseLockedError,
    DatabaseMissingError,
    DatabaseReadOnlyError,
    LogError,
    NotALogError,
)
from store.files import HeldError, Lock, lock

BUSY_TIMEOUT_S = 5.0
_LINGERING_S = 0.5
"""The wait for a killed writer's lock: a child it was starting has it too, until the child's own program
runs."""

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
        "it is damaged: copy the folder aside, then restore a backup (a view is made anew by `everlean db rebuild`)",
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
    if str(error).startswith(("no such column:", "no such table:")):
        remedy = "another version made it; start the daemon, or run `everlean db rebuild`"
        return LogError(f"{path}: {error}; {remedy}")
    return LogError(f"{path}: {error}; run `everlean db check` and report this if the file is sound")


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


def uri(path: Path, **parameters: str | int) -> str:
    """Return SQLite's URI of a file, with its name escaped."""
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    return f"file:{quote(str(path.absolute()))}?{query}"


def connect_readonly(
    path: Path, *, check: Callable[[sqlite3.Connection, Path], None] | None = None
) -> sqlite3.Connection:
    """Open `path` without any possibility to write; rows are `sqlite3.Row`.

    A database in WAL mode needs its -wal and -shm files even for reading, and SQLite makes missing ones.
    After a clean stop they are missing or empty; a reader without write access to the folder then opens the
    file as immutable, which is right because the file alone is the whole database. With content in the -wal,
    this would show an old state or a torn one: it is an error with the remedy.

    Args:
        check: raises a LogError if the file is another kind of database.

    Raises:
        DatabaseMissingError: the file does not exist.
        DatabaseReadOnlyError: a -wal lies there, unreadable for this user along with the file.
        LogError: the file is no database, is damaged, or is locked.
    """
    if not path.is_file():
        raise DatabaseMissingError(
            f"{path}: no such database; start the daemon (`everlean run`) or name the right state folder"
        )
    try:
        return _open(path, check, mode="ro")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            raise translate(error, path) from error
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size > 0:
            raise DatabaseReadOnlyError(
                f"{path}: cannot be read without write access to its folder, because {wal.name} holds changes "
                "that are not in the file yet. Start the daemon, or read as the user that it runs as"
            ) from error
        try:
            return _open(path, check, mode="ro", immutable=1)
        except sqlite3.Error as second:
            raise translate(second, path) from second
    except sqlite3.Error as error:
        raise translate(error, path) from error


def _open(
    path: Path, check: Callable[[sqlite3.Connection, Path], None] | None, **parameters: str | int
) -> sqlite3.Connection:
    # A reader may be handed from thread to thread; its owner ensures one user at a time.
    connection = sqlite3.connect(
        uri(path, **parameters),
        uri=True,
        isolation_level=None,
        timeout=BUSY_TIMEOUT_S,
        check_same_thread=False,
    )
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        read_schema(connection)
        if check is not None:
            check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def read_schema(connection: sqlite3.Connection) -> int:
    """Make a connection's first real read, to find a lock or damage; return the schema's size.

    Raises:
        sqlite3.Error: also if SQLite's message quotes damaged text of the schema, undecodable for Python.
    """
    try:
        number: int = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    except UnicodeDecodeError as error:
        corrupt = sqlite3.DatabaseError(error.object.decode(errors="backslashreplace"))
        corrupt.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise corrupt from error
    return number


VIEW = ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 4000")
"""A view may lose its last transactions with the power: they are in the log. Each checkpoint waits for the
disk; one commit with a trace would else make one by itself."""

UNFINISHED = ("journal_mode = MEMORY", "synchronous = OFF", "locking_mode = EXCLUSIVE", "cache_size = -32768")
"""For a new file known only to its maker, worthless after a kill. The journal is needed, in memory, because a
failed event rolls its batch back."""

REPLACED = ("journal_mode = WAL", "synchronous = FULL")
"""For a view with its whole content replaced in one transaction."""


def connect_writable(
    path: Path, *, mode: str = "rwc", pragmas: Sequence[str] = (), cached_statements: int = 128
) -> sqlite3.Connection:
    """Open `path` for writing; transactions are begun and ended by name, and threads may share the connection.

    Raises:
        sqlite3.Error: SQLite cannot open the file, or refuses a pragma.
    """
    connection = sqlite3.connect(
        uri(path, mode=mode),
        uri=True,
        isolation_level=None,
        timeout=BUSY_TIMEOUT_S,
        check_same_thread=False,
        cached_statements=cached_statements,
    )
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def copy_into(source: sqlite3.Connection, target: Path) -> None:
    """Write the database of a connection into a new file, or over an old one."""
    copy = connect_writable(target)
    try:
        source.backup(copy)
    finally:
        copy.close()


def in_memory(script_text: str) -> sqlite3.Connection:
    """Return a database in memory made by a script."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(script_text)
    return connection


class WriterLock:
    """The exclusive lock of `<database>.lock`, with the writer's process id."""

    def __init__(self, held: Lock) -> None:
        self._held = held

    @classmethod
    def take(cls, database: Path) -> WriterLock:
        """Acquire the lock.

        Raises:
            DatabaseLockedError: another writer holds it, also after `_LINGERING_S`.
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
            held = lock(descriptor, wait_s=_LINGERING_S)
        except HeldError as error:
            raise DatabaseLockedError(
                f"{database}: process {error.note or 'unknown'} writes it; stop that one first (`everlean status` "
                "shows the daemon)"
            ) from error
        except OSError as error:
            raise DatabaseIOError(
                f"{path}: cannot be locked: {error.strerror}; put {database.parent} on a file system that has locks"
            ) from error
        held.leave_note(f"{os.getpid()}")
        return cls(held)

    def release(self) -> None:
        """Give the lock back. Safe to repeat; the file stays: removing it would race with the next writer."""
        self._held.release()


_FOLDER = Path(__file__).parent


@cache
def script(name: str) -> str:
    """Return the whole text of `store/<name>.sql`."""
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


@cache
def statements(name: str) -> dict[str, str]:
    """Return the named statements of `store/<name>.sql`: each starts after a line `-- name: <identifier>`."""
    result: dict[str, str] = {}
    for section in script(name).split("-- name: ")[1:]:
        title, _, body = section.partition("\n")
        result[title.strip()] = body.strip().removesuffix(";")
    return result
