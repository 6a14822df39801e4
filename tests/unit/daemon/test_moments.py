"""Times as people write them after --since and --as-of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from store.text import moment

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("90m", "2026-03-01T08:00"),
        ("2h ago", "2026-03-01T07:30"),
        ("7d", "2026-02-22T09:30"),
        ("2w", "2026-02-15T09:30"),
        ("today", "2026-03-01T00:00"),
        ("Yesterday", "2026-02-28T00:00"),
        ("2026-01-02", "2026-01-02T00:00"),
        ("2026-01-02T03:04", "2026-01-02T03:04"),
        ("2026-01-02T03:04+02:00", "2026-01-02T01:04"),
    ],
)
def test_a_time_is_relative_a_day_or_iso_and_in_utc_where_it_names_no_zone(text: str, meant: str) -> None:
    assert moment(text, NOW) == datetime.fromisoformat(meant).replace(tzinfo=UTC)


def test_days_begin_at_midnight_utc_wherever_now_is() -> None:
    here = NOW.astimezone(timezone(timedelta(hours=-10)))
    assert moment("today", here) == datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "7", "7 fortnights", "-1d", "999999w", "last week", "2026-13-01"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="such as 7d, yesterday or 2026-07-01T12:00"):
        moment(text, NOW)
