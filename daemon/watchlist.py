"""What a configuration changes in the watchlist: pure, from (entries, database rows) to events."""

from __future__ import annotations

from collections.abc import Iterable

from daemon.settings import Repo
from store.events import RepositoryUnwatched, RepositoryWatched
from store.log import NewEvent
from store.rows import RepositoryRow


def watchlist_events(repos: Iterable[Repo], rows: Iterable[RepositoryRow]) -> list[NewEvent]:
    """Return `repository_watched` for every entry that is new or changed, `repository_unwatched` for what left."""
    known = {row.repository: row for row in rows}
    events = []
    keys = set()
    for repo in repos:
        keys.add(repo.key)
        row = known.get(repo.key)
        if row is None or not _same(repo, row):
            events.append(NewEvent(f"repository:{repo.key}", _watched(repo)))
    gone = sorted(key for key, row in known.items() if row.watched and key not in keys)
    return events + [NewEvent(f"repository:{key}", RepositoryUnwatched(repository=key)) for key in gone]


def _same(repo: Repo, row: RepositoryRow) -> bool:
    # After a rename the row has the new address, while the watchlist may keep the old one, which still leads there.
    renamed = row.forge_id is not None
    return row.watched and (
        row.url if renamed else repo.url,
        repo.branches,
        repo.include,
        repo.exclude,
        repo.every_s,
        repo.enabled,
        repo.opt_out,
    ) == (
        row.url,
        tuple(row.branches),
        tuple(row.include),
        tuple(row.exclude),
        row.every_s,
        row.enabled,
        row.opt_out,
    )


def _watched(repo: Repo) -> RepositoryWatched:
    return RepositoryWatched(
        repository=repo.key,
        url=repo.url,
        branches=repo.branches,
        include=repo.include,
        exclude=repo.exclude,
        every_s=repo.every_s,
        enabled=repo.enabled,
        opt_out=repo.opt_out,
    )
