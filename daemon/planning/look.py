"""What a plan looks at: the same for all repositories, at one moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from daemon.jobs.due import DueJob
from daemon.jobs.history import ReadinessOfJobs
from daemon.planning.ladder import Climbed
from daemon.polling.branch_diff import asked_for
from daemon.settings import Repo, Settings
from pipeline.gate.advisories import Advisory, is_sound
from pipeline.jobs.kinds import KINDS, Kind
from pipeline.jobs.spec import Spec
from pipeline.jobs.specs import BuildSpec
from pipeline.lean.backend import LeanBackend, Leans
from pipeline.lean.build.build_cache import BuildKey
from pipeline.lean.pool import PoolLimits
from store.events.projects import Project
from store.view import queries, trace_queries
from store.view.rows import BranchRow, TraceRow


@dataclass(frozen=True, slots=True)
class Judges:
    """What could judge a proof in doubt: the known faults of kernels, and since when a second kernel is there.

    `second_since` is in UTC, as the log writes times; "" where there is none.
    """

    advisories: tuple[Advisory, ...] = ()
    second_since: str = ""

    def sound(self, toolchain: str) -> bool:
        """Return whether a toolchain's own kernel replay is without a known fault."""
        return is_sound(toolchain, self.advisories)

    def newer(self, checked_at: str | None) -> bool:
        """Return whether the second kernel came after a check."""
        return self.second_since > (checked_at or "")


NO_JUDGES = Judges()
_OF_THE_BUILD_ITSELF = 2**30
"""[build] memory is lake's and what it starts."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is looked at.

    Attributes:
        builds: what the builds that lie in the cache are of.
        climbed: the ladder with the models in use.
        judges: what could judge a proof in doubt.
        standings: how jobs stand at the moment.
        now: the time, with its zone.
        left_s: the seconds of search above rung 0 that today still has; None: there is no limit.
    """

    view: sqlite3.Connection
    settings: Settings
    leans: Leans
    builds: Collection[BuildKey]
    climbed: Climbed
    judges: Judges
    standings: ReadinessOfJobs
    now: datetime
    left_s: float | None

    def ready(
        self, identity: str, kind: Kind, spec: Spec | Callable[[int], Spec], **about: Any
    ) -> Iterator[DueJob]:
        """Yield the job with this id, where it is ready.

        Args:
            spec: its specification, or what makes it of the number of the attempt.
            about: the other fields of `DueJob`.
        """
        standing = self.standings.of(identity)
        if standing.state == "ready":
            made = spec if isinstance(spec, Spec) else spec(standing.attempt)
            yield self.due(identity, kind, made, attempt=standing.attempt, **about)

    def due(self, identity: str, kind: Kind, spec: Spec, **about: Any) -> DueJob:
        """Return a job with the limits of its kind, else those of `about` or of all jobs, and with that of all that it
        starts together."""
        jobs, lean = self.settings.jobs, self.settings.lean
        usual = {"timeout_s": jobs.timeout_s, "memory_bytes": jobs.memory_bytes}
        given: dict[str, Any] = usual | about
        own = jobs.limit(kind)
        given |= {name: limit for name in usual if (limit := getattr(own, name)) is not None}
        # Lean processes have limits of their own, beside the job's.
        processes = KINDS[kind].lean_processes
        beside = lean.repl_memory_bytes * (lean.repls if processes is None else processes)
        if kind == "build":
            beside = _OF_THE_BUILD_ITSELF
        return DueJob(job=identity, kind=kind, spec=spec, tree_bytes=given["memory_bytes"] + beside, **given)

    def build(
        self, lean: LeanBackend, *, repository: str, branch: str, sha: str, folder: str = ""
    ) -> BuildSpec:
        """Return how a commit's project is built."""
        build = self.settings.build
        return BuildSpec(
            repository=repository,
            branch=branch,
            sha=sha,
            lean=lean,
            cache=self.settings.paths.cache,
            timeout_s=build.timeout_s,
            memory_bytes=build.memory_bytes,
            disk_bytes=build.disk_bytes,
            hosts=build.hosts,
            folder=folder,
        )

    def is_built(self, lean: LeanBackend) -> bool:
        """Return whether this Lean works in a project that is built."""
        return lean.is_lean and self.settings.build.enabled

    def repls(self, *, most: int | None = None) -> PoolLimits:
        """Return the limits of a job's REPLs; at most so many at once."""
        lean = self.settings.lean
        return PoolLimits(
            processes=lean.repls if most is None else min(most, lean.repls),
            memory_bytes=lean.repl_memory_bytes,
            calls=lean.repl_calls,
        )


def branches_of(view: sqlite3.Connection, repo: Repo) -> list[BranchRow]:
    """Return the branches that are worked on: what left the watchlist is not from now on, even before a poll has
    recorded that."""
    return [
        row
        for row in queries.branches(view, repo.key)
        if row.state == "live" and (not repo.branches or asked_for(row.branch, repo.branches))
    ]


def traced_by(
    view: sqlite3.Connection, repo: Repo, trace: TraceRow, leans: Leans
) -> tuple[BranchRow, Project, LeanBackend] | None:
    """Return the branch and the Lake project that a trace is of, and the Lean that works there; None where there
    is none of the three any more."""
    name, folder = trace_queries.place_of_line(trace.line)
    for row in branches_of(view, repo):
        for project in row.lake_projects if row.branch == name else ():
            lean = leans.for_toolchain(project.toolchain)
            if project.folder == folder and lean.kind != "none":
                return row, project, lean
    return None
