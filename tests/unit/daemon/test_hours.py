"""Parts of a day as people write them, and when they end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from daemon.settings.hours import Window, clock, ends_at


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def local(day: int, hour: int, minute: int = 0) -> datetime:
    """2026-06-01 is a Monday."""
    return datetime(2026, 6, day, hour, minute).astimezone()


def end(text: str, now: datetime) -> str | None:
    result = ends_at([Window.parse(text)], now)
    return None if result is None else f"{result:%a %H:%M}"


@pytest.mark.parametrize(
    ("window", "now", "until"),
    [
        ("08:00-18:00", (1, 8, 0), "Mon 18:00"),
        ("08:00-18:00", (1, 18, 0), None),
        ("08:00-18:00", (1, 7, 59), None),
        ("22:00-06:00", (1, 23, 0), "Tue 06:00"),
        ("22:00-06:00", (2, 5, 59), "Tue 06:00"),
        ("22:00-06:00", (2, 6, 0), None),
        ("mon-fri 22:00-06:00", (6, 3, 0), "Sat 06:00"),
        ("mon-fri 22:00-06:00", (6, 23, 0), None),
        ("sat,sun 00:00-24:00", (6, 12, 0), "Mon 00:00"),
        ("fri-mon 00:00-24:00", (5, 12, 0), "Tue 00:00"),
        ("sun 22:00-06:00", (8, 5, 0), "Mon 06:00"),
    ],
)
def test_a_window_ends_where_it_says_also_beyond_midnight(
    window: str, now: tuple[int, int, int], until: str | None
) -> None:
    assert end(window, local(*now)) == until


def test_hours_are_those_on_the_wall_here_and_not_utc() -> None:
    assert ends_at([Window.parse("10:00-11:00")], datetime(2026, 6, 1, 8, 30, tzinfo=UTC)) == datetime(
        2026, 6, 1, 9, tzinfo=UTC
    )


def test_the_end_is_right_on_the_night_on_which_the_clocks_change() -> None:
    before = datetime(2026, 10, 24, 21, tzinfo=UTC)  # 23:00 in summer time; at 03:00 it is 02:00 again
    assert ends_at([Window.parse("22:00-06:00")], before) == datetime(2026, 10, 25, 5, tzinfo=UTC)


def test_windows_that_meet_are_one_and_those_without_end_are_said_to_end_in_a_week() -> None:
    two = [Window.parse("22:00-24:00"), Window.parse("00:00-06:00")]
    result = ends_at(two, local(1, 23))
    assert result is not None
    assert f"{result:%a %H:%M}" == "Tue 06:00"
    always = ends_at([Window.parse("00:00-24:00")], local(1, 12))
    assert always is not None
    assert (always - local(1, 12)).days >= 6


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("8-18", "is no part of a day"),
        ("25:00-26:00", "an hour that no day has"),
        ("08:60-09:00", "an hour that no day has"),
        ("08:00-08:00", "ends when it begins"),
        ("mo 08:00-09:00", "a day that no week has"),
        ("mon-xyz 08:00-09:00", "a day that no week has"),
    ],
)
def test_what_is_no_part_of_a_day_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Window.parse(text)


def test_a_time_of_another_day_is_named_with_it() -> None:
    assert clock(local(2, 6), local(1, 23)) == "06:00"
    assert clock(local(4, 6), local(1, 23)) == "Thu 06:00"
