"""From events to rows: one function for each event type, grouped by subject.

An event's function has the name of its type. Projections are pure but for writing rows: no clock, no file, no
network. A rebuild thus gives the same tables. `apply` is the only way in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from store.domain.life import TheoremStep
from store.domain.records import ScannedFile
from store.errors import MalformedEventError
from store.events.base import EventBody
from store.events.registry import EVENT_TYPES
from store.events.scans import CommitScanned, FileScanned, TheoremsFollowed
from store.events.traces import CommitTraced
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from store.log.upcast import read_body
from store.view.projections import (
    bumps,
    jobs,
    models,
    proofs,
    repositories,
    scans,
    service,
    sorries,
    splits,
    theorems,
    traces,
)
from store.view.projections.rows import payload

Handler = Callable[[sqlite3.Connection, StoredEvent, Any], None]
PayloadHandler = Callable[[sqlite3.Connection, StoredEvent, Any, LogReader], None]


def _file_scanned(db: sqlite3.Connection, event: StoredEvent, body: FileScanned, log: LogReader) -> None:
    scan = ScannedFile.from_json(payload(log, body.scan.sha256))
    scans.file_scanned(db, event, body, scan)


def _theorems_followed(
    db: sqlite3.Connection, event: StoredEvent, body: TheoremsFollowed, log: LogReader
) -> None:
    steps = [TheoremStep.from_json(item) for item in payload(log, body.steps.sha256)]
    theorems.theorems_followed(db, event, body, steps)


def _commit_scanned(db: sqlite3.Connection, event: StoredEvent, body: CommitScanned, log: LogReader) -> None:
    for one in scans.waiting(db, event, body, log):
        apply(db, one, read_body(one), log)
    scans.commit_scanned(db, event, body)


def _commit_traced(db: sqlite3.Connection, event: StoredEvent, body: CommitTraced) -> None:
    traces.commit_traced(db, event, body)
    splits.commit_traced(db, event, body)


def _of_the_log_alone(_db: sqlite3.Connection, _event: StoredEvent, _body: EventBody) -> None:
    """The log's events about itself have no rows."""


PAYLOAD_HANDLERS: Mapping[str, PayloadHandler] = {
    "file_scanned": _file_scanned,
    "commit_scanned": _commit_scanned,
    "theorems_followed": _theorems_followed,
    "file_traced": traces.file_traced,
}
"""Of events that need more of the log: their payload in its blob table, or the parts they close."""

HANDLERS: Mapping[str, Handler] = {
    **{
        name: function
        for module in (bumps, jobs, models, proofs, repositories, scans, service, sorries, traces)
        for name, function in vars(module).items()
        if name in EVENT_TYPES and name not in PAYLOAD_HANDLERS
    },
    "commit_traced": _commit_traced,
    "event_lost": _of_the_log_alone,
    "log_recovered": _of_the_log_alone,
}
"""Of the other events: the functions of these modules with the name of an event type."""

_UNFIT = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,  # a payload has a list or an object in place of text or a number
    OverflowError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,  # a payload has null or a list in place of text
)


def apply(connection: sqlite3.Connection, event: StoredEvent, body: EventBody, log: LogReader) -> None:
    """Write the rows of one event, inside the caller's transaction.

    Raises:
        MalformedEventError: its payload, or a value in it, does not fit the tables.
        BlobMissingError, BlobCorruptError: its payload is absent or damaged.
    """
    try:
        if isinstance(body, scans.SCAN_EVENTS) and scans.waits(connection, event, body):
            return
        handler = HANDLERS.get(body.type)
        if handler is not None:
            handler(connection, event, body)
        else:
            PAYLOAD_HANDLERS[body.type](connection, event, body, log)
    except _UNFIT as error:
        reason = f"{type(error).__name__}: {error}"
        raise MalformedEventError(event.seq, event.type, event.schema_version, reason) from error
