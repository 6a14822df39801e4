"""Amounts of days are added up by days, weeks or months, and nothing is lost or counted twice."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from pipeline.report.gather import by_days, by_kind, by_period, over_time
from store.view.queries.reports import JobCount, Ran

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
        Ran("train", False, "gpu", "2026-01-07T23:00:00.000000Z", "2026-01-08T01:00:00.000000Z", 1, 7200.0),
        Ran("train", False, "cpu", morning, noon, 1, 60.0),
        # Four attempts of one day, side by side: not the time between the first and the last.
        Ran("scan", False, "cpu", morning, noon, 4, 10.0),
        Ran("scan", True, "cpu", morning, noon, 1, 5.0),
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
