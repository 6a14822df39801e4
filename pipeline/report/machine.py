"""The machine's time: what every attempt of every job took, by kind of job, by device, and over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

from pipeline.report.periods import OverTime, by_days, over_time
from store.view.queries.reports import JobCount, Ran

DEVICES = ("gpu", "cpu", "unknown")
"""What an attempt ran on: with a GPU, on the processor alone, or nothing recorded says which."""


@dataclass(frozen=True, slots=True)
class MachineTime:
    """The jobs of one kind: how many there are, how many run or failed at their newest attempt, what all attempts took.

    `attempts` and `seconds`, by `DEVICES`, are of those that ended. `peak_rss_bytes` is the largest of any newest
    attempt; None where none was measured.
    """

    kind: str
    simulated: bool
    jobs: int = 0
    running: int = 0
    failed: int = 0
    attempts: int = 0
    seconds_on: Mapping[str, float] = field(default_factory=dict)
    peak_rss_bytes: int | None = None

    @property
    def seconds(self) -> float:
        """What they took on whatever device."""
        return sum(self.seconds_on.values())


def by_kind(ran: Iterable[Ran], jobs: Iterable[JobCount]) -> tuple[MachineTime, ...]:
    """Put together what is known of each kind, what took longest first; the simulator's after all others."""
    seconds: defaultdict[tuple[str, bool], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    attempts: Counter[tuple[str, bool]] = Counter()
    counted: defaultdict[tuple[str, bool], list[JobCount]] = defaultdict(list)
    for row in ran:
        seconds[row.kind, row.simulated][row.device] += row.seconds
        attempts[row.kind, row.simulated] += row.n
    for count in jobs:
        counted[count.kind, count.simulated].append(count)
    found = [
        MachineTime(
            kind,
            simulated,
            jobs=sum(row.n for row in of_kind),
            running=sum(row.n for row in of_kind if row.state == "running"),
            failed=sum(row.n for row in of_kind if row.state == "failed"),
            attempts=attempts[kind, simulated],
            seconds_on=dict(seconds[kind, simulated]),
            peak_rss_bytes=max(
                (row.peak_rss_bytes for row in of_kind if row.peak_rss_bytes is not None), default=None
            ),
        )
        for (kind, simulated), of_kind in counted.items()
    ]
    return tuple(sorted(found, key=lambda row: (row.simulated, -row.seconds, row.kind)))


def by_period(ran: Iterable[Ran]) -> OverTime[tuple[str, bool]]:
    """Add seconds up by period, and by (kind, simulated); an attempt counts in each period for its part there."""
    days: defaultdict[date, defaultdict[tuple[str, bool], float]] = defaultdict(lambda: defaultdict(float))
    for row in ran:
        key = row.kind, row.simulated
        parts = by_days(row.began, row.ended)
        if len(parts) == 1:
            # Several attempts of one day, which may have run side by side.
            parts = dict.fromkeys(parts, row.seconds)
        for day, seconds in parts.items():
            days[day][key] += seconds
    return over_time(days)
