"""Find the author and date of each sorry in git.

A sorry new in a watched commit belongs to that commit's author. For all others (those at the first sight of a
branch, and those from a merge) `git blame` names the author of the line. The file versions for it are fetched
in one request for many files. Git's answers are bounded and cleaned here: names and subjects are strangers'.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import structlog

from daemon.polling.errors import NoSpaceError, RemoteError, SlowGitError
from daemon.polling.git import Commit, Git
from daemon.settings import Repo
from daemon.state.store_service import StoreService
from store.domain.identity import pull_request_of
from store.events.scans import SorryWritten
from store.log.envelope import NewEvent
from store.text import clean, counted, cut
from store.view import queries
from store.view.queries import UnwrittenSorry

MOST_SORRIES = 5000
"""The most sorries of one repository in one turn."""
MOST_FILES = 200
"""The most files whose earlier versions one request fetches."""
MOST_VERSIONS = 20_000
"""The most file versions in one request."""
MOST_COMMITS = 100_000
"""The newest commits of a history in which merges are looked up."""
LINES_BEFORE = 10
"""Lines of context before a sorry, so that git recognises a moved line."""
LONGEST_NAME = 200
EARLIEST = datetime(2005, 4, 7, tzinfo=UTC)
"""The date of git's own first commit. An earlier date comes from a clock never set."""
_EVENTS_IN_A_BATCH = 300
_TOO_MANY = f"its file has more than {MOST_VERSIONS:,} earlier versions"

log = structlog.get_logger("daemon.authors")


class Authors:
    """Asks git for the authors of sorries, once each.

    Args:
        mirror: the bare mirror of a repository.
    """

    def __init__(self, *, store: StoreService, git: Git, mirror: Callable[[str], Path]) -> None:
        self._store = store
        self._git = git
        self._mirror = mirror

    async def record(self, repo: Repo) -> None:
        """Record the authors of a repository's sorries.

        Raises:
            RemoteError: git could not answer, and may later.
            StoreFailedError: it could not be recorded.
        """
        sorries = await self._store.ask(
            partial(queries.unwritten_sorries, repository=repo.key, limit=MOST_SORRIES)
        )
        mirror, began = self._mirror(repo.key), time.monotonic()
        brought = {one.opened_sha for one in sorries if one.opened_sha is not None}
        commits = await self._git.commits(mirror, sorted(brought))
        by_file: dict[str, dict[str, list[UnwrittenSorry]]] = defaultdict(lambda: defaultdict(list))
        pairs: list[tuple[UnwrittenSorry, Commit]] = []
        for one in sorries:
            author = commits.get(one.opened_sha or "")
            if author is not None and len(author.parents) < 2:
                pairs.append((one, author))
            else:
                by_file[one.tip][one.path].append(one)
        await self._append([_written(one, author, subject=author.subject) for one, author in pairs])
        for tip, files in by_file.items():
            paths = sorted(files)
            for start in range(0, len(paths), MOST_FILES):
                part = {path: files[path] for path in paths[start : start + MOST_FILES]}
                await self._blame(mirror, tip, part)
        log.info(
            "authors_recorded",
            sentence=f"asked git who wrote {counted(len(sorries), 'sorry')} of {repo.key}",
            repository=repo.key,
            sorries=len(sorries),
            seconds=round(time.monotonic() - began, 3),
        )

    async def _blame(self, mirror: Path, tip: str, files: Mapping[str, Sequence[UnwrittenSorry]]) -> None:
        """Record the authors of the sorries in these files of a commit."""
        # A line break in a name would be another name.
        paths = [path for path in files if path.isprintable()]
        readable = await self._fetch(mirror, tip, paths)
        result: list[tuple[UnwrittenSorry, Commit]] = []
        unknown: list[tuple[UnwrittenSorry, str]] = []
        for path, sorries in files.items():
            lines: Mapping[int, Commit] = {}
            reason = _TOO_MANY if path in paths else "its file has a name that git is not asked about"
            if path in readable:
                try:
                    ranges = [
                        (max(1, line - LINES_BEFORE), line) for line in sorted({one.line for one in sorries})
                    ]
                    lines = await self._git.blame(mirror, tip, path, ranges)
                except NoSpaceError:
                    raise
                except RemoteError as error:
                    if error.problem != "invalid" and not isinstance(error, SlowGitError):
                        raise
                    reason = cut(clean(str(error)), 500)
            for one in sorries:
                if one.line in lines:
                    result.append((one, lines[one.line]))
                else:
                    unknown.append((one, reason))
        subjects = await self._subjects(mirror, tip, [author for _, author in result])
        events = [_written(one, author, subject=subjects[author.sha]) for one, author in result]
        await self._append([*events, *(_written(one, None, reason=reason) for one, reason in unknown)])

    async def _fetch(self, mirror: Path, tip: str, paths: Sequence[str]) -> Collection[str]:
        """Fetch the earlier versions of files; return the files within the bound."""
        if not paths:
            return ()
        names = await self._git.earlier_names(mirror, tip, paths)
        missing = await self._git.missing_versions(mirror, tip, names)
        if len(missing) <= MOST_VERSIONS:
            await self._git.bring(mirror, missing, in_background=True)
            return paths
        if len(paths) == 1:
            return ()
        middle = len(paths) // 2
        return [
            *await self._fetch(mirror, tip, paths[:middle]),
            *await self._fetch(mirror, tip, paths[middle:]),
        ]

    async def _subjects(self, mirror: Path, tip: str, authors: Iterable[Commit]) -> dict[str, str]:
        """Map each commit to the subject with its pull request: its own, or that of the merge behind it."""
        subjects = {author.sha: author.subject for author in authors}
        unnumbered = {sha for sha, subject in subjects.items() if pull_request_of(subject) is None}
        if not unnumbered:
            return subjects
        merges = await self._git.merges_of(mirror, tip, unnumbered, most_commits=MOST_COMMITS)
        about = await self._git.commits(mirror, sorted(set(merges.values())))
        return subjects | {sha: about[merge].subject for sha, merge in merges.items()}

    async def _append(self, bodies: Sequence[SorryWritten]) -> None:
        for start in range(0, len(bodies), _EVENTS_IN_A_BATCH):
            events = [
                NewEvent(f"repository:{body.repository}", body, actor="git")
                for body in bodies[start : start + _EVENTS_IN_A_BATCH]
            ]
            await self._store.append(events, wait=True)


def _written(
    one: UnwrittenSorry, author: Commit | None, *, subject: str = "", reason: str = ""
) -> SorryWritten:
    at = None if author is None else author.authored_at
    return SorryWritten(
        repository=one.repository,
        branch=one.branch,
        sorry=one.sorry,
        sha=None if author is None else author.sha,
        author="" if author is None else cut(clean(author.author), LONGEST_NAME),
        authored_at=None if at is None or at < EARLIEST else at,
        pull_request=pull_request_of(subject),
        reason=reason,
    )
