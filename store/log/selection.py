"""A selection of the log's events: a range, types, a stream, a repository; read, its newest, or followed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from store.errors import LogError
from store.log.envelope import StoredEvent
from store.log.reader import LogReader

FOLLOW_INTERVAL_S = 0.3


class LogMovedError(LogError):
    """The followed log's file was moved or replaced."""


@dataclass(slots=True)
class Selection:
    """The events with `after` < seq <= `upto`, of these types, this stream, this repository.

    An event belongs to a repository if it names it, or names none and its stream (a job's, a proof's) began
    with one that does; so with a repository the log is read from its beginning.
    """

    after: int
    upto: int
    types: tuple[str, ...] = ()
    stream: str | None = None
    repository: str | None = None
    _streams: set[str] = field(default_factory=set)

    def read(self, log: LogReader) -> Iterator[StoredEvent]:
        """Yield them, oldest first."""
        if self.repository is None:
            yield from log.read(after=self.after, upto=self.upto, types=self.types, stream=self.stream)
            return
        for event in log.read(upto=self.upto):
            if self._belongs(event) and event.seq > self.after and self._fits(event):
                yield event

    def newest(self, log: LogReader, number: int) -> Iterator[StoredEvent]:
        """Yield the newest of them, the oldest of these first."""
        if self.repository is not None:
            yield from deque(self.read(log), maxlen=number)
            return
        for event in log.last(number, upto=self.upto, types=self.types, stream=self.stream):
            if event.seq > self.after:
                yield event

    def follow(self, log: LogReader) -> Iterator[StoredEvent]:
        """Yield the events behind `upto`, without an end.

        Raises:
            LogMovedError: nothing more comes of this file.
        """
        opened = _file(log.path)
        while True:
            end = log.position()
            for event in log.read(after=max(self.upto, self.after), upto=end):
                if (self.repository is None or self._belongs(event)) and self._fits(event):
                    yield event
            self.upto = max(self.upto, end)
            if _file(log.path) != opened:
                # SQLite reads on in the old file, without any further events.
                raise LogMovedError(
                    f"{log.path}: moved or replaced meanwhile; call `everlean events` again to follow the new one"
                )
            time.sleep(FOLLOW_INTERVAL_S)

    def _fits(self, event: StoredEvent) -> bool:
        return (not self.types or event.type in self.types) and self.stream in (None, event.stream)

    def _belongs(self, event: StoredEvent) -> bool:
        named = event.data.get("repository")
        if named == self.repository:
            self._streams.add(event.stream)
        return named == self.repository or (named is None and event.stream in self._streams)


def _file(path: Path) -> tuple[int, int] | None:
    try:
        result = path.stat()
    except FileNotFoundError:
        return None
    return result.st_dev, result.st_ino
