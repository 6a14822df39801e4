"""What was tried and what ran, added up from a view as events fill it; and all of a report is of one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pytest

import tests.support.memory_log
from pipeline.report.gather import followed, gather
from pipeline.report.page import render
from store.events.base import EventBody
from store.events.jobs import JobFailed, JobSucceeded
from store.log.envelope import Expect, NewEvent
from store.view.queries import basic as queries
from store.view.queries import reports as report_queries
from store.view.queries.reports import Ran, Searches
from store.view.view import View
from tests.support.events import attempt, declaration, job_started, place, scanned, sha, watched
from tests.support.memory_log import MemoryLog
from tests.support.models import checkpoint_saved

Fill = Callable[[Sequence[tuple[str, EventBody]]], Connection]
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
        Ran("build", False, "cpu", DAY.format("23:00"), NEXT.format("01:00"), 1, 7200.0),
        Ran("prove", False, "cpu", DAY.format("05:00"), DAY.format("05:02"), 1, 120.0),
        Ran("prove", False, "unknown", DAY.format("06:00"), DAY.format("06:03"), 1, 180.0),
        Ran("scan", False, "cpu", DAY.format("01:00"), DAY.format("01:03"), 2, 240.0),
        Ran("scan", False, "cpu", NEXT.format("02:00"), NEXT.format("01:30"), 1, 0.0),
        Ran("train", False, "cpu", DAY.format("03:00"), DAY.format("03:05"), 1, 300.0),
        Ran("train", False, "gpu", DAY.format("02:00"), DAY.format("02:30"), 1, 1800.0),
        Ran("train", False, "unknown", DAY.format("04:00"), DAY.format("04:07"), 1, 420.0),
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
    html = render(gather(view, made_at="2026-01-08T00:00:00+00:00")).html
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
            data = gather(connection, made_at="2026-01-08T00:00:00+00:00")
            assert (data.position, [row.repository for row in data.repositories]) == (
                1,
                ["example.org/a/before"],
            )
            assert queries.position(connection) == 2, "and the connection is given back as it was"
        finally:
            connection.close()
