"""Poll schedule: at most one poll per repository, none before its due time.

The due times are in the view, so a restart polls nothing early; while the daemon runs they are counted on a clock that
no one sets. APScheduler ticks and does nothing more: it says when to look, and remembers nothing. Its trigger is ours
(`_Pause`), and what a jump of the wall clock leaves in the future is set anew within a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from daemon.clock import elapsed_s
from daemon.context import Context
from daemon.polling.poller import Poller, entry_of, load_memo
from daemon.settings import Repo, Settings
from daemon.store_service import StoreFailedError
from store.view.rows import PolledRepository

_BETWEEN_HINTS_S = 10.0

log = structlog.get_logger("daemon.polls")


class PollScheduler:
    """The polls of one daemon.

    Args:
        context: a poll that ends in a defect is a problem `poll:<key>` there until one ends well.
    """

    def __init__(
        self,
        poller: Poller,
        context: Context,
        *,
        elapsed: Callable[[], float] = elapsed_s,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.running: set[str] = set()
        """The keys of the repositories that are being asked."""
        self._poller = poller
        self._context = context
        self._elapsed = elapsed
        self._now = now
        self._due: dict[str, float] = {}
        self._entries: dict[str, str] = {}
        self._patient: set[str] = set()
        self._refused: set[str] = set()
        self._out_of_reach: set[str] = set()
        self._begun: dict[str, float] = {}

    def remember(self, rows: Iterable[PolledRepository]) -> None:
        """Restore the time of each repository's next poll from what the last daemon left."""
        now, clock = self._now(), self._elapsed()
        for row in rows:
            if row.next_due_at is None or row.checked_at is None:
                continue
            due, asked = datetime.fromisoformat(row.next_due_at), datetime.fromisoformat(row.checked_at)
            # Never longer than it was to wait: the wall clock may have been set back meanwhile.
            wait_s = min(max((due - now).total_seconds(), 0.0), max((due - asked).total_seconds(), 0.0))
            self._due[row.repository] = clock + wait_s
            self._entries[row.repository] = load_memo(row.etag).entry
            if row.poll_outcome == "rate_limited":
                self._patient.add(row.repository)
            elif row.poll_outcome == "auth_failed":
                self._refused.add(row.repository)
            elif row.poll_outcome == "unreachable":
                self._out_of_reach.add(row.repository)

    async def tick(self) -> None:
        """Poll the repositories that are due, and at once those whose entry is new or changed."""
        settings, now = self._context.settings, self._elapsed()
        self._poller.rhythm = settings.poll
        for repo in settings.repos:
            entry = entry_of(repo)
            if self._entries.get(repo.key) != entry and repo.key not in self._patient:
                self._due[repo.key] = 0.0
            self._entries[repo.key] = entry
            if repo.enabled and repo.key not in self.running and self._due_s(repo.key) <= now:
                self._begin(repo)

    def poll_now(self, repository: str | None) -> Sequence[str]:
        """Begin polls, whatever the back-off says; KeyError for a repository that is not watched."""
        repos = [
            repo for repo in self._context.settings.repos if repo.enabled and repository in (None, repo.key)
        ]
        if repository is not None and not repos:
            raise KeyError(repository)
        for repo in repos:
            self._poller.forget(repo.key)
            if repo.key in self.running:
                self._due[repo.key] = (
                    0.0  # what it looks at now may be older than the wish: it is asked again
                )
        for repo in repos:
            self._begin(repo)
        return [repo.key for repo in repos]

    def hint(self, keys: Collection[str]) -> Sequence[str]:
        """Poll repositories sooner after a report that they changed; return which.

        It is only a hint: no repository is polled twice in ten seconds for it, nor one whose forge asked for patience.
        """
        now, hinted = self._elapsed(), []
        for repo in self._context.settings.repos:
            if repo.key in keys and repo.enabled and repo.key not in self._patient:
                soonest = max(now, self._begun.get(repo.key, 0.0) + _BETWEEN_HINTS_S)
                self._due[repo.key] = min(self._due_s(repo.key), soonest)
                hinted.append(repo.key)
        return hinted

    async def hint_named(self, name: str, number: int | None) -> Sequence[str]:
        """Heed a hint about a repository of the forge, by owner/name or by the number that it has there."""
        github = self._poller.github
        if github is None:
            return []
        rows = await self._poller.numbered(number)
        found = {repo.key for repo in self._context.settings.repos if _is(name, github.name_of(repo.key))}
        return self.hint(found | set(rows))

    def let_in_again(self) -> None:
        """Poll at once the repositories whose token was refused: there is a new one."""
        for key in self._refused:
            self._due[key] = 0.0

    def _in_reach_again(self, key: str) -> None:
        """Poll the unreachable repositories of the same host at once: an outage that ended needs no back-off."""
        host = key.partition("/")[0]
        for other in {one for one in self._out_of_reach if one.partition("/")[0] == host}:
            self._out_of_reach.discard(other)
            self._due[other] = 0.0

    def _due_s(self, key: str) -> float:
        return self._due.get(key, 0.0)

    def _begin(self, repo: Repo) -> None:
        held = self._context.stop_reason or self._poller.disk_problem
        if repo.key not in self.running and not held:
            self.running.add(repo.key)
            self._context.spawn(self._poll(repo), name=f"poll:{repo.key}")

    async def _poll(self, repo: Repo) -> None:
        begun = self._begun[repo.key] = self._elapsed()
        # Where it ends in a defect: not before another interval.
        self._due[repo.key] = begun + repo.every_s
        try:
            polled = await self._poller.poll(repo)
            hinted = self._due[repo.key] < begun + repo.every_s
            self._due[repo.key] = min(
                self._elapsed() + polled.wait_s, self._due[repo.key] if hinted else 1e18
            )
            self._patient.discard(repo.key)
            self._refused.discard(repo.key)
            self._out_of_reach.discard(repo.key)
            if polled.outcome == "unreachable":
                self._out_of_reach.add(repo.key)
            elif polled.outcome in ("changed", "unchanged"):
                self._in_reach_again(repo.key)
            if polled.outcome == "rate_limited":
                self._patient.add(repo.key)
            elif polled.outcome == "auth_failed":
                self._refused.add(repo.key)
            self._context.problems.clear(f"poll:{repo.key}")
        except StoreFailedError:
            return  # the main loop ends the daemon with the reason
        except Exception as error:
            # The border of one repository's poll: a defect met there must not stop the others.
            self._context.problems.set(f"poll:{repo.key}", f"{repo.key}: {type(error).__name__}: {error}")
            log.exception("poll_defect", repository=repo.key)
        finally:
            self.running.discard(repo.key)


def _is(name: str, other: str | None) -> bool:
    return other is not None and other.lower() == name.lower()


_POLL = "poll"
_PLAN = "plan"
_GUARD_S = 1.0
_SHORTEST_S, _LONGEST_S = 0.25, 5.0


class _Pause(BaseTrigger):  # type: ignore[misc] # APScheduler 3 has no types
    """The next tick is one pause after the scheduler's present.

    An interval that is counted on the wall clock, as APScheduler's own is, lists every run that was missed before it
    merges them: a clock that is set ten years ahead is 1,261,440,000 runs of a quarter of a second.
    """

    def __init__(self, seconds: float) -> None:
        self._pause = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:  # noqa: ARG002
        return now + self._pause


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
        """Load the watchlist, and tick for the polls at once."""
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
            _Pause(every_s),
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
