"""What the report gathers equals what the view's own questions answer, over time and at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pytest

import tests.support.memory_log
from pipeline.jobs import kinds
from pipeline.report.gather import (
    MOST_PROOFS,
    TRAININGS,
    Moment,
    by_days,
    by_kind,
    by_period,
    followed,
    gather,
    over_time,
)
from pipeline.report.page import render
from store.events.base import EventBody
from store.events.jobs import JobFailed, JobSucceeded
from store.events.repositories import BranchCreated, BranchUnwatched
from store.events.scans import SorryEvent
from store.log.envelope import Expect, NewEvent
from store.view import queries, report_queries
from store.view.counts import count_all
from store.view.report_queries import AttemptTotals, JobCount, Searches, Turn
from store.view.view import View
from tests.support.events import (
    REPOSITORY,
    STREAM,
    Story,
    attempt,
    declaration,
    job_started,
    place,
    scanned,
    sha,
    watched,
)
from tests.support.memory_log import MemoryLog
from tests.support.models import checkpoint_saved

Fill = Callable[[Sequence[tuple[str, EventBody]]], Connection]
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def step(number: int, sorry: str, what: str, detail: str = "") -> Turn:
    return Turn(REPOSITORY, "main", sorry, what, f"2026-01-01T00:00:{number:02}.000000Z", detail)


def test_a_history_counts_what_was_opened_filled_by_whom_and_removed() -> None:
    steps = [
        step(1, "a", "opened"),
        step(1, "b", "opened"),
        step(1, "c", "opened"),
        step(3, "a", "filled", "by people"),
        step(4, "b", "filled", "by us, with the text of proof d0"),
        step(5, "c", "removed"),
        step(6, "a", "reopened"),
        step(7, "a", "filled", "by us, with the text of SIMULATED proof d1"),
    ]
    at = "2026-01-01T00:00:0{}.000000Z".format
    found = followed(steps)
    assert found.moments == (
        Moment(at(1), opened=3, open=3),
        Moment(at(3), opened=3, by_people=1, open=2),
        Moment(at(4), opened=3, by_people=1, by_us=1, open=1),
        Moment(at(5), opened=3, by_people=1, by_us=1, removed=1, open=0),
        Moment(at(6), opened=4, by_people=1, by_us=1, removed=1, open=1),
        Moment(at(7), opened=4, by_people=1, by_us=1, by_simulation=1, removed=1, open=0),
    )
    assert found.filled == {(REPOSITORY, "by_us"): 1, (REPOSITORY, "by_simulation"): 1}


def test_a_long_history_is_thinned_and_keeps_its_first_and_last_moment() -> None:
    steps = [step(number, str(number), "opened") for number in range(60)]
    whole = followed(steps, most=60).moments
    thinned = followed(steps, most=7).moments
    assert (len(whole), len(thinned)) == (60, 7)
    assert (thinned[0], thinned[-1]) == (whole[0], whole[-1])
    assert len(set(thinned)) == 7


@pytest.mark.parametrize("seed", range(4))
def test_the_last_moment_has_as_many_open_as_the_view_has_in_the_source(seed: int, view_of: Fill) -> None:
    story = Story(seed)
    events: list[tuple[str, EventBody]] = []
    for _ in range(25):
        bodies, _payloads = story._commit()
        events += [(STREAM, body) for body in bodies if isinstance(body, SorryEvent)]
    assert events
    view = view_of([(STREAM, watched()), *events])
    data = gather(view, made_at=WHEN)
    counts = count_all(view).sorries
    assert {name: data.sorries[name] for name in ("open", "verified", "removed")} == {
        name: counts[name] for name in ("open", "verified", "removed")
    }
    assert sum(data.sorries[name] for name in ("by_people", "by_us", "by_simulation")) == counts["filled"]
    last = data.history[-1]
    assert last.open == counts["open"] + counts["verified"]
    steps = Counter(row.step for row in queries.sorry_steps(view))
    assert last.opened == steps["opened"] + steps["reopened"]
    assert last.by_people + last.by_us == steps["filled"]
    assert last.removed == steps["removed"]


def test_sorries_of_a_branch_that_no_one_watches_are_in_no_number(view_of: Fill) -> None:
    story = Story(2)
    told: list[tuple[str, EventBody]] = [(STREAM, watched())]
    for _ in range(9):
        told += [(STREAM, body) for body in story._commit()[0] if isinstance(body, SorryEvent)]
    gone = BranchUnwatched(repository=REPOSITORY, branch="main", last="a" * 40)
    created = BranchCreated(repository=REPOSITORY, branch="main", tip="a" * 40, is_default=True)
    data = gather(view_of([*told, (STREAM, created), (STREAM, gone)]), made_at=WHEN)
    assert (data.history, set(data.sorries.values())) == ((), {0})


def test_proofs_and_jobs_are_counted_as_the_view_has_them_and_only_the_newest_proofs_are_shown(
    view_of: Fill,
) -> None:
    story = Story(5)
    told: list[tuple[str, EventBody]] = [(STREAM, watched())]
    for _ in range(30):
        told += [
            (STREAM, body) for body in story._commit()[0] if body.type in ("proof_found", "proof_rejected")
        ]
    told += [
        ("job:1", job_started("one")),
        ("job:1", JobSucceeded(
            job="one", attempt=1, seconds=2.5, peak_rss_bytes=7, summary={}, simulated=False,
        )),
        ("job:2", job_started("two", simulated=True)),
    ]  # fmt: skip
    view = view_of(told)
    data = gather(view, made_at=WHEN)
    proofs = queries.proofs(view)
    assert {(row.state, row.simulated): row.n for row in data.proofs} == Counter(
        (row.state, row.simulated) for row in proofs
    )
    assert sum(row.n for row in data.rejections) == sum(
        row.state in ("rejected", "conditional") for row in proofs
    )
    assert [row.simulated for row in data.rejections] == sorted(row.simulated for row in data.rejections)
    for shown, verified in ((data.verified, True), (data.others, False)):
        of_sort = [row for row in proofs if (row.state == "verified") == verified]
        newest = sorted((row.found_at for row in of_sort), reverse=True)
        assert [one.row.found_at for one in shown] == newest[:MOST_PROOFS]
    assert data.others
    assert [(row.simulated, row.jobs, row.running, row.attempts, row.peak_rss_bytes) for row in data.machine_time] == [
        (False, 1, 0, 1, 7),
        (True, 1, 1, 0, None),
    ]  # fmt: skip


# ---- periods

FIRST = date(2026, 1, 7)  # a Wednesday


def spread(days: int) -> dict[date, dict[str, float]]:
    return {FIRST + timedelta(days=at): {"a": 1, "b": 2} for at in range(days)}


@pytest.mark.parametrize(
    ("days", "unit", "begins", "shown"),
    [
        (1, "day", FIRST, 1),
        (45, "day", FIRST, 45),
        (46, "week", date(2026, 1, 5), 7),
        (364, "week", date(2026, 1, 5), 53),
        (365, "month", date(2026, 1, 1), 13),
    ],
)
def test_periods_are_as_fine_as_the_time_allows(days: int, unit: str, begins: date, shown: int) -> None:
    found = over_time(spread(days))
    assert (found.unit, found.begins[0], len(found.begins), found.left_out) == (unit, begins, shown, 0)
    assert {key: sum(values) for key, values in found.amounts.items()} == {"a": days, "b": 2 * days}


def test_a_period_in_which_nothing_happened_is_there_with_zero() -> None:
    found = over_time({FIRST: {"a": 1}, FIRST + timedelta(days=3): {"a": 5}})
    assert found.amounts == {"a": (1, 0, 0, 5)}
    assert found.said == "by day"


def test_of_more_periods_the_newest_are_shown_and_what_was_before_is_kept() -> None:
    found = over_time(spread(30), most=10)
    assert (len(found.begins), found.left_out, found.before) == (10, 20, {"a": 20, "b": 40})
    assert found.begins[-1] == FIRST + timedelta(days=29)
    assert found.said == "by day, the newest 10 of 30"


def test_nothing_at_all_has_no_periods() -> None:
    assert over_time({}).begins == ()


def test_what_goes_on_past_midnight_is_cut_there() -> None:
    found = by_days("2026-01-07T23:00:00.000000Z", "2026-01-09T00:30:00.500000Z")
    assert found == {FIRST: 3600.0, FIRST + timedelta(days=1): 86400.0, FIRST + timedelta(days=2): 1800.5}
    assert by_days("2026-01-07T23:00:00.000000Z", "2026-01-07T22:00:00.000000Z") == {}, (
        "the clock stepped back"
    )


def test_machine_time_is_added_up_by_kind_device_and_period() -> None:
    morning, noon = "2026-01-07T06:00:00.000000Z", "2026-01-07T12:00:00.000000Z"
    ran = [
        AttemptTotals(
            "train", False, "gpu", "2026-01-07T23:00:00.000000Z", "2026-01-08T01:00:00.000000Z", 1, 7200.0
        ),
        AttemptTotals("train", False, "cpu", morning, noon, 1, 60.0),
        # Four attempts of one day, side by side: not the time between the first and the last.
        AttemptTotals("scan", False, "cpu", morning, noon, 4, 10.0),
        AttemptTotals("scan", True, "cpu", morning, noon, 1, 5.0),
    ]
    jobs = [
        JobCount("scan", False, "succeeded", 3, 100),
        JobCount("scan", False, "failed", 1, None),
        JobCount("scan", True, "succeeded", 1, None),
        JobCount("train", False, "running", 1, None),
    ]
    train, scan, made_up = by_kind(ran, jobs)
    assert (train.kind, train.jobs, train.running, train.attempts) == ("train", 1, 1, 2)
    assert (train.seconds, train.seconds_on) == (7260.0, {"gpu": 7200.0, "cpu": 60.0})
    assert (scan.kind, scan.jobs, scan.failed, scan.attempts, scan.seconds) == ("scan", 4, 1, 4, 10.0)
    assert (made_up.simulated, made_up.seconds, made_up.peak_rss_bytes) == (True, 5.0, None)
    assert by_period(ran).amounts == {
        ("train", False): (3660.0, 3600.0),
        ("scan", False): (10.0, 0),
        ("scan", True): (5.0, 0),
    }


# ---- what was tried and what ran

DAY, NEXT = "2026-01-07T{}:00.000000Z", "2026-01-08T{}:00.000000Z"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], None]:
    """Returns a function that says when each event is recorded."""

    def at(times: Sequence[str]) -> None:
        waiting: Iterator[str] = iter(times)
        monkeypatch.setattr(tests.support.memory_log, "now_text", lambda: next(waiting))

    return at


def tried(number: int, *, model: str = "", **changes: Any) -> EventBody:
    scan = scanned("A.lean", [declaration("Demo.a")], with_sorry=["Demo.a"])
    spot = place(scan, scan.sorries[0], blob=sha("blob"))
    body = attempt(f"{number:016x}", spot, commit=sha("commit"), model=model)
    return body.model_copy(update=changes)


def started(job: str, kind: str, *, attempt: int = 1) -> EventBody:
    return job_started(job, attempt=attempt).model_copy(update={"kind": kind})


def succeeded(job: str) -> EventBody:
    # What a job says of its own seconds is not what an attempt took by the clock.
    return JobSucceeded(job=job, attempt=1, seconds=1.5, peak_rss_bytes=None, summary={}, simulated=False)


def failed(job: str) -> EventBody:
    return JobFailed(
        job=job, attempt=1, reason="nan_loss", message="", remedy="", deterministic=False, retry_at=None,
        seconds=1.5, peak_rss_bytes=None,
    )  # fmt: skip


def test_machine_time_is_by_the_clock_and_by_what_the_view_knows_of_the_device(
    view_of: Fill, clock: Callable[[Sequence[str]], None]
) -> None:
    told: list[tuple[str, EventBody]] = [
        (DAY.format("01:00"), started("scan-1", "scan")),
        (DAY.format("01:01"), started("scan-2", "scan")),
        (DAY.format("01:02"), succeeded("scan-1")),
        (DAY.format("01:03"), succeeded("scan-2")),
        (DAY.format("02:00"), started("train-gpu", "train")),
        (DAY.format("02:10"), checkpoint_saved("k1", device="cuda:0", job="train-gpu")),
        (DAY.format("02:30"), succeeded("train-gpu")),
        (DAY.format("03:00"), started("train-cpu", "train")),
        (DAY.format("03:01"), checkpoint_saved("k2", device="cpu", job="train-cpu")),
        (DAY.format("03:05"), succeeded("train-cpu")),
        (DAY.format("04:00"), started("train-failed", "train")),
        (DAY.format("04:07"), failed("train-failed")),
        (DAY.format("05:00"), started("prove-0", "prove")),
        (DAY.format("05:01"), tried(1, job="prove-0")),
        (DAY.format("05:02"), succeeded("prove-0")),
        (DAY.format("06:00"), started("prove-2", "prove")),
        (DAY.format("06:01"), tried(2, job="prove-2", model="byt5")),
        (DAY.format("06:03"), succeeded("prove-2")),
        (DAY.format("07:00"), started("scan-runs", "scan")),
        (DAY.format("23:00"), started("build-1", "build")),
        (NEXT.format("01:00"), succeeded("build-1")),
        (NEXT.format("02:00"), started("scan-3", "scan")),
        # The clock was set back while it ran.
        (NEXT.format("01:30"), succeeded("scan-3")),
    ]
    clock([at for at, _ in told])
    view = view_of([("jobs", body) for _, body in told])
    found = [row._replace(seconds=round(row.seconds, 3)) for row in report_queries.ran(view)]
    assert found == [
        AttemptTotals("build", False, "cpu", DAY.format("23:00"), NEXT.format("01:00"), 1, 7200.0),
        AttemptTotals("prove", False, "cpu", DAY.format("05:00"), DAY.format("05:02"), 1, 120.0),
        AttemptTotals("prove", False, "unknown", DAY.format("06:00"), DAY.format("06:03"), 1, 180.0),
        AttemptTotals("scan", False, "cpu", DAY.format("01:00"), DAY.format("01:03"), 2, 240.0),
        AttemptTotals("scan", False, "cpu", NEXT.format("02:00"), NEXT.format("01:30"), 1, 0.0),
        AttemptTotals("train", False, "cpu", DAY.format("03:00"), DAY.format("03:05"), 1, 300.0),
        AttemptTotals("train", False, "gpu", DAY.format("02:00"), DAY.format("02:30"), 1, 1800.0),
        AttemptTotals("train", False, "unknown", DAY.format("04:00"), DAY.format("04:07"), 1, 420.0),
    ]


def test_what_was_tried_counts_the_newest_attempt_of_each_and_says_how_many_have_a_price(
    view_of: Fill,
) -> None:
    paid: dict[str, Any] = {
        "prover": "external",
        "rung": 4,
        "model": "m",
        "prompt_tokens": 100,
        "completion_tokens": 7,
    }
    bodies = [
        tried(1, outcome="exhausted"),
        tried(2),
        tried(3, simulated=True),
        tried(4, model="byt5", outcome="disproved", seconds=2.0),
        tried(5, **paid, outcome="exhausted", usd=0.25),
        tried(6, **paid, usd=0.5),
        tried(7, **paid, usd=None),
        # The same again: it stands in the place of the one before.
        tried(5, **paid, usd=0.75),
    ]
    view = view_of([("attempts", body) for body in bodies])
    assert report_queries.searches(view) == [
        Searches("tactics", 0, "", False, 2, 1, 0, 1.0, 0, 0, None),
        Searches("generator", 2, "byt5", False, 1, 0, 1, 2.0, 0, 0, None),
        Searches("external", 4, "m", False, 3, 3, 0, 1.5, 321, 2, 1.25),
        Searches("tactics", 0, "", True, 1, 1, 0, 0.5, 0, 0, None),
    ]
    html = render(gather(view, made_at=WHEN)).html["proofs.html"]
    assert "the newest attempt of each on each sorry" in html
    assert ">1.25 for 2 of 3</td>" in html


def test_all_of_it_is_of_one_moment_whatever_is_recorded_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "database.db"
    with MemoryLog() as log, View.open(path, log.reader()) as view:

        def record(name: str) -> None:
            log.append([NewEvent("r", watched(repository=name))], expect={"r": Expect.ANY})
            view.catch_up()

        record("example.org/a/before")
        connection = queries.connect(path)

        def meanwhile(*arguments: Any) -> Any:
            record("example.org/b/meanwhile")
            return followed(*arguments)

        monkeypatch.setattr("pipeline.report.gather.followed", meanwhile)
        try:
            data = gather(connection, made_at=WHEN)
            assert (data.position, [row.repository for row in data.repositories]) == (
                1,
                ["example.org/a/before"],
            )
            assert queries.position(connection) == 2, "and the connection is given back as it was"
        finally:
            connection.close()


def test_the_report_knows_every_kind_of_job_that_trains() -> None:
    assert set(TRAININGS) == set(kinds.TRAININGS)
