"""Jobs, each at its newest attempt; news of an older attempt changes nothing."""

from __future__ import annotations

import sqlite3

from store.events.jobs import JobCancelled, JobFailed, JobInterrupted, JobReleased, JobStarted, JobSucceeded
from store.log.envelope import StoredEvent, utc_text
from store.view.projections.rows import as_json, upsert
from store.view.projections.tallies import job_ended
from store.view.projections.work import attempt_began, attempt_ended


def job_started(db: sqlite3.Connection, event: StoredEvent, body: JobStarted) -> None:
    """Add a job, or begin its next attempt with nothing left of the last one."""
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
            "simulated": int(body.simulated),
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
    """Close an attempt with its summary; what used the simulator stays marked."""
    ended = db.execute(
        "UPDATE jobs SET state = 'succeeded', ended_at = ?, seconds = ?, peak_rss_bytes = ?, summary_json = ?, "
        "simulated = max(simulated, ?) WHERE job = ? AND attempt = ?",
        (
            event.recorded_at,
            body.seconds,
            body.peak_rss_bytes,
            as_json(body.summary),
            int(body.simulated),
            body.job,
            body.attempt,
        ),
    )
    if ended.rowcount:
        job_ended(db, job=body.job, outcome="succeeded", seconds=body.seconds)
    attempt_ended(db, event, job=body.job, attempt=body.attempt, outcome="succeeded")


def job_failed(db: sqlite3.Connection, event: StoredEvent, body: JobFailed) -> None:
    """Close an attempt with what went wrong, what to do, and when it is tried again."""
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
    """Close an attempt that the daemon did not see the end of, or that was preempted."""
    ended = db.execute(
        "UPDATE jobs SET state = 'interrupted', ended_at = ?, reason = ? WHERE job = ? AND attempt = ?",
        (event.recorded_at, body.reason, body.job, body.attempt),
    )
    if ended.rowcount:
        job_ended(db, job=body.job, outcome="interrupted", seconds=None)
    attempt_ended(db, event, job=body.job, attempt=body.attempt, outcome="interrupted")


def job_cancelled(db: sqlite3.Connection, event: StoredEvent, body: JobCancelled) -> None:
    """Close an attempt, or put down a job that never began, so that no one tries it again unasked."""
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
        "simulated": int(body.simulated),
        "started_at": event.recorded_at,
        "summary_json": "{}",
    }
    upsert(db, "jobs", key={"job": body.job}, values=values, once=about)
    # An attempt that had ended when the job was taken off the queue is counted as what it ended as.
    if attempt_ended(db, event, job=body.job, attempt=body.attempt, outcome="cancelled"):
        job_ended(db, job=body.job, outcome="cancelled", seconds=body.seconds)


def job_released(db: sqlite3.Connection, _event: StoredEvent, body: JobReleased) -> None:
    """Let the plan decide anew; a job that runs or ended well is not touched."""
    db.execute(
        "UPDATE jobs SET state = 'released', deterministic = 0, retry_at = NULL "
        "WHERE job = ? AND state IN ('failed', 'interrupted', 'cancelled')",
        (body.job,),
    )
