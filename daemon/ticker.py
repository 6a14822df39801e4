"""APScheduler as a ticker and nothing more: it says when to look, never at what, and remembers nothing.

Owns the scheduler. What a tick leads to follows from the database; a missed tick is one late tick. The scheduler counts
on the wall clock, so one that is set back would leave it silent until the old time comes again: a guard on the event
loop's clock notices and has it tick at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from daemon.settings import Settings

_POLL = "poll"
_PLAN = "plan"
_GUARD_S = 5.0
_SHORTEST_S, _LONGEST_S = 0.25, 5.0


class Ticker:
    """Ticks for the polls, ten times in the shortest interval of the watchlist, and for the plan."""

    def __init__(
        self,
        *,
        poll: Callable[[], Awaitable[None]],
        plan: Callable[[], Awaitable[None]],
        plan_every_s: float,
        guard_s: float = _GUARD_S,
    ) -> None:
        self._ticks = {_POLL: poll, _PLAN: plan}
        self._every_s = {_PLAN: plan_every_s}
        self._guard_s = guard_s
        self._guard: asyncio.TimerHandle | None = None
        # Ticks are coroutines on purpose: APScheduler runs plain functions on a thread.
        self._scheduler = AsyncIOScheduler(
            timezone=UTC,
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def start(self, settings: Settings) -> None:
        """Begin; the first tick for the polls comes at once."""
        self._add(_PLAN, self._every_s[_PLAN], at_once=False)
        self.set(settings)
        self._scheduler.start()
        self._guard = asyncio.get_running_loop().call_later(self._guard_s, self._watch_the_clock)

    def set(self, settings: Settings) -> None:
        """Take the watchlist up, and tick for the polls at once."""
        shortest = min((repo.every_s for repo in settings.repos if repo.enabled), default=_LONGEST_S)
        self._add(_POLL, min(max(shortest / 10, _SHORTEST_S), _LONGEST_S), at_once=True)

    def stop(self) -> None:
        """End: no tick comes after this."""
        if self._guard is not None:
            self._guard.cancel()
            self._guard = None
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def _add(self, name: str, every_s: float, *, at_once: bool) -> None:
        self._every_s[name] = every_s
        first = {"next_run_time": datetime.now(UTC)} if at_once else {}
        self._scheduler.add_job(
            self._ticks[name],
            IntervalTrigger(seconds=every_s, timezone=UTC),
            id=name,
            replace_existing=True,
            **first,
        )

    def _watch_the_clock(self) -> None:
        self._guard = asyncio.get_running_loop().call_later(self._guard_s, self._watch_the_clock)
        now = datetime.now(UTC)
        for name, every_s in self._every_s.items():
            job = self._scheduler.get_job(name)
            if job is not None and (job.next_run_time - now).total_seconds() > every_s + 1.0:
                self._add(name, every_s, at_once=True)
