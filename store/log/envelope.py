"""The envelope of an event: the values written to and read from the log, ids and times.

Owns no file and knows no SQL. Imports no pydantic at its top, for readers to start fast.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from store.errors import InvalidAppendError

if TYPE_CHECKING:
    from store.events.base import EventBody


class Expect(enum.Enum):
    """The state of a stream expected by an append; an `int` is the exact version (0: no stream)."""

    NO_STREAM = "no stream"
    STREAM_EXISTS = "a stream"
    ANY = "any version"

    def allows(self, version: int) -> bool:
        """Return whether a stream at `version` is as expected."""
        match self:
            case Expect.NO_STREAM:
                return version == 0
            case Expect.STREAM_EXISTS:
                return version > 0
            case Expect.ANY:
                return True


def meets(version: int, expected: int | Expect) -> bool:
    """Return whether a stream at `version` is as expected."""
    return expected.allows(version) if isinstance(expected, Expect) else version == expected


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append. Without an `event_id` it gets a UUIDv7 and cannot be recognised when repeated."""

    stream: str
    body: EventBody
    event_id: str | None = None
    occurred_at: datetime | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    actor: str = "daemon"


class StoredEvent(NamedTuple):
    """An event as the log holds it (`store.documents.events.Event`), with its original `data`.

    `read_body` upcasts it to the current version. A tuple of text and numbers, in the order of the log's
    columns: a rebuild makes millions of them, and reads `data_json` once, straight into the body.
    """

    seq: int
    event_id: str
    stream: str
    version: int
    type: str
    schema_version: int
    data_json: str
    recorded_at: str
    occurred_at: str | None
    correlation_id: str | None
    causation_id: str | None
    actor: str

    @property
    def data(self) -> dict[str, Any]:
        """Return the event's original data: each time a new object, free for changes."""
        data: dict[str, Any] = json.loads(self.data_json)
        return data


COLUMNS = tuple("data" if name == "data_json" else name for name in StoredEvent._fields)
"""The columns of the log's table of events, in the order of `StoredEvent`'s fields."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An event of the log, and the time of its record (UTC, ISO-8601)."""

    seq: int
    recorded_at: str


@dataclass(frozen=True, slots=True)
class Appended:
    """The positions of a batch in the log. `repeated`: it was recorded before, and nothing was written now.

    The positions of a repeated batch are those of its first and last event; others may lie between them.
    `versions` maps each stream of the batch to the version of the batch's last event on it: the stream's
    version after the append, to be expected by the next one without another writer. A repetition gets the
    versions of the first time.
    """

    first_seq: int
    last_seq: int
    repeated: bool
    versions: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A `NewEvent` made ready for storing: id given, body and times as text."""

    event_id: str
    stream: str
    type: str
    schema_version: int
    data: str
    occurred_at: str | None
    correlation_id: str | None
    causation_id: str | None
    actor: str
    has_given_id: bool

    def row(self, version: int, recorded_at: str) -> tuple[int | str | None, ...]:
        """Return the log's columns behind seq."""
        return (
            self.event_id,
            self.stream,
            version,
            self.type,
            self.schema_version,
            self.data,
            recorded_at,
            self.occurred_at,
            self.correlation_id,
            self.causation_id,
            self.actor,
        )

    def content_hash(self) -> bytes:
        """Hash the content that makes a repetition the same fact (not its actor or chain)."""
        return content_hash(self.stream, self.type, self.schema_version, self.data, self.occurred_at)


def content_hash(stream: str, type_: str, schema_version: int, data: str, occurred_at: str | None) -> bytes:
    """Hash an event's content; the order of keys inside `data` does not count."""
    canonical = json.dumps(json.loads(data), sort_keys=True)
    fields = (stream, type_, str(schema_version), canonical, occurred_at or "")
    return hashlib.sha256("\x1f".join(fields).encode()).digest()


_MAY_BE_LARGE = re.compile(r"\d{19}")
_LARGEST = 2**63 - 1


def prepare(event: NewEvent) -> Prepared:
    """Serialise an event.

    Raises:
        InvalidAppendError: the body or a field cannot be stored as text, or has a number too large for
            SQLite.
    """
    from pydantic_core import PydanticSerializationError

    try:
        data = event.body.model_dump_json()
    except PydanticSerializationError as error:
        raise InvalidAppendError(
            f"{event.body.type} for {event.stream!r} cannot be written as JSON: {error}. Text must be valid "
            "Unicode: decode foreign bytes with errors='replace'"
        ) from error
    if _MAY_BE_LARGE.search(data):

        def fits(digits: str) -> None:
            # In the log for good, it would prevent every view of it.
            if len(digits) > 20 or not -_LARGEST <= int(digits) <= _LARGEST:
                raise InvalidAppendError(
                    f"{event.body.type} for {event.stream!r} has a number of more than 64 bits: {digits[:40]}"
                )

        json.loads(data, parse_int=fits)
    return Prepared(
        event_id=event.event_id if event.event_id is not None else str(uuid7()),
        stream=event.stream,
        type=event.body.type,
        schema_version=event.body.schema_version,
        data=data,
        occurred_at=utc_text(event.occurred_at) if event.occurred_at is not None else None,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        actor=event.actor,
        has_given_id=event.event_id is not None,
    )


def utc_text(moment: datetime) -> str:
    """Write an aware time as UTC ISO-8601 with microseconds: such texts sort as their times do."""
    if moment.tzinfo is None:
        raise InvalidAppendError(f"{moment!r} has no time zone; use datetime.now(UTC)")
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def now_text() -> str:
    """Return the present moment as `utc_text`."""
    return utc_text(datetime.now(UTC))


class _Counter:
    """The last UUIDv7 made here: the ids of one process never go backwards."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last = 0


_counter = _Counter()


def uuid7() -> uuid.UUID:
    """Return a UUID in order of creation (RFC 9562: 48 bits of milliseconds, then 74 random ones).

    Ids of one process increase strictly, also within a millisecond and when the clock steps back.
    """
    fresh = (time.time_ns() // 1_000_000) << 74 | int.from_bytes(os.urandom(10), "big") >> 6
    with _counter.lock:
        value = _counter.last = max(fresh, _counter.last + 1)
    milliseconds, random_a, random_b = value >> 74, value >> 62 & 0xFFF, value & (1 << 62) - 1
    return uuid.UUID(int=milliseconds << 80 | 7 << 76 | random_a << 64 | 2 << 62 | random_b)
