"""Where a job works: a worktree of its commit, with the commit's build where its kind gets one, and only meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog

from daemon.due import DueJob
from daemon.paths import Paths, slug
from daemon.polling.errors import GitError
from daemon.polling.git import Git
from pipeline.lean.build.build_cache import Attached, attach, empty_lake

log = structlog.get_logger("daemon.job_place")


@asynccontextmanager
async def placed(
    due: DueJob, parameters: Mapping[str, Any], *, git: Git, paths: Paths
) -> AsyncIterator[dict[str, Any]]:
    """Yield a job's parameters with the places that it works in; what was made for it is taken back at the end.

    Raises:
        BuildMissingError: the build was swept away since the plan was made.
        NoSpaceError, GitError: there is no worktree to be had.
        OSError: the build cannot be put into it.
    """
    worktree = paths.worktrees / f"{due.job}-{due.attempt}"
    mirror = paths.mirrors / f"{slug(due.repository)}.git"
    attached: Attached | None = None
    places: dict[str, Any] = {}
    try:
        if due.kind == "scan":
            places["mirror"] = str(mirror)
        if due.needs_worktree:
            await git.worktree_add(mirror, worktree, due.sha)
            places["worktree"] = str(worktree)
        if due.built:
            attached = await asyncio.to_thread(attach, worktree, paths.cache, due.repository, due.sha)
        elif due.needs_worktree:
            # A commit may bring compiled files along; nothing that was not built here is ever imported.
            await asyncio.to_thread(empty_lake, worktree)
        yield {**parameters, **places}
    finally:
        try:
            if attached is not None:
                attached.close()
            if due.needs_worktree:
                await git.worktree_remove(mirror, worktree)
        except (GitError, OSError, RuntimeError) as error:
            # The job's outcome stands, whatever the machine has too little of (processes, files, memory, threads: the
            # last are Python's RuntimeError); the next start sweeps the folder.
            log.warning("worktree_left", path=str(worktree), reason=str(error))
