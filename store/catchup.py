"""Bring a view up to the log: read, apply, and move the checkpoint, all of a batch in one transaction.

A kill at any moment leaves the rows and the checkpoint of the last whole batch (crash point C4). An event that
cannot be read or applied stops the projection: what lies before it is committed, and the reason is kept in
the checkpoint's row for everybody who asks.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from store import schema
from store.envelope import StoredEvent
from store.errors import LogError, ViewError
from store.projections import apply
from store.reader import LogReader
from store.upcast import read_body

STATEMENTS = 512
"""How many prepared statements a view's writing connection keeps: more than all projections have."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a view has come, and what stopped it, if anything did."""

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
        (schema.PROJECTION,),
    ).fetchone()
    if row is None:
        raise ViewError("the view has no checkpoint; make it anew with `unsorry db rebuild`")
    return Checkpoint(*row)


def check_log(connection: sqlite3.Connection, log: LogReader) -> None:
    """Refuse a view that was made from another log, or from one that has lost its end.

    Raises:
        ViewError: the log does not hold the event that the view has come to.
    """
    checkpoint = read_checkpoint(connection)
    if checkpoint.seq == 0:
        return
    found = next(log.read(after=checkpoint.seq - 1, limit=1), None)
    if found is None or found.event_id != checkpoint.event_id:
        what = "ends before it" if found is None else f"has {found.event_id} there"
        raise ViewError(
            f"the view stands at event {checkpoint.seq} ({checkpoint.event_id}), but {log.path} {what}: it belongs "
            "to another log, or the log was restored from a backup. Make the view anew with `unsorry db rebuild`"
        )


def catch_up(
    connection: sqlite3.Connection,
    log: LogReader,
    *,
    upto: int | None = None,
    batch: int = 1000,
    concerns: Callable[[str], bool] | None = None,
) -> int:
    """Apply everything after the checkpoint (as far as `upto`); return the new position.

    With `concerns` only events whose type it holds for: the others are another's to apply.

    Raises:
        UnknownEventError, MalformedEventError, BlobMissingError, BlobCorruptError: an event cannot be
            projected; everything before it is.
    """
    position = read_checkpoint(connection).seq
    events = log.read(after=position, upto=upto)
    while chunk := tuple(itertools.islice(events, batch)):
        ours = chunk if concerns is None else [event for event in chunk if concerns(event.type)]
        _apply_all(connection, log, ours, last=chunk[-1])
        position = chunk[-1].seq
    return position


def _apply_all(
    connection: sqlite3.Connection, log: LogReader, events: Sequence[StoredEvent], *, last: StoredEvent
) -> None:
    applied = 0
    connection.execute("BEGIN IMMEDIATE")
    try:
        for event in events:
            apply(connection, event, read_body(event), log)
            applied += 1
        _move(connection, last)
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
            (stopped.seq, reason, schema.PROJECTION),
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
        (last.seq, last.event_id, schema.PROJECTION),
    )
