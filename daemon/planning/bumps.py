"""List a repository's due bumps: the requested ones, and with `try_bumps` one a week.

A bump raises the tip of the default branch, as it is when the job begins, with the target's Lean.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from datetime import datetime, timedelta

from daemon.jobs.due import DueJob
from daemon.planning.look import Look
from daemon.settings import Repo
from pipeline.jobs.specs import BumpSpec
from pipeline.lean.backend import Leans
from pipeline.lean.toolchain.versions import VersionError, parse_version
from store.domain.identity import job_id, short_hash
from store.events.projects import Project, worked_on
from store.text import listed
from store.view import queries, trace_queries
from store.view.bumps import BumpRow, bumps, job_of, raises
from store.view.rows import BranchRow

WEEK = timedelta(days=7)
_SEARCHES = frozenset({0, 1, 2})
"""The rungs whose search runs in the job itself."""
_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def why_no_bump(view: sqlite3.Connection, repo: Repo, leans: Leans, *, toolchain: str) -> str:
    """Return why a repository cannot be tried with a toolchain ("": its own); "" if it can."""
    if not repo.enabled:
        return "is not enabled; write enabled = true in its [[repos]]"
    if repo.opt_out:
        return "has opt_out; no proof is searched there"
    branch = default_branch(view, repo)
    if branch is None:
        return "no tip of its default branch is scanned yet; `everlean repos` shows its state"
    project = _raised(repo, branch)
    if project is None:
        folders = [one.folder for one in branch.lake_projects if one.folder]
        return (
            f"its Lake projects are in folders ({listed(folders, 3)}), and a bump raises only one at the root that is"
            " worked on; raise them by hand"
        )
    if toolchain and toolchain == project.toolchain:
        return f"its tip has {toolchain} already; name another, or a package alone"
    lean = leans.for_toolchain(toolchain or project.toolchain)
    return "" if lean.is_lean else f"nothing can build it: {lean.detail}"


def default_branch(view: sqlite3.Connection, repo: Repo) -> BranchRow | None:
    """Return the default branch if it is watched and its tip scanned, else None."""
    about = queries.repository(view, repo.key)
    for row in queries.branches(view, repo.key):
        if (
            about is not None
            and row.branch == about.default_branch
            and row.state == "live"
            and row.scanned == row.tip
        ):
            return row
    return None


def _raised(repo: Repo, branch: BranchRow) -> Project | None:
    """Return the Lake project at the root, which a bump raises; None if the settings leave it out."""
    return next((one for one in worked_on(branch.lake_projects, repo.projects) if not one.folder), None)


def bumps_due(look: Look, repo: Repo) -> Iterator[DueJob]:
    """Yield the due bumps of the default branch's tip."""
    view, settings = look.view, look.settings
    branch = default_branch(view, repo)
    project = None if branch is None else _raised(repo, branch)
    if branch is None or project is None:
        return
    rows = bumps(view, repository=repo.key)
    targets: list[tuple[str, str, str, str, str]] = [
        (row.bump, job_of(row), row.toolchain, row.package, row.rev)
        for row in rows
        if row.by and row.finished_at is None
    ]
    if repo.try_bumps == "weekly":
        targets += _weekly(look, repo, branch, project, rows)
    for bump, identity, toolchain, package, rev in targets:
        lean = look.leans.for_toolchain(toolchain or project.toolchain)
        if not lean.is_lean:
            continue
        traced = trace_queries.newest_trace(view, repo.key) is not None
        # The models run on the processor: a bump compiles for hours and would keep a GPU from others
        # meanwhile.
        rungs = tuple(look.climbed.only(_SEARCHES, device="cpu", traced=traced))
        spec = BumpSpec(
            build=look.build(lean, repository=repo.key, branch=branch.branch, sha=branch.tip),
            bump=bump,
            toolchain=toolchain,
            package=package,
            rev=rev,
            rungs=rungs,
            limits=look.repls(most=1),
            second_kernel=settings.lean.second_kernel,
            advisories=settings.certificates.advisories,
        )
        yield from look.ready(
            identity,
            "bump",
            spec,
            lane=f"bump:{repo.key}",
            repository=repo.key,
            branch=branch.branch,
            sha=branch.tip,
            describes=f"bump {repo.key} {branch.tip[:10]}: {raises(toolchain, package, rev)}",
            # It builds, mends and builds again, each within the build's time.
            timeout_s=3 * settings.build.timeout_s,
            memory_bytes=max([settings.build.memory_bytes, *(rung.memory_bytes for rung in rungs)]),
            # None of its rungs asks an endpoint.
            key=next((rung.key for rung in rungs if rung.key is not None), None),
        )


def _weekly(
    look: Look, repo: Repo, branch: BranchRow, project: Project, rows: list[BumpRow]
) -> Iterator[tuple[str, str, str, str, str]]:
    target = _newest(look.leans, project.toolchain)
    own = [row for row in rows if not row.by and row.finished_at is not None]
    if target is None or any((row.toolchain, row.sha) == (target, branch.tip) for row in own):
        return
    last = own[0] if own else None
    if last is not None and not look.standings.has_come(datetime.fromisoformat(last.since) + WEEK):
        return
    identity = job_id("bump", repo.key, target, branch.tip, "weekly", "" if last is None else last.bump)
    yield short_hash("bump", identity), identity, target, "", ""


def _newest(leans: Leans, toolchain: str) -> str | None:
    """Return the newest release installed here, if newer than a toolchain; else None."""
    numbered = {
        one.toolchain: result for one in leans.builds if one.is_lean and (result := _release(one.toolchain))
    }
    ours = _release(toolchain)
    newest = max(numbered, key=lambda name: numbered[name], default=None)
    return newest if newest is not None and ours is not None and numbered[newest] > ours else None


def _release(toolchain: str) -> tuple[int, ...] | None:
    """Return the numbers of a release; None for a candidate, a nightly or an invalid version."""
    try:
        match = _RELEASE.fullmatch(parse_version(toolchain).release)
    except VersionError:
        return None
    return None if match is None else tuple(map(int, match.groups()))
