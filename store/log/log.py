"""The event log: events.db, one SQLite file that is only ever appended to.

Owns the writing connection, the only one in the whole system (SQLite before 3.51.3 can corrupt a WAL that two
connections write or checkpoint at once). What an event says is `store.events`; what the log leads to is
`store.view.view`. Nothing here runs a side effect.

    with EventLog.open(path) as log:
        log.append([NewEvent("config", ConfigLoaded(...))], expect={"config": Expect.ANY})
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from store.errors import (
    ConcurrencyError,
    IdempotencyError,
    InvalidAppendError,
    LogClosedError,
    LogError,
    NotALogError,
)
from store.log import blobs as blob_table
from store.log.envelope import (
    Appended,
    Expect,
    NewEvent,
    Prepared,
    content_hash,
    meets,
    now_text,
    prepare,
)
from store.log.reader import APPLICATION_ID, LOG_VERSION, LogReader, check_identity
from store.sqlite import WriterLock, connect_writable, copy_into, script, translated

Recorded = tuple[int, int, str, str, int, str, str | None]
"""Of an event in the log: seq, version, stream, type, schema_version, data, occurred_at."""


def check_batch(prepared: Sequence[Prepared], expect: Mapping[str, int | Expect]) -> None:
    """Refuse what could never be appended.

    Raises:
        InvalidAppendError: nothing to append, a stream without an expectation, or one id twice.
    """
    if not prepared:
        raise InvalidAppendError("an append needs at least one event")
    seen: set[str] = set()
    for event in prepared:
        if not event.stream:
            raise InvalidAppendError(f"{event.type}: its stream has no name")
        if event.stream not in expect:
            raise InvalidAppendError(
                f"{event.type}: no expected version was given for stream {event.stream!r}; name it, or Expect.ANY"
            )
        if event.event_id in seen:
            raise InvalidAppendError(
                f"{event.type}: event id {event.event_id} is in one batch twice; make its natural key unique"
            )
        seen.add(event.event_id)


def check_expectations(versions: Mapping[str, int], expect: Mapping[str, int | Expect]) -> None:
    """Compare the streams with what was expected of them.

    Raises:
        ConcurrencyError: the first stream that differs.
    """
    for stream, expected in expect.items():
        if not meets(versions[stream], expected):
            wanted = f"version {expected}" if isinstance(expected, int) else expected.value
            raise ConcurrencyError(stream, expected=wanted, actual=versions[stream])


def recorded_before(prepared: Sequence[Prepared], found: Mapping[str, Recorded]) -> Appended | None:
    """Decide whether a batch is a repetition: None if it is new, its positions if all of it is recorded.

    Raises:
        IdempotencyError: an id was recorded with other content, only a part is recorded, or out of order.
    """
    if not found:
        return None
    other = tuple(
        event.event_id
        for event in prepared
        if event.event_id in found and event.content_hash() != content_hash(*found[event.event_id][2:])
    )
    if other:
        raise IdempotencyError(other, "recorded before with other content")
    if len(found) < len(prepared):
        raise IdempotencyError(
            tuple(event.event_id for event in prepared if event.event_id in found),
            f"{len(found)} of the {len(prepared)} events of this batch are recorded and the others are not",
        )
    positions = [found[event.event_id][0] for event in prepared]
    if positions != sorted(positions):
        raise IdempotencyError(
            tuple(event.event_id for event in prepared), "recorded before in another order than now"
        )
    return Appended(
        first_seq=positions[0],
        last_seq=positions[-1],
        repeated=True,
        versions={event.stream: found[event.event_id][1] for event in prepared},
    )


class EventLog:
    """The writer of an event log. Thread-safe: one append at a time."""

    def __init__(self, connection: sqlite3.Connection, path: Path, lock: WriterLock) -> None:
        self.path = path
        self._connection = connection
        self._writer = lock
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, path: Path) -> EventLog:
        """Open a log for writing, and create it if it does not exist.

        Raises:
            DatabaseLockedError: another process writes it (its process id is in the message).
            LogVersionError: a newer version of this program wrote it.
            NotALogError: the file is something else.
            DatabaseReadOnlyError, DatabaseIOError: the folder is missing or cannot be written.
        """
        lock = WriterLock.take(path)
        try:
            with translated(path):
                connection = connect_writable(path, pragmas=("foreign_keys = ON",))
                try:
                    _prepare_file(connection, path)
                except BaseException:
                    connection.close()
                    raise
        except BaseException:
            lock.release()
            raise
        return cls(connection, path, lock)

    def append(
        self,
        events: Sequence[NewEvent],
        *,
        expect: Mapping[str, int | Expect],
        blobs: Mapping[str, Path] | None = None,
    ) -> Appended:
        """Record events, and the blobs that they cite, all or nothing, durable when this returns.

        `expect` names, for every stream of the batch, the version that it must have before (and may name
        streams that are only to be guarded). `blobs` maps a SHA-256 to the file that holds the payload.

        A batch whose events all are in the log with the same content changes nothing and returns
        `repeated=True`, whatever was expected: an id is a fact's name, so the fact is recorded.

        Returns the seqs of the batch and, by stream, the version that it brought the stream to.

        Raises:
            ConcurrencyError: a stream has another version.
            IdempotencyError: an id has other content, or only a part of the batch is in the log.
            BlobMissingError, BlobCorruptError: a payload is absent or is not what its name says.
            InvalidAppendError: empty batch, stream without expectation, one id twice.
            DatabaseFullError and other LogErrors: the disk refused; nothing was written.
        """
        prepared = [prepare(event) for event in events]
        check_batch(prepared, expect)
        with self._lock, translated(self.path):
            if self._closed:
                raise LogClosedError(f"{self.path}: the log was closed; open it again")
            # Reading a payload and compressing it takes longer than the transaction should.
            packed = self._packed(prepared, blobs or {})
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                appended = self._append(prepared, expect, packed)
                self._connection.execute("COMMIT")
            except BaseException:
                # After a disk error SQLite has rolled back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            return appended

    def reader(self) -> LogReader:
        """Open a reader of this log, with its own connection."""
        return LogReader.open(self.path)

    def copy_to(self, target: Path) -> None:
        """Write everything into a new file: the way out when the log's own file was taken from under the daemon."""
        with self._lock, translated(target):
            copy_into(self._connection, target)

    def close(self) -> None:
        """Checkpoint and close; afterwards the file alone is the whole log. Safe to repeat."""
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

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _packed(self, prepared: Sequence[Prepared], files: Mapping[str, Path]) -> list[blob_table.PackedBlob]:
        digests: frozenset[str] = frozenset().union(*(blob_table.cited(event.data) for event in prepared))
        if not digests and not files:
            return []
        if self._recorded(prepared) is not None:
            return []  # a repetition needs none of its payloads again
        return blob_table.collect(self._connection, cited_digests=digests, files=files)

    def _append(
        self,
        prepared: Sequence[Prepared],
        expect: Mapping[str, int | Expect],
        packed: Sequence[blob_table.PackedBlob],
    ) -> Appended:
        repeated = self._recorded(prepared)
        if repeated is not None:
            return repeated
        versions = {
            stream: self._connection.execute(
                "SELECT coalesce(max(version), 0) FROM events WHERE stream = ?", (stream,)
            ).fetchone()[0]
            for stream in expect
        }
        check_expectations(versions, expect)
        recorded_at = now_text()
        first = self._connection.execute("SELECT coalesce(max(seq), 0) + 1 FROM events").fetchone()[0]
        rows = []
        for seq, event in enumerate(prepared, start=first):
            versions[event.stream] += 1
            rows.append(
                (
                    seq,
                    event.event_id,
                    event.stream,
                    versions[event.stream],
                    event.type,
                    event.schema_version,
                    event.data,
                    recorded_at,
                    event.occurred_at,
                    event.correlation_id,
                    event.causation_id,
                    event.actor,
                )
            )
        blob_table.insert(self._connection, packed)
        self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        return Appended(
            first_seq=first,
            last_seq=first + len(rows) - 1,
            repeated=False,
            versions={event.stream: versions[event.stream] for event in prepared},
        )

    def _recorded(self, prepared: Sequence[Prepared]) -> Appended | None:
        given = [event.event_id for event in prepared if event.has_given_id]
        if not given:
            return None
        rows = self._connection.execute(
            "SELECT event_id, seq, version, stream, type, schema_version, data, occurred_at FROM events "
            "WHERE event_id IN (SELECT value FROM json_each(?))",
            (json.dumps(given),),
        ).fetchall()
        return recorded_before(prepared, {row[0]: tuple(row[1:]) for row in rows})


def _prepare_file(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables in an empty file, check the identity of any other."""
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        check_identity(connection, path)
    elif connection.execute("PRAGMA application_id").fetchone()[0] not in {0, APPLICATION_ID}:
        raise NotALogError(f"{path}: an empty database of another program; check the state folder")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise LogError(
            f"{path}: SQLite cannot use WAL here (it answers {mode!r}); put the state folder on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        # One transaction: a kill in between leaves an empty file, which the next start fills.
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{script('log/schema')}\n"
            f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {LOG_VERSION};\nCOMMIT;"
        )
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new file's name durable; SQLite does so for its journals but not for a database in WAL mode."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
