"""Any interleaving of append, conflict, repetition, reopening, killing, catching up and rebuilding.

The model is a list. After every step the log equals it, and in the end the view equals a rebuild.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from store.database import DynamicDatabase
from store.errors import ConcurrencyError, IdempotencyError
from store.events import DaemonStopped
from store.log import EventLog, Expect, LogReader, NewEvent
from store.projector import rebuild, verify
from store.testing_events import Story, record

STREAMS = st.sampled_from(["a", "b", "c"])


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="unsorry-"))
        self.log = EventLog.open(self.folder / "events.db")
        self.reader = LogReader.open(self.folder / "events.db")
        self.model: list[tuple[str, int, str]] = []  # stream, version, event id
        self.batches: list[list[NewEvent]] = []
        self.story = Story(0)
        self.next_key = 0

    def version(self, stream: str) -> int:
        return sum(1 for entry in self.model if entry[0] == stream)

    def make(self, streams: list[str]) -> list[NewEvent]:
        events = []
        for stream in streams:
            self.next_key += 1
            body = DaemonStopped(reason="r", pid=self.next_key)
            events.append(NewEvent(stream, body, event_id=f"key-{self.next_key}"))
        return events

    @rule(streams=st.lists(STREAMS, min_size=1, max_size=4), exact=st.booleans())
    def append(self, streams: list[str], exact: bool) -> None:
        events = self.make(streams)
        expect = {stream: self.version(stream) if exact else Expect.ANY for stream in streams}
        appended = self.log.append(events, expect=expect)
        assert (appended.first_seq, appended.repeated) == (len(self.model) + 1, False)
        for event in events:
            self.model.append((event.stream, self.version(event.stream) + 1, event.event_id or ""))
        self.batches.append(events)

    @rule(streams=st.lists(STREAMS, min_size=1, max_size=3), off=st.integers(-2, 2).filter(bool))
    def conflict(self, streams: list[str], off: int) -> None:
        expect: dict[str, int | Expect] = dict.fromkeys(streams, Expect.ANY)
        expect[streams[-1]] = self.version(streams[-1]) + off
        with pytest.raises(ConcurrencyError):
            self.log.append(self.make(streams), expect=expect)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from(self.batches))
        assert self.log.append(batch, expect={event.stream: 0 for event in batch}).repeated

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), stream=STREAMS)
    def repeat_with_something_new(self, data: st.DataObject, stream: str) -> None:
        batch = data.draw(st.sampled_from(self.batches))
        events = [*batch, *self.make([stream])]
        with pytest.raises(IdempotencyError):
            self.log.append(events, expect={event.stream: Expect.ANY for event in events})

    @rule()
    def live(self) -> None:
        bodies, payloads = self.story.tell()
        appended = record(self.log, bodies, folder=self.folder / "staging", payloads=payloads, stream="story")
        for event in self.reader.read(after=appended.first_seq - 1):
            self.model.append((event.stream, self.version(event.stream) + 1, event.event_id))

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = EventLog.open(self.folder / "events.db")

    @rule()
    def crash(self) -> None:
        """Go on with copies of the files as they lie there, as after a kill."""
        other = Path(tempfile.mkdtemp(prefix="unsorry-"))
        for name in ("events.db", "events.db-wal", "database.db", "database.db-wal"):
            if (self.folder / name).exists():
                shutil.copy(self.folder / name, other)
        self.reader.close()
        self.log.close()
        shutil.rmtree(self.folder)
        self.folder = other
        self.log = EventLog.open(self.folder / "events.db")
        self.reader = LogReader.open(self.folder / "events.db")

    @rule()
    def catch_up(self) -> None:
        with DynamicDatabase.open(self.folder / "database.db", self.reader) as view:
            assert view.catch_up() == len(self.model)

    @rule()
    def rebuild(self) -> None:
        assert rebuild(self.folder / "events.db", self.folder / "database.db").position == len(self.model)

    @invariant()
    def log_equals_model(self) -> None:
        events = list(self.reader.read())
        assert [event.seq for event in events] == list(range(1, len(self.model) + 1))
        assert [(event.stream, event.version, event.event_id) for event in events] == self.model

    def teardown(self) -> None:
        self.catch_up()
        report = verify(self.folder / "events.db", self.folder / "database.db")
        self.reader.close()
        self.log.close()
        shutil.rmtree(self.folder)
        assert report.differences == ()


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
