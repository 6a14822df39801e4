"""Read hours of the day and days of the week in people's notation: "22:00-06:00", "mon-fri 08:00-18:00".

They are in this machine's local time. A window that ends before it begins crosses midnight, and its day is
the day of its begin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(r"(?:([a-z,-]+)\s+)?(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_REMEDY = 'write for instance "22:00-06:00" or "mon-fri 08:00-18:00"'
_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True)
class Window:
    """A part of each of some days. `begin` and `end` are minutes since midnight; `end` 1440 is the day's
    end."""

    days: frozenset[int]
    begin: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Window:
        """Read a window.

        Raises:
            ValueError: it is none; the message has the reason and the remedy.
        """
        match = _WINDOW.fullmatch(text.strip().lower())
        if match is None:
            raise ValueError(f'is no part of a day (got "{text[:60]}"); {_REMEDY}')
        days, *numbers = match.groups()
        hour, minute, end_hour, end_minute = map(int, numbers)
        begin, end = 60 * hour + minute, 60 * end_hour + end_minute
        if minute > 59 or end_minute > 59 or begin >= _MINUTES or end > _MINUTES:
            raise ValueError(f'has an hour that no day has (got "{text[:60]}"); {_REMEDY}')
        if begin == end:
            raise ValueError(
                f'ends when it begins (got "{text[:60]}"); write "00:00-24:00" for the whole day'
            )
        return cls(_days(days, text), begin, end)

    def end_after(self, moment: datetime) -> datetime | None:
        """Return the end of the window around a moment; None outside all. Local time, without a zone."""
        for begins in (moment.date() - timedelta(days=1), moment.date()):
            if begins.weekday() not in self.days:
                continue
            end = self.end if self.end > self.begin else self.end + _MINUTES
            if _at(begins, self.begin) <= moment < _at(begins, end):
                return _at(begins, end)
        return None


def _days(text: str | None, window: str) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    result: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise ValueError(
                f'names a day that no week has (got "{window[:60]}"); the days are {", ".join(DAYS)}'
            )
        begin, end = DAYS.index(first), DAYS.index(last if dash else first)
        result |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
    return frozenset(result)


def _at(day: date, minutes: int) -> datetime:
    return datetime.combine(day, time()) + timedelta(minutes=minutes)


def ends_at(windows: Iterable[Window], now: datetime) -> datetime | None:
    """Return the end of the hours around a moment; None if no window contains it.

    Windows that meet are one. If they never end, the answer is a week from now.

    Args:
        windows: the hours.
        now: with its zone. The answer has the zone of this machine.
    """
    windows = tuple(windows)
    begun = now.astimezone().replace(tzinfo=None)
    moment = begun
    while moment < begun + timedelta(days=7):
        ends = [end for window in windows if (end := window.end_after(moment)) is not None]
        if not ends:
            break
        moment = max(ends)
    # A time without a zone is the machine's own: the hour is right also on days with a change of its offset.
    if moment == begun:
        return None
    # An hour that comes twice ends at its second time if the first is past.
    end = moment.astimezone()
    return end if end > now else moment.replace(fold=1).astimezone()


def clock(moment: datetime, now: datetime) -> str:
    """Return a time for people: "06:00", with its day if more than a day from now."""
    local = moment.astimezone()
    return f"{local:%H:%M}" if moment - now < timedelta(days=1) else f"{local:%a %H:%M}"
