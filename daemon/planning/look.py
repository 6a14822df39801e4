"""The inputs of a plan: the same for all repositories, at one moment."""

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
    """The judges of a proof in doubt: the known faults of kernels, and the arrival of a second kernel.

    `second_since` is in UTC, as in the log; "" without a second kernel.
    """

    advisories: tuple[Advisory, ...] = ()
    second_since: str = ""

    def sound(self, toolchain: str) -> bool:
        """Return whether a toolchain's own kernel replay has no known fault."""
        return is_sound(toolchain, self.advisories)

    def newer(self, checked_at: str | None) -> bool:
        """Return whether the second kernel came after a check."""
        return self.second_since > (checked_at or "")


NO_JUDGES = Judges()
_OF_THE_BUILD_ITSELF = 2**30
"""[build] memory is for lake and its processes."""


@dataclass(frozen=True, slots=True)
class Look:
    """The inputs of one plan.

    Attributes:
        builds: the keys of the cached builds.
        climbed: the ladder with the models in use.
        judges: the judges of a proof in doubt.
        standings: the readiness of jobs at the moment.
        now: the time, with its zone.
        left_s: the seconds of search above rung 0 left today; None without a limit.
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
        """Yield the job with this id, if it is ready.

        Args:
            spec: its specification, or a function of the attempt's number to make it.
            about: the other fields of `DueJob`.
        """
        standing = self.standings.of(identity)
        if standing.state == "ready":
            specification = spec if isinstance(spec, Spec) else spec(standing.attempt)
            yield self.due(identity, kind, specification, attempt=standing.attempt, **about)

    def due(self, identity: str, kind: Kind, spec: Spec, **about: Any) -> DueJob:
        """Return a job with the limits of its kind, else those of `about` or of all jobs, and the limit of
        its whole process tree."""
        jobs, lean = self.settings.jobs, self.settings.lean
        usual = {"timeout_s": jobs.timeout_s, "memory_bytes": jobs.memory_bytes}
        fields: dict[str, Any] = usual | about
        own = jobs.limit(kind)
        fields |= {name: limit for name in usual if (limit := getattr(own, name)) is not None}
        # Lean processes have limits of their own, beside the job's.
        processes = KINDS[kind].lean_processes
        beside = lean.repl_memory_bytes * (lean.repls if processes is None else processes)
        if kind == "build":
            beside = _OF_THE_BUILD_ITSELF
        return DueJob(
            job=identity, kind=kind, spec=spec, tree_bytes=fields["memory_bytes"] + beside, **fields
        )

    def build(
        self, lean: LeanBackend, *, repository: str, branch: str, sha: str, folder: str = ""
    ) -> BuildSpec:
        """Return the specification of a commit's build."""
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
        """Return whether this Lean works in a built project."""
        return lean.is_lean and self.settings.build.enabled

    def repls(self, *, most: int | None = None) -> PoolLimits:
        """Return the limits of a job's REPLs, with `most` at once at the most."""
        lean = self.settings.lean
        return PoolLimits(
            processes=lean.repls if most is None else min(most, lean.repls),
            memory_bytes=lean.repl_memory_bytes,
            calls=lean.repl_calls,
        )


def branches_of(view: sqlite3.Connection, repo: Repo) -> list[BranchRow]:
    """Return the live branches of the watchlist. A branch removed from it is left out at once, before a poll
    records its removal."""
    return [
        row
        for row in queries.branches(view, repo.key)
        if row.state == "live" and (not repo.branches or asked_for(row.branch, repo.branches))
    ]


def traced_by(
    view: sqlite3.Connection, repo: Repo, trace: TraceRow, leans: Leans
) -> tuple[BranchRow, Project, LeanBackend] | None:
    """Return the branch and Lake project of a trace, and the Lean for them; None if any of the three is
    gone."""
    name, folder = trace_queries.place_of_line(trace.line)
    for row in branches_of(view, repo):
        for project in row.lake_projects if row.branch == name else ():
            lean = leans.for_toolchain(project.toolchain)
            if project.folder == folder and lean.kind != "none":
                return row, project, lean
    return None
