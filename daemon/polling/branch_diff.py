"""Turn the difference between the database and a remote into events: of the watchlist, branches and commits.

The decisions ask the mirror for its histories (`MirrorHistory`). `Changes` owns the order in which a mirror
is changed: commits cited in events are pinned before a fetch moves the refs, and a commit's contents are in
the mirror before its event is recorded.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import structlog

from daemon.polling.errors import RemoteError
from daemon.polling.git import UNFINISHED, Commit, Git, RemoteState
from daemon.polling.git_process import is_branch_name, is_sha
from daemon.settings import Repo
from daemon.state.store_service import StoreService
from store.domain.identity import event_id, repository_key
from store.events.base import EventBody
from store.events.repositories import (
    BranchCreated,
    BranchDeleted,
    BranchRewritten,
    BranchUnwatched,
    CommitObserved,
    RepositoryUnwatched,
    RepositoryWatched,
)
from store.log.envelope import NewEvent
from store.log.reader import LogReader
from store.view import queries
from store.view.rows import PolledRepository

DROPPED_AT_MOST = 1000
_SUBJECT_CHARS = 500


@dataclass(frozen=True, slots=True)
class KnownBranch:
    """A branch in the database; `epoch` counts its creations, rewrites, deletions and unwatchings so far.

    The epoch is part of every natural key: a force-push back to an earlier commit is another fact than the
    first sight of that commit, while the same poll made twice (a crash before the append) is the same fact.
    """

    tip: str
    live: bool
    epoch: int


class MirrorHistory:
    """The history in a bare mirror. Thousands of branches may ask the same of one commit: git is asked
    once."""

    def __init__(self, git: Git, mirror: Path) -> None:
        self._git = git
        self._mirror = mirror
        self._commits: dict[tuple[str, str | None], Sequence[Commit]] = {}
        self._reached: dict[tuple[str, str], bool] = {}

    async def is_ancestor(self, old: str, new: str) -> bool:
        if (old, new) not in self._reached:
            # A mirror deleted and fetched anew lacks the commits dropped by a force-push.
            there = await self._git.has_commit(self._mirror, old)
            self._reached[old, new] = there and await self._git.is_ancestor(self._mirror, old, new)
        return self._reached[old, new]

    async def merge_base(self, old: str, new: str) -> str | None:
        if not await self._git.has_commit(self._mirror, old):
            return None
        return await self._git.merge_base(self._mirror, old, new)

    async def commits(self, new: str, *, after: str | None) -> Sequence[Commit]:
        """Return the first-parent commits of `new` beyond `after`, oldest first; without `after` just
        `new`."""
        if (new, after) not in self._commits:
            self._commits[new, after] = await self._git.first_parent(self._mirror, new, after=after)
        return self._commits[new, after]

    async def dropped(self, old: str, *, after: str | None) -> tuple[str, ...]:
        """Return the first-parent commits of `old` beyond `after`, newest first, at most DROPPED_AT_MOST."""
        if not await self._git.has_commit(self._mirror, old):
            return (old,)
        return await self._git.first_parent_shas(self._mirror, old, after=after, limit=DROPPED_AT_MOST)


def asked_for(branch: str, patterns: Sequence[str]) -> bool:
    """Return whether one of the watchlist's names or globs matches this branch."""
    return any(branch == pattern or fnmatchcase(branch, pattern) for pattern in patterns)


def choose_branches(
    patterns: Sequence[str], *, default: str | None, heads: Mapping[str, str], repository: str
) -> dict[str, str]:
    """Return the branches to watch and their tips: the matches of a name or glob, else the default branch.

    Raises:
        RemoteError: there is none, for the reason in the message.
    """
    if not heads:
        raise RemoteError("empty", f"{repository}: has no branch")
    if not patterns:
        if default is not None and default in heads:
            return {default: heads[default]}
        if len(heads) == 1:
            return dict(heads)
        raise RemoteError(
            "invalid",
            f"{repository}: the remote names no default branch that exists",
            remedy=f'name the branches in config.toml: branches = ["{min(heads)}"]',
        )
    targets = {name: sha for name, sha in heads.items() if asked_for(name, patterns)}
    if not targets:
        there = ", ".join(sorted(heads)[:5])
        raise RemoteError(
            "invalid",
            f"{repository}: no branch matches {', '.join(patterns)}",
            remedy=f"change branches in config.toml; the remote has: {there}",
        )
    return targets


def moved_branches(known: Mapping[str, KnownBranch], *, wanted: Mapping[str, str]) -> list[str]:
    """Return the wanted branches that are new, are back, or have another tip than in the database."""
    return sorted(
        name
        for name, tip in wanted.items()
        if name not in known or not known[name].live or known[name].tip != tip
    )


def departure(
    repository: str, branch: str, why: type[BranchDeleted | BranchUnwatched], *, known: KnownBranch
) -> NewEvent:
    """Return the event of a branch gone from the remote or the watchlist."""
    body = why(repository=repository, branch=branch, last=known.tip)
    return _event(repository, body, branch, known.tip, str(known.epoch))


async def arrival(
    repository: str,
    branch: str,
    *,
    tip: str,
    known: KnownBranch | None,
    is_default: bool,
    history: MirrorHistory,
) -> list[NewEvent]:
    """Return the events from the database's state of a branch to its tip, in order."""
    epoch = 0 if known is None else known.epoch
    if known is None or not known.live:
        body: EventBody = BranchCreated(repository=repository, branch=branch, tip=tip, is_default=is_default)
        after = None
        if known is not None and known.tip != tip and await history.is_ancestor(known.tip, tip):
            after = known.tip
        commits = await history.commits(tip, after=after)
        return [
            _event(repository, body, branch, tip, str(epoch)),
            *(
                _observed(repository, branch, commit, epoch=epoch + 1, baseline=after is None)
                for commit in commits
            ),
        ]
    if await history.is_ancestor(known.tip, tip):
        commits = await history.commits(tip, after=known.tip)
        return [_observed(repository, branch, commit, epoch=epoch) for commit in commits]
    base = await history.merge_base(known.tip, tip)
    dropped = await history.dropped(known.tip, after=base)
    body = BranchRewritten(
        repository=repository, branch=branch, old=known.tip, new=tip, base=base, dropped=dropped
    )
    events = [_event(repository, body, branch, known.tip, tip, str(epoch))]
    # Set back to an earlier commit: nothing is new, but the branch is there now and must be read again.
    commits = await history.commits(tip, after=base) or await history.commits(tip, after=None)
    return events + [
        _observed(repository, branch, commit, epoch=epoch + 1, baseline=base is None) for commit in commits
    ]


def _observed(
    repository: str, branch: str, commit: Commit, *, epoch: int, baseline: bool = False
) -> NewEvent:
    body = CommitObserved(
        repository=repository,
        branch=branch,
        sha=commit.sha,
        parents=commit.parents,
        author=commit.author[:_SUBJECT_CHARS],
        committed_at=commit.committed_at,
        subject=commit.subject[:_SUBJECT_CHARS],
        baseline=baseline,
    )
    return _event(repository, body, branch, commit.sha, str(epoch))


def _event(repository: str, body: EventBody, *key: str) -> NewEvent:
    return NewEvent(
        f"repository:{repository}", body, event_id=event_id(body.type, repository, *key), actor="poll"
    )


_EPOCH_TYPES = ("branch_created", "branch_rewritten", "branch_deleted", "branch_unwatched")


def is_mirror(mirror: Path) -> bool:
    """Return whether the folder is a complete mirror."""
    return (mirror / "HEAD").is_file() and not (mirror / UNFINISHED).exists()


def count_epochs(reader: LogReader, *, stream: str) -> dict[str, int]:
    """Count the beginnings, rewrites and ends of each branch in a repository's stream; see `KnownBranch`."""
    counts: dict[str, int] = defaultdict(int)
    for event in reader.read(stream=stream, types=_EPOCH_TYPES):
        counts[event.data["branch"]] += 1
    return dict(counts)


Tips = Mapping[str, tuple[str, bool]]
"""The branches in the database: tip, and whether the branch is live."""

log = structlog.get_logger("daemon.poll")


class Changes:
    """Finds changes. Remembers each branch's number of beginnings and ends, which only the log has."""

    def __init__(self, *, store: StoreService, git: Git, mirror: Callable[[str], Path]) -> None:
        self._store = store
        self._git = git
        self._mirror = mirror
        self._epochs: dict[str, dict[str, int]] = {}

    def forget(self, repository: str) -> None:
        """Count anew: the last changes may not have been recorded."""
        self._epochs.pop(repository, None)

    async def find(self, repo: Repo, tips: Tips, look: RemoteState) -> list[NewEvent]:
        """Return the events from the database's state to the remote's, with their commits in the mirror.

        Raises:
            RemoteError: it cannot be fetched, or a branch of the watchlist is missing.
        """
        if look.heads is None:
            return []
        heads = {name: sha for name, sha in look.heads.items() if is_branch_name(name) and is_sha(sha)}
        for name in sorted(set(look.heads) - set(heads))[:5]:
            log.warning("branch_refused", repository=repo.key, branch=repr(name)[:200])
        wanted = _tips_to_fetch(repo, tips, look, heads)
        branches = await self._with_epochs(repo, tips)
        # Branches that only left the watchlist are not deleted: the remote still has them.
        gone = sorted(
            (name in heads, name) for name, branch in branches.items() if branch.live and name not in wanted
        )
        moved = moved_branches(branches, wanted=wanted)
        mirror = self._mirror(repo.key)
        there = is_mirror(mirror)
        if there:
            # Before the fetch moves the refs: commits cited in events stay readable for good.
            leaves = {*(name for _, name in gone), *moved} & branches.keys()
            for sha in sorted({branches[name].tip for name in leaves}):
                if await self._git.has_commit(mirror, sha):
                    await self._git.keep(mirror, [sha])
        if wanted and (moved or not there):
            await self._git.ensure_mirror(mirror, sha256=len(next(iter(wanted.values()))) == 64)
            await self._git.fetch(mirror, repo.url, branches=wanted)
        if moved:
            fetched = await self._git.tips(mirror)
            moved = [name for name in moved_branches(branches, wanted=fetched) if name in wanted]
        events = [
            departure(repo.key, name, BranchUnwatched if is_there else BranchDeleted, known=branches[name])
            for is_there, name in gone
        ]
        history = MirrorHistory(self._git, mirror)
        for name in moved:
            events += await arrival(
                repo.key,
                name,
                tip=fetched[name],
                known=branches.get(name),
                is_default=name == look.default_branch,
                history=history,
            )
        needed = {event.body.sha for event in events if isinstance(event.body, CommitObserved)}
        if wanted and not there:
            # The cache may be deleted at any time: the commits of due jobs must be readable again.
            needed |= {*wanted.values(), *await self._store.ask(partial(_in_use, repository=repo.key))}
        await self._git.complete(mirror, sorted(needed))
        if wanted and not there:
            (mirror / UNFINISHED).unlink(missing_ok=True)
        if events:
            self.forget(repo.key)
        return events

    async def _with_epochs(self, repo: Repo, tips: Tips) -> dict[str, KnownBranch]:
        if not tips:
            return {}
        epochs = self._epochs.get(repo.key)
        if epochs is None:
            count = partial(count_epochs, stream=f"repository:{repo.key}")
            epochs = self._epochs[repo.key] = await self._store.look_up(count)
        return {
            name: KnownBranch(tip=tip, live=live, epoch=epochs.get(name, 0))
            for name, (tip, live) in tips.items()
        }


def _tips_to_fetch(repo: Repo, tips: Tips, look: RemoteState, heads: Mapping[str, str]) -> dict[str, str]:
    live = [name for name, (_, live) in tips.items() if live]
    if live and not heads:
        return {}
    try:
        return choose_branches(repo.branches, default=look.default_branch, heads=heads, repository=repo.key)
    except RemoteError:
        # The end of the last watched branch, or of its place in the watchlist, is a fact of its own, recorded
        # before the complaint. A HEAD without a branch is no evidence against a branch that still exists.
        if not any(repo.branches or name not in heads for name in live):
            raise
        return {}


def _in_use(view: sqlite3.Connection, *, repository: str) -> set[str]:
    """Return the commits of a repository that jobs may still read: unscanned ones, and each branch's last
    scanned one."""
    waiting = {row.sha for row in queries.commits(view, repository=repository, state="observed")}
    return waiting | {row.scanned for row in queries.branches(view, repository) if row.scanned is not None}


def watchlist_events(repos: Iterable[Repo], rows: Iterable[PolledRepository]) -> list[NewEvent]:
    """Return `repository_watched` for every new or changed entry, `repository_unwatched` for every removed
    one."""
    by_key = {row.repository: row for row in rows}
    events = []
    keys = set()
    for repo in repos:
        keys.add(repo.key)
        row = by_key.get(repo.key)
        if row is None or not _same(repo, row):
            events.append(NewEvent(f"repository:{repo.key}", _watched(repo)))
    gone = sorted(key for key, row in by_key.items() if row.watched and key not in keys)
    return events + [NewEvent(f"repository:{key}", RepositoryUnwatched(repository=key)) for key in gone]


def _same(repo: Repo, row: PolledRepository) -> bool:
    # After a rename the row has the new address, while the watchlist may keep the old one, which still leads
    # there.
    try:
        renamed = repository_key(row.url) != row.repository
    except ValueError:
        renamed = True  # the forge's new address is not valid
    return (
        row.watched
        and (renamed or repo.url == row.url)
        and all(getattr(repo, name) == _plain(getattr(row, name)) for name in _OPTIONS)
    )


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


_OPTIONS = ("branches", "include", "exclude", "projects", "every_s", "enabled", "opt_out")


def _watched(repo: Repo) -> RepositoryWatched:
    options = {name: getattr(repo, name) for name in _OPTIONS}
    return RepositoryWatched(repository=repo.key, url=repo.url, **options)
