"""A repository at a commit, brought in from its remote: looked at first, and recorded when all is well with it.

A commit that its branch has reached, or comes to next, is observed as the poller observes it. One that lies behind what
is known of its branch stands on a branch of its own (`at-<commit>`), so that nothing that the daemon knows is set back;
a daemon that watches the repository takes that one away again, as the remote does not have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from daemon.agents.errors import AgentError
from daemon.agents.workshop import Workshop
from daemon.paths import slug
from daemon.polling.branch_diff import (
    KnownBranch,
    MirrorHistory,
    arrival,
    asked_for,
    count_epochs,
    watchlist_events,
)
from daemon.polling.errors import RemoteError
from daemon.polling.git import RemoteRefs
from daemon.polling.git_process import is_sha
from daemon.settings import Repo, settled
from daemon.settings.schema import RepoEntry
from daemon.settings.types import repository_key, resolve_url
from pipeline.gitread import Mirror
from pipeline.lean.backend import LeanBackend
from pipeline.scan import MOST_TOOLCHAIN_BYTES
from store.log.envelope import NewEvent
from store.view import queries
from store.view.rows import BranchRow, PolledRepository


@dataclass(frozen=True, slots=True)
class Pinned:
    """A repository at a commit of a branch, and what runs Lean for it."""

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

    def __str__(self) -> str:
        return f"{self.key} at {self.commit[:10]}"


def address(url: str) -> str:
    """Return a repository's URL, or the path of a local one, as it is recorded.

    Raises:
        AgentError: it is neither.
    """
    try:
        return resolve_url(url, base=Path.cwd())
    except ValueError as error:
        # The reason may be that the address carries a password: then it is not shown.
        shown = "the address" if "not shown" in str(error) else f'"{url}"'
        raise AgentError(f"{shown} {error}") from error


async def local_head(shop: Workshop, url: str) -> str:
    """Return the commit that a local repository's branch stands at.

    Raises:
        AgentError: it is no git repository, has no commit, or is on no branch.
    """
    refs = await _refs(shop, url)
    if refs.default_branch is None or refs.default_branch not in refs.heads:
        raise AgentError(
            f"{url}: is on no branch, or has no commit yet; `git switch` to a branch that has one"
        )
    return refs.heads[refs.default_branch]


async def bring(shop: Workshop, url: str, commit: str, *, watchlist: Iterable[Repo]) -> Pinned:
    """Fetch a repository, see that Lean can work on this commit of it, and record that it is there.

    Args:
        url: as `address` returns it.
        commit: the full id of one that a branch of the remote reaches, or a branch's name for its newest.
        watchlist: the configuration's, which may say more of the repository.

    Raises:
        AgentError: the remote cannot be read, has no such commit, it is no Lean project, or there is nothing that runs
            its Lean. Nothing is recorded then.
    """
    key = repository_key(url)
    configured = next((repo for repo in watchlist if repo.key == key), None)
    if configured is not None and configured.opt_out:
        raise AgentError(
            f"{key}: its owners want no proofs (opt_out in {shop.settings.path}), so nothing is tried there"
        )
    refs = await _refs(shop, url)
    mirror = shop.settings.paths.mirrors / f"{slug(key)}.git"
    try:
        branch, sha = await _find(shop, url, commit, refs, mirror)
        await shop.git.complete(mirror, [sha])
        lean = _lean_for(shop, key, sha, mirror)
        repo = _entry(shop, configured, url)
        rows = await shop.store.ask(partial(queries.branches, repository=key))
        branch, events = await _arrival(shop, repo, branch, sha, rows, refs, mirror)
    except RemoteError as error:
        raise AgentError(f"{error}; {error.remedy}") from error
    known = [row for row in await shop.store.ask(queries.repositories) if row.repository == key]
    watched = watchlist_events([_watching(repo, branch, refs, known)], known)
    if watched or events:
        await shop.store.append([*watched, *events])
    return Pinned(repo.model_copy(update={"branches": (branch,)}), branch, sha, lean)


async def _refs(shop: Workshop, url: str) -> RemoteRefs:
    try:
        return await shop.git.ls_remote(url)
    except RemoteError as error:
        remedy = error.remedy
        if error.problem == "gone":
            remedy = "check the address; what is no git repository yet becomes one with `git init` and a first commit"
        raise AgentError(f"{url}: cannot be read: {error}; {remedy}") from error


async def _find(shop: Workshop, url: str, commit: str, refs: RemoteRefs, mirror: Path) -> tuple[str, str]:
    """Return the branch that reaches the commit, the default one before others, and the commit's full id."""
    if not refs.heads:
        raise AgentError(f"{url}: has no branch; push a first commit")
    if commit in refs.heads:
        await _fetch(shop, url, {commit: refs.heads[commit]}, refs, mirror)
        return commit, (await shop.git.tips(mirror))[commit]
    if not is_sha(commit):
        there = ", ".join(sorted(refs.heads)[:5])
        raise AgentError(
            f"{url}: {commit!r} is neither a commit's full id (40 digits, as `git rev-parse` prints it) nor one of its "
            f"branches ({there})"
        )
    default = refs.default_branch if refs.default_branch in refs.heads else None
    for wanted in ([default] if default else []), sorted(refs.heads):
        await _fetch(shop, url, {name: refs.heads[name] for name in wanted}, refs, mirror)
        if not await shop.git.has_commit(mirror, commit):
            continue
        tips = await shop.git.tips(mirror)
        for name in wanted:
            if name in tips and await shop.git.is_ancestor(mirror, commit, tips[name]):
                return name, commit
    raise AgentError(
        f"{url}: no branch has the commit {commit}; push it, or give one that `git log` shows there"
    )


async def _fetch(shop: Workshop, url: str, wanted: Mapping[str, str], refs: RemoteRefs, mirror: Path) -> None:
    if not wanted:
        return
    await shop.git.ensure_mirror(mirror, sha256=len(next(iter(wanted.values()))) == 64)
    # What a daemon has fetched stays: a fetch leaves no other branch than those that it names.
    before = [name for name in await shop.git.tips(mirror) if name in refs.heads]
    await shop.git.fetch(mirror, url, branches={*before, *wanted})


def _lean_for(shop: Workshop, key: str, sha: str, mirror: Path) -> LeanBackend:
    with Mirror(mirror) as reader:
        if not any(file.path.endswith(".lean") for file in reader.files(sha)):
            raise AgentError(
                f"{key}: {sha[:10]} is no Lean project: it has no .lean file; name a repository that has some"
            )
        file = reader.at_root(sha, "lean-toolchain")
        text = None if file is None else reader.read(file.blob, most_bytes=MOST_TOOLCHAIN_BYTES)
    toolchain = text.decode("utf-8", "replace").strip() if isinstance(text, bytes) else ""
    lean = shop.leans.for_toolchain(toolchain)
    if lean.kind == "none":
        raise AgentError(
            f'{key}: nothing here runs its Lean: {lean.detail}; or give the agent lean="simulator", which stands in '
            "for Lean and proves nothing"
        )
    return lean


def _entry(shop: Workshop, configured: Repo | None, url: str) -> Repo:
    if configured is None:
        return settled(RepoEntry(url=url), poll=shop.settings.poll)
    return configured.model_copy(update={"url": url, "enabled": True})


def _watching(repo: Repo, branch: str, refs: RemoteRefs, known: list[PolledRepository]) -> Repo:
    """Return what the store has of the repository's entry, widened so that the branch is meant too."""
    row = next((row for row in known if row.watched), None)
    if row is None:
        return repo.model_copy(update={"branches": (branch,)})
    before = tuple(row.branches) or ((refs.default_branch,) if refs.default_branch else ())
    kept = tuple(row.branches)
    if not asked_for(branch, before):
        kept = (*before, branch)
    return repo.model_copy(
        update={
            "url": row.url,
            "branches": kept,
            "every_s": row.every_s,
            "include": tuple(row.include),
            "exclude": tuple(row.exclude),
            "enabled": row.enabled,
            "opt_out": row.opt_out,
        }
    )


async def _arrival(
    shop: Workshop,
    repo: Repo,
    branch: str,
    sha: str,
    rows: list[BranchRow],
    refs: RemoteRefs,
    mirror: Path,
) -> tuple[str, list[NewEvent]]:
    """Return the branch that the commit is worked on, and the events that lead there."""
    by_name = {row.branch: row for row in rows}
    row = by_name.get(branch)
    if row is not None and row.state == "live" and row.tip != sha:
        history = MirrorHistory(shop.git, mirror)
        if not await history.is_ancestor(row.tip, sha):
            branch = f"at-{sha[:12]}"
            row = by_name.get(branch)
    if row is not None and row.state == "live" and row.tip == sha:
        return branch, []
    known = None
    if row is not None:
        epochs = await shop.store.look_up(partial(count_epochs, stream=f"repository:{repo.key}"))
        known = KnownBranch(tip=row.tip, live=row.state == "live", epoch=epochs.get(branch, 0))
    await shop.git.keep(mirror, [sha])
    events = await arrival(
        repo.key,
        branch,
        tip=sha,
        known=known,
        is_default=branch == refs.default_branch,
        history=MirrorHistory(shop.git, mirror),
    )
    return branch, events
