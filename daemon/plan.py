"""Pure: (database, settings, what can run Lean, which builds are there, now) -> the due jobs, most urgent first.

The plan is derived and never stored: a crash loses no work and a restart repeats none. What a job works on is
hashed into its id, so that "the same work" has one name: a failure that the same inputs would repeat
(`deterministic`) makes the job not due for good, and changed inputs make another job. Whether and when any other
failure is tried again is written on the failure itself (`retry_at`, see `daemon.retries`).

Lanes: of the jobs with one lane at most one runs. A branch's commits are scanned one after another.
What one repository has due is `daemon.planner`'s, what there is to learn `daemon.training`'s, what may not begin yet
`daemon.timetable`'s; which of the due jobs begin, `daemon.admission`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from daemon.due import LEANS_OF_A_CHECK, DueJob
from daemon.planner import Planner
from daemon.proving import seconds_left
from daemon.settings import Settings
from daemon.timetable import Timetable, read_timetable
from daemon.training import Counted, training_jobs
from pipeline.lean.backend import Leans
from store.view.queries import basic as queries
from store.view.queries import traces as trace_queries

_OF_THE_BUILD_ITSELF = 2**30
"""[build] memory is lake's and what it starts."""


@dataclass(frozen=True, slots=True)
class Held:
    """A job that would be due, and what it waits for."""

    due: DueJob
    waits: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is due now, and when something next becomes due by the clock alone (None: nothing waits).

    `waiting` says of rungs of the ladder what they wait for. `held` would be due but for a pause, quiet hours or a
    night's budget, as `timetable` says.
    """

    due: tuple[DueJob, ...]
    next_retry_at: datetime | None
    waiting: tuple[str, ...] = ()
    held: tuple[Held, ...] = ()
    timetable: Timetable | None = None


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
    waits_s: Mapping[str, float] | None = None,
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
        waits_s: how long jobs that failed still wait (`daemon.retries`); of others the time written down counts.
    """
    timetable = read_timetable(view, schedule=settings.schedule, now=now)
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
        waits_s=waits_s,
    )
    served = last_started or {}
    found = [job for repo in settings.repos if repo.enabled for job in planner.of(repo)]
    if trainable and settings.train.enabled:
        known = {} if counted is None else counted
        found += training_jobs(
            view, settings=settings, leans=leans, standings=planner.standings, counted=known
        )
    first = {repo.key: -repo.priority for repo in settings.repos}
    urgency = settings.schedule.urgency
    due = [_limited(job, settings) for job in found if job.lane not in running]
    # Sorting is stable: within one repository the planner's order stays.
    due.sort(
        key=lambda job: (
            urgency(job.kind),
            first.get(job.repository, 0),
            job.rank,
            served.get(job.repository, 0.0),
        )
    )
    waits = {
        kind: wait for kind in {job.kind for job in due} if (wait := timetable.of_kind(kind)) is not None
    }
    may_begin = [job for job in due if job.kind not in waits]
    ends = [wait.until for wait in waits.values() if wait.until is not None]
    return Plan(
        tuple(may_begin if left_s is None else _affordable(may_begin, left_s)),
        min(filter(None, [planner.standings.next_retry_at, *ends]), default=None),
        tuple(planner.waiting),
        tuple(Held(job, waits[job.kind].text) for job in due if job.kind in waits),
        timetable,
    )


def _limited(job: DueJob, settings: Settings) -> DueJob:
    """Return a job with the limits of its kind, and of all that it starts together."""
    own = settings.jobs.limit(job.kind)
    timeout_s = job.timeout_s if own.timeout_s is None else own.timeout_s
    memory_bytes = job.memory_bytes if own.memory_bytes is None else own.memory_bytes
    # Lean processes have limits of their own, beside the job's.
    beside = settings.lean.repl_memory_bytes * {
        "trace": settings.lean.repls,
        "prove": settings.lean.repls,
        "check": LEANS_OF_A_CHECK,
    }.get(job.kind, 0)
    if job.kind == "build":
        beside = _OF_THE_BUILD_ITSELF
    return replace(job, timeout_s=timeout_s, memory_bytes=memory_bytes, tree_bytes=memory_bytes + beside)


def _affordable(due: Sequence[DueJob], left_s: float) -> Iterator[DueJob]:
    """Yield what today still has time for, in the same order; what costs nothing of it always."""
    for job in due:
        if job.cost_s <= max(left_s, 0.0):
            left_s -= job.cost_s
            yield job


def parameters_now(view: sqlite3.Connection, *, job: DueJob) -> dict[str, Any]:
    """Return a job's parameters with what it needs of the view at the moment that it starts."""
    match job.kind:
        case "scan":
            return scan_parameters(view, job=job)
        case "trace":
            known = trace_queries.trace_parameters(view, repository=job.repository, branch=job.branch)
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
