"""From a look at a remote to what is new about its branches: fetch, compare with the database, say it in events.

Owns the order in which a mirror is changed: what events cite is pinned before a fetch moves it away, and the contents
of every commit that is reported are there before it is. What a change means is `daemon.watching`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import structlog

from daemon.git import UNFINISHED, Git
from daemon.git_errors import RemoteError
from daemon.git_names import is_branch_name, is_sha
from daemon.ledger import Ledger
from daemon.looking import Look
from daemon.mirror_history import MirrorHistory, count_epochs, is_mirror
from daemon.settings import Repo
from daemon.watching import (
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
from store.events import CommitObserved
from store.log import NewEvent

Tips = Mapping[str, tuple[str, bool]]
"""The branches as the database has them: tip, and whether the branch is live."""

log = structlog.get_logger("daemon.poll")


class Changes:
    """Finds what is new. Remembers how often each branch began and ended, which only the log knows."""

    def __init__(self, *, ledger: Ledger, git: Git, mirror: Callable[[str], Path]) -> None:
        self._ledger = ledger
        self._git = git
        self._mirror = mirror
        self._epochs: dict[str, dict[str, int]] = {}

    def forget(self, repository: str) -> None:
        """Count anew: what was found may not have been recorded."""
        self._epochs.pop(repository, None)

    async def find(self, repo: Repo, tips: Tips, look: Look) -> list[NewEvent]:
        """Return the events that lead from what is known to what was seen, everything that they cite being there.

        Raises:
            RemoteError: it cannot be fetched, or what the watchlist asks for is not there.
        """
        if look.heads is None:
            return []
        heads = {name: sha for name, sha in look.heads.items() if is_branch_name(name) and is_sha(sha)}
        for name in sorted(set(look.heads) - set(heads))[:5]:
            log.warning("branch_refused", repository=repo.key, branch=repr(name)[:200])
        wanted = _wanted(repo, tips, look, heads)
        branches = await self._with_epochs(repo, tips)
        deleted = deleted_branches(branches, heads=heads)
        left = unwatched_branches(branches, heads=heads, wanted=wanted)
        moved = moved_branches(branches, wanted=wanted)
        mirror = self._mirror(repo.key)
        there = is_mirror(mirror)
        if there and (deleted or left or moved):
            # Before the fetch moves the refs: what events cite stays readable for good.
            await self._keep(
                mirror, [branches[name].tip for name in (*deleted, *left, *moved) if name in branches]
            )
        if wanted and (moved or not there):
            await self._git.ensure_mirror(mirror, sha256=len(next(iter(wanted.values()))) == 64)
            await self._git.fetch(mirror, repo.url, branches=wanted)
        if moved:
            fetched = await self._git.tips(mirror)
            moved = [name for name in moved_branches(branches, wanted=fetched) if name in wanted]
        events = [deletion(repo.key, name, known=branches[name]) for name in deleted]
        events += [unwatching(repo.key, name, known=branches[name]) for name in left]
        for name in moved:
            events += await arrival(
                repo.key,
                name,
                tip=fetched[name],
                known=branches.get(name),
                is_default=name == look.default_branch,
                history=MirrorHistory(self._git, mirror),
            )
        needed = {event.body.sha for event in events if isinstance(event.body, CommitObserved)}
        if wanted and not there:
            # The cache may be deleted at any time: what is due was observed, and has to be readable again.
            needed |= {*wanted.values(), *await self._ledger.ask(partial(_in_use, repository=repo.key))}
        await self._git.complete(mirror, sorted(needed))
        if wanted and not there:
            (mirror / UNFINISHED).unlink(missing_ok=True)
        if events:
            self.forget(repo.key)
        return events

    async def _keep(self, mirror: Path, shas: Iterable[str]) -> None:
        for sha in shas:
            if await self._git.has_commit(mirror, sha):
                await self._git.keep(mirror, [sha])

    async def _with_epochs(self, repo: Repo, tips: Tips) -> dict[str, KnownBranch]:
        if not tips:
            return {}
        epochs = self._epochs.get(repo.key)
        if epochs is None:
            count = partial(count_epochs, stream=f"repository:{repo.key}")
            epochs = self._epochs[repo.key] = await self._ledger.look_up(count)
        return {
            name: KnownBranch(tip=tip, live=live, epoch=epochs.get(name, 0))
            for name, (tip, live) in tips.items()
        }


def _wanted(repo: Repo, tips: Tips, look: Look, heads: Mapping[str, str]) -> dict[str, str]:
    live = [name for name, (_, live) in tips.items() if live]
    if live and not heads:
        return {}
    try:
        return choose_branches(repo.branches, default=look.default_branch, heads=heads, repository=repo.key)
    except RemoteError:
        # That the last watched branch went, or is not asked for any more, is a fact of its own, recorded before the
        # complaint. A HEAD that leads nowhere says neither of a branch that still stands.
        if not any(repo.branches or name not in heads for name in live):
            raise
        return {}


def _in_use(view: sqlite3.Connection, *, repository: str) -> set[str]:
    """The commits of a repository that jobs may still read: not scanned yet, or what a branch was last scanned at."""
    waiting = {row.sha for row in queries.commits(view, repository=repository, state="observed")}
    return waiting | {row.scanned for row in queries.branches(view, repository) if row.scanned is not None}
