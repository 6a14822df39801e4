"""Read the event log, from any process, while the daemon writes or not.

Never holds a transaction between two batches: a slow consumer must not keep the log's -wal growing.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from store.errors import (
    LogClosedError,
    LogDamagedError,
    LogError,
    is_damage,
)
from store.log import blobs
from store.log.anchor import check_end
from store.log.chain import LAST
from store.log.envelope import COLUMNS, StoredEvent
from store.log.identity import check_identity, damaged_header
from store.sqlite import connect_readonly, translated

_COLUMNS = ", ".join(COLUMNS)
_BATCH = 500


def connect(path: Path) -> sqlite3.Connection:
    """Open a log without any possibility to write.

    Raises:
        LogDamagedError: it is damaged, or gone after events were recorded in it.
        LogError: see `store.sqlite.connect_readonly` and `check_identity`.
    """
    try:
        return connect_readonly(path, check=check_identity)
    except LogError as error:
        if is_damage(error) and (wrong := damaged_header(path)):
            raise LogDamagedError(path, None, wrong) from error
        if is_damage(error) and not isinstance(error, LogDamagedError):
            check_end(path)
        raise


def select_events(
    *,
    after: int,
    upto: int | None,
    types: Collection[str],
    stream: str | None,
    limit: int,
    after_version: int = 0,
    backward: bool = False,
) -> tuple[str, dict[str, Any]]:
    """Return the statement and the parameters for one batch of events, in the order of seq.

    For one stream this is the order of its versions too, which have an index: `after_version` continues in
    it.
    """
    conditions = ["seq > :after"]
    parameters: dict[str, Any] = {"after": min(after, LAST), "limit": limit}
    if upto is not None:
        conditions.append("seq <= :upto")
        parameters["upto"] = min(upto, LAST)
    if types:
        conditions.append("type IN (SELECT value FROM json_each(:types))")
        parameters["types"] = json.dumps(sorted(types))
    if stream is not None:
        conditions.append("stream = :stream AND version > :after_version")
        parameters |= {"stream": stream, "after_version": after_version}
    order = f"{'seq' if stream is None else 'version'} {'DESC' if backward else 'ASC'}"
    return (
        f"SELECT {_COLUMNS} FROM events WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT :limit",
        parameters,
    )


def select_stream(
    stream: str, *, from_version: int | None, limit: int, backward: bool
) -> tuple[str, dict[str, Any]]:
    """Return the statement and the parameters for one batch of a stream, in the order of its versions."""
    bound, order = ("<=", "DESC") if backward else (">=", "ASC")
    conditions = f"stream = :stream AND version {bound} :start"
    start = (LAST if backward else 1) if from_version is None else min(from_version, LAST)
    return (
        f"SELECT {_COLUMNS} FROM events WHERE {conditions} ORDER BY version {order} LIMIT :limit",
        {"stream": stream, "start": start, "limit": limit},
    )


def stored(row: Iterable[Any]) -> StoredEvent:
    """Make a `StoredEvent` of a row of `select_events`."""
    return StoredEvent._make(row)


class LogReader:
    """One read-only connection to an event log; may be shared by threads."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, path: Path) -> LogReader:
        """Open a log for reading.

        Raises:
            DatabaseMissingError: the file does not exist.
            NotALogError, LogVersionError: it is something else, or newer than this program.
        """
        return cls(connect(path), path)

    def read(
        self,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        types: Collection[str] = (),
        stream: str | None = None,
    ) -> Iterator[StoredEvent]:
        """Yield events in the log's order: those with `after` < seq <= `upto`, at most `limit`.

        Events appended during the iteration are seen too, unless `upto` ends it.
        """
        left, after_version = limit, 0
        while left is None or left > 0:
            size = _BATCH if left is None else min(_BATCH, left)
            statement, parameters = select_events(
                after=after, upto=upto, types=types, stream=stream, limit=size, after_version=after_version
            )
            rows = self._all(statement, parameters)
            for row in rows:
                yield stored(row)
            if len(rows) < size:
                return
            after, after_version = rows[-1][0], rows[-1][3]
            left = None if left is None else left - len(rows)

    def read_stream(
        self,
        stream: str,
        *,
        from_version: int | None = None,
        backward: bool = False,
        limit: int | None = None,
    ) -> Iterator[StoredEvent]:
        """Yield one stream's events, at most `limit`, upwards from `from_version` (without one: the first).

        With `backward` downwards from it (without one: the newest). An unwritten stream yields nothing.
        """
        left = limit
        while left is None or left > 0:
            size = _BATCH if left is None else min(_BATCH, left)
            rows = self._all(*select_stream(stream, from_version=from_version, limit=size, backward=backward))
            for row in rows:
                yield stored(row)
            if len(rows) < size:
                return
            from_version = rows[-1][3] + (-1 if backward else 1)
            left = None if left is None else left - len(rows)

    def last(
        self,
        limit: int,
        *,
        upto: int | None = None,
        types: Collection[str] = (),
        stream: str | None = None,
    ) -> tuple[StoredEvent, ...]:
        """Return the newest events (those with seq <= `upto`), oldest of them first."""
        statement, parameters = select_events(
            after=0, upto=upto, types=types, stream=stream, limit=limit, backward=True
        )
        return tuple(stored(row) for row in reversed(self._all(statement, parameters)))

    def position(self) -> int:
        """Return the seq of the last event, 0 for an empty log."""
        return int(self._one("SELECT coalesce(max(seq), 0) FROM events", {})[0])

    def position_at(self, moment: str) -> int:
        """Return the last seq recorded at or before a `utc_text`; order is by seq, so the clock may step."""
        return int(
            self._one("SELECT coalesce(max(seq), 0) FROM events WHERE recorded_at <= :at", {"at": moment})[0]
        )

    def position_before(self, moment: str) -> int:
        """Return the seq before the first event recorded after a `utc_text`, the last one if there is none.

        The same as `position_at` unless the clock stepped back; then everything later is behind this seq.
        """
        last = "(SELECT max(seq) FROM events)"
        statement = f"SELECT coalesce(min(seq) - 1, {last}, 0) FROM events WHERE recorded_at > :at"
        return int(self._one(statement, {"at": moment})[0])

    def stream_version(self, stream: str) -> int:
        """Return the number of a stream's events."""
        return int(
            self._one(
                "SELECT coalesce(max(version), 0) FROM events WHERE stream = :stream", {"stream": stream}
            )[0]
        )

    def blob(self, sha256: str) -> bytes:
        """Return a payload by its hash, checked against it.

        Raises:
            BlobMissingError, BlobCorruptError: the log does not hold it, or its bytes are damaged.
        """
        with self._lock, translated(self.path):
            self._check_open()
            return blobs.fetch(self._connection, sha256, where=str(self.path))

    def close(self) -> None:
        """Give the connection back. Safe to repeat."""
        with self._lock:
            self._closed = True
            self._connection.close()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _all(self, statement: str, parameters: dict[str, Any]) -> list[Any]:
        with self._lock, translated(self.path):
            self._check_open()
            return self._connection.execute(statement, parameters).fetchall()

    def _one(self, statement: str, parameters: dict[str, Any]) -> Any:
        return self._all(statement, parameters)[0]

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"{self.path}: this reader was closed; open another")
