"""The semantics of the event log, on SQLite.

`s01` to `s19` in the names are the numbers of the log's semantics (tests/store/test_numbers.py lists them all);
those that are about the view stand in test_projection_semantics.py and test_view.py.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

import pytest

from store.documents.document import of_row
from store.documents.events import Event
from store.errors import (
    BlobCorruptError,
    BlobMissingError,
    ConcurrencyError,
    DatabaseLockedError,
    IdempotencyError,
    InvalidAppendError,
    LogClosedError,
    LogError,
    UnknownEventError,
)
from store.events.base import BlobRef, EventBody
from store.events.proofs import ProofChecked
from store.events.service import ConfigLoaded, DaemonStopped
from store.log.envelope import Appended, Expect, NewEvent, StoredEvent, meets, utc_text
from store.log.log import EventLog
from store.log.upcast import read_body
from tests.support.events import CHECKS, sample_payloads, samples, stage


class TheoremDreamt(EventBody):
    """A type that only a later version of the program has."""

    type: ClassVar[str] = "theorem_dreamt"


class NewerDaemonStopped(EventBody):
    """A known type in a version of the future."""

    type: ClassVar[str] = "daemon_stopped"
    schema_version: ClassVar[int] = 99


@dataclass(frozen=True)
class Decision:
    """What becomes of a batch of (event id, content) where k1 to k3 are recorded with the contents 1 to 3.

    `outcome`: the first and last position of the repeated batch, the reason of the refusal, or "by version".
    """

    name: str
    batch: tuple[tuple[str, int], ...]
    outcome: tuple[int, int] | str


K1, K2, K3, K4 = (("k1", 1), ("k2", 2), ("k3", 3), ("k4", 4))
DECISIONS = (
    Decision("new", (K4,), "by version"),
    Decision("the first again", (K1,), (1, 1)),
    Decision("one from the middle again", (K2,), (2, 2)),
    Decision("the last again", (K3,), (3, 3)),
    Decision("the beginning again", (K1, K2), (1, 2)),
    Decision("the end again", (K2, K3), (2, 3)),
    Decision("some with a gap again", (K1, K3), (1, 3)),
    Decision("all again", (K1, K2, K3), (1, 3)),
    Decision("in another order", (K2, K1), "another order"),
    Decision("recorded then new", (K3, K4), "1 of the 2 events"),
    Decision("new then recorded", (K4, K1), "1 of the 2 events"),
    Decision("all recorded then new", (K1, K2, K3, K4), "3 of the 4 events"),
    Decision("other content", (("k2", 7),), "other content"),
    Decision("one of other content", (K1, ("k2", 7)), "other content"),
)
EXPECTATIONS: tuple[int | Expect, ...] = (
    0,
    1,
    2,
    3,
    4,
    Expect.ANY,
    Expect.STREAM_EXISTS,
    Expect.NO_STREAM,
)


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
        disagreement="",
        patch=reference,
        job="j",
    )


def in_threads(work: Callable[[int], None], numbers: Iterable[int]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventLog]:
    with ExitStack() as opened:
        log = EventLog.open(tmp_path / "events.db")
        opened.callback(log.close)
        make_reader = log.reader
        # The tests ask for readers freely; each must be closed all the same.
        monkeypatch.setattr(log, "reader", lambda: opened.enter_context(make_reader()))
        yield log


# s01: all or nothing


def test_s01_an_append_returns_the_versions_that_its_streams_have_now(log: EventLog) -> None:
    log.append([event(1, stream="a")], expect={"a": 0})
    batch = [event(n, stream=s, key=f"k{n}") for n, s in ((2, "b"), (3, "a"), (4, "b"))]
    first = log.append(batch, expect={"a": 1, "b": 0, "guarded": 0})
    assert first.versions == {"a": 2, "b": 2}
    # They are what the next append has to expect.
    log.append([event(5, stream="b"), event(6, stream="a")], expect=first.versions)
    again = log.append(batch, expect={"a": 1, "b": 0, "guarded": 0})
    assert (again.repeated, again.versions) == (True, first.versions)


def test_s01_an_empty_append_is_refused(log: EventLog) -> None:
    with pytest.raises(InvalidAppendError, match="at least one"):
        log.append([], expect={})


# s02: expected versions


def test_s02_a_stream_without_an_expectation_is_refused(log: EventLog) -> None:
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
def test_s02_an_append_is_accepted_exactly_when_the_stream_is_as_expected(
    log: EventLog, before: int, expected: int | Expect, accepted: bool
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


def test_s02_a_stream_can_be_guarded_without_being_written(log: EventLog) -> None:
    log.append([event(1, stream="config")], expect={"config": 0})
    log.append([event(2)], expect={"daemon": Expect.ANY, "config": 1})
    with pytest.raises(ConcurrencyError):
        log.append([event(3)], expect={"daemon": Expect.ANY, "config": 0})


# s03: conflicts between writers


@pytest.mark.parametrize(
    ("expected", "said"), [(0, "version 0"), (2, "version 2"), (Expect.NO_STREAM, "no stream")]
)
def test_s03_a_conflict_names_stream_expected_and_actual_and_writes_nothing(
    log: EventLog, expected: int | Expect, said: str
) -> None:
    log.append([event(1)], expect={"daemon": 0})
    with pytest.raises(ConcurrencyError, match=f"'daemon' is at version 1, expected {said}") as caught:
        log.append([event(2), event(3, stream="other")], expect={"daemon": expected, "other": 0})
    assert (caught.value.stream, caught.value.expected, caught.value.actual) == ("daemon", said, 1)
    assert [e.data["pid"] for e in log.reader().read()] == [1]


def test_s03_of_threads_that_expect_the_same_version_exactly_one_wins(log: EventLog) -> None:
    outcomes: list[str] = []
    together = threading.Barrier(4)

    def work(number: int) -> None:
        together.wait()
        try:
            log.append([event(number)], expect={"daemon": 0})
            outcomes.append("recorded")
        except ConcurrencyError as error:
            outcomes.append(f"conflict with version {error.actual}")

    in_threads(work, range(4))
    assert sorted(outcomes) == ["conflict with version 1"] * 3 + ["recorded"]
    assert log.reader().position() == 1


# s04: idempotency


@pytest.mark.parametrize("case", DECISIONS, ids=lambda case: case.name)
def test_s04_what_becomes_of_a_batch_is_decided_by_its_ids_and_then_by_the_expected_version(
    log: EventLog, case: Decision
) -> None:
    """The log holds k1, k2 and k3, recorded by one append: the stream is at version 3."""
    log.append([event(n, key=f"k{n}") for n in (1, 2, 3)], expect={"daemon": 0})
    before = [*log.reader().read()]
    batch = [event(pid, key=key) for key, pid in case.batch]
    # Those last that a new batch is accepted with.
    for expected in sorted(EXPECTATIONS, key=lambda one: meets(3, one)):
        if case.outcome == "by version":
            if meets(3, expected):
                appended = log.append(batch, expect={"daemon": expected})
                assert appended == Appended(4, 4, repeated=False, versions={"daemon": 4})
                return
            with pytest.raises(ConcurrencyError):
                log.append(batch, expect={"daemon": expected})
        elif isinstance(case.outcome, str):
            with pytest.raises(IdempotencyError, match=case.outcome) as refused:
                log.append(batch, expect={"daemon": expected})
            assert isinstance(refused.value, LogError)
        else:
            first, last = case.outcome
            appended = log.append(batch, expect={"daemon": expected})
            assert appended == Appended(first, last, repeated=True, versions={"daemon": last})
        assert [*log.reader().read()] == before


def test_s04_the_same_id_on_another_stream_is_an_error(log: EventLog) -> None:
    log.append([event(1, key="k")], expect={"daemon": 0})
    with pytest.raises(IdempotencyError):
        log.append([event(1, key="k", stream="other")], expect={"other": 0})


def test_s04_the_same_id_with_another_time_of_occurrence_is_an_error(log: EventLog) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    log.append([NewEvent("daemon", stopped(1), event_id="k", occurred_at=noon)], expect={"daemon": 0})
    same = noon.astimezone(timezone(timedelta(hours=5)))
    assert log.append(
        [NewEvent("daemon", stopped(1), event_id="k", occurred_at=same)], expect={"daemon": Expect.ANY}
    ).repeated
    with pytest.raises(IdempotencyError):
        log.append([event(1, key="k")], expect={"daemon": Expect.ANY})


def test_s04_who_recorded_it_and_in_which_chain_is_no_content(log: EventLog) -> None:
    log.append([event(1, key="k")], expect={"daemon": 0})
    other = NewEvent("daemon", stopped(1), event_id="k", actor="cli", correlation_id="c", causation_id="d")
    assert log.append([other], expect={"daemon": 1}).repeated
    assert [e.actor for e in log.reader().read()] == ["daemon"]


def test_s04_the_order_of_keys_inside_the_data_is_no_content(log: EventLog) -> None:
    def loaded(settings: dict[str, int]) -> NewEvent:
        return NewEvent("config", ConfigLoaded(path="c", digest="a" * 64, settings=settings), event_id="k")

    log.append([loaded({"x": 1, "y": 2})], expect={"config": 0})
    assert log.append([loaded({"y": 2, "x": 1})], expect={"config": 0}).repeated


def test_s04_one_id_twice_in_a_batch_is_refused(log: EventLog) -> None:
    with pytest.raises(InvalidAppendError, match="in one batch twice"):
        log.append([event(1, key="k"), event(1, key="k")], expect={"daemon": 0})


# s05: reading


@pytest.mark.parametrize(
    ("asked", "versions"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"from_version": 3}, [3, 4, 5]),
        ({"from_version": 3, "limit": 2}, [3, 4]),
        ({"from_version": 6}, []),
        ({"limit": 0}, []),
        ({"backward": True}, [5, 4, 3, 2, 1]),
        ({"backward": True, "from_version": 3}, [3, 2, 1]),
        ({"backward": True, "from_version": 3, "limit": 2}, [3, 2]),
        ({"backward": True, "from_version": 99, "limit": 1}, [5]),
        ({"backward": True, "from_version": 0}, []),
    ],
    ids=str,
)
def test_s05_a_stream_is_read_forward_and_backward_from_a_version(
    log: EventLog, asked: dict[str, Any], versions: list[int]
) -> None:
    for number in range(5):
        log.append([event(number, stream="a"), event(number, stream="b")], expect=dict.fromkeys("ab", number))
    found = list(log.reader().read_stream("a", **asked))
    assert [e.version for e in found] == versions
    assert {e.stream for e in found} <= {"a"}
    assert list(log.reader().read_stream("nobody's", **asked)) == []


@pytest.mark.parametrize("backward", [False, True])
def test_s05_a_stream_longer_than_one_batch_is_read_whole_in_both_directions(
    log: EventLog, backward: bool
) -> None:
    log.append([event(number) for number in range(1203)], expect={"daemon": 0})
    versions = [e.version for e in log.reader().read_stream("daemon", backward=backward)]
    assert versions == sorted(range(1, 1204), reverse=backward)
    some = log.reader().read_stream("daemon", from_version=1100, backward=True, limit=1050)
    assert [e.version for e in some] == list(range(1100, 50, -1))
    assert [e.seq for e in log.reader().read()] == list(range(1, 1204))
    assert [e.seq for e in log.reader().read(after=1, limit=1001)] == list(range(2, 1003))


def test_s05_two_threads_that_append_big_batches_are_read_in_the_order_of_their_commits(
    log: EventLog,
) -> None:
    size, rounds = 250, 6
    calls: list[tuple[float, float, Appended]] = []
    reader = log.reader()
    seen: list[StoredEvent] = []
    done = threading.Event()

    def write(number: int) -> None:
        stream = f"s{number}"
        for turn in range(rounds):
            batch = [event(step, stream=stream) for step in range(size)]
            began = time.monotonic()
            appended = log.append(batch, expect={stream: turn * size})
            calls.append((began, time.monotonic(), appended))

    def follow() -> None:
        while not (done.is_set() and len(seen) == 2 * rounds * size):
            seen.extend(reader.read(after=seen[-1].seq if seen else 0))
            assert len(seen) % size == 0  # s01: never a part of a batch

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    in_threads(write, range(2))
    done.set()
    follower.join(timeout=20)
    # A follower that remembers one number misses nothing and sees nothing twice.
    assert [e.seq for e in seen] == list(range(1, 2 * rounds * size + 1))
    for start in range(0, len(seen), size):
        assert len({e.stream for e in seen[start : start + size]}) == 1
    for _, ended, earlier in calls:
        for began, _, later in calls:
            assert ended > began or earlier.last_seq < later.first_seq


def test_s05_reading_everything_follows_the_filters_and_the_bounds(log: EventLog) -> None:
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
    assert [e.seq for e in reader.last(2, upto=5, stream="a")] == [2, 4]


def test_s05_reading_a_stream_in_the_order_of_the_log_goes_on_over_batches(log: EventLog) -> None:
    batch = [event(number, stream="ab"[number % 2]) for number in range(1, 2401)]
    log.append(batch, expect={"a": 0, "b": 0})
    reader = log.reader()
    assert [e.seq for e in reader.read(stream="a")] == list(range(2, 2401, 2))
    assert [e.seq for e in reader.read(stream="b", after=301, upto=1802)] == list(range(303, 1803, 2))
    assert [e.seq for e in reader.last(600, stream="a", upto=1500)] == list(range(302, 1501, 2))


def test_s05_an_envelope_comes_back_as_it_was_given(log: EventLog) -> None:
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
    assert read_body(stored) == stopped(3)
    assert asdict(of_row(Event, stored)) == {
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


def test_s05_every_event_type_comes_back_equal(log: EventLog, tmp_path: Path) -> None:
    blobs: dict[str, Path] = {}
    for payload in sample_payloads():
        blobs |= stage(tmp_path / "staging", payload)[1]
    given = list(samples().values())
    log.append([NewEvent("s", body) for body in given], expect={"s": 0}, blobs=blobs)
    assert [read_body(found) for found in log.reader().read()] == given


# s06: immutability (of the file against other programs: test_append_only.py)


def test_s06_what_a_reader_does_to_an_event_changes_nothing_that_is_recorded(log: EventLog) -> None:
    settings: dict[str, Any] = {"poll": {"every_s": 300}}
    log.append(
        [NewEvent("config", ConfigLoaded(path="c", digest="a" * 64, settings=settings))],
        expect={"config": 0},
    )
    settings["poll"]["every_s"] = 1
    (mine,) = log.reader().read()
    mine.data["settings"]["poll"]["every_s"] = 2
    mine.data["more"] = True
    with pytest.raises(AttributeError):
        mine.seq = 9  # type: ignore[misc] # frozen: that is what is tested
    (found,) = log.reader().read()
    assert found.data == {"path": "c", "digest": "a" * 64, "settings": {"poll": {"every_s": 300}}}


# s08: events of other versions


@pytest.mark.parametrize("body", [TheoremDreamt(), NewerDaemonStopped()], ids=lambda body: body.type)
def test_s08_an_event_that_is_not_known_can_be_read_as_data_and_is_never_taken_for_something_else(
    log: EventLog, body: EventBody
) -> None:
    log.append([event(1), NewEvent("s", body)], expect={"daemon": 0, "s": 0})
    found = list(log.reader().read())
    assert found[1].data == {}
    with pytest.raises(UnknownEventError, match=f"event 2: {body.type} version {body.schema_version}"):
        read_body(found[1])


# s15, s19: as of a moment


def test_s15_a_time_maps_to_the_last_position_recorded_by_then(log: EventLog) -> None:
    before = utc_text(datetime.now(UTC) - timedelta(seconds=1))
    log.append([event(1), event(2)], expect={"daemon": 0})
    after = utc_text(datetime.now(UTC) + timedelta(seconds=1))
    assert log.reader().position_at(before) == 0
    assert log.reader().position_at(after) == 2


def test_s15_where_the_clock_steps_back_the_order_of_the_log_decides(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, recorded_at in enumerate(["12:00", "12:10", "12:05", "12:20"]):
        text = f"2026-01-01T{recorded_at}:00.000000Z"
        monkeypatch.setattr("store.log.log.now_text", lambda text=text: text)
        log.append([event(number)], expect={"daemon": number})
    at = {
        minute: log.reader().position_at(f"2026-01-01T12:{minute}:00.000000Z")
        for minute in ("04", "05", "15", "20")
    }
    assert at == {"04": 1, "05": 3, "15": 3, "20": 4}
    before = {
        minute: log.reader().position_before(f"2026-01-01T12:{minute}:00.000000Z")
        for minute in ("00", "05", "10", "20")
    }
    assert before == {"00": 1, "05": 1, "10": 3, "20": 4}


def test_s19_the_configuration_in_force_at_a_position_is_the_last_one_loaded_by_then(log: EventLog) -> None:
    for number, letter in enumerate("ab"):
        body = ConfigLoaded(path="c", digest=letter * 64, settings={"n": number})
        log.append([NewEvent("config", body)], expect={"config": number})
        log.append([event(number)], expect={"daemon": number})

    def in_force(position: int) -> list[str]:
        found = log.reader().last(1, upto=position, types=["config_loaded"], stream="config")
        return [e.data["digest"][0] for e in found]

    assert [in_force(position) for position in range(5)] == [[], ["a"], ["a"], ["b"], ["b"]]


# s17: payloads


def test_s17_a_payload_is_stored_with_the_event_that_cites_it(log: EventLog, tmp_path: Path) -> None:
    reference, blobs = stage(tmp_path / "staging", b"patch " * 1000)
    log.append([NewEvent("p", citing(reference))], expect={"p": 0}, blobs=blobs)
    assert log.reader().blob(reference.sha256) == b"patch " * 1000


def test_s17_an_event_whose_payload_is_nowhere_or_gone_is_refused(log: EventLog, tmp_path: Path) -> None:
    reference, blobs = stage(tmp_path / "staging", b"x")
    with pytest.raises(BlobMissingError) as caught:
        log.append([NewEvent("p", citing(reference))], expect={"p": 0})
    assert caught.value.sha256 == reference.sha256
    blobs[reference.sha256].unlink()
    with pytest.raises(BlobMissingError, match="cannot be read"):
        log.append([NewEvent("p", citing(reference))], expect={"p": 0}, blobs=blobs)
    assert log.reader().position() == 0


def test_s17_a_payload_that_is_held_need_not_be_given_again(log: EventLog, tmp_path: Path) -> None:
    reference, blobs = stage(tmp_path / "staging", b"x")
    log.append([NewEvent("p", citing(reference))], expect={"p": 0}, blobs=blobs)
    blobs[reference.sha256].unlink()
    log.append([NewEvent("q", citing(reference))], expect={"q": 0})
    log.append([NewEvent("r", citing(reference))], expect={"r": 0}, blobs=blobs)
    assert log.reader().position() == 3


def test_s17_a_repetition_needs_none_of_its_payloads(log: EventLog, tmp_path: Path) -> None:
    reference, blobs = stage(tmp_path / "staging", b"x")
    one = NewEvent("p", citing(reference), event_id="k")
    log.append([one], expect={"p": 0}, blobs=blobs)
    blobs[reference.sha256].unlink()
    assert log.append([one], expect={"p": 0}, blobs=blobs).repeated


def test_s17_a_staged_file_that_is_not_what_its_name_says_is_refused(log: EventLog, tmp_path: Path) -> None:
    reference, blobs = stage(tmp_path / "staging", b"x")
    blobs[reference.sha256].write_bytes(b"y")
    with pytest.raises(BlobCorruptError):
        log.append([NewEvent("p", citing(reference))], expect={"p": 0}, blobs=blobs)
    assert log.reader().position() == 0
    with pytest.raises(BlobMissingError):
        log.reader().blob(reference.sha256)


def test_s17_a_conflict_stores_no_payload_either(log: EventLog, tmp_path: Path) -> None:
    reference, blobs = stage(tmp_path / "staging", b"x")
    with pytest.raises(ConcurrencyError):
        log.append([NewEvent("p", citing(reference))], expect={"p": 5}, blobs=blobs)
    with pytest.raises(BlobMissingError):
        log.reader().blob(reference.sha256)


# what cannot be stored, and after the end


def test_text_that_is_no_unicode_is_refused(log: EventLog) -> None:
    body = DaemonStopped.model_construct(reason="\ud800", pid=1)
    with pytest.raises(InvalidAppendError, match="cannot be written as JSON"):
        log.append([NewEvent("daemon", body)], expect={"daemon": 0})


def test_a_number_that_the_view_has_no_room_for_is_refused(log: EventLog) -> None:
    largest = DaemonStopped(reason=f"a text may say [{2**64}]", pid=2**63 - 1)
    log.append([NewEvent("daemon", largest)], expect={"daemon": 0})
    for pid in (2**63, -(2**63) - 1, 10**5000):
        with pytest.raises(InvalidAppendError, match="more than 64 bits"):
            log.append([NewEvent("daemon", DaemonStopped(reason="", pid=pid))], expect={"daemon": 1})


def test_a_time_without_a_zone_is_refused(log: EventLog) -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - what must be refused
    with pytest.raises(InvalidAppendError, match="time zone"):
        log.append([NewEvent("daemon", stopped(1), occurred_at=naive)], expect={"daemon": 0})


def test_a_closed_log_refuses_and_says_so(log: EventLog) -> None:
    reader = log.reader()
    log.close()
    log.close()
    with pytest.raises(LogClosedError):
        log.append([event(1)], expect={"daemon": 0})
    reader.close()
    reader.close()
    with pytest.raises(LogClosedError):
        reader.position()


def test_s18_a_second_writer_is_refused_while_the_first_one_is_open(log: EventLog, tmp_path: Path) -> None:
    with pytest.raises(DatabaseLockedError, match=f"process {os.getpid()} writes it"):
        EventLog.open(tmp_path / "events.db")
    log.close()
    EventLog.open(tmp_path / "events.db").close()
