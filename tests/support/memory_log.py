"""An event log in memory that behaves as the one on disk does, for tests of whatever uses a log.

One conformance suite (tests/store/test_log_conformance.py) runs against both. It shares the decisions of
`store.log.log` and the blob checks of `store.log.blobs`; it has no file, so nothing survives the process.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from store.errors import BlobMissingError, LogClosedError
from store.log.blobs import PackedBlob, cited, pack_file, unpack
from store.log.envelope import Appended, Expect, NewEvent, Prepared, StoredEvent, now_text, prepare
from store.log.log import Recorded, check_batch, check_expectations, recorded_before
from store.log.reader import LogReader

_WHERE = Path("memory")


class MemoryLog:
    """Has the methods of `store.log.log.EventLog`, and its errors."""

    def __init__(self) -> None:
        self.path = _WHERE
        self._events: list[StoredEvent] = []
        self._recorded: dict[str, Recorded] = {}
        self._versions: dict[str, int] = {}
        self._blobs: dict[str, PackedBlob] = {}
        self._lock = threading.Lock()
        self._closed = False

    def append(
        self,
        events: Sequence[NewEvent],
        *,
        expect: Mapping[str, int | Expect],
        blobs: Mapping[str, Path] | None = None,
    ) -> Appended:
        """Record events and the blobs that they cite, all or nothing: see `EventLog.append`."""
        prepared = [prepare(event) for event in events]
        check_batch(prepared, expect)
        with self._lock:
            if self._closed:
                raise LogClosedError(f"{self.path}: the log was closed; open it again")
            found = {
                event.event_id: self._recorded[event.event_id]
                for event in prepared
                if event.has_given_id and event.event_id in self._recorded
            }
            repeated = recorded_before(prepared, found)
            if repeated is not None:
                return repeated
            packed = self._packed(prepared, blobs or {})
            check_expectations({stream: self._versions.get(stream, 0) for stream in expect}, expect)
            # Nothing below can fail: that is what makes this all or nothing.
            self._blobs.update({blob.sha256: blob for blob in packed})
            first = len(self._events) + 1
            recorded_at = now_text()
            batch = [self._stored(event, seq, recorded_at) for seq, event in enumerate(prepared, start=first)]
            # In one step: a reader in another thread sees the whole batch or nothing of it.
            self._events.extend(batch)
            return Appended(
                first_seq=first,
                last_seq=batch[-1].seq,
                repeated=False,
                versions={event.stream: event.version for event in batch},
            )

    def reader(self) -> MemoryReader:
        """Return a reader, which sees what is appended later too."""
        return MemoryReader(self._events, self._blobs)

    def close(self) -> None:
        """Refuse further appends. What was recorded can still be read."""
        with self._lock:
            self._closed = True

    def __enter__(self) -> MemoryLog:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _packed(self, prepared: Sequence[Prepared], files: Mapping[str, Path]) -> list[PackedBlob]:
        wanted = frozenset().union(*(cited(event.data) for event in prepared)) | files.keys()
        absent = sorted(wanted - self._blobs.keys())
        for digest in absent:
            if digest not in files:
                raise BlobMissingError(
                    digest, reason="an event cites it, and it is neither in the log nor given"
                )
        return [pack_file(digest, files[digest]) for digest in absent]

    def _stored(self, event: Prepared, seq: int, recorded_at: str) -> StoredEvent:
        version = self._versions.get(event.stream, 0) + 1
        self._versions[event.stream] = version
        stored = StoredEvent(
            seq=seq,
            event_id=event.event_id,
            stream=event.stream,
            version=version,
            type=event.type,
            schema_version=event.schema_version,
            data_json=event.data,
            recorded_at=recorded_at,
            occurred_at=event.occurred_at,
            correlation_id=event.correlation_id,
            causation_id=event.causation_id,
            actor=event.actor,
        )
        self._recorded[event.event_id] = (
            stored.seq,
            stored.version,
            stored.stream,
            stored.type,
            stored.schema_version,
            event.data,
            stored.occurred_at,
        )
        return stored


class MemoryReader(LogReader):
    """Read a `MemoryLog`, with the interface of `LogReader`."""

    def __init__(self, events: list[StoredEvent], blobs: dict[str, PackedBlob]) -> None:
        # Not super().__init__(): there is no connection here.
        self.path = _WHERE
        self._events = events
        self._blobs = blobs
        self._closed = False

    def read(
        self,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        types: Collection[str] = (),
        stream: str | None = None,
    ) -> Iterator[StoredEvent]:
        """Yield events in order: see `LogReader.read`."""
        yielded = 0
        position = max(after, 0)
        while limit is None or yielded < limit:
            self._check_open()
            if position >= len(self._events) or (upto is not None and position >= upto):
                return
            event = self._events[position]
            position += 1
            if (not types or event.type in types) and stream in {None, event.stream}:
                yielded += 1
                yield event

    def read_stream(
        self,
        stream: str,
        *,
        from_version: int | None = None,
        backward: bool = False,
        limit: int | None = None,
    ) -> Iterator[StoredEvent]:
        """Yield one stream's events by version: see `LogReader.read_stream`."""
        events = list(self.read(stream=stream))
        if backward:
            events.reverse()
        if from_version is not None:
            events = [
                event
                for event in events
                if (event.version <= from_version if backward else event.version >= from_version)
            ]
        yield from events[:limit]

    def last(
        self,
        limit: int,
        *,
        upto: int | None = None,
        types: Collection[str] = (),
        stream: str | None = None,
    ) -> tuple[StoredEvent, ...]:
        """Return the newest events (those with seq <= `upto`), oldest of them first."""
        events = tuple(self.read(upto=upto, types=types, stream=stream))
        return events[max(len(events) - limit, 0) :]

    def position(self) -> int:
        """Return the seq of the last event."""
        self._check_open()
        return len(self._events)

    def position_at(self, moment: str) -> int:
        """Return the last seq recorded at or before a moment."""
        return max((event.seq for event in self.read() if event.recorded_at <= moment), default=0)

    def position_before(self, moment: str) -> int:
        """Return the seq before the first event recorded after a moment: see `LogReader.position_before`."""
        return min(
            (event.seq - 1 for event in self.read() if event.recorded_at > moment), default=self.position()
        )

    def stream_version(self, stream: str) -> int:
        """Return how many events a stream has."""
        return sum(1 for _ in self.read(stream=stream))

    def blob(self, sha256: str) -> bytes:
        """Return a payload by its hash."""
        self._check_open()
        if sha256 not in self._blobs:
            raise BlobMissingError(sha256)
        held = self._blobs[sha256]
        return unpack(sha256, held.size_bytes, held.content, where=str(self.path))

    def close(self) -> None:
        """Refuse further reads. Safe to repeat."""
        self._closed = True
