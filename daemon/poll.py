"""Remote state -> events. One `poll` looks at one repository, records what changed, and says when to look again.

Owns the order of things (look, fetch, record, remember) and the back-off. What a change means is
`daemon.watching`; talking to remotes is `daemon.git` and `daemon.github`. A repository that fails stops nothing
else, and a poll that was killed between fetch and append repeats nothing: it compares the remote with the database,
never with the mirror.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, get_args

import structlog

from daemon.git import CommitFacts, Git, is_branch_name, is_sha
from daemon.git_errors import RemoteError
from daemon.github import GitHub
from daemon.ledger import Ledger
from daemon.paths import Paths, slug
from daemon.redact import redact
from daemon.settings import Repo
from daemon.watching import (
    DROPPED_AT_MOST,
    KnownBranch,
    arrival,
    choose_branches,
    deleted_branches,
    deletion,
    moved_branches,
    unwatched_branches,
    unwatching,
)
from store import queries
from store.envelope import utc_text
from store.events import (
    RepositoryFailed,
    RepositoryProblem,
    RepositoryRecovered,
    RepositoryRenamed,
)
from store.identity import event_id, short_hash
from store.log import NewEvent
from store.reader import LogReader

PROBLEMS = frozenset(get_args(RepositoryProblem))
_SLOWEST_S = 3600.0
_ASK_DEFAULT_BRANCH_EVERY_S = 3600.0
_EPOCH_TYPES = ("branch_created", "branch_rewritten", "branch_deleted", "branch_unwatched")

log = structlog.get_logger("daemon.poll")


@dataclass(frozen=True, slots=True)
class Polled:
    """What a poll came to: unchanged, changed, or the problem; and when the next one is due."""

    repository: str
    outcome: str
    commits: int
    requests: int
    seconds: float
    next_due_at: datetime


@dataclass(frozen=True, slots=True)
class _Known:
    state: str
    default_branch: str | None
    etag: str | None
    branches: Mapping[str, tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class _Look:
    heads: Mapping[str, str] | None
    default_branch: str | None
    etag: str | None = None
    renamed: RepositoryRenamed | None = None


@dataclass(slots=True)
class _Memory:
    """What is worth remembering between polls; all of it can be forgotten at any time."""

    failures: int = 0
    default_branch: str | None = None
    default_asked_at: float = -1e9
    epochs: dict[str, int] | None = None


class MirrorHistory:
    """What a mirror knows of commits, for `daemon.watching`."""

    def __init__(self, git: Git, mirror: Path) -> None:
        self._git = git
        self._mirror = mirror

    async def is_ancestor(self, old: str, new: str) -> bool:
        # A mirror that was deleted and fetched anew lacks what a force-push dropped.
        if not await self._git.has_commit(self._mirror, old):
            return False
        return await self._git.is_ancestor(self._mirror, old, new)

    async def merge_base(self, old: str, new: str) -> str | None:
        if not await self._git.has_commit(self._mirror, old):
            return None
        return await self._git.merge_base(self._mirror, old, new)

    async def commits(self, new: str, *, after: str | None) -> Sequence[CommitFacts]:
        return await self._git.first_parent(self._mirror, new, after=after)

    async def dropped(self, old: str, *, after: str | None) -> tuple[str, ...]:
        if not await self._git.has_commit(self._mirror, old):
            return (old,)
        return await self._git.first_parent_shas(self._mirror, old, after=after, limit=DROPPED_AT_MOST)


class Poller:
    """Polls repositories, any number at once but each one only once at a time."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        git: Git,
        github: GitHub | None,
        paths: Paths,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        dice: random.Random | None = None,
    ) -> None:
        self.git = git
        self.github = github
        self._ledger = ledger
        self._paths = paths
        self._now = now
        self._dice = dice or random.Random()  # noqa: S311 - jitter, not cryptography
        self._memory: dict[str, _Memory] = defaultdict(_Memory)
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def mirror(self, repository: str) -> Path:
        """Where the repository's bare mirror lies."""
        return self._paths.mirrors / f"{slug(repository)}.git"

    def forget(self, repository: str) -> None:
        """Ask the next poll for everything, the default branch's name too, which is not asked for every time."""
        self._memory[repository].default_branch = None

    async def poll(self, repo: Repo) -> Polled:
        """Look at one repository and record what changed.

        Raises:
            StoreFailedError: what was seen could not be recorded.
        """
        async with self._turns[repo.key]:
            started = time.monotonic()
            requests = self._requests(repo)
            memory = self._memory[repo.key]
            known = await self._ledger.ask(partial(_what_is_known, repository=repo.key))
            retry_at: datetime | None = None
            commits, detail, etag = 0, "", known.etag
            try:
                outcome, commits, etag = await self._look_and_record(repo, known, memory)
                memory.failures = 0
            except RemoteError as error:
                outcome, detail, retry_at = error.problem, str(error), error.retry_at
                memory.failures += 1
                memory.epochs = None
                await self._record_failure(repo, known, error)
            except BaseException:
                memory.epochs = None
                raise
            now = self._now()
            due = retry_at or now + timedelta(seconds=self.interval_s(repo, failures=memory.failures))
            await self._ledger.set_poll_state(
                repo.key,
                checked_at=utc_text(now),
                next_due_at=utc_text(due),
                outcome=outcome,
                etag=etag,
            )
            polled = Polled(
                repository=repo.key,
                outcome=outcome,
                commits=commits,
                requests=self._requests(repo) - requests,
                seconds=round(time.monotonic() - started, 3),
                next_due_at=due,
            )
            log.log(
                30 if outcome in PROBLEMS else 20,
                "repository_polled",
                repository=repo.key,
                outcome=outcome,
                seconds=polled.seconds,
                commits=commits,
                requests=polled.requests,
                **({"reason": detail} if detail else {}),
            )
            return polled

    def interval_s(self, repo: Repo, *, failures: int) -> float:
        """How long to wait: `every`, doubled for each failure in a row up to an hour, with jitter on failures."""
        if failures == 0:
            return repo.every_s
        slowest = max(_SLOWEST_S, repo.every_s)
        wait: float = min(repo.every_s * 2.0 ** min(failures, 12), slowest)
        return wait * self._dice.uniform(0.8, 1.2)

    def _requests(self, repo: Repo) -> int:
        name = self.github.name_of(repo.key) if self.github else None
        return self.github.requests[name] if self.github and name else 0

    # --- looking ------------------------------------------------------------------------------------------

    async def _look_and_record(
        self, repo: Repo, known: _Known, memory: _Memory
    ) -> tuple[str, int, str | None]:
        look = await self._look(repo, known, memory)
        events: list[NewEvent] = []
        if look.renamed is not None:
            # By itself: what is recorded already may be repeated alone, but not in a batch with news.
            await self._ledger.append([_renaming(look.renamed)])
        changes: list[NewEvent] = []
        if look.heads is not None:
            changes = await self._changes(repo, known, memory, look)
        if known.state in PROBLEMS:
            events.append(NewEvent(_stream(repo), RepositoryRecovered(repository=repo.key), actor="poll"))
        events += changes
        if events:
            await self._ledger.append(events)
            memory.epochs = (
                None if changes and any(e.body.type in _EPOCH_TYPES for e in changes) else memory.epochs
            )
        commits = sum(event.body.type == "commit_observed" for event in changes)
        return ("changed" if changes else "unchanged"), commits, await self._etag(repo, look)

    async def _look(self, repo: Repo, known: _Known, memory: _Memory) -> _Look:
        name = self.github.name_of(repo.key) if self.github else None
        if self.github is not None and name is not None:
            # An unchanged remote has to be fetched all the same where the cache was deleted.
            there = await asyncio.to_thread(_is_mirror, self.mirror(repo.key))
            last = _last_look(known.etag, basis=_basis(repo, known)) if there else {}
            default = last.get("default")
            answer = await self.github.look(
                name,
                etags=last.get("etags", {}),
                known_default=default if isinstance(default, str) else None,
            )
            renamed = None
            if answer.full_name is not None and answer.full_name.lower() != name.lower():
                renamed = RepositoryRenamed(
                    repository=repo.key,
                    new_url=redact(answer.clone_url or answer.full_name),
                    forge_id=answer.forge_id,
                )
            etag = json.dumps({"etags": dict(answer.etags), "default": answer.default_branch})
            return _Look(answer.heads, answer.default_branch, etag, renamed)
        now = time.monotonic()
        ask_default = (
            memory.default_branch is None or now - memory.default_asked_at > _ASK_DEFAULT_BRANCH_EVERY_S
        )
        refs = await self.git.ls_remote(repo.url, symref=ask_default)
        if not ask_default and memory.default_branch not in refs.heads:
            refs, ask_default = await self.git.ls_remote(repo.url), True
        if ask_default:
            memory.default_branch, memory.default_asked_at = refs.default_branch, now
        return _Look(refs.heads, memory.default_branch)

    async def _changes(self, repo: Repo, known: _Known, memory: _Memory, look: _Look) -> list[NewEvent]:
        heads = {
            name: sha for name, sha in (look.heads or {}).items() if is_branch_name(name) and is_sha(sha)
        }
        for name in sorted(set(look.heads or {}) - set(heads))[:5]:
            log.warning("branch_refused", repository=repo.key, branch=repr(name)[:200])
        if any(live for _, live in known.branches.values()) and not heads:
            wanted: dict[str, str] = {}
        else:
            try:
                wanted = choose_branches(
                    repo.branches, default=look.default_branch, heads=heads, repository=repo.key
                )
            except RemoteError:
                # That the last watched branch went, or is not asked for any more, is a fact of its own, recorded
                # before the complaint. A HEAD that leads nowhere says neither of a branch that still stands.
                live = [name for name, (_, live) in known.branches.items() if live]
                if not any(repo.branches or name not in heads for name in live):
                    raise
                wanted = {}
        branches = await self._with_epochs(repo, known, memory)
        deleted = deleted_branches(branches, heads=heads)
        left = unwatched_branches(branches, heads=heads, wanted=wanted)
        moved = moved_branches(branches, wanted=wanted)
        mirror = self.mirror(repo.key)
        history = MirrorHistory(self.git, mirror)
        if moved:
            await self.git.ensure_mirror(mirror, sha256=len(wanted[moved[0]]) == 64)
        there = await asyncio.to_thread(_is_mirror, mirror)
        if there and (deleted or left or moved):
            # Before the fetch moves the refs: what events cite stays readable for good.
            gone = [branches[name].tip for name in (*deleted, *left, *moved) if name in branches]
            await self._keep(mirror, gone)
        if wanted and not there and not moved:
            # The cache may be deleted at any time: what is due was observed, and has to be readable again.
            await self.git.ensure_mirror(mirror, sha256=len(next(iter(wanted.values()))) == 64)
            await self.git.fetch(mirror, repo.url, branches=wanted)
        if moved:
            await self.git.fetch(mirror, repo.url, branches=wanted)
            tips = await self.git.tips(mirror)
            moved = [name for name in moved_branches(branches, wanted=tips) if name in wanted]
        events = [deletion(repo.key, name, known=branches[name]) for name in deleted]
        events += [unwatching(repo.key, name, known=branches[name]) for name in left]
        for name in moved:
            events += await arrival(
                repo.key,
                name,
                tip=tips[name],
                known=branches.get(name),
                is_default=name == look.default_branch,
                history=history,
            )
        return events

    async def _keep(self, mirror: Path, shas: Sequence[str]) -> None:
        for sha in shas:
            if await self.git.has_commit(mirror, sha):
                await self.git.keep(mirror, [sha])

    async def _with_epochs(self, repo: Repo, known: _Known, memory: _Memory) -> dict[str, KnownBranch]:
        if not known.branches:
            return {}
        if memory.epochs is None:
            memory.epochs = await self._ledger.look_up(partial(count_epochs, stream=_stream(repo)))
        epochs = memory.epochs
        return {
            name: KnownBranch(tip=tip, live=live, epoch=epochs.get(name, 0))
            for name, (tip, live) in known.branches.items()
        }

    async def _etag(self, repo: Repo, look: _Look) -> str | None:
        """Bind the ETags to what was just recorded: with any other history they must not be used."""
        if look.etag is None:
            return None
        known = await self._ledger.ask(partial(_what_is_known, repository=repo.key))
        return json.dumps({"basis": _basis(repo, known), **json.loads(look.etag)}, sort_keys=True)

    async def _record_failure(self, repo: Repo, known: _Known, error: RemoteError) -> None:
        if known.state == error.problem:
            return
        body = RepositoryFailed(
            repository=repo.key,
            problem=error.problem,
            reason=redact(str(error))[:1000],
            remedy=error.remedy,
        )
        await self._ledger.append([NewEvent(_stream(repo), body, actor="poll")])


def _is_mirror(mirror: Path) -> bool:
    return (mirror / "HEAD").is_file()


def _what_is_known(view: sqlite3.Connection, *, repository: str) -> _Known:
    row = next((row for row in queries.repositories(view) if row.repository == repository), None)
    return _Known(
        state=row.state if row else "new",
        default_branch=row.default_branch if row else None,
        etag=row.etag if row else None,
        branches={
            branch.branch: (branch.tip, branch.state == "live")
            for branch in queries.branches(view, repository)
        },
    )


def count_epochs(reader: LogReader, *, stream: str) -> dict[str, int]:
    """Return how often each branch of a repository's stream began, was rewritten, or ended; see `KnownBranch`."""
    counts: dict[str, int] = defaultdict(int)
    for event in reader.read(stream=stream, types=_EPOCH_TYPES):
        counts[event.data["branch"]] += 1
    return dict(counts)


def _basis(repo: Repo, known: _Known) -> str:
    tips = (f"{name}={tip}={live}" for name, (tip, live) in sorted(known.branches.items()))
    return short_hash("etag", *repo.branches, "|", *tips)


def _last_look(stored: str | None, *, basis: str) -> dict[str, Any]:
    """Return the ETags and the default branch of the last look that the API answered.

    Nothing where the database or the watchlist is not what it was then: a 304 would hide what is missing here.
    """
    try:
        content = json.loads(stored or "{}")
    except ValueError:
        return {}
    if not isinstance(content, dict) or content.get("basis") != basis:
        return {}
    return content if isinstance(content.get("etags"), dict) else {}


def _renaming(body: RepositoryRenamed) -> NewEvent:
    key = event_id(body.type, body.repository, body.new_url, str(body.forge_id))
    return NewEvent(f"repository:{body.repository}", body, event_id=key, actor="poll")


def _stream(repo: Repo) -> str:
    return f"repository:{repo.key}"
