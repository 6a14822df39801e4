"""The event log: events.db, one append-only SQLite file.

Owns the only writing connection in the whole system (SQLite before 3.51.3 can corrupt a WAL if two
connections write or checkpoint at once). The events are in `store.events`, their view in `store.view.view`.
Nothing here runs a side effect.

    with EventLog.open(path) as log:
        log.append([NewEvent("config", ConfigLoaded(...))], expect={"config": Expect.ANY})
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from store.errors import (
    BlobCorruptError,
    BlobMissingError,
    ConcurrencyError,
    IdempotencyError,
    InvalidAppendError,
    LogClosedError,
    LogDamagedError,
    LogError,
    NotALogError,
)
from store.files import sync
from store.log import blobs as blob_table
from store.log import chain
from store.log.anchor import Anchor, check_end
from store.log.envelope import (
    COLUMNS,
    Appended,
    Expect,
    NewEvent,
    Prepared,
    content_hash,
    meets,
    now_text,
    prepare,
)
from store.log.identity import APPLICATION_ID, LOG_VERSION, check_identity, damaged_header
from store.log.reader import LogReader
from store.sqlite import WriterLock, connect_writable, copy_into, read_schema, script, translated

_INSERT = f"INSERT INTO events VALUES ({', '.join('?' * len(COLUMNS))})"

CALLERS_MISTAKES = (
    ConcurrencyError,
    IdempotencyError,
    BlobMissingError,
    BlobCorruptError,
    InvalidAppendError,
)
"""The errors of a faulty batch, raised before any part of it is put into a transaction."""

Recorded = tuple[int, int, str, str, int, str, str | None]
"""An event in the log: seq, version, stream, type, schema_version, data, occurred_at."""


def check_batch(prepared: Sequence[Prepared], expect: Mapping[str, int | Expect]) -> None:
    """Refuse batches that can never be appended.

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
    """Compare the streams with their expectations.

    Raises:
        ConcurrencyError: the first stream that differs.
    """
    for stream, expected in expect.items():
        if not meets(versions[stream], expected):
            version = f"version {expected}" if isinstance(expected, int) else expected.value
            raise ConcurrencyError(stream, expected=version, actual=versions[stream])


def recorded_before(prepared: Sequence[Prepared], records: Mapping[str, Recorded]) -> Appended | None:
    """Decide whether a batch is a repetition: None if it is new, its positions if all of it is recorded.

    Raises:
        IdempotencyError: an id was recorded with other content, only a part is recorded, or out of order.
    """
    if not records:
        return None
    other = tuple(
        event.event_id
        for event in prepared
        if event.event_id in records and event.content_hash() != content_hash(*records[event.event_id][2:])
    )
    if other:
        raise IdempotencyError(other, "recorded before with other content")
    if len(records) < len(prepared):
        raise IdempotencyError(
            tuple(event.event_id for event in prepared if event.event_id in records),
            f"{len(records)} of the {len(prepared)} events of this batch are recorded and the others are not",
        )
    positions = [records[event.event_id][0] for event in prepared]
    if positions != sorted(positions):
        raise IdempotencyError(
            tuple(event.event_id for event in prepared), "recorded before in another order than now"
        )
    return Appended(
        first_seq=positions[0],
        last_seq=positions[-1],
        repeated=True,
        versions={event.stream: records[event.event_id][1] for event in prepared},
    )


class Batch(NamedTuple):
    """The contents of one append: see `EventLog.append`."""

    events: Sequence[NewEvent]
    expect: Mapping[str, int | Expect]
    blobs: Mapping[str, Path]


class EventLog:
    """The writer of an event log. Thread-safe: one append at a time."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, lock: WriterLock, anchor: Anchor, head: chain.Link
    ) -> None:
        self.path = path
        self._connection = connection
        self._writer = lock
        self._anchor = anchor
        self._head = head
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, path: Path) -> EventLog:
        """Open a log for writing, and create it if it does not exist.

        Raises:
            DatabaseLockedError: another process writes it (its process id is in the message).
            LogVersionError: a newer version of this program wrote it.
            NotALogError: the file is something else.
            LogDamagedError: it ends before its anchor; the files are untouched.
            DatabaseReadOnlyError, DatabaseIOError: the folder is missing or cannot be written.
        """
        lock = WriterLock.take(path)
        try:
            # Before any writable connection: closing one folds the -wal in and removes salvageable data.
            check_end(path)
            if wrong := damaged_header(path):
                raise LogDamagedError(path, None, wrong)
            with translated(path):
                connection = connect_writable(path, pragmas=("foreign_keys = ON",))
                try:
                    _prepare_file(connection, path)
                    head = _head(connection, path)
                    anchor = Anchor.open(path, head)
                except BaseException:
                    connection.close()
                    raise
        except BaseException:
            lock.release()
            raise
        return cls(connection, path, lock, anchor, head)

    def append(
        self,
        events: Sequence[NewEvent],
        *,
        expect: Mapping[str, int | Expect],
        blobs: Mapping[str, Path] | None = None,
    ) -> Appended:
        """Record events and their blobs, all or nothing, durable on return.

        `expect` names, for every stream of the batch, its version before (and may name streams only to guard
        them). `blobs` maps a SHA-256 to the payload's file.
        If all events of a batch are in the log with the same content, nothing changes and the result is
        `repeated=True`, whatever the expectations: an id is a fact's name, so the fact is recorded. Returns
        the seqs of the batch and each stream's new version.

        Raises:
            ConcurrencyError: a stream has another version.
            IdempotencyError: an id has other content, or only a part of the batch is in the log.
            BlobMissingError, BlobCorruptError: a payload is absent or has another hash.
            InvalidAppendError: empty batch, stream without expectation, one id twice.
            DatabaseFullError and other LogErrors: the disk refused; nothing was written.
        """
        (outcome,) = self.append_all([Batch(events, expect, blobs or {})])
        if isinstance(outcome, LogError):
            raise outcome
        return outcome

    def append_all(self, batches: Sequence[Batch]) -> list[Appended | LogError]:
        """Record batches in their order, in one transaction with one wait for the disk.

        Returns, by batch, the result of `append`, or its error if the batch is faulty: a faulty one is left
        out, the others are recorded.

        Raises:
            DatabaseFullError and other LogErrors: the disk refused; nothing of any batch was written.
        """
        outcomes: dict[int, Appended | LogError] = {}
        ready: list[tuple[int, list[Prepared], list[blob_table.PackedBlob]]] = []
        with self._lock, translated(self.path):
            if self._closed:
                raise LogClosedError(f"{self.path}: the log was closed; open it again")
            for at, batch in enumerate(batches):
                try:
                    prepared = [prepare(event) for event in batch.events]
                    check_batch(prepared, batch.expect)
                    # Reading a payload and compressing it takes longer than the transaction should.
                    ready.append((at, prepared, self._pack(prepared, batch.blobs)))
                except CALLERS_MISTAKES as error:
                    outcomes[at] = error
            with self._transaction():
                head = self._head
                for at, prepared, packed in ready:
                    try:
                        outcomes[at], head = self._put(
                            prepared, batches[at].expect, packed, after=head, alone=len(ready) == 1
                        )
                    except CALLERS_MISTAKES as error:
                        outcomes[at] = error
                if head is not self._head and len(ready) > 1:
                    # It waits for the disk beside the commit.
                    self._anchor.begin(head)
            if head is not self._head:
                self._head = head
                self._anchor.settle(head)
        return [outcomes[at] for at in range(len(batches))]

    def copy(self, recorded: Iterable[tuple[Sequence[chain.Column], Sequence[blob_table.Row]]]) -> None:
        """Record another log's events in one transaction: rows of events, each with its payloads' rows.

        They keep their numbers and times, and thereby their hashes.

        Raises:
            InvalidAppendError: an event does not follow the one before; nothing was written.
            DatabaseFullError and other LogErrors: the disk refused, or the iterator did; nothing was written.
        """
        with self._lock, translated(self.path):
            if self._closed:
                raise LogClosedError(f"{self.path}: the log was closed; open it again")
            with self._transaction():
                head = self._head
                for event, blobs in recorded:
                    if event[0] != head.seq + 1:
                        raise InvalidAppendError(f"event {event[0]!r} does not follow event {head.seq}")
                    head = chain.linked(head, event, blobs)
                    put(self._connection, head, event, blobs)
                if head is not self._head:
                    self._anchor.begin(head)
            if head is not self._head:
                self._head = head
                self._anchor.settle(head)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # After a disk error SQLite has rolled back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._anchor.abandon()
            raise

    @property
    def head(self) -> chain.Link:
        """The last link of the chain."""
        return self._head

    def reader(self) -> LogReader:
        """Open a reader of this log, with its own connection."""
        return LogReader.open(self.path)

    def fold_in(self) -> bool:
        """Fold the -wal into the file; return whether all of it is there.

        Frames newer than a reader's snapshot have to wait. Until then a young log lies in its -wal alone.
        """
        with self._lock, translated(self.path):
            row = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        _busy, frames, folded_in = row
        return bool(frames == folded_in)

    def copy_to(self, target: Path) -> None:
        """Write everything into a new file, for a log whose file is gone from under the daemon."""
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
                            # A full disk refuses the checkpoint; the -wal then keeps the rest.
                            self._connection.close()
                finally:
                    self._anchor.close()
                    self._writer.release()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _pack(self, prepared: Sequence[Prepared], files: Mapping[str, Path]) -> list[blob_table.PackedBlob]:
        digests: frozenset[str] = frozenset().union(*(blob_table.cited(event.data) for event in prepared))
        if not digests and not files:
            return []
        if self._find_repetition(prepared) is not None:
            return []  # a repetition needs none of its payloads again
        return blob_table.collect(self._connection, cited_digests=digests, files=files)

    def _put(
        self,
        prepared: Sequence[Prepared],
        expect: Mapping[str, int | Expect],
        packed: Sequence[blob_table.PackedBlob],
        *,
        after: chain.Link,
        alone: bool = False,
    ) -> tuple[Appended, chain.Link]:
        """Put a batch into the open transaction, behind the last link; a faulty one leaves nothing.

        `alone`: no other follows, and the anchor begins to wait for the disk while the rows are put in.
        """
        repeated = self._find_repetition(prepared)
        if repeated is not None:
            return repeated, after
        versions = {
            stream: self._connection.execute(
                "SELECT coalesce(max(version), 0) FROM events WHERE stream = ?", (stream,)
            ).fetchone()[0]
            for stream in expect
        }
        check_expectations(versions, expect)
        recorded_at = now_text()
        first = after.seq + 1
        rows: list[tuple[chain.Column, ...]] = []
        for seq, event in enumerate(prepared, start=first):
            versions[event.stream] += 1
            rows.append((seq, *event.row(versions[event.stream], recorded_at)))
        if packed:
            # A batch before this one in the transaction may have brought the same payload.
            new = blob_table.missing(self._connection, (one.sha256 for one in packed))
            packed = [one for one in packed if one.sha256 in new]
        covered = blob_table.rows(packed, after=after.blobs)
        links = [chain.linked(after, rows[0], covered)]
        for row in rows[1:]:
            links.append(chain.linked(links[-1], row))
        if alone:
            self._anchor.begin(links[-1])
        blob_table.insert(self._connection, covered)
        self._connection.executemany(_INSERT, rows)
        chain.insert(self._connection, links)
        appended = Appended(
            first_seq=first,
            last_seq=first + len(rows) - 1,
            repeated=False,
            versions={event.stream: versions[event.stream] for event in prepared},
        )
        return appended, links[-1]

    def _find_repetition(self, prepared: Sequence[Prepared]) -> Appended | None:
        event_ids = [event.event_id for event in prepared if event.has_given_id]
        if not event_ids:
            return None
        # One id, as most batches have, is found faster without making a list of it.
        which = (
            ("= ?", event_ids[0])
            if len(event_ids) == 1
            else ("IN (SELECT value FROM json_each(?))", json.dumps(event_ids))
        )
        rows = self._connection.execute(
            "SELECT event_id, seq, version, stream, type, schema_version, data, occurred_at FROM events "
            f"WHERE event_id {which[0]}",
            (which[1],),
        ).fetchall()
        return recorded_before(prepared, {row[0]: tuple(row[1:]) for row in rows})


def _prepare_file(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables in an empty file, check the identity of any other."""
    if read_schema(connection):
        check_identity(connection, path)
    elif connection.execute("PRAGMA application_id").fetchone()[0] not in {0, APPLICATION_ID}:
        raise NotALogError(f"{path}: an empty database of another program; check the state folder")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise LogError(
            f"{path}: SQLite cannot use WAL here (it answers {mode!r}); put the state folder on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")
    if read_schema(connection) == 0:
        # One transaction: a kill in between leaves an empty file for the next start to fill.
        connection.executescript(f"BEGIN IMMEDIATE;\n{_tables()}\nCOMMIT;")
        sync(path.parent)


def _tables() -> str:
    identity = f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {LOG_VERSION};"
    return f"{script('log/schema')}\n{identity}"


@contextmanager
def new_log(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield one transaction for a log `put` into a new file, whole or not at all."""
    with closing(connect_writable(path, pragmas=("synchronous = OFF",))) as connection:
        connection.executescript(f"BEGIN;\n{_tables()}")
        yield connection
        connection.execute("COMMIT")
    sync(path)


def put(
    connection: sqlite3.Connection,
    link: chain.Link,
    event: Sequence[chain.Column],
    blobs: Sequence[blob_table.Row],
) -> None:
    """Store an event's row, its link and its blobs inside the caller's transaction."""
    blob_table.insert(connection, blobs)
    connection.execute(_INSERT, event)
    chain.insert(connection, [link])


def _head(connection: sqlite3.Connection, path: Path) -> chain.Link:
    """Return the chain's last link.

    Raises:
        LogDamagedError: the chain does not end with the log.
    """
    last = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
    head = chain.last(connection)
    if head.seq != last:
        raise LogDamagedError(
            path,
            min(head.seq, last) + 1,
            f"its last event is {last}, and its chain ends at event {head.seq}",
        )
    return head
