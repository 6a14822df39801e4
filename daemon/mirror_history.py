"""What a mirror knows of commits, and the log of a repository's branches: the histories that `daemon.watching` asks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from daemon.git import UNFINISHED, CommitFacts, Git
from daemon.watching import DROPPED_AT_MOST
from store.reader import LogReader

_EPOCH_TYPES = ("branch_created", "branch_rewritten", "branch_deleted", "branch_unwatched")


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


def is_mirror(mirror: Path) -> bool:
    """Whether a mirror stands there, with all that was to be brought when it was made."""
    return (mirror / "HEAD").is_file() and not (mirror / UNFINISHED).exists()


def count_epochs(reader: LogReader, *, stream: str) -> dict[str, int]:
    """Return how often each branch of a repository's stream began, was rewritten, or ended; see `KnownBranch`."""
    counts: dict[str, int] = defaultdict(int)
    for event in reader.read(stream=stream, types=_EPOCH_TYPES):
        counts[event.data["branch"]] += 1
    return dict(counts)
