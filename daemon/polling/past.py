"""Ask git about the time before a repository was watched, in the background, one repository at a time.

First the authors of its sorries (`daemon.polling.authors`), then its commits, one a week, for a job to count
their sorries (`pipeline.count`): the versions of their Lean files are fetched in one request, at most
`MOST_VERSIONS`, the newest weeks first. Dates are strangers' clocks: a commit whose date contradicts most
others' is passed over.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import structlog

from daemon.polling.authors import MOST_COMMITS, MOST_VERSIONS, Authors
from daemon.polling.branch_diff import is_mirror
from daemon.polling.errors import RemoteError
from daemon.polling.git import DatedCommit, Git
from daemon.settings import Repo
from daemon.state.context import Context
from daemon.state.store_service import StoreService
from pipeline.lean.source.globs import path_filter
from store.backoff import Backoff
from store.events.scans import PastCommit, PastListed
from store.log.envelope import NewEvent
from store.text import counted
from store.view import queries

WEEK = timedelta(days=7)
LONGEST = timedelta(days=5 * 365)
"""Before the first sight of a branch."""
_WEEKS_AT_ONCE = 20
_EMPTY = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
"""The listing of a folder without files, known to every git, by the length of a hash."""
_PAUSE_S, _PAUSE_WITH_MORE_S = 20.0, 1.0
_AGAIN = Backoff(300.0, 86_400.0)

log = structlog.get_logger("daemon.past")


class Past:
    """Asks git the questions still open.

    Args:
        mirror: the bare mirror of a repository.
    """

    def __init__(
        self, *, store: StoreService, git: Git, mirror: Callable[[str], Path], context: Context
    ) -> None:
        self.pause_s = _PAUSE_S
        """The pause before the next turn."""
        self._store = store
        self._git = git
        self._mirror = mirror
        self._context = context
        self._authors = Authors(store=store, git=git, mirror=mirror)
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}
        """By question and repository, git's failures in a row, and the end of the wait after them."""
        self._there: set[str] = set()
        """The repositories with all commits to count in the mirror."""

    async def look(self) -> None:
        """Record git's answer for the next repository with an open question.

        Raises:
            StoreFailedError: it could not be recorded.
        """
        self.pause_s = _PAUSE_S
        if not self._context.settings.scan.history or self._store.room.problem:
            return
        for question, ask, waiting in (
            ("authors", self._authors.record, await self._store.ask(queries.unwritten_repositories)),
            ("past", self._list, await self._store.ask(queries.past_unlisted)),
            ("past", self._fetch_again, await self._store.ask(queries.past_uncounted) - self._there),
        ):
            if repo := self._next(question, waiting):
                self.pause_s = _PAUSE_WITH_MORE_S
                await self._ask_git(question, repo, ask)
                return

    def _next(self, question: str, waiting: Collection[str]) -> Repo | None:
        """Return the first of these repositories whose turn it is."""
        now = time.monotonic()
        ready = (
            repo
            for repo in self._context.settings.repos
            if repo.enabled
            and repo.key in waiting
            and self._failures.get((question, repo.key), (0, 0.0))[1] <= now
            and is_mirror(self._mirror(repo.key))
        )
        return min(ready, key=lambda repo: repo.key, default=None)

    async def _ask_git(self, question: str, repo: Repo, ask: Callable[[Repo], Awaitable[None]]) -> None:
        about = question, repo.key
        try:
            await ask(repo)
        except RemoteError as error:
            failures = self._failures.get(about, (0, 0.0))[0] + 1
            wait_s = _AGAIN.wait_s(failures)
            self._failures[about] = failures, time.monotonic() + wait_s
            log.warning(f"{question}_unknown", repository=repo.key, reason=str(error), again_after_s=wait_s)
        else:
            self._failures.pop(about, None)

    async def _list(self, repo: Repo) -> None:
        """Record the commits of a repository's past to count, once their files are there."""
        began = time.monotonic()
        unlisted = await self._store.ask(queries.past_unlisted)
        branch, sha = unlisted[repo.key]
        history = await self._git.history(self._mirror(repo.key), sha, most=MOST_COMMITS)
        weeks, whole = await asyncio.to_thread(weekly, history, now=datetime.now(UTC))
        taken, versions = await self._fetch(repo, weeks)
        commits = [
            PastCommit(
                sha=one.sha,
                committed_at=one.at,
                begins=whole and len(taken) == len(weeks) and one is weeks[-1],
            )
            for one in taken
        ]
        body = PastListed(repository=repo.key, branch=branch, commits=tuple(commits))
        await self._store.append([NewEvent(f"repository:{repo.key}", body, actor="git")], wait=True)
        log.info(
            "past_listed",
            sentence=f"asked git for {counted(len(taken), 'week')} of the past of {repo.key}",
            repository=repo.key,
            weeks=len(taken),
            versions=versions,
            seconds=round(time.monotonic() - began, 3),
        )

    async def _fetch_again(self, repo: Repo) -> None:
        """Fetch the missing contents of the commits to count: the mirror may have been deleted since."""
        rows = await self._store.ask(partial(queries.past_to_count, repository=repo.key))
        await self._fetch(repo, await self._git.dated(self._mirror(repo.key), [row.sha for row in rows]))

    async def _fetch(self, repo: Repo, weeks: Sequence[DatedCommit]) -> tuple[Sequence[DatedCommit], int]:
        """Fetch the Lean files of as many of these commits as the bound allows; return the commits, and the
        number of versions."""
        mirror, matches = self._mirror(repo.key), path_filter(repo.include, repo.exclude)
        versions: dict[str, None] = {}
        taken = 0
        before = _EMPTY[len(weeks[0].tree)]
        for start in range(0, len(weeks), _WEEKS_AT_ONCE):
            trees = [one.tree for one in weeks[start : start + _WEEKS_AT_ONCE]]
            missing = await self._git.missing_contents(mirror, trees)
            for files in await self._git.differences(mirror, [before, *trees]):
                more = {blob for path, blob in files.items() if blob in missing and matches(path)}
                if len(versions.keys() | more) > MOST_VERSIONS:
                    break
                versions |= dict.fromkeys(sorted(more))
                taken += 1
            if taken < start + len(trees):
                break
            before = trees[-1]
        await self._git.bring(mirror, [*versions], in_background=True)
        self._there.add(repo.key)
        # The first is recorded in any case, so that git is asked once.
        return weeks[: max(1, taken)], len(versions)


def weekly(history: Sequence[DatedCommit], *, now: datetime) -> tuple[list[DatedCommit], bool]:
    """Return the first commit and the last one of each week before it, newest first, and whether that is all.

    Args:
        history: the newest first.
        now: no commit is later.
    """
    dated = [replace(one, at=min(one.at, now)) for one in history]
    first = dated[0]
    in_order = _in_order([one for one in dated if one.at <= first.at])
    taken = [first]
    for one in in_order:
        if one.at < first.at - LONGEST:
            return taken, False
        if _week(one) < _week(taken[-1]):
            taken.append(one)
    return taken, history[-1].root


def _week(commit: DatedCommit) -> int:
    return int(commit.at.timestamp() // WEEK.total_seconds())


def _in_order(history: Sequence[DatedCommit]) -> list[DatedCommit]:
    """Return the most commits whose dates agree with their order: a longest non-increasing run."""
    ends: list[float] = []
    """By its length less one, the negated date at which a run of this length may end at the earliest."""
    at: list[int] = []
    before: list[int | None] = []
    for number, one in enumerate(history):
        date = -one.at.timestamp()
        place = bisect_right(ends, date)
        before.append(at[place - 1] if place else None)
        ends[place : place + 1], at[place : place + 1] = [date], [number]
    result = []
    last: int | None = at[-1] if at else None
    while last is not None:
        result.append(history[last])
        last = before[last]
    return result[::-1]
