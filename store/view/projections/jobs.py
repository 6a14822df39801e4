"""Jobs, each at its newest attempt; news of an older attempt changes nothing. Built commits and counters of ends."""

from __future__ import annotations

import bisect
import sqlite3

from store.events.jobs import (
    JobCancelled,
    JobFailed,
    JobInterrupted,
    JobReleased,
    JobStarted,
    JobSucceeded,
    ProjectBuilt,
)
from store.log.envelope import StoredEvent, utc_text
from store.view.projections.rows import as_json, upsert
from store.view.projections.service import attempt_began, attempt_ended

JOB_BOUNDS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""The upper ends of the intervals for the durations of jobs; the last interval has none. Other ones need
another `store.view.tables.PROJECTION_VERSION`."""

UNTIMED = -1
"""The interval of an untimed attempt."""


def job_ended(db: sqlite3.Connection, *, job: str, outcome: str, seconds: float | None) -> None:
    """Count an attempt, by the kind of its job."""
    bucket = UNTIMED if seconds is None else bisect.bisect_left(JOB_BOUNDS_S, seconds)
    db.execute(
        "INSERT INTO job_tallies (kind, outcome, bucket, n, seconds) "
        "SELECT kind, ?, ?, 1, ? FROM jobs WHERE job = ? "
        "ON CONFLICT (kind, outcome, bucket) DO UPDATE SET n = n + 1, seconds = seconds + excluded.seconds",
        (outcome, bucket, seconds or 0.0, job),
    )


def job_started(db: sqlite3.Connection, event: StoredEvent, body: JobStarted) -> None:
    """Add a job, or begin its next attempt without anything of the last one."""
    upsert(
        db,
        "jobs",
        key={"job": body.job},
        values={
            "kind": body.kind,
            "state": "running",
            "attempt": body.attempt,
            "repository": body.repository,
            "branch": body.branch,
            "sha": body.sha,
            "describes": body.describes,
            "started_at": event.recorded_at,
            "ended_at": None,
            "seconds": None,
            "peak_rss_bytes": None,
            "reason": "",
            "message": "",
            "remedy": "",
            "deterministic": 0,
            "retry_at": None,
            "summary_json": "{}",
        },
        once={},
    )
    attempt_began(db, event, job=body.job, attempt=body.attempt, kind=body.kind, repository=body.repository)


def job_succeeded(db: sqlite3.Connection, event: StoredEvent, body: JobSucceeded) -> None:
    """Close an attempt with its summary."""
    ended = db.execute(
        "UPDATE jobs SET state = 'succeeded', ended_at = ?, seconds = ?, peak_rss_bytes = ?, summary_json = ? "
        "WHERE job = ? AND attempt = ?",
        (
            event.recorded_at,
            body.seconds,
            body.peak_rss_bytes,
            as_json(body.summary),
            body.job,
            body.attempt,
        ),
    )
    if ended.rowcount:
        job_ended(db, job=body.job, outcome="succeeded", seconds=body.seconds)
    attempt_ended(db, event, job=body.job, attempt=body.attempt, outcome="succeeded")


def job_failed(db: sqlite3.Connection, event: StoredEvent, body: JobFailed) -> None:
    """Close an attempt with the reason, the remedy, and the time of the next one."""
    ended = db.execute(
        "UPDATE jobs SET state = 'failed', ended_at = ?, seconds = ?, peak_rss_bytes = ?, reason = ?, message = ?, "
        "remedy = ?, deterministic = ?, retry_at = ? WHERE job = ? AND attempt = ?",
        (
            event.recorded_at,
            body.seconds,
            body.peak_rss_bytes,
            body.reason,
            body.message,
            body.remedy,
            int(body.deterministic),
            None if body.retry_at is None else utc_text(body.retry_at),
            body.job,
            body.attempt,
        ),
    )
    if ended.rowcount:
        job_ended(db, job=body.job, outcome="failed", seconds=body.seconds)
    attempt_ended(db, event, job=body.job, attempt=body.attempt, outcome="failed")


def job_interrupted(db: sqlite3.Connection, event: StoredEvent, body: JobInterrupted) -> None:
    """Close an attempt preempted or with an unseen end."""
    ended = db.execute(
        "UPDATE jobs SET state = 'interrupted', ended_at = ?, reason = ? WHERE job = ? AND attempt = ?",
        (event.recorded_at, body.reason, body.job, body.attempt),
    )
    if ended.rowcount:
        job_ended(db, job=body.job, outcome="interrupted", seconds=None)
    attempt_ended(db, event, job=body.job, attempt=body.attempt, outcome="interrupted")


def job_cancelled(db: sqlite3.Connection, event: StoredEvent, body: JobCancelled) -> None:
    """Close an attempt, or record a job before its first, to prevent any automatic attempt."""
    values = {
        "state": "cancelled",
        "attempt": body.attempt,
        "ended_at": event.recorded_at,
        "seconds": body.seconds,
        "peak_rss_bytes": body.peak_rss_bytes,
        "reason": "cancelled",
        "message": f"cancelled by {body.by}",
        "remedy": "",
        "deterministic": 0,
        "retry_at": None,
    }
    about = {
        "kind": body.kind,
        "repository": body.repository,
        "branch": body.branch,
        "sha": body.sha,
        "describes": body.describes,
        "started_at": event.recorded_at,
        "summary_json": "{}",
    }
    upsert(db, "jobs", key={"job": body.job}, values=values, once=about)
    # An attempt already over when the job was taken off the queue is counted with its own outcome.
    if attempt_ended(db, event, job=body.job, attempt=body.attempt, outcome="cancelled"):
        job_ended(db, job=body.job, outcome="cancelled", seconds=body.seconds)


def job_released(db: sqlite3.Connection, _event: StoredEvent, body: JobReleased) -> None:
    """Make a job due for a new decision of the plan; a running or successful one is not touched."""
    db.execute(
        "UPDATE jobs SET state = 'released', deterministic = 0, retry_at = NULL "
        "WHERE job = ? AND state IN ('failed', 'interrupted', 'cancelled')",
        (body.job,),
    )


def project_built(db: sqlite3.Connection, event: StoredEvent, body: ProjectBuilt) -> None:
    """Add the build, or replace an earlier one of the same project at the commit."""
    upsert(
        db,
        "builds",
        key={"repository": body.repository, "sha": body.sha, "project": body.project},
        values={
            "seq": event.seq,
            "branch": body.branch,
            "toolchain": body.toolchain,
            "dependencies": body.dependencies,
            "modules_failed_json": as_json(body.modules_failed),
            "size_bytes": body.size_bytes,
            "seconds": body.seconds,
            "built_at": event.recorded_at,
        },
        once={},
    )
