"""A repository pinned at a commit: fetched and checked first, recorded only if Lean can work on it.

A commit on its branch, or ahead of it, is observed as by the poller. A commit behind the known tip gets a
branch of its own (`at-<commit>`), so that no known branch is set back; a daemon watching the repository
deletes that branch again, because the remote does not have it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from daemon.leandojo.session import AgentError, AgentSession
from daemon.polling.branch_diff import (
    KnownBranch,
    MirrorHistory,
    arrival,
    count_epochs,
    watchlist_events,
)
from daemon.polling.errors import RemoteError
from daemon.polling.git import Git, RemoteRefs
from daemon.polling.git_process import is_sha
from daemon.settings import Repo, settled
from daemon.settings.schema import RepoEntry
from daemon.settings.types import repository_key, resolve_url
from pipeline.jobs.mirror import Mirror
from pipeline.lean.backend import LeanBackend, Leans
from store.domain.identity import slug
from store.log.envelope import NewEvent
from store.text import listed
from store.view import queries, trace_queries
from store.view.rows import SorryRow, TraceRow


@dataclass(frozen=True, slots=True)
class Pinned:
    """A repository at a commit of a branch, and its Lean backend."""

    repo: Repo
    branch: str
    commit: str
    lean: LeanBackend

    @property
    def url(self) -> str:
        return self.repo.url

    @property
    def key(self) -> str:
        return self.repo.key

    @property
    def at(self) -> tuple[str, str]:
        return self.key, self.commit

    def __str__(self) -> str:
        return f"{self.key} at {self.commit[:10]}"

    def trace(self, view: sqlite3.Connection) -> TraceRow | None:
        """Return the commit's trace by this backend; None without one."""
        key = (trace_queries.branch_line(self.branch), self.commit)
        traces = trace_queries.traces(view, repository=self.key)
        return next((one for one in traces if (one.line, one.sha) == key), None)

    def open_sorries(self, view: sqlite3.Connection) -> list[SorryRow]:
        """Return the branch's open sorries, in the order of the source."""
        return queries.sorries(view, repository=self.key, branch=self.branch, state="open")


def address(url: str) -> str:
    """Return a repository's URL, or the path of a local one, in the store's form.

    Raises:
        AgentError: it is neither.
    """
    try:
        return resolve_url(url, base=Path.cwd())
    except ValueError as error:
        # The address may carry a password; then the reason contains "not shown".
        name = "the address" if "not shown" in str(error) else f'"{url}"'
        raise AgentError(f"{name} {error}") from error


async def pin(
    session: AgentSession, url: str, commit: str | None, *, watchlist: Collection[Repo] = ()
) -> Pinned:
    """Fetch a repository, check that Lean can work on this commit, and record the commit.

    Args:
        url: from `address`.
        commit: the full id of a commit on a branch of the remote, or a branch's name for its newest; None:
            the newest of the branch checked out there.
        watchlist: the configured repositories; an entry for this one gives its options.

    Raises:
        AgentError: the remote cannot be read or has no such commit, it is no Lean project, or no backend here
            runs its Lean. Then nothing is recorded.
    """
    key, store, git, settings = repository_key(url), session.store, session.git, session.settings
    configured = next((repo for repo in watchlist if repo.key == key), None)
    if configured is None:
        configured = settled(RepoEntry(url=url), poll=settings.poll)
    elif configured.opt_out:
        raise AgentError(
            f"{key}: its owners want no proofs (opt_out in {settings.path}), so nothing is tried there"
        )
    repo = configured.model_copy(update={"url": url, "enabled": True})
    mirror = settings.paths.mirrors / f"{slug(key)}.git"
    try:
        refs = await git.ls_remote(url)
        branch, sha = await _find(git, mirror, url, commit, refs)
        await git.complete(mirror, [sha])
        lean = _lean_for(session.leans, mirror, key, sha)
        branch, events = await _arrival(session, mirror, key, branch, sha, refs)
    except RemoteError as error:
        remedy = error.remedy
        if error.problem in ("not_found", "gone"):
            remedy = "check the address; a folder becomes a git repository with `git init` and a first commit"
        raise AgentError(f"{url}: cannot be read: {error}; {remedy}") from error
    repo = repo.model_copy(update={"branches": (branch,)})
    watched = await store.ask(partial(queries.repositories, watched_only=True))
    if all(row.repository != key for row in watched):
        events = [*watchlist_events([repo], ()), *events]
    if events:
        await store.append(events)
    return Pinned(repo, branch, sha, lean)


async def _find(git: Git, mirror: Path, url: str, commit: str | None, refs: RemoteRefs) -> tuple[str, str]:
    """Fetch the branch that reaches the commit, trying the default one first; return its name and the
    commit's id."""
    default = refs.default_branch if refs.default_branch in refs.heads else None
    if commit is None:
        if default is None:
            raise AgentError(
                f"{url}: is on no branch, or has no commit yet (`git init` and a first commit make one); "
                "`git switch` to a branch that has one"
            )
        commit = default
    if commit in refs.heads:
        return commit, (await _fetch(git, mirror, url, [commit], refs))[commit]
    if not refs.heads:
        raise AgentError(f"{url}: has no branch; push a first commit")
    if not is_sha(commit):
        there = ", ".join(sorted(refs.heads)[:5])
        raise AgentError(
            f"{url}: {commit!r} is neither a commit's full id (40 digits, as `git rev-parse` prints it) nor one of its "
            f"branches ({there})"
        )
    for names in [default] if default else [], sorted(refs.heads):
        tips = await _fetch(git, mirror, url, names, refs) if names else {}
        if await git.has_commit(mirror, commit):
            for name in names:
                if name in tips and await git.is_ancestor(mirror, commit, tips[name]):
                    return name, commit
    raise AgentError(
        f"{url}: no branch has the commit {commit}; push it, or give one that `git log` shows there"
    )


async def _fetch(
    git: Git, mirror: Path, url: str, names: Collection[str], refs: RemoteRefs
) -> Mapping[str, str]:
    """Fetch these branches; return the mirror's tips."""
    await git.ensure_mirror(mirror, sha256=len(next(iter(refs.heads.values()))) == 64)
    # A fetch removes every other branch: name the daemon's branches too.
    before = [name for name in await git.tips(mirror) if name in refs.heads]
    await git.fetch(mirror, url, branches={*before, *names})
    return await git.tips(mirror)


def _lean_for(leans: Leans, mirror: Path, key: str, sha: str) -> LeanBackend:
    with Mirror(mirror) as reader:
        if not any(file.path.endswith(".lean") for file in reader.files(sha)):
            raise AgentError(
                f"{key}: {sha[:10]} is no Lean project: it has no .lean file; name a repository that has some"
            )
        projects = reader.projects(sha)
    root = next((one for one in projects if not one.folder), None)
    if root is None:
        raise AgentError(
            f"{key}: its Lake projects are in {listed([one.folder for one in projects], 3)} and none is at its root,"
            " which an agent needs; let the daemon work in them ([[repos]] projects)"
        )
    lean = leans.for_toolchain(root.toolchain)
    if lean.kind == "none":
        raise AgentError(f"{key}: nothing here runs its Lean: {lean.detail}")
    return lean


async def _arrival(
    session: AgentSession, mirror: Path, key: str, branch: str, sha: str, refs: RemoteRefs
) -> tuple[str, list[NewEvent]]:
    """Return the branch to work on the commit, and the events that move it there."""
    history = MirrorHistory(session.git, mirror)
    rows = {row.branch: row for row in await session.store.ask(partial(queries.branches, repository=key))}
    row = rows.get(branch)
    if row is not None and row.state == "live" and not await history.is_ancestor(row.tip, sha):
        branch = f"at-{sha[:12]}"
        row = rows.get(branch)
    earlier = None
    if row is not None:
        if row.state == "live" and row.tip == sha:
            return branch, []
        epochs = await session.store.look_up(partial(count_epochs, stream=f"repository:{key}"))
        earlier = KnownBranch(tip=row.tip, live=row.state == "live", epoch=epochs.get(branch, 0))
    await session.git.keep(mirror, [sha])
    is_default = branch == refs.default_branch
    return branch, await arrival(key, branch, tip=sha, known=earlier, is_default=is_default, history=history)
