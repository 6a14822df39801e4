"""Pure: whether work may begin now, and what it waits for if not: a pause, quiet hours, a night's budget.

A pause is what somebody asked for (`work_paused` in the log), the rest is of the settings. What runs is not touched
here; `why_yield` says when what runs for hours should make way: a training, which saves where it is, and a search for
proofs on this machine, whose journal has it. What else runs goes on to its end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from daemon.due import Kind
from daemon.hours import clock, ends_at, night_of
from daemon.settings.schema import OF_SORT, Schedule, Sort
from daemon.settings.types import format_duration
from store.log.envelope import utc_text
from store.view.queries import jobs as job_queries
from store.view.queries.jobs import PauseRow

Because = Literal["pause", "quiet", "budget"]


@dataclass(frozen=True, slots=True)
class Wait:
    """Why work does not begin. `until` is when that ends by the clock alone; None where somebody has to end it."""

    because: Because
    text: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Timetable:
    """What may begin at a moment. `spent_s` are the seconds that jobs of a sort have run this night."""

    schedule: Schedule
    now: datetime
    pauses: Sequence[PauseRow] = ()
    spent_s: Mapping[Sort, float] = field(default_factory=dict)

    def of_kind(self, kind: Kind) -> Wait | None:
        """Return what jobs of a kind wait for, None where nothing keeps them."""
        return self._waits(OF_SORT.get(kind))

    def of_work(self, work: Literal["poll", "trace", "train", "prove"]) -> Wait | None:
        """Return what a sort of work waits for, None where nothing keeps it."""
        return self._waits(None if work == "trace" else work)

    def _waits(self, sort: Sort | None) -> Wait | None:
        for pause in self.pauses:
            if pause.work in ("all", sort):
                why = f" ({pause.reason})" if pause.reason else ""
                text = f"paused by {pause.by}{why}; `unsorry resume {pause.work}`"
                return Wait("pause", text)
        if sort is None:
            return None
        until = ends_at(self.schedule.quiet.windows(sort), self.now)
        if until is not None:
            return Wait("quiet", f"quiet hours until {clock(until, self.now)}", until)
        most = self.schedule.per_night.seconds(sort)
        if most is not None and self.spent_s.get(sort, 0.0) >= most:
            noon = night_of(self.now)[1]
            text = f"this night's {format_duration(most)} of it are over, until {clock(noon, self.now)}"
            return Wait("budget", text, noon)
        return None


def read_timetable(view: sqlite3.Connection, *, schedule: Schedule, now: datetime) -> Timetable:
    """Return the timetable of a moment, with the pauses and the time spent that the view knows of."""
    began = utc_text(night_of(now)[0])
    spent: dict[Sort, float] = {}
    sorts: tuple[Sort, ...] = ("train", "prove")
    for sort in sorts:
        if schedule.per_night.seconds(sort) is not None:
            kinds = [kind for kind, its in OF_SORT.items() if its == sort]
            spent[sort] = job_queries.seconds_of_kinds(view, kinds, since=began, now=utc_text(now))
    return Timetable(schedule, now, tuple(job_queries.pauses(view)), spent)


def why_yield(
    timetable: Timetable,
    kind: Kind,
    *,
    runs_for_s: float,
    holds_gpu: bool,
    waiting_for_gpu: Sequence[str],
    asks_endpoint: bool = False,
) -> str:
    """Say why a training or a search that runs should make way; "" where it should go on.

    Args:
        kind: its kind.
        runs_for_s: how long this attempt has run.
        holds_gpu: whether it has a GPU.
        waiting_for_gpu: what proofs that could begin but for a GPU are called.
        asks_endpoint: whether it asks somebody else's machine, as rung 4 does. What is under way there is paid for and
            would be asked again: such a search goes on to its end.
    """
    trains = OF_SORT.get(kind) == "train"
    if asks_endpoint or (not trains and kind != "prove"):
        return ""
    preempt = timetable.schedule.preempt
    wait = timetable.of_kind(kind)
    if wait is not None and ("pause" if wait.because == "pause" else "quiet") in preempt:
        return wait.text
    # What has just begun has nothing to save, and what goes first would only get the GPU back: two that wait for each
    # other would get nothing done.
    first = timetable.schedule.urgency("prove") < timetable.schedule.urgency(kind)
    if "prove" in preempt and trains and first and holds_gpu and waiting_for_gpu and runs_for_s >= LEAST_S:
        return f"{waiting_for_gpu[0]} waits for its GPU"
    return ""


LEAST_S = 600.0
"""How long a training runs at least before it makes way for a proof."""
