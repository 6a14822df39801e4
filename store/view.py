"""View: the writer of database.db, the view of the log that questions are asked of.

Owns the file's one writing connection; the daemon holds it while it runs. Questions are in `store.queries` and
use connections of their own; the tables are in `store.tables`; what events do to them is `store.projections`.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from store import schema
from store.catchup import STATEMENTS, Checkpoint, catch_up, check_log, read_checkpoint
from store.errors import LogClosedError, NotALogError, ViewError, translate, translated
from store.lock import WriterLock
from store.reader import LogReader
from store.readonly import BUSY_TIMEOUT_S, uri


class View:
    """The writer of a view. Thread-safe: one change at a time."""

    def __init__(self, connection: sqlite3.Connection, path: Path, log: LogReader, lock: WriterLock) -> None:
        self.path = path
        self._connection = connection
        self._log = log
        self._writer = lock
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, path: Path, log: LogReader) -> View:
        """Open the view for writing; make its tables where there is no file. Reads no events yet.

        Raises:
            ViewError: the file is not this version's view of this log; `store.projector.rebuild` mends that.
            DatabaseLockedError: another process writes it.
            LogError: the disk refused.
        """
        lock = WriterLock.take(path)
        try:
            connection = open_view(path)
            try:
                with translated(path):
                    check_log(connection, log)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            lock.release()
            raise
        return cls(connection, path, log, lock)

    def catch_up(self) -> int:
        """Apply what the log has after the checkpoint; return the position reached.

        Raises:
            UnknownEventError, MalformedEventError, BlobMissingError, BlobCorruptError: the event of that
                number cannot be projected. Everything before it is, and `checkpoint` says so.
            DatabaseFullError and other LogErrors: the disk refused; the view stands where it stood.
        """
        with self._lock, translated(self.path):
            return catch_up(self._open_connection(), self._log)

    def checkpoint(self) -> Checkpoint:
        """Return how far the view has come and what stopped it."""
        with self._lock, translated(self.path):
            return read_checkpoint(self._open_connection())

    def set_poll_state(
        self, repository: str, *, checked_at: str, next_due_at: str, outcome: str, etag: str | None = None
    ) -> None:
        """Note when a repository was polled and is due again: the one table that no event is behind."""
        with self._lock, translated(self.path):
            self._open_connection().execute(
                "INSERT INTO poll_states (repository, checked_at, next_due_at, outcome, etag) "
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT (repository) DO UPDATE SET checked_at = excluded.checked_at, "
                "next_due_at = excluded.next_due_at, outcome = excluded.outcome, etag = excluded.etag",
                (repository, checked_at, next_due_at, outcome, etag),
            )

    def close(self) -> None:
        """Checkpoint and close. Safe to repeat; the reader that was given stays open."""
        with self._lock:
            if not self._closed:
                self._closed = True
                try:
                    with translated(self.path):
                        try:
                            # Closing checkpoints too, but not while a reader is connected.
                            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                        finally:
                            # A full disk refuses the checkpoint; the -wal then keeps what the file lacks.
                            self._connection.close()
                finally:
                    self._writer.release()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _open_connection(self) -> sqlite3.Connection:
        if self._closed:
            raise LogClosedError(f"{self.path}: the view was closed; open it again")
        return self._connection


def open_view(path: Path) -> sqlite3.Connection:
    """Open a view's file for writing, in WAL mode, with this version's tables in it.

    Raises:
        ViewError: the file has other tables, is damaged, or is no database.
        LogError: the disk refused.
    """
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            uri(path, mode="rwc"),
            uri=True,
            isolation_level=None,
            timeout=BUSY_TIMEOUT_S,
            check_same_thread=False,
            cached_statements=STATEMENTS,
        )
        connection.execute("PRAGMA journal_mode = WAL")
        # A view may lose its last transactions with the power: they are in the log.
        connection.execute("PRAGMA synchronous = NORMAL")
        # Each checkpoint waits for the disk; one commit with a trace would else make one by itself.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            schema.create(connection)
        check_schema(connection, path)
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        translation = translate(error, path)
        if isinstance(translation, NotALogError) or error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT:
            raise ViewError(f"{path}: {error}; make the view anew with `unsorry db rebuild`") from error
        raise translation from error
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    return connection


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a view of another version.

    Raises:
        ViewError: its tables, or what is written to them, are not this version's.
    """
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found != schema.fingerprint():
        raise ViewError(
            f"{path}: made by another version of unsorry (tables {found:#x}, here {schema.fingerprint():#x}); make "
            "the view anew with `unsorry db rebuild`, or start the daemon, which does so"
        )
