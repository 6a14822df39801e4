"""What every event log must do, run against the one on disk and the one in memory.

The numbers are those of the event-store semantics in the design notes.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from store.envelope import utc_text
from store.errors import (
    BlobCorruptError,
    BlobMissingError,
    ConcurrencyError,
    IdempotencyError,
    InvalidAppendError,
    LogClosedError,
    LogError,
)
from store.events import BlobRef, ConfigLoaded, DaemonStopped, EventBody, ProofChecked
from store.log import EventLog, Expect, NewEvent
from store.testing import MemoryLog
from store.testing_events import CHECKS, digest, samples, stage

Log = EventLog | MemoryLog


def stopped(number: int) -> DaemonStopped:
    return DaemonStopped(reason="test", pid=number)


def event(number: int, *, stream: str = "daemon", key: str | None = None) -> NewEvent:
    return NewEvent(stream, stopped(number), event_id=key)


def citing(reference: BlobRef) -> ProofChecked:
    return ProofChecked(
        proof="p",
        sorry="s",
        checks=CHECKS,
        not_checked=(),
        patch=reference,
        simulated=True,
        job="j",
    )


class LogConformance(ABC):
    """The abstract suite; a subclass says how to make a log."""

    @abstractmethod
    def make(self, folder: Path) -> Log: ...

    @pytest.fixture
    def log(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
        with ExitStack() as opened:
            log = self.make(tmp_path)
            opened.callback(log.close)
            make_reader = log.reader
            # The tests ask for readers freely; each must be closed all the same.
            monkeypatch.setattr(log, "reader", lambda: opened.enter_context(make_reader()))
            yield log

    # 1: all or nothing

    def test_append_returns_the_positions_of_its_events(self, log: Log) -> None:
        first = log.append([event(1), event(2)], expect={"daemon": Expect.NO_STREAM})
        second = log.append([event(3)], expect={"daemon": 2})
        assert (first.first_seq, first.last_seq, first.repeated) == (1, 2, False)
        assert (second.first_seq, second.last_seq, second.repeated) == (3, 3, False)

    def test_a_batch_over_several_streams_versions_each_of_them(self, log: Log) -> None:
        batch = [event(1, stream="a"), event(2, stream="b"), event(3, stream="a")]
        log.append(batch, expect={"a": Expect.NO_STREAM, "b": Expect.NO_STREAM})
        assert [(e.seq, e.stream, e.version) for e in log.reader().read()] == [
            (1, "a", 1),
            (2, "b", 1),
            (3, "a", 2),
        ]

    def test_a_conflict_on_one_stream_writes_nothing_to_the_others(self, log: Log) -> None:
        log.append([event(1, stream="b")], expect={"b": Expect.NO_STREAM})
        with pytest.raises(ConcurrencyError):
            log.append([event(2, stream="a"), event(3, stream="b")], expect={"a": 0, "b": 0})
        assert log.reader().position() == 1
        assert log.reader().stream_version("a") == 0

    def test_an_empty_append_is_refused(self, log: Log) -> None:
        with pytest.raises(InvalidAppendError, match="at least one"):
            log.append([], expect={})

    # 2: expected versions

    def test_a_stream_without_an_expectation_is_refused(self, log: Log) -> None:
        with pytest.raises(InvalidAppendError, match="no expected version"):
            log.append([event(1)], expect={})

    @pytest.mark.parametrize(
        ("before", "expected", "accepted"),
        [
            (0, 0, True),
            (0, 1, False),
            (0, Expect.NO_STREAM, True),
            (0, Expect.STREAM_EXISTS, False),
            (0, Expect.ANY, True),
            (2, 2, True),
            (2, 1, False),
            (2, 3, False),
            (2, Expect.NO_STREAM, False),
            (2, Expect.STREAM_EXISTS, True),
            (2, Expect.ANY, True),
        ],
    )
    def test_an_append_is_accepted_exactly_when_the_stream_is_as_expected(
        self, log: Log, before: int, expected: int | Expect, accepted: bool
    ) -> None:
        for number in range(before):
            log.append([event(number)], expect={"daemon": number})
        if accepted:
            log.append([event(9)], expect={"daemon": expected})
            assert log.reader().stream_version("daemon") == before + 1
        else:
            with pytest.raises(ConcurrencyError) as caught:
                log.append([event(9)], expect={"daemon": expected})
            assert (caught.value.stream, caught.value.actual) == ("daemon", before)
            assert log.reader().position() == before

    def test_a_stream_can_be_guarded_without_being_written(self, log: Log) -> None:
        log.append([event(1, stream="config")], expect={"config": 0})
        log.append([event(2)], expect={"daemon": Expect.ANY, "config": 1})
        with pytest.raises(ConcurrencyError):
            log.append([event(3)], expect={"daemon": Expect.ANY, "config": 0})

    # 3: conflicts between writers

    def test_of_two_appends_that_expect_the_same_version_one_loses(self, log: Log) -> None:
        log.append([event(1)], expect={"daemon": 0})
        with pytest.raises(ConcurrencyError, match=r"'daemon' is at version 1, expected version 0"):
            log.append([event(2)], expect={"daemon": 0})
        assert [e.data["pid"] for e in log.reader().read()] == [1]

    def test_threads_that_append_at_once_leave_whole_batches_and_no_gap(self, log: Log) -> None:
        def work(stream: str) -> None:
            for number in range(10):
                batch = [event(number * 5 + step, stream=stream) for step in range(5)]
                log.append(batch, expect={stream: number * 5})

        threads = [threading.Thread(target=work, args=(f"s{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        events = list(log.reader().read())
        assert [e.seq for e in events] == list(range(1, 201))
        for start in range(0, 200, 5):
            assert len({e.stream for e in events[start : start + 5]}) == 1

    # 4: idempotency

    def test_the_same_event_twice_is_one_event(self, log: Log) -> None:
        first = log.append([event(1, key="k")], expect={"daemon": 0})
        again = log.append([event(1, key="k")], expect={"daemon": 0})
        assert (again.first_seq, again.last_seq) == (first.first_seq, first.last_seq)
        assert again.repeated
        assert log.reader().position() == 1

    @pytest.mark.parametrize("expected", [0, 1, 7, Expect.ANY, Expect.STREAM_EXISTS, Expect.NO_STREAM])
    def test_a_repetition_is_recognised_whatever_version_is_expected(
        self, log: Log, expected: int | Expect
    ) -> None:
        log.append([event(1, key="k")], expect={"daemon": 0})
        assert log.append([event(1, key="k")], expect={"daemon": expected}).repeated

    def test_the_same_id_with_other_content_is_an_error(self, log: Log) -> None:
        log.append([event(1, key="k")], expect={"daemon": 0})
        with pytest.raises(IdempotencyError, match="other content") as caught:
            log.append([event(2, key="k")], expect={"daemon": Expect.ANY})
        assert caught.value.event_ids == ("k",)
        assert [e.data["pid"] for e in log.reader().read()] == [1]

    def test_the_same_id_on_another_stream_is_an_error(self, log: Log) -> None:
        log.append([event(1, key="k")], expect={"daemon": 0})
        with pytest.raises(IdempotencyError):
            log.append([event(1, key="k", stream="other")], expect={"other": 0})

    def test_the_same_id_with_another_time_of_occurrence_is_an_error(self, log: Log) -> None:
        noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
        log.append([NewEvent("daemon", stopped(1), event_id="k", occurred_at=noon)], expect={"daemon": 0})
        same = noon.astimezone(timezone(timedelta(hours=5)))
        assert log.append(
            [NewEvent("daemon", stopped(1), event_id="k", occurred_at=same)], expect={"daemon": Expect.ANY}
        ).repeated
        with pytest.raises(IdempotencyError):
            log.append([event(1, key="k")], expect={"daemon": Expect.ANY})

    def test_who_recorded_it_and_in_which_chain_is_no_content(self, log: Log) -> None:
        log.append([event(1, key="k")], expect={"daemon": 0})
        other = NewEvent(
            "daemon", stopped(1), event_id="k", actor="cli", correlation_id="c", causation_id="d"
        )
        assert log.append([other], expect={"daemon": 1}).repeated
        assert [e.actor for e in log.reader().read()] == ["daemon"]

    def test_the_order_of_keys_inside_the_data_is_no_content(self, log: Log) -> None:
        def loaded(settings: dict[str, int]) -> NewEvent:
            return NewEvent(
                "config", ConfigLoaded(path="c", digest="a" * 64, settings=settings), event_id="k"
            )

        log.append([loaded({"x": 1, "y": 2})], expect={"config": 0})
        assert log.append([loaded({"y": 2, "x": 1})], expect={"config": 0}).repeated

    def test_a_batch_of_which_a_part_is_recorded_is_an_error(self, log: Log) -> None:
        log.append([event(1, key="k1")], expect={"daemon": 0})
        with pytest.raises(IdempotencyError, match="1 of the 2"):
            log.append([event(1, key="k1"), event(2, key="k2")], expect={"daemon": 1})
        with pytest.raises(IdempotencyError, match="1 of the 2"):
            log.append([event(1, key="k1"), event(2)], expect={"daemon": 1})
        assert log.reader().position() == 1

    def test_a_batch_recorded_in_another_order_is_an_error(self, log: Log) -> None:
        log.append([event(1, key="k1"), event(2, key="k2")], expect={"daemon": 0})
        with pytest.raises(IdempotencyError, match="order"):
            log.append([event(2, key="k2"), event(1, key="k1")], expect={"daemon": 0})

    def test_one_id_twice_in_a_batch_is_refused(self, log: Log) -> None:
        with pytest.raises(InvalidAppendError, match="twice in one batch"):
            log.append([event(1, key="k"), event(1, key="k")], expect={"daemon": 0})

    def test_events_without_an_id_are_never_taken_for_repetitions(self, log: Log) -> None:
        log.append([event(1)], expect={"daemon": 0})
        assert not log.append([event(1)], expect={"daemon": 1}).repeated
        assert log.reader().position() == 2

    # 5: reading

    def test_reading_follows_the_filters_and_the_bounds(self, log: Log) -> None:
        for number in range(6):
            stream = "a" if number % 2 else "b"
            log.append([event(number, stream=stream)], expect={stream: Expect.ANY})
        log.append(
            [NewEvent("a", ConfigLoaded(path="c", digest="a" * 64, settings={}))], expect={"a": Expect.ANY}
        )
        reader = log.reader()
        assert [e.seq for e in reader.read(after=2)] == [3, 4, 5, 6, 7]
        assert [e.seq for e in reader.read(after=2, upto=4)] == [3, 4]
        assert [e.seq for e in reader.read(limit=2)] == [1, 2]
        assert [e.seq for e in reader.read(limit=0)] == []
        assert [e.seq for e in reader.read(stream="a")] == [2, 4, 6, 7]
        assert [e.seq for e in reader.read(types=["config_loaded"])] == [7]
        assert [e.seq for e in reader.read(types=["config_loaded", "daemon_stopped"], stream="b")] == [
            1,
            3,
            5,
        ]
        assert [e.seq for e in reader.last(2, stream="a")] == [6, 7]
        assert [e.seq for e in reader.last(99)] == [1, 2, 3, 4, 5, 6, 7]

    def test_a_read_longer_than_one_batch_is_complete(self, log: Log) -> None:
        log.append([event(number) for number in range(1203)], expect={"daemon": 0})
        reader = log.reader()
        assert [e.seq for e in reader.read()] == list(range(1, 1204))
        assert [e.seq for e in reader.read(after=1, limit=1001)] == list(range(2, 1003))

    def test_a_reader_sees_what_is_appended_after_it_was_opened(self, log: Log) -> None:
        reader = log.reader()
        assert list(reader.read()) == []
        log.append([event(1)], expect={"daemon": 0})
        assert [e.seq for e in reader.read()] == [1]
        assert reader.position() == 1

    def test_an_envelope_comes_back_as_it_was_given(self, log: Log) -> None:
        occurred = datetime(2026, 5, 4, 3, 2, 1, 5, tzinfo=UTC)
        log.append(
            [
                NewEvent(
                    "daemon",
                    stopped(3),
                    event_id="k",
                    occurred_at=occurred,
                    correlation_id="poll-1",
                    causation_id="e-0",
                    actor="cli",
                )
            ],
            expect={"daemon": 0},
        )
        stored = next(log.reader().read())
        assert stored.body() == stopped(3)
        assert stored.as_json() == {
            "seq": 1,
            "event_id": "k",
            "stream": "daemon",
            "version": 1,
            "type": "daemon_stopped",
            "schema_version": 1,
            "data": {"reason": "test", "pid": 3},
            "recorded_at": stored.recorded_at,
            "occurred_at": "2026-05-04T03:02:01.000005Z",
            "correlation_id": "poll-1",
            "causation_id": "e-0",
            "actor": "cli",
        }
        assert abs(datetime.fromisoformat(stored.recorded_at) - datetime.now(UTC)) < timedelta(minutes=1)

    @pytest.mark.parametrize("body", samples().values(), ids=samples().keys())
    def test_every_event_type_comes_back_equal(self, log: Log, tmp_path: Path, body: EventBody) -> None:
        payloads = [b"--- a/A.lean\n+++ b/A.lean\n"]
        blobs: dict[str, Path] = {}
        for payload in payloads:
            blobs |= stage(tmp_path / "staging", payload)[1]
        if body.type == "file_scanned":
            payload = b"anything"
            reference, blobs = stage(tmp_path / "staging", payload)
            body = body.model_copy(update={"scan": reference})
        log.append([NewEvent("s", body)], expect={"s": 0}, blobs=blobs)
        assert next(log.reader().read()).body() == body

    def test_time_maps_to_the_last_position_recorded_by_then(self, log: Log) -> None:
        before = utc_text(datetime.now(UTC) - timedelta(seconds=1))
        log.append([event(1), event(2)], expect={"daemon": 0})
        after = utc_text(datetime.now(UTC) + timedelta(seconds=1))
        assert log.reader().position_at(before) == 0
        assert log.reader().position_at(after) == 2

    # blobs

    def test_a_blob_is_stored_with_the_event_that_cites_it(self, log: Log, tmp_path: Path) -> None:
        reference, blobs = stage(tmp_path / "staging", b"patch " * 1000)
        log.append([NewEvent("p", citing(reference))], expect={"p": 0}, blobs=blobs)
        assert log.reader().blob(reference.sha256) == b"patch " * 1000

    def test_an_event_whose_blob_is_nowhere_is_refused(self, log: Log) -> None:
        with pytest.raises(BlobMissingError) as caught:
            log.append([NewEvent("p", citing(digest(b"x")))], expect={"p": 0})
        assert caught.value.sha256 == digest(b"x").sha256
        assert log.reader().position() == 0

    def test_a_blob_that_is_held_need_not_be_given_again(self, log: Log, tmp_path: Path) -> None:
        reference, blobs = stage(tmp_path / "staging", b"x")
        log.append([NewEvent("p", citing(reference))], expect={"p": 0}, blobs=blobs)
        blobs[reference.sha256].unlink()
        log.append([NewEvent("q", citing(reference))], expect={"q": 0})
        log.append([NewEvent("r", citing(reference))], expect={"r": 0}, blobs=blobs)
        assert log.reader().position() == 3

    def test_a_repetition_needs_none_of_its_blobs(self, log: Log, tmp_path: Path) -> None:
        reference, blobs = stage(tmp_path / "staging", b"x")
        one = NewEvent("p", citing(reference), event_id="k")
        log.append([one], expect={"p": 0}, blobs=blobs)
        blobs[reference.sha256].unlink()
        assert log.append([one], expect={"p": 0}, blobs=blobs).repeated

    def test_a_staged_file_that_is_not_what_its_name_says_is_refused(self, log: Log, tmp_path: Path) -> None:
        reference, blobs = stage(tmp_path / "staging", b"x")
        blobs[reference.sha256].write_bytes(b"y")
        with pytest.raises(BlobCorruptError):
            log.append([NewEvent("p", citing(reference))], expect={"p": 0}, blobs=blobs)
        assert log.reader().position() == 0
        with pytest.raises(BlobMissingError):
            log.reader().blob(reference.sha256)

    def test_a_staged_file_that_is_gone_is_refused(self, log: Log, tmp_path: Path) -> None:
        reference, blobs = stage(tmp_path / "staging", b"x")
        blobs[reference.sha256].unlink()
        with pytest.raises(BlobMissingError, match="cannot be read"):
            log.append([NewEvent("p", citing(reference))], expect={"p": 0}, blobs=blobs)

    def test_a_conflict_stores_no_blob_either(self, log: Log, tmp_path: Path) -> None:
        reference, blobs = stage(tmp_path / "staging", b"x")
        with pytest.raises(ConcurrencyError):
            log.append([NewEvent("p", citing(reference))], expect={"p": 5}, blobs=blobs)
        with pytest.raises(BlobMissingError):
            log.reader().blob(reference.sha256)

    # what cannot be stored, and after the end

    def test_text_that_is_no_unicode_is_refused(self, log: Log) -> None:
        body = DaemonStopped.model_construct(reason="\ud800", pid=1)
        with pytest.raises(InvalidAppendError, match="cannot be written as JSON"):
            log.append([NewEvent("daemon", body)], expect={"daemon": 0})

    def test_a_time_without_a_zone_is_refused(self, log: Log) -> None:
        naive = datetime(2026, 1, 1)  # noqa: DTZ001 - what must be refused
        with pytest.raises(InvalidAppendError, match="time zone"):
            log.append([NewEvent("daemon", stopped(1), occurred_at=naive)], expect={"daemon": 0})

    def test_a_closed_log_refuses_and_says_so(self, log: Log) -> None:
        reader = log.reader()
        log.close()
        log.close()
        with pytest.raises(LogClosedError):
            log.append([event(1)], expect={"daemon": 0})
        reader.close()
        reader.close()
        with pytest.raises(LogClosedError):
            reader.position()

    def test_every_refusal_is_a_log_error(self, log: Log) -> None:
        with pytest.raises(LogError):
            log.append([event(1)], expect={"daemon": 9})


class TestSqliteLog(LogConformance):
    def make(self, folder: Path) -> Log:
        return EventLog.open(folder / "events.db")


class TestMemoryLog(LogConformance):
    def make(self, folder: Path) -> Log:
        return MemoryLog()
