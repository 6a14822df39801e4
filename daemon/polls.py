"""Whose turn it is to be asked: one poll of a repository at a time, and none before a forge that asked for patience."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import structlog

from daemon.ledger import StoreFailedError
from daemon.poll import Poller
from daemon.settings import Repo, Settings
from store.rows import RepositoryRow

log = structlog.get_logger("daemon.polls")


class Polls:
    """The polls of one daemon.

    Args:
        problems: what is wrong, by a name of its own: a poll that ends in a defect is put there, and taken out.
        begin: starts a poll in the background, by the repository's key.
        ending: whether the daemon is about to end, so that none is begun.
    """

    def __init__(
        self,
        poller: Poller,
        *,
        settings: Callable[[], Settings],
        problems: dict[str, str],
        begin: Callable[[str, Coroutine[Any, Any, None]], None],
        ending: Callable[[], bool],
    ) -> None:
        self.running: set[str] = set()
        """The keys of the repositories that are being asked."""
        self._poller = poller
        self._settings = settings
        self._problems = problems
        self._begin_in_background = begin
        self._not_before: dict[str, datetime] = {}
        self._ending = ending

    def remember_back_off(self, rows: Iterable[RepositoryRow]) -> None:
        """A restart is no reason to hammer a forge that asked for patience."""
        for row in rows:
            if row.poll_outcome == "rate_limited" and row.next_due_at is not None:
                self._not_before[row.repository] = datetime.fromisoformat(row.next_due_at)

    async def tick(self, key: str) -> None:
        """Ask a repository whose time has come, unless it has to wait."""
        repo = next((repo for repo in self._settings().repos if repo.key == key), None)
        if repo is None or not repo.enabled:
            return
        due = self._not_before.get(key)
        if due is None or datetime.now(UTC) >= due:
            self._begin(repo)

    def poll_now(self, repository: str | None) -> Sequence[str]:
        """Begin polls, whatever the back-off says; KeyError for a repository that is not watched."""
        repos = [repo for repo in self._settings().repos if repo.enabled and repository in (None, repo.key)]
        if repository is not None and not repos:
            raise KeyError(repository)
        for repo in repos:
            self._poller.forget(repo.key)
            self._begin(repo)
        return [repo.key for repo in repos]

    def _begin(self, repo: Repo) -> None:
        if repo.key not in self.running and not self._ending():
            self.running.add(repo.key)
            self._begin_in_background(repo.key, self._poll(repo))

    async def _poll(self, repo: Repo) -> None:
        try:
            polled = await self._poller.poll(repo)
            if polled.outcome in ("changed", "unchanged"):
                self._not_before.pop(repo.key, None)
            else:
                self._not_before[repo.key] = polled.next_due_at
            self._problems.pop(f"poll:{repo.key}", None)
        except StoreFailedError:
            return  # the main loop ends the daemon with the reason
        except Exception as error:
            # The border of one repository's poll: a defect met there must not stop the others.
            self._problems[f"poll:{repo.key}"] = f"{repo.key}: {type(error).__name__}: {error}"
            log.exception("poll_defect", repository=repo.key)
        finally:
            self.running.discard(repo.key)
