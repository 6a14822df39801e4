"""Poll one repository: look at the remote, record its changes, and set the time of the next poll.

A failing repository stops no other. A poll killed between fetch and append repeats nothing: it compares the
remote with the database, never with the mirror.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import get_args

import structlog
from pydantic import ValidationError

from daemon.place.paths import Paths
from daemon.polling.branch_diff import Changes, Tips, is_mirror
from daemon.polling.errors import RemoteError, ReplacedError
from daemon.polling.git import Git, RemoteState
from daemon.polling.github import NOTHING, GitHub, RequestMemory
from daemon.settings import Repo
from daemon.settings.schema import Poll
from daemon.state.store_service import StoreService
from pipeline.redact import redact
from store.backoff import Backoff
from store.domain.identity import event_id, short_hash, slug
from store.events.repositories import (
    RepositoryArchived,
    RepositoryFailed,
    RepositoryIdentified,
    RepositoryProblem,
    RepositoryRecovered,
    RepositoryRenamed,
    RepositoryReplaced,
)
from store.log.envelope import NewEvent, utc_text
from store.view import queries

PROBLEMS = frozenset(get_args(RepositoryProblem))
_SHORTEST_WAIT_S = 1.0
_ASK_ABOUT_EVERY_S = 3600.0
_QUIET_SHARE = 24.0
_SLOWEST_AFTER_FAILURES_S = 3600.0
# Far too little to be another interval, and enough for hundreds of repositories at one request after the
# other.
_SPREAD = 1 / 30
_LONGEST_SPREAD_S = 10.0

log = structlog.get_logger("daemon.poll")


class PollMemory(RequestMemory):
    """The part of a poll that the next one needs: JSON in `poll_states.etag`, so it survives a restart.

    All of it can be forgotten at any time; that costs one poll without conditions. `basis` names the history
    of the ETags, `entry` the polled entry of the watchlist. Times are ISO 8601 in UTC. `about_at`: the last
    request of the default branch, `changed_at`: the last poll with news. `failures` counts those in a row.
    """

    basis: str = ""
    entry: str = ""
    about_at: str = ""
    changed_at: str = ""
    failures: int = 0


def load_memo(stored: str | None) -> PollMemory:
    """Read a stored memo; an unreadable one, such as an earlier version's, counts as empty."""
    try:
        return PollMemory.model_validate_json(stored or "{}")
    except ValidationError:
        return PollMemory()


def entry_of(repo: Repo) -> str:
    """Return a name for a watchlist entry: a repository with a changed entry is polled at once."""
    return short_hash("entry", repo.url, str(repo.every_s), *repo.branches)


def basis_of(repo: Repo, branches: Mapping[str, tuple[str, bool]]) -> str:
    """Return a name for the history behind an answer: after any other a 304 would hide a change."""
    tips = (f"{name}={tip}={live}" for name, (tip, live) in sorted(branches.items()))
    return short_hash("etag", *repo.branches, "|", *tips)


def seconds_since(text: str, now: datetime) -> float | None:
    """Return the seconds since a time of a memo; None without a time, or for one in the future."""
    try:
        seconds = (now - datetime.fromisoformat(text)).total_seconds()
    except (TypeError, ValueError):
        return None
    return seconds if seconds >= 0 else None


def after_answer(*, every_s: float, slowest_s: float, quiet_s: float, archived: bool = False) -> float:
    """Return the seconds until the next poll of a repository that answered.

    Args:
        quiet_s: the seconds since its last change.
        archived: whether it cannot change at all before it is opened again.
    """
    slowest_s = max(every_s, slowest_s)
    return slowest_s if archived else min(max(every_s, quiet_s / _QUIET_SHARE), slowest_s)


def after_failure(*, every_s: float, failures: int, dice: random.Random) -> float:
    """Return the seconds until the next poll after failures in a row: twice the interval, up to an hour."""
    # No shorter than the interval, which may itself be longer than an hour.
    return Backoff(2 * every_s, max(_SLOWEST_AFTER_FAILURES_S, every_s), jitter=0.2).wait_s(failures, dice)


def spread(*, every_s: float, dice: random.Random) -> float:
    """Return the seconds of a poll's delay, so that many repositories are not asked in the same second."""
    return dice.uniform(0.0, min(_LONGEST_SPREAD_S, _SPREAD * every_s))


@dataclass(frozen=True, slots=True)
class PollResult:
    """The result of a poll: unchanged, changed, or the problem; and the seconds until the next one."""

    repository: str
    outcome: str
    commits: int
    requests: int
    seconds: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class _Record:
    state: str
    archived: bool
    private: bool
    memo: PollMemory
    branches: Tips
    forge_id: int | None
    replaced_by: int | None


class Poller:
    """Polls repositories, any number at once but each one only once at a time."""

    def __init__(
        self,
        *,
        store: StoreService,
        git: Git,
        github: GitHub | None,
        paths: Paths,
    ) -> None:
        self.git = git
        self.github = github
        self.slowest_s = Poll().slowest_s
        self._store = store
        self._paths = paths
        self._now: Callable[[], datetime] = partial(datetime.now, UTC)
        self._dice = random.Random()  # noqa: S311 - jitter, not cryptography
        self._changes = Changes(store=store, git=git, mirror=self.mirror)
        self._ask_all: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def mirror(self, repository: str) -> Path:
        """Return the path of the repository's bare mirror."""
        return self._paths.mirrors / f"{slug(repository)}.git"

    @property
    def disk_problem(self) -> str:
        """Why nothing can be recorded now; "" if it can."""
        return self._store.room.problem

    def forget(self, repository: str) -> None:
        """Make the next poll query everything, also the default branch's name, which most polls do not."""
        self._ask_all.add(repository)

    async def numbered(self, forge_id: int | None) -> Sequence[str]:
        """Return the keys of repositories with this number at their forge, renamed ones among them."""
        if forge_id is None:
            return []
        rows = await self._store.ask(partial(queries.repositories, watched_only=True))
        return [row.repository for row in rows if row.forge_id == forge_id]

    async def poll(self, repo: Repo) -> PollResult:
        """Poll one repository and record its changes.

        Raises:
            StoreFailedError: they could not be recorded.
        """
        async with self._turns[repo.key]:
            started = time.monotonic()
            name = self.github.name_of(repo.key) if self.github else None
            requests = self._requests(name)
            record = await self._store.ask(partial(_state, repository=repo.key))
            wait_s: float | None = None
            commits, detail = 0, ""
            try:
                outcome, commits, memo, archived = await self._look_and_record(repo, name, record)
                wait_s = self._pause_s(repo, memo, archived=archived)
            except RemoteError as caught:
                error = _with_what_was_there(caught, record)
                outcome, detail = error.problem, str(error)
                memo = record.memo.model_copy(update={"failures": record.memo.failures + 1})
                if error.retry_at is not None:
                    wait_s = (error.retry_at - self._now()).total_seconds()
                await self._record_failure(repo, record, error)
            except BaseException:
                self._changes.forget(repo.key)
                raise
            if wait_s is None:
                wait_s = after_failure(every_s=repo.every_s, failures=memo.failures, dice=self._dice)
            wait_s = max(_SHORTEST_WAIT_S, wait_s)
            now = self._now()
            polled = PollResult(
                repository=repo.key,
                outcome=outcome,
                commits=commits,
                requests=self._requests(name) - requests,
                seconds=round(time.monotonic() - started, 3),
                wait_s=wait_s,
            )
            await self._store.set_poll_state(
                repo.key,
                checked_at=utc_text(now),
                next_due_at=utc_text(now + timedelta(seconds=wait_s)),
                outcome=outcome,
                etag=memo.model_copy(update={"entry": entry_of(repo)}).model_dump_json(),
            )
            log.log(
                _level(outcome),
                "repository_polled",
                sentence=f"polled {repo.key}: {detail or outcome}, new commits: {commits}",
                repository=repo.key,
                outcome=outcome,
                seconds=polled.seconds,
                commits=commits,
                requests=polled.requests,
                **({"reason": detail} if detail else {}),
            )
            return polled

    def _pause_s(self, repo: Repo, memo: PollMemory, *, archived: bool) -> float:
        quiet_s = seconds_since(memo.changed_at, self._now()) or 0.0
        pause_s = after_answer(
            every_s=repo.every_s, slowest_s=self.slowest_s, quiet_s=quiet_s, archived=archived
        )
        return pause_s + spread(every_s=repo.every_s, dice=self._dice)

    def _requests(self, name: str | None) -> int:
        return self.github.requests[name] if self.github and name else 0

    async def _look_and_record(
        self, repo: Repo, name: str | None, record: _Record
    ) -> tuple[str, int, PollMemory, bool]:
        """Return the outcome, the number of new commits, the next memo, and whether it is archived."""
        basis = basis_of(repo, record.branches)
        # An unchanged remote must be fetched all the same if the cache was deleted.
        usable = record.memo.basis == basis and is_mirror(self.mirror(repo.key))
        result = await self._look(repo, name, record, usable=usable)
        before, number = record.forge_id, result.number
        if before is not None and number is not None and before != number:
            raise ReplacedError(repo.key, before=before, forge_id=number)
        if result.full_name is not None and name is not None and result.full_name.lower() != name.lower():
            # By itself: a recorded event may be repeated alone, but not in a batch with news.
            await self._store.append([_renaming(repo, result)], wait=True)
        try:
            changes = await self._changes.find(repo, record.branches, result)
        except RemoteError:
            self._changes.forget(repo.key)
            raise
        events = self._news_of_itself(repo, record, result) + changes
        if events:
            await self._store.append(events, wait=True)
        if changes:
            record = await self._store.ask(partial(_state, repository=repo.key))
            basis = basis_of(repo, record.branches)
        self._ask_all.discard(repo.key)
        commits = sum(event.body.type == "commit_observed" for event in changes)
        outcome = "changed" if changes else "unchanged"
        archived = record.archived if result.archived is None else result.archived
        return outcome, commits, self._memo(record.memo, result, basis, changes), archived

    async def _look(self, repo: Repo, name: str | None, record: _Record, *, usable: bool) -> RemoteState:
        """Return the remote's state, from the forge's API if the repository has a `name` there, else from
        git.

        `usable`: the memo's ETags belong to the database's history.

        Raises:
            RemoteError: the remote cannot be read.
        """
        if self.github is None or name is None:
            refs = await self.git.ls_remote(repo.url)
            return RemoteState(refs.heads, refs.default_branch)
        since = seconds_since(record.memo.about_at, self._now())
        # Without its number everything is asked: a 304 lacks it.
        usable = usable and record.forge_id is not None and record.replaced_by is None
        return await self.github.look(
            name,
            remembered=record.memo if usable else NOTHING,
            ask_about=repo.key in self._ask_all or since is None or since > _ASK_ABOUT_EVERY_S,
        )

    def _news_of_itself(self, repo: Repo, record: _Record, remote: RemoteState) -> list[NewEvent]:
        """Return the events about the repository as a whole."""
        stream, events = _stream(repo), []
        if record.state in PROBLEMS:
            events.append(NewEvent(stream, RepositoryRecovered(repository=repo.key), actor="poll"))
        private = record.private if remote.private is None else remote.private
        if remote.number is not None and (record.forge_id is None or private != record.private):
            identified = RepositoryIdentified(
                repository=repo.key, forge_id=remote.number, private=private, by=""
            )
            events.append(NewEvent(stream, identified, actor="poll"))
        if remote.archived is not None and remote.archived != record.archived:
            body = RepositoryArchived(repository=repo.key, archived=remote.archived)
            events.append(NewEvent(stream, body, actor="poll"))
        return events

    def _memo(
        self, before: PollMemory, remote: RemoteState, basis: str, changes: list[NewEvent]
    ) -> PollMemory:
        now = utc_text(self._now())
        return PollMemory(
            basis=basis,
            etags=dict(remote.etags),
            default=remote.default_branch,
            moved=remote.moved,
            number=(remote.number or before.number) if remote.moved else None,
            about_at=now if remote.asked else before.about_at,
            changed_at=now if changes or not before.changed_at else before.changed_at,
        )

    async def _record_failure(self, repo: Repo, record: _Record, error: RemoteError) -> None:
        body: RepositoryFailed | RepositoryReplaced
        reason = redact(str(error))[:1000]
        if isinstance(error, ReplacedError):
            if record.replaced_by == error.forge_id:
                return
            numbers = {"before": error.before, "forge_id": error.forge_id}
            body = RepositoryReplaced(repository=repo.key, reason=reason, remedy=error.remedy, **numbers)
        elif record.state == error.problem or record.replaced_by is not None:
            # A replacement waits for a person, also while the forge is out of reach.
            return
        else:
            body = RepositoryFailed(
                repository=repo.key, problem=error.problem, reason=reason, remedy=error.remedy
            )
        await self._store.append([NewEvent(_stream(repo), body, actor="poll")], wait=True)


def _state(view: sqlite3.Connection, *, repository: str) -> _Record:
    row = queries.repository(view, repository)
    return _Record(
        state=row.state if row else "new",
        archived=row.archived if row else False,
        private=row.private if row else False,
        memo=load_memo(row.etag if row else None),
        branches={
            branch.branch: (branch.tip, branch.state == "live")
            for branch in queries.branches(view, repository)
        },
        forge_id=row.forge_id if row else None,
        replaced_by=row.replaced_by if row else None,
    )


def _renaming(repo: Repo, remote: RemoteState) -> NewEvent:
    url = redact(remote.clone_url or remote.full_name or "")
    body = RepositoryRenamed(repository=repo.key, new_url=url, forge_id=remote.number)
    key = event_id(body.type, body.repository, body.new_url, str(body.forge_id))
    return NewEvent(_stream(repo), body, event_id=key, actor="poll")


def _stream(repo: Repo) -> str:
    return f"repository:{repo.key}"


def _level(outcome: str) -> int:
    """Return the level of a poll's log line; a poll without changes is no news."""
    if outcome in PROBLEMS:
        return logging.WARNING
    return logging.DEBUG if outcome == "unchanged" else logging.INFO


def _with_what_was_there(error: RemoteError, record: _Record) -> RemoteError:
    """Return the error, as "gone" if nothing is found of earlier branches."""
    if error.problem != "not_found" or not record.branches:
        return error
    remedy = f"{error.remedy}; remove the entry if it is gone for good"
    return RemoteError("gone", str(error), remedy=remedy, retry_at=error.retry_at)
