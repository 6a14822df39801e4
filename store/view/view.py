"""The view of the log: open database.db for writing, catch up with the log in batches.

Each batch and its checkpoint are one transaction: a kill at any moment leaves the rows and the checkpoint of
the last whole batch (crash point C4). An unreadable or inapplicable event stops the projection: the events
before it are committed, and the reason is kept in the checkpoint's row for every reader.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from store.errors import (
    DatabaseMissingError,
    LogClosedError,
    LogDamagedError,
    LogError,
    NotALogError,
    ViewError,
)
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from store.log.upcast import read_body
from store.sqlite import VIEW, WriterLock, connect_readonly, connect_writable, translate, translated
from store.view import tables
from store.view.projections import apply

STATEMENTS = 512
"""The number of prepared statements kept by a view's writing connection: more than all projections have."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The position of a view, and the reason if it stopped."""

    seq: int
    event_id: str
    stopped_seq: int | None
    stopped_reason: str


def read_checkpoint(connection: sqlite3.Connection) -> Checkpoint:
    """Return the view's checkpoint.

    Raises:
        ViewError: the view has none.
    """
    row = connection.execute(
        "SELECT seq, event_id, stopped_seq, stopped_reason FROM view_position WHERE projection = ?",
        (tables.PROJECTION,),
    ).fetchone()
    if row is None:
        raise ViewError("the view has no checkpoint; make it anew with `everlean db rebuild`")
    return Checkpoint(*row)


def check_log(connection: sqlite3.Connection, log: LogReader) -> None:
    """Refuse a view made from another log, or from one with a lost end.

    Raises:
        ViewError: the log does not hold the view's last event.
    """
    checkpoint = read_checkpoint(connection)
    if checkpoint.seq == 0:
        return
    result = next(log.read(after=checkpoint.seq - 1, limit=1), None)
    if result is None or result.event_id != checkpoint.event_id:
        what = "ends before it" if result is None else f"has {result.event_id} there"
        raise ViewError(
            f"the view is at event {checkpoint.seq} ({checkpoint.event_id}), but {log.path} {what}: it belongs "
            "to another log, or the log was restored from a backup. Make the view anew with `everlean db rebuild`"
        )


def refuse_lost_end(log_path: Path, view_path: Path) -> None:
    """Refuse a log that ends before its view does: the view is the last witness. Changes nothing.

    Raises:
        LogDamagedError: the log has lost its end, or everything.
    """
    stands = reached(view_path)
    if stands == 0:
        return
    try:
        with LogReader.open(log_path) as log:
            last = log.position()
    except DatabaseMissingError:
        last = 0
    if last < stands:
        raise LogDamagedError(
            log_path,
            last + 1,
            f"{'missing or empty' if last == 0 else f'it ends at event {last}'}, while {view_path.name}, which is made "
            f"of it, stands at event {stands}",
        )


def reached(view_path: Path) -> int:
    """Return the last event of a view; 0 without a readable one."""
    try:
        with closing(connect_readonly(view_path)) as connection:
            row = connection.execute("SELECT max(seq) FROM view_position").fetchone()
    except (LogError, sqlite3.Error):
        return 0
    return int(row[0] or 0)


def catch_up(
    connection: sqlite3.Connection,
    log: LogReader,
    *,
    upto: int | None = None,
    batch: int = 1000,
) -> int:
    """Apply everything after the checkpoint (as far as `upto`); return the new position.

    Raises:
        UnknownEventError, MalformedEventError, BlobMissingError, BlobCorruptError: an event cannot be
            projected; everything before it is.
    """
    position = read_checkpoint(connection).seq
    events = log.read(after=position, upto=upto)
    while chunk := tuple(itertools.islice(events, batch)):
        _apply_all(connection, log, chunk)
        position = chunk[-1].seq
    return position


def _apply_all(connection: sqlite3.Connection, log: LogReader, events: Sequence[StoredEvent]) -> None:
    applied = 0
    connection.execute("BEGIN IMMEDIATE")
    try:
        for event in events:
            apply(connection, event, read_body(event), log)
            applied += 1
        _move(connection, events[-1])
        connection.execute("COMMIT")
    except LogError as stop:
        # The event may have left half of its rows: begin again, and end before it.
        connection.execute("ROLLBACK")
        _stop(connection, log, events[:applied], stopped=events[applied], reason=str(stop))
        raise
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _stop(
    connection: sqlite3.Connection,
    log: LogReader,
    events: Sequence[StoredEvent],
    *,
    stopped: StoredEvent,
    reason: str,
) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for event in events:
            apply(connection, event, read_body(event), log)
        if events:
            _move(connection, events[-1])
        connection.execute(
            "UPDATE view_position SET stopped_seq = ?, stopped_reason = ? WHERE projection = ?",
            (stopped.seq, reason, tables.PROJECTION),
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _move(connection: sqlite3.Connection, last: StoredEvent) -> None:
    connection.execute(
        "UPDATE view_position SET seq = ?, event_id = ?, stopped_seq = NULL, stopped_reason = '' "
        "WHERE projection = ?",
        (last.seq, last.event_id, tables.PROJECTION),
    )


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
        """Open the view for writing; make its tables if the file is missing. Reads no events yet.

        Raises:
            ViewError: the file is not this version's view of this log; `store.view.rebuild` mends that.
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
        """Apply the log's events after the checkpoint; return the new position.

        Raises:
            UnknownEventError, MalformedEventError, BlobMissingError, BlobCorruptError: the event of that
                number cannot be projected. Everything before it is, and `checkpoint` has the reason.
            DatabaseFullError and other LogErrors: the disk refused; the view stays at its event.
        """
        with self._lock, translated(self.path):
            return catch_up(self._open_connection(), self._log)

    def checkpoint(self) -> Checkpoint:
        """Return the view's position, and the reason if it stopped."""
        with self._lock, translated(self.path):
            return read_checkpoint(self._open_connection())

    def set_poll_state(
        self, repository: str, *, checked_at: str, next_due_at: str, outcome: str, etag: str | None = None
    ) -> None:
        """Record the last and the next poll of a repository, in the one table without events."""
        with self._lock, translated(self.path):
            self._open_connection().execute(
                "INSERT INTO poll_states (repository, checked_at, next_due_at, outcome, etag) "
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT (repository) DO UPDATE SET checked_at = excluded.checked_at, "
                "next_due_at = excluded.next_due_at, outcome = excluded.outcome, etag = excluded.etag",
                (repository, checked_at, next_due_at, outcome, etag),
            )

    def close(self) -> None:
        """Checkpoint and close. Safe to repeat; the caller's reader stays open."""
        with self._lock:
            if not self._closed:
                self._closed = True
                try:
                    with translated(self.path):
                        try:
                            # Closing checkpoints too, but not while a reader is connected.
                            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                        finally:
                            # A full disk refuses the checkpoint; the -wal then keeps the rest.
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
        connection = connect_writable(path, pragmas=VIEW, cached_statements=STATEMENTS)
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            tables.create(connection)
        check_schema(connection, path)
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        translation = translate(error, path)
        if isinstance(translation, NotALogError) or error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT:
            raise ViewError(f"{path}: {error}; make the view anew with `everlean db rebuild`") from error
        raise translation from error
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    return connection


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a view of another version.

    Raises:
        ViewError: its tables, or their projections, are not this version's.
    """
    result = connection.execute("PRAGMA user_version").fetchone()[0]
    if result != tables.fingerprint():
        raise ViewError(
            f"{path}: made by another version of everlean (tables {result:#x}, here {tables.fingerprint():#x}); make "
            "the view anew with `everlean db rebuild`, or start the daemon, which does so"
        )
