"""What happened over time, added up by days, weeks or months of UTC: as fine as the time that it spans allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Generic, Literal, TypeVar

Unit = Literal["day", "week", "month"]
Key = TypeVar("Key", bound=Hashable)

MOST = 60
"""Periods that are shown; of more, the newest."""
_DAYS, _WEEKS = 45, 52
"""The longest time that is shown by days, and by weeks."""


@dataclass(frozen=True, slots=True)
class OverTime(Generic[Key]):
    """Amounts by key, one a period; `begins` are the periods' first days, without gaps, oldest first.

    `before` is what fell into the `left_out` periods before the first of them, by key.
    """

    unit: Unit
    begins: tuple[date, ...]
    amounts: Mapping[Key, tuple[float, ...]]
    left_out: int
    before: Mapping[Key, float]

    @property
    def said(self) -> str:
        """Which periods these are, in words."""
        more = (
            f", the newest {len(self.begins)} of {len(self.begins) + self.left_out}" if self.left_out else ""
        )
        return f"by {self.unit}{more}"

    @property
    def heading(self) -> str:
        """What a column of their first days is called."""
        return "Day (UTC)" if self.unit == "day" else f"{self.unit.capitalize()} from (UTC)"


def over_time(amounts: Mapping[date, Mapping[Key, float]], most: int = MOST) -> OverTime[Key]:
    """Add amounts of days up by periods."""
    if not amounts:
        return OverTime("day", (), {}, 0, {})
    first, last = min(amounts), max(amounts)
    unit = _unit((last - first).days + 1)
    begins = [_begin(first, unit)]
    while (after := _next(begins[-1], unit)) <= last:
        begins.append(after)
    shown = begins[-most:]
    place = {begin: number for number, begin in enumerate(shown)}
    found: defaultdict[Key, list[float]] = defaultdict(lambda: [0] * len(shown))
    before: defaultdict[Key, float] = defaultdict(int)
    for day, of_day in sorted(amounts.items()):
        number = place.get(_begin(day, unit))
        for key, amount in of_day.items():
            if number is None:
                before[key] += amount
            else:
                found[key][number] += amount
    return OverTime(
        unit,
        tuple(shown),
        {key: tuple(row) for key, row in found.items()},
        len(begins) - len(shown),
        dict(before),
    )


def day_of(moment: str) -> date:
    """The day, in UTC, of a time as the log writes it."""
    return date.fromisoformat(moment[:10])


def by_days(began: str, ended: str) -> dict[date, float]:
    """Cut the seconds between two times of the log at every midnight."""
    at, end = (datetime.fromisoformat(moment).replace(tzinfo=None) for moment in (began, ended))
    found: dict[date, float] = {}
    while at < end:
        midnight = datetime.combine(at.date() + timedelta(days=1), datetime.min.time())
        found[at.date()] = (min(midnight, end) - at).total_seconds()
        at = midnight
    return found


def _unit(days: int) -> Unit:
    return "day" if days <= _DAYS else "week" if days <= 7 * _WEEKS else "month"


def _begin(day: date, unit: Unit) -> date:
    if unit == "month":
        return day.replace(day=1)
    return day if unit == "day" else day - timedelta(days=day.weekday())


def _next(begin: date, unit: Unit) -> date:
    if unit == "month":
        return (begin + timedelta(days=32)).replace(day=1)
    return begin + timedelta(days=1 if unit == "day" else 7)
