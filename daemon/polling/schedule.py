"""Poll schedule: at most one poll per repository, none before its due time.

The due times are in the view, so a restart polls nothing early; while the daemon runs they are counted on a
clock that is never set. `daemon.process.periodic` calls the ticks, and remembers nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime

import structlog

from daemon.polling.git_process import LONG
from daemon.polling.poller import Poller, entry_of, load_memo
from daemon.polling.turns import Turns
from daemon.settings import Repo
from daemon.state.clock import elapsed_s
from daemon.state.context import Context
from daemon.state.store_service import StoreFailedError
from store.text import listed, span
from store.view.rows import PolledRepository

_BETWEEN_HINTS_S = 10.0
_SHORTEST_S, _LONGEST_S = 0.25, 5.0
_AT_ONCE = 8
_PATIENCE_S = 5.0
OVERDUE = "polls are overdue"
"""The key of that problem."""
_NAMED = 3

log = structlog.get_logger("daemon.polls")


class PollScheduler:
    """The polls of one daemon.

    Args:
        context: a poll with a defect is a problem `poll:<key>` there until one ends well.
    """

    def __init__(
        self,
        poller: Poller,
        context: Context,
        *,
        elapsed: Callable[[], float] = elapsed_s,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.running: dict[str, float] = {}
        """The repositories asked or in line for it, and the start of each."""
        self._poller = poller
        self._context = context
        self._elapsed = elapsed
        self._now = now
        self._due: dict[str, float] = {}
        self._entries: dict[str, str] = {}
        self._outcomes: dict[str, str] = {}
        self._begun: dict[str, float] = {}
        # Few at once, so that the first answers come within seconds, however many are due.
        self._turns = Turns(_AT_ONCE)
        self._seen: set[str] = set()
        self._last_end = elapsed()

    def remember(self, rows: Iterable[PolledRepository]) -> None:
        """Restore the time of each repository's next poll from the last daemon's records."""
        now, clock = self._now(), self._elapsed()
        for row in rows:
            if row.next_due_at is None or row.checked_at is None:
                continue
            due, last = datetime.fromisoformat(row.next_due_at), datetime.fromisoformat(row.checked_at)
            # Never longer than the planned wait: the wall clock may have been set back meanwhile.
            wait_s = min(max((due - now).total_seconds(), 0.0), max((due - last).total_seconds(), 0.0))
            self._due[row.repository] = clock + wait_s
            self._seen.add(row.repository)
            self._entries[row.repository] = load_memo(row.etag).entry
            self._outcomes[row.repository] = row.poll_outcome or ""

    def tick_s(self) -> float:
        """Return the seconds between two ticks: there are ten in the shortest interval of the watchlist."""
        repos = self._context.settings.repos
        shortest_s = min((repo.every_s for repo in repos if repo.enabled), default=math.inf)
        return min(max(shortest_s / 10, _SHORTEST_S), _LONGEST_S)

    async def tick(self) -> None:
        """Poll the due repositories, and at once those with a new or changed entry."""
        settings, now = self._context.settings, self._elapsed()
        self._poller.slowest_s = settings.poll.slowest_s
        for repo in settings.repos:
            entry = entry_of(repo)
            if self._entries.get(repo.key) != entry and not self._is_patient(repo.key):
                self._due[repo.key] = now
            self._entries[repo.key] = entry
            if repo.enabled and repo.key not in self.running and self._due_s(repo.key) <= now:
                self._begin(repo)
        self._tell_overdue(now)

    def _tell_overdue(self, now: float) -> None:
        """Report the polls that have not ended an interval and a timeout after they were due.

        A poll that waits behind first looks, perhaps thousands of them, is late only if none of those ends.
        """
        unseen = any(repo.enabled and repo.key not in self._seen for repo in self._context.settings.repos)
        timeout_s = self._context.settings.poll.timeout_s
        late: list[tuple[float, str]] = []
        for repo in self._context.settings.repos:
            since = self.running.get(repo.key, now)
            if unseen:
                begun = self._begun.get(repo.key, 0.0)
                since = begun if begun >= since else max(since, self._last_end)
            # A first look has a whole repository to fetch.
            if now - since > repo.every_s + timeout_s * (1 if repo.key in self._seen else LONG):
                late.append((since, repo.key))
        if not late:
            self._context.problems.clear(OVERDUE)
            return
        named = listed([f"{key} (for {span(now - since)})" for since, key in sorted(late)], _NAMED)
        self._context.problems.set(
            OVERDUE,
            f"polls of {len(late)} of {len(self._context.settings.repos)} repositories are overdue: {named};"
            " look at their forge, at the network, and whether this machine keeps up",
        )

    def poll_now(self, repository: str | None) -> Sequence[str]:
        """Begin polls, whatever the back-off; KeyError for an unwatched repository."""
        repos = [
            repo for repo in self._context.settings.repos if repo.enabled and repository in (None, repo.key)
        ]
        if repository is not None and not repos:
            raise KeyError(repository)
        for repo in repos:
            self._poller.forget(repo.key)
            if repo.key in self.running:
                # The poll under way may see an older state than the wish: it is polled again.
                self._due[repo.key] = self._elapsed()
        for repo in repos:
            self._begin(repo)
        return [repo.key for repo in repos]

    def hint(self, keys: Collection[str]) -> Sequence[str]:
        """Poll repositories sooner after a report of changes; return their keys.

        It is only a hint: no repository is polled twice in ten seconds for it, nor one whose forge asked for
        patience.
        """
        now, hinted = self._elapsed(), []
        for repo in self._context.settings.repos:
            if repo.key in keys and repo.enabled and not self._is_patient(repo.key):
                soonest = max(now, self._begun.get(repo.key, 0.0) + _BETWEEN_HINTS_S)
                self._due[repo.key] = min(self._due_s(repo.key), soonest)
                hinted.append(repo.key)
        return hinted

    async def hint_named(self, name: str, number: int | None) -> Sequence[str]:
        """Heed a hint about a repository of the forge, by owner/name or by its number there."""
        github = self._poller.github
        if github is None:
            return []
        rows = await self._poller.numbered(number)
        result = {repo.key for repo in self._context.settings.repos if _is(name, github.name_of(repo.key))}
        return self.hint(result | set(rows))

    def let_in_again(self) -> None:
        """Poll at once the repositories whose token was refused: there is a new one."""
        for key in self._ended_as("auth_failed"):
            self._due[key] = self._elapsed()

    def _in_reach_again(self, key: str) -> None:
        """Poll the unreachable repositories of the same host at once: an outage that ended needs no
        back-off."""
        host = key.partition("/")[0]
        for other in self._ended_as("unreachable"):
            if other.partition("/")[0] == host:
                self._outcomes[other] = ""
                self._due[other] = self._elapsed()

    def _ended_as(self, outcome: str) -> list[str]:
        """Return the repositories whose last poll ended so."""
        return [key for key, last in self._outcomes.items() if last == outcome]

    def _is_patient(self, key: str) -> bool:
        """Return whether a repository's forge asked for patience."""
        return self._outcomes.get(key) == "rate_limited"

    def _due_s(self, key: str) -> float:
        return self._due.get(key, 0.0)

    def _begin(self, repo: Repo) -> None:
        held = self._context.stop_reason or self._poller.disk_problem
        if repo.key not in self.running and not held:
            self.running[repo.key] = self._elapsed()
            self._context.spawn(self._poll(repo), name=f"poll:{repo.key}")

    async def _poll(self, repo: Repo) -> None:
        # After a defect: not before another interval.
        self._due[repo.key] = self._elapsed() + repo.every_s
        try:
            async with self._turns.one(patience_s=_PATIENCE_S):
                begun = self._begun[repo.key] = self._elapsed()
                next_s = self._due[repo.key] = begun + repo.every_s
                polled = await self._poller.poll(repo)
            hinted = self._due[repo.key] < next_s
            self._due[repo.key] = min(
                self._elapsed() + polled.wait_s, self._due[repo.key] if hinted else 1e18
            )
            self._outcomes[repo.key] = polled.outcome
            if polled.outcome in ("changed", "unchanged"):
                self._in_reach_again(repo.key)
            self._context.problems.clear(f"poll:{repo.key}")
        except StoreFailedError:
            return  # the main loop ends the daemon with the reason
        except Exception as error:
            # The border of one repository's poll: a defect met there must not stop the others.
            self._context.problems.set(f"poll:{repo.key}", f"{repo.key}: {type(error).__name__}: {error}")
            log.exception("poll_defect", repository=repo.key)
        finally:
            del self.running[repo.key]
            self._seen.add(repo.key)
            self._last_end = self._elapsed()


def _is(name: str, other: str | None) -> bool:
    return other is not None and other.lower() == name.lower()
