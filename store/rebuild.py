"""Make database.db anew from the log alone, and put it in the place of the old one.

The new view is built in a file beside (`database.db.rebuild-<pid>`), with no care for crashes, since a file that
was not finished is never used. Then it takes the old one's place:

- where there is an old view, all its pages are replaced in one SQLite transaction (the backup interface). A
  rename would not do: readers that have the old file open share its -wal and -shm by name with whoever opens
  the new one, and each would read the other's pages. Until the commit everybody sees the old tables,
  afterwards the new ones, and a kill in between leaves the old (crash point C9);
- where there is none, or one that SQLite cannot read, the new file is fsynced and renamed.
"""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from store.building import PollRow, build, remove
from store.catchup import check_log, read_checkpoint
from store.errors import LogError, translated
from store.lock import WriterLock
from store.reader import LogReader
from store.readonly import BUSY_TIMEOUT_S, connect_readonly, uri
from store.view import check_schema


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild did. `stopped` says why it ends before the log does, None where it does not."""

    position: int
    seconds: float
    poll_states: int
    stopped: str | None


def rebuild(log_path: Path, database_path: Path) -> RebuildReport:
    """Make the view anew; keep the poll states where they can be read.

    Raises:
        DatabaseLockedError: a daemon has the view open; stop it first.
        LogError: the log cannot be read, or not as far as the old view goes, or the disk refused; the old view is
            untouched.
    """
    started = time.monotonic()
    lock = WriterLock.take(database_path)
    temporary = beside(database_path, "rebuild")
    try:
        with translated(database_path), LogReader.open(log_path) as log:
            sweep(database_path)
            polls = _poll_states(database_path)
            stopped = build(temporary, log, upto=log.position(), polls=polls)
            position = _position(temporary)
            if stopped is not None and (reached := _reached(database_path, log)) > position:
                # Of a damaged log the old view may be the best that there is.
                raise LogError(
                    f"{database_path}: left as it is, up to event {reached}; a new one would end at event {position}: "
                    f"{stopped}. To make that one all the same, move the old one away first"
                )
            _install(temporary, database_path)
    finally:
        remove(temporary)
        lock.release()
    return RebuildReport(position, time.monotonic() - started, len(polls), stopped)


def beside(database_path: Path, purpose: str) -> Path:
    """Return the name of this process's temporary file in the view's folder."""
    return database_path.with_name(f"{database_path.name}.{purpose}-{os.getpid()}")


def sweep(database_path: Path) -> None:
    """Remove what killed rebuilds and verifications left; files of processes that live are theirs."""
    for purpose in ("rebuild", "verify"):
        for path in database_path.parent.glob(f"{database_path.name}.{purpose}-*"):
            owner = path.name.partition(f".{purpose}-")[2].partition(".")[0]
            if owner.isdigit() and not Path("/proc", owner).exists():
                remove(path)


def _install(temporary: Path, database_path: Path) -> None:
    if database_path.exists() and _replace_pages(temporary, database_path):
        return
    for suffix in ("-wal", "-shm"):
        database_path.with_name(database_path.name + suffix).unlink(missing_ok=True)
    temporary.replace(database_path)
    folder = os.open(database_path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _replace_pages(temporary: Path, database_path: Path) -> bool:
    """Put the new content into the old file in one transaction; False if the old file is no sound database."""
    new = sqlite3.connect(uri(temporary, mode="ro"), uri=True)
    try:
        old = sqlite3.connect(
            uri(database_path, mode="rw"), uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S
        )
        try:
            old.execute("PRAGMA journal_mode = WAL")
            old.execute("PRAGMA synchronous = FULL")
            new.backup(old)
            return str(old.execute("PRAGMA quick_check(1)").fetchone()[0]) == "ok"
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
                return False
            raise
        finally:
            old.close()
    finally:
        new.close()


def _position(path: Path) -> int:
    connection = connect_readonly(path)
    try:
        with translated(path):
            return read_checkpoint(connection).seq
    finally:
        connection.close()


def _reached(database_path: Path, log: LogReader) -> int:
    """Return how far the old view goes, 0 where there is none of this version and this log."""
    try:
        connection = connect_readonly(database_path)
    except LogError:
        return 0
    try:
        check_schema(connection, database_path)
        check_log(connection, log)
        return read_checkpoint(connection).seq
    except (LogError, sqlite3.Error):
        return 0
    finally:
        connection.close()


def _poll_states(database_path: Path) -> list[PollRow]:
    """Read the poll states of the old view. Losing them costs one poll each, so a broken view has none."""
    try:
        connection = connect_readonly(database_path)
    except LogError:
        return []
    try:
        return [
            tuple(row)
            for row in connection.execute(
                "SELECT repository, checked_at, next_due_at, outcome, etag FROM poll_states"
            )
        ]
    except sqlite3.Error:
        return []
    finally:
        connection.close()
