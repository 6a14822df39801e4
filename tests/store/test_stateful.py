"""Any interleaving of what can happen to a log and its view, by Hypothesis; the model is a plain list.

Appends, conflicts, repetitions, a view that follows or stays behind, rebuilds, backups and restores, clean
stops, kills (the files as they lie there at that moment, also in the middle of an append), and power losses that
take the end of the -wal. After every step the log is the model's; in the end the view is what a rebuild gives.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from store.errors import ConcurrencyError, IdempotencyError, ViewError
from store.events.service import DaemonStopped
from store.log.backup import backup, check
from store.log.envelope import Expect, NewEvent, prepare
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view.rebuild import rebuild, verify
from store.view.view import View
from tests.support.events import Story, record

STREAMS = st.sampled_from(["a", "b", "c"])
LOG_FILES = ("events.db", "events.db-wal", "events.db-anchor")
VIEW_FILES = ("database.db", "database.db-wal")

Recorded = tuple[str, int, str]
"""Stream, version and id of an acknowledged event."""


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 3))
    def begin(self, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="everlean-"))
        self.model: list[Recorded] = []
        self.batches: list[list[NewEvent]] = []
        self.backups: list[tuple[Path, list[Recorded]]] = []
        self.story = Story(seed)
        self.next_key = 0
        self.view: View | None = None
        self.open()

    # --- appends ------------------------------------------------------------------------------------------

    @rule(streams=st.lists(STREAMS, min_size=1, max_size=4), exact=st.booleans())
    def append(self, streams: list[str], exact: bool) -> None:
        events = self.make(streams)
        expect = {stream: self.version(stream) if exact else Expect.ANY for stream in streams}
        appended = self.log.append(events, expect=expect)
        assert (appended.first_seq, appended.repeated) == (len(self.model) + 1, False)
        self.acknowledged([(event.stream, event.event_id or "") for event in events])
        self.batches.append(events)

    @rule()
    def append_what_a_daemon_would(self) -> None:
        bodies, payloads = self.story.tell()
        appended = record(self.log, bodies, folder=self.folder / "staging", payloads=payloads, stream="story")
        events = self.reader.read(after=appended.first_seq - 1)
        self.acknowledged([(event.stream, event.event_id) for event in events])

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
        appended = self.log.append(batch, expect={event.stream: 0 for event in batch})
        assert appended.repeated
        assert self.model[appended.first_seq - 1][2] == batch[0].event_id
        assert self.model[appended.last_seq - 1][2] == batch[-1].event_id

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), stream=STREAMS)
    def repeat_with_something_new(self, data: st.DataObject, stream: str) -> None:
        batch = data.draw(st.sampled_from(self.batches))
        events = data.draw(st.permutations([*batch, *self.make([stream])]))
        with pytest.raises(IdempotencyError):
            self.log.append(events, expect={event.stream: Expect.ANY for event in events})

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def repeat_with_other_content(self, data: st.DataObject) -> None:
        first, *others = data.draw(st.sampled_from(self.batches))
        other = NewEvent(first.stream, DaemonStopped(reason="another", pid=0), event_id=first.event_id)
        with pytest.raises(IdempotencyError):
            self.log.append([other, *others], expect={event.stream: Expect.ANY for event in (first, *others)})

    # --- the view -----------------------------------------------------------------------------------------

    @rule()
    def catch_up(self) -> None:
        assert self.opened_view().catch_up() == len(self.model)

    @rule()
    def rebuild(self) -> None:
        self.close_view()
        report = rebuild(self.folder / "events.db", self.folder / "database.db")
        assert (report.position, report.stopped) == (len(self.model), None)

    # --- stops, kills, losses -----------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.close()
        self.open()

    @rule(streams=st.lists(STREAMS, max_size=3))
    def kill_in_the_middle_of_an_append(self, streams: list[str]) -> None:
        """Everything acknowledged is there afterwards, and nothing of the append that was not."""
        connection = self.log._connection
        connection.execute("BEGIN IMMEDIATE")
        if streams:
            self.log._put(
                [prepare(event) for event in self.make(streams)],
                dict.fromkeys(streams, Expect.ANY),
                [],
                after=self.log.head,
            )
        copies = self.as_it_lies_there()
        connection.execute("ROLLBACK")
        self.go_on_in(copies)
        assert self.reader.position() == len(self.model)

    @rule(kept=st.floats(0, 1))
    def lose_the_end_of_the_wal(self, kept: float) -> None:
        """As where a disk lied about what it had written: what is left is a prefix, of whole appends."""
        copies = self.as_it_lies_there()
        wal = copies / "events.db-wal"
        if wal.exists():
            content = wal.read_bytes()
            wal.write_bytes(content[: int(len(content) * kept)])
        (copies / "events.db-anchor").unlink()  # beside it such a log is refused; see test_chain.py
        self.go_on_in(copies)
        self.forget_after(self.reader.position())

    @rule()
    def back_up(self) -> None:
        target = Path(tempfile.mkdtemp(prefix="everlean-"), "backup.db")
        assert backup(self.folder / "events.db", target).position == len(self.model)
        self.backups.append((target, list(self.model)))

    @precondition(lambda self: self.backups)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """The log of the backup beside the view of today, which may be ahead of it."""
        target, model = data.draw(st.sampled_from(self.backups))
        self.close()
        shutil.copy(target, self.folder / "events.db")
        (self.folder / "events.db-anchor").unlink()
        self.open()
        assert self.reader.position() == len(model)
        self.model = model[:]
        self.forget_after(len(model))

    @invariant()
    def the_log_is_the_model_without_gaps(self) -> None:
        events = list(self.reader.read())
        assert [event.seq for event in events] == list(range(1, len(self.model) + 1))
        assert [(event.stream, event.version, event.event_id) for event in events] == self.model

    def teardown(self) -> None:
        self.catch_up()
        self.close()
        assert check(self.folder / "events.db").problems == ()
        report = verify(self.folder / "events.db", self.folder / "database.db")
        assert (report.position, report.differences) == (len(self.model), ())
        for folder in (self.folder, *(target.parent for target, _ in self.backups)):
            shutil.rmtree(folder)

    # --- the model's hands --------------------------------------------------------------------------------

    def version(self, stream: str) -> int:
        return sum(1 for entry in self.model if entry[0] == stream)

    def make(self, streams: list[str]) -> list[NewEvent]:
        events = []
        for stream in streams:
            self.next_key += 1
            body = DaemonStopped(reason="r", pid=self.next_key)
            events.append(NewEvent(stream, body, event_id=f"key-{self.next_key}"))
        return events

    def acknowledged(self, events: list[tuple[str, str]]) -> None:
        for stream, event_id in events:
            self.model.append((stream, self.version(stream) + 1, event_id))

    def forget_after(self, position: int) -> None:
        self.model = self.model[:position]
        ids = {entry[2] for entry in self.model}
        kept = [[event.event_id in ids for event in batch] for batch in self.batches]
        assert all(all(found) or not any(found) for found in kept)  # never half an append
        self.batches = [batch for batch, found in zip(self.batches, kept, strict=True) if all(found)]

    def open(self) -> None:
        self.log = EventLog.open(self.folder / "events.db")
        self.reader = LogReader.open(self.folder / "events.db")

    def close(self) -> None:
        self.close_view()
        self.reader.close()
        self.log.close()

    def opened_view(self) -> View:
        """The view, open; made anew where the log has lost what it is made of, as the daemon does."""
        if self.view is None:
            try:
                self.view = View.open(self.folder / "database.db", self.reader)
            except ViewError:
                rebuild(self.folder / "events.db", self.folder / "database.db")
                self.view = View.open(self.folder / "database.db", self.reader)
        return self.view

    def close_view(self) -> None:
        if self.view is not None:
            self.view.close()
            self.view = None

    def as_it_lies_there(self) -> Path:
        copies = Path(tempfile.mkdtemp(prefix="everlean-"))
        for name in (*LOG_FILES, *VIEW_FILES):
            if (self.folder / name).exists():
                shutil.copy(self.folder / name, copies)
        return copies

    def go_on_in(self, folder: Path) -> None:
        self.close()
        shutil.rmtree(self.folder)
        self.folder = folder
        self.open()


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=8,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class LongLogMachine(LogMachine):
    """The same at length."""


TestLogAtLength = pytest.mark.slow(pytest.mark.timeout(1200)(LongLogMachine.TestCase))
TestLogAtLength.settings = settings(TestLog.settings, max_examples=400)
