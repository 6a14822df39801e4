"""What is put down of an attempt: its spec for the child, and the events of its beginning and end for the log."""

from __future__ import annotations

import json
import shutil
import sqlite3

from daemon.due import DueJob
from pipeline.protocol import JobSpec
from store.domain.identity import event_id
from store.events.base import EventBody
from store.events.jobs import JobCancelled, JobStarted
from store.log.envelope import NewEvent
from store.view.queries import basic as queries
from store.view.rows import JobRow


def of_attempt(due: DueJob, body: EventBody) -> NewEvent:
    """Return an event of an attempt's beginning or end; each is recorded once."""
    natural = event_id(body.type, due.job, str(due.attempt))
    return NewEvent(f"job:{due.job}", body, event_id=natural, correlation_id=due.job, actor="daemon")


def started_event(due: DueJob) -> JobStarted:
    """Return the beginning of an attempt, to be recorded before there is a process."""
    return JobStarted(
        job=due.job,
        kind=due.kind,
        attempt=due.attempt,
        repository=due.repository,
        branch=due.branch,
        sha=due.sha,
        describes=due.describes,
        simulated=due.simulated,
    )


def cancelled_event(
    job: DueJob | JobRow, *, attempt: int, by: str, seconds: float | None, peak_rss_bytes: int | None
) -> JobCancelled:
    """Return the end of a job that somebody wanted ended, of one that never began as well (`attempt` 0)."""
    return JobCancelled(
        job=job.job,
        kind=job.kind,
        attempt=attempt,
        repository=job.repository,
        branch=job.branch,
        sha=job.sha,
        describes=job.describes,
        simulated=job.simulated,
        by=by,
        seconds=seconds,
        peak_rss_bytes=peak_rss_bytes,
    )


def is_cancelled(view: sqlite3.Connection, *, job: str) -> bool:
    """Say whether a job was cancelled and not asked for again."""
    return any(
        row.job == job and row.state == "cancelled" for row in queries.jobs_by_prefix(view, prefix=job)
    )


def write_spec(spec: JobSpec) -> None:
    """Make the folder of an attempt anew, with its spec."""
    # An attempt that died before it was recorded may have left this folder; nothing in it counts.
    shutil.rmtree(spec.directory, ignore_errors=True)
    spec.staging.mkdir(parents=True)
    (spec.directory / "spec.json").write_text(
        json.dumps(spec.as_json(), ensure_ascii=False), encoding="utf-8"
    )
