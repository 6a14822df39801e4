"""What a look at a remote means: pure decisions from (what is known, what the remote says) to events.

Owns the choice of branches, the events' content and their natural keys. Reads nothing and writes nothing; the
histories that it needs are asked of a `History`, which `daemon.poll` answers from the mirror.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from daemon.git import CommitFacts
from daemon.git_errors import RemoteError, remedy_for
from store.events import (
    BranchCreated,
    BranchDeleted,
    BranchRewritten,
    BranchUnwatched,
    CommitObserved,
    EventBody,
)
from store.identity import event_id
from store.log import NewEvent

DROPPED_AT_MOST = 1000
_SUBJECT_CHARS = 500


@dataclass(frozen=True, slots=True)
class KnownBranch:
    """A branch as the database has it; `epoch` counts its creations, rewrites, deletions and unwatchings so far.

    The epoch is part of every natural key: a force-push back to an earlier commit is another fact than the
    first sight of that commit, while the same poll made twice (a crash before the append) is the same fact.
    """

    tip: str
    live: bool
    epoch: int


class History(Protocol):
    """What the mirror knows of commits."""

    async def is_ancestor(self, old: str, new: str) -> bool: ...

    async def merge_base(self, old: str, new: str) -> str | None: ...

    async def commits(self, new: str, *, after: str | None) -> Sequence[CommitFacts]:
        """First-parent commits of `new` that `after` does not reach, oldest first; without `after` just `new`."""
        ...

    async def dropped(self, old: str, *, after: str | None) -> tuple[str, ...]:
        """First-parent commits of `old` that `after` does not reach, newest first, at most DROPPED_AT_MOST."""
        ...


def asked_for(branch: str, patterns: Sequence[str]) -> bool:
    """Whether one of the watchlist's names or globs means this branch."""
    return any(branch == pattern or fnmatchcase(branch, pattern) for pattern in patterns)


def choose_branches(
    patterns: Sequence[str], *, default: str | None, heads: Mapping[str, str], repository: str
) -> dict[str, str]:
    """Return the branches to watch and their tips: those that match a name or glob, else the default branch.

    Raises:
        RemoteError: there is none, with the reason.
    """
    if not heads:
        raise RemoteError("empty", f"{repository}: has no branch", remedy=remedy_for("empty"))
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
    wanted = {name: sha for name, sha in heads.items() if asked_for(name, patterns)}
    if not wanted:
        there = ", ".join(sorted(heads)[:5])
        raise RemoteError(
            "invalid",
            f"{repository}: no branch matches {', '.join(patterns)}",
            remedy=f"change branches in config.toml; the remote has: {there}",
        )
    return wanted


def deleted_branches(known: Mapping[str, KnownBranch], *, heads: Mapping[str, str]) -> list[str]:
    """Return the live branches that the remote no longer has. One that only left the watchlist is not deleted."""
    return sorted(name for name, branch in known.items() if branch.live and name not in heads)


def unwatched_branches(
    known: Mapping[str, KnownBranch], *, heads: Mapping[str, str], wanted: Mapping[str, str]
) -> list[str]:
    """Return the live branches that the remote still has and the watchlist does not ask for any more."""
    return sorted(
        name for name, branch in known.items() if branch.live and name in heads and name not in wanted
    )


def moved_branches(known: Mapping[str, KnownBranch], *, wanted: Mapping[str, str]) -> list[str]:
    """Return the wanted branches that are new, are back, or have another tip than the database knows."""
    return sorted(
        name
        for name, tip in wanted.items()
        if name not in known or not known[name].live or known[name].tip != tip
    )


def deletion(repository: str, branch: str, *, known: KnownBranch) -> NewEvent:
    """The event of a branch that went."""
    body = BranchDeleted(repository=repository, branch=branch, last=known.tip)
    return _event(repository, body, branch, known.tip, str(known.epoch))


def unwatching(repository: str, branch: str, *, known: KnownBranch) -> NewEvent:
    """The event of a branch that the watchlist does not ask for any more."""
    body = BranchUnwatched(repository=repository, branch=branch, last=known.tip)
    return _event(repository, body, branch, known.tip, str(known.epoch))


async def arrival(
    repository: str,
    branch: str,
    *,
    tip: str,
    known: KnownBranch | None,
    is_default: bool,
    history: History,
) -> list[NewEvent]:
    """The events that lead from what is known of a branch to its tip, in order."""
    if known is None or not known.live:
        return await _appeared(
            repository, branch, tip=tip, known=known, is_default=is_default, history=history
        )
    if await history.is_ancestor(known.tip, tip):
        commits = await history.commits(tip, after=known.tip)
        return [_observed(repository, branch, commit, epoch=known.epoch) for commit in commits]
    base = await history.merge_base(known.tip, tip)
    dropped = await history.dropped(known.tip, after=base)
    body = BranchRewritten(
        repository=repository, branch=branch, old=known.tip, new=tip, base=base, dropped=dropped
    )
    events = [_event(repository, body, branch, known.tip, tip, str(known.epoch))]
    # Set back to an earlier commit: nothing is new, yet the branch stands there now and has to be read again.
    commits = await history.commits(tip, after=base) or await history.commits(tip, after=None)
    return events + [
        _observed(repository, branch, commit, epoch=known.epoch + 1, baseline=base is None)
        for commit in commits
    ]


async def _appeared(
    repository: str,
    branch: str,
    *,
    tip: str,
    known: KnownBranch | None,
    is_default: bool,
    history: History,
) -> list[NewEvent]:
    epoch = 0 if known is None else known.epoch
    body = BranchCreated(repository=repository, branch=branch, tip=tip, is_default=is_default)
    created = _event(repository, body, branch, tip, str(epoch))
    after = None
    if known is not None and known.tip != tip and await history.is_ancestor(known.tip, tip):
        after = known.tip
    commits = await history.commits(tip, after=after)
    return [
        created,
        *(
            _observed(repository, branch, commit, epoch=epoch + 1, baseline=after is None)
            for commit in commits
        ),
    ]


def _observed(
    repository: str, branch: str, commit: CommitFacts, *, epoch: int, baseline: bool = False
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
