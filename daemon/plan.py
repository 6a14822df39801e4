"""Pure: (database, settings, what can run Lean, which builds are there, now) -> the due jobs, most urgent first.

The plan is derived and never stored: a crash loses no work and a restart repeats none. What a job works on is
hashed into its id, so that "the same work" has one name: a failure that the same inputs would repeat
(`deterministic`) makes the job not due for good, and changed inputs make another job. Whether and when any other
failure is tried again is written on the failure itself (`retry_at`, see `daemon.jobs`).

Lanes: of the jobs with one lane at most one runs. A branch's commits are scanned one after another.
What one repository has due is `daemon.planner`'s, what there is to learn `daemon.training`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from daemon.due import BESIDE, LONG, PRIORITY, DueJob, Kind
from daemon.planner import Planner
from daemon.proving import seconds_left
from daemon.settings import Settings
from daemon.training import Counted, training_jobs
from pipeline.lean.backend import Leans
from store import line_queries, queries


@dataclass(frozen=True, slots=True)
class Plan:
    """What is due now, and when something next becomes due by the clock alone (None: nothing waits).

    `waiting` says of rungs of the ladder what they wait for.
    """

    due: tuple[DueJob, ...]
    next_retry_at: datetime | None
    waiting: tuple[str, ...] = ()


def make_plan(
    view: sqlite3.Connection,
    *,
    settings: Settings,
    leans: Leans,
    now: datetime,
    builds: Collection[tuple[str, str]] = (),
    trainable: bool = False,
    no_models: str = "",
    counted: Counted | None = None,
    reserved_s: float = 0.0,
    tactics: tuple[str, str] | None = None,
    running: Collection[str] = (),
    last_started: Mapping[str, float] | None = None,
) -> Plan:
    """Return the due jobs.

    Args:
        builds: (repository, commit) of the builds that lie in the cache.
        trainable: whether a model can be trained here (`daemon.training_needs`).
        no_models: why no model can be asked here (`daemon.training_needs`); "" where one can.
        counted: what earlier plans of this view have counted; this one adds to it.
        reserved_s: what running jobs may still take of the day's seconds of search.
        tactics: what rung 2 asks instead of the model in use (`daemon.ladder`).
        running: lanes that are taken.
        last_started: when a job of a repository last started (any clock): the longest unserved goes first.
    """
    left_s = seconds_left(view, settings=settings, now=now, reserved_s=reserved_s)
    planner = Planner(
        view,
        settings=settings,
        leans=leans,
        builds=builds,
        now=now,
        no_models=no_models,
        left_s=left_s,
        tactics=tactics,
    )
    served = last_started or {}
    found = [job for repo in settings.repos if repo.enabled for job in planner.of(repo)]
    if trainable and settings.train.enabled:
        known = {} if counted is None else counted
        found += training_jobs(
            view, settings=settings, leans=leans, standings=planner.standings, counted=known
        )
    due = [job for job in found if job.lane not in running]
    # Sorting is stable: within one repository the planner's order stays.
    due.sort(key=lambda job: (PRIORITY[job.kind], job.rank, served.get(job.repository, 0.0)))
    return Plan(
        tuple(due if left_s is None else _affordable(due, left_s)),
        planner.standings.next_retry_at,
        tuple(planner.waiting),
    )


def _affordable(due: Sequence[DueJob], left_s: float) -> Iterator[DueJob]:
    """Yield what today still has time for, in the same order; what costs nothing of it always."""
    for job in due:
        if job.cost_s <= max(left_s, 0.0):
            left_s -= job.cost_s
            yield job


def admissible(
    plan: Plan, *, running: Sequence[Kind], max_running: int, gpu_taken: bool = False
) -> Iterator[DueJob]:
    """Yield the jobs to start now: free slots, one per lane, one on the GPU, one slot that long ones never take.

    What learns takes no slot: a training of days must not keep commits and proofs waiting, nor wait for them.
    """
    kinds = [kind for kind in running if kind not in BESIDE]
    lanes: set[str] = set()
    for job in plan.due:
        beside = job.kind in BESIDE
        if not beside and len(kinds) >= max_running:
            continue
        # A new commit's sorrys are visible within seconds, even while provers work for half an hour.
        if job.kind in LONG and max_running > 1 and sum(kind in LONG for kind in kinds) >= max_running - 1:
            continue
        if job.lane in lanes or (job.gpu and gpu_taken):
            continue
        # The more urgent come first, so that training gets the GPU when nothing else wants it.
        gpu_taken |= job.gpu
        lanes.add(job.lane)
        if not beside:
            kinds.append(job.kind)
        yield job


def parameters_now(view: sqlite3.Connection, *, job: DueJob) -> dict[str, Any]:
    """Return a job's parameters with what it needs of the view at the moment that it starts."""
    match job.kind:
        case "scan":
            return scan_parameters(view, job=job)
        case "trace":
            known = line_queries.trace_parameters(view, repository=job.repository, branch=job.branch)
            return {**job.parameters, **known}
        case _:
            return dict(job.parameters)


def scan_parameters(view: sqlite3.Connection, *, job: DueJob) -> dict[str, Any]:
    """Return what a scan needs of the view at the moment that it starts: the sorrys and the proofs so far."""
    place = (
        "path",
        "blob",
        "line",
        "column",
        "byte_start",
        "byte_end",
        "declaration",
        "kind",
        "statement",
        "statement_hash",
        "ordinal",
        "token",
        "mode",
        "context_hash",
    )
    rows = queries.sorries(view, repository=job.repository, branch=job.branch)
    parameters = dict(job.parameters)
    known = None
    if parameters.pop("by_files"):
        files = queries.files(view, repository=job.repository, branch=job.branch)
        known = [[file.path, file.blob] for file in files]
    return {
        **parameters,
        "files": known,
        "sorries": [
            {"sorry": row.sorry, **{name: getattr(row, name) for name in place}}
            for row in rows
            if row.state in ("open", "verified")
        ],
        # One of these that stands in the source again is the same sorry, reopened.
        "closed": [row.sorry for row in rows if row.state in ("filled", "removed")],
        "proofs": [
            {
                "proof": proof.proof,
                "sorry": proof.sorry,
                "declaration": proof.declaration,
                "declaration_text_hash": proof.declaration_text_hash,
            }
            for proof in queries.proofs(view, repository=job.repository)
            if proof.state != "rejected"
        ],
    }
