"""APScheduler as a ticker and nothing more: it says when, never what, and remembers nothing.

Owns the scheduler. What a tick leads to follows from the database; a missed tick is one late tick.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from daemon.settings import Repo, Settings


class Ticker:
    """Ticks once for each enabled repository's interval, and for the plan."""

    def __init__(
        self,
        *,
        poll: Callable[[str], Awaitable[None]],
        plan: Callable[[], Awaitable[None]],
        plan_every_s: float,
    ) -> None:
        self._poll = poll
        self._plan = plan
        self._plan_every_s = plan_every_s
        self._entries: dict[str, tuple[float, float, str, tuple[str, ...]]] = {}
        # Ticks are coroutines on purpose: APScheduler runs plain functions on a thread.
        self._scheduler = AsyncIOScheduler(
            timezone=UTC,
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def start(self, settings: Settings) -> None:
        """Begin; the first tick of every repository comes at once."""
        self._scheduler.add_job(
            self._plan, IntervalTrigger(seconds=self._plan_every_s, timezone=UTC), id="plan"
        )
        self.set(settings)
        self._scheduler.start()

    def set(self, settings: Settings) -> None:
        """Take the watchlist up: entries that ask the same are left in their rhythm, the others tick at once."""
        wanted = {repo.key: repo for repo in settings.repos if repo.enabled}
        for key in set(self._entries) - set(wanted):
            self._scheduler.remove_job(f"poll:{key}")
            del self._entries[key]
        for key, repo in wanted.items():
            entry = (repo.every_s, _jitter_s(repo, settings), repo.url, tuple(repo.branches))
            if self._entries.get(key) == entry:
                continue
            self._entries[key] = entry
            self._scheduler.add_job(
                self._poll,
                IntervalTrigger(seconds=entry[0], jitter=entry[1] or None, timezone=UTC),
                args=[key],
                id=f"poll:{key}",
                replace_existing=True,
                next_run_time=datetime.now(UTC),
            )

    def stop(self) -> None:
        """End: no tick comes after this."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)


def _jitter_s(repo: Repo, settings: Settings) -> float:
    # More than half an interval of jitter would be another interval.
    return min(settings.poll.jitter_s, repo.every_s / 2)
