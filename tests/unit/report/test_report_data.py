"""What the report gathers equals what the view's own questions answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from sqlite3 import Connection

import pytest

from pipeline.report.gather import MOST_PROOFS, Moment, followed, gather
from store.events.base import EventBody
from store.events.jobs import JobSucceeded
from store.events.repositories import BranchCreated, BranchUnwatched
from store.events.scans import SorryEvent
from store.view.queries import basic as queries
from store.view.queries.reports import Turn
from tests.support.events import REPOSITORY, STREAM, Story, job_started, watched

Fill = Callable[[Sequence[tuple[str, EventBody]]], Connection]
WHEN = "2026-01-02T03:04:05+00:00"


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
    counts = queries.counts(view).sorries
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


def test_sorrys_of_a_branch_that_nobody_watches_are_in_no_number(view_of: Fill) -> None:
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
