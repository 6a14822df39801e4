"""Pauses and triggers, as they stand now; and when each attempt of a job began and ended."""

from __future__ import annotations

import sqlite3

from store.events.jobs import TriggerEnded, WorkPaused, WorkResumed, WorkTriggered
from store.log.envelope import StoredEvent
from store.view.projections.rows import upsert

_TRIGGERED = {
    "trace": "trace",
    "prove": "prove",
    "train": "train",
    "train_tactics": "train",
    "train_progress": "train",
}
"""What a job of this kind answers to."""


def work_paused(db: sqlite3.Connection, event: StoredEvent, body: WorkPaused) -> None:
    """Note the pause; who paused last what was paused already is who is asked."""
    values = {"by": body.by, "reason": body.reason, "since": event.recorded_at}
    upsert(db, "pauses", key={"work": body.work}, values=values, once={})


def work_resumed(db: sqlite3.Connection, _event: StoredEvent, body: WorkResumed) -> None:
    """Forget the pause; all of them where everything is resumed."""
    if body.work == "all":
        db.execute("DELETE FROM pauses")
    else:
        db.execute("DELETE FROM pauses WHERE work = ?", (body.work,))


def work_triggered(db: sqlite3.Connection, event: StoredEvent, body: WorkTriggered) -> None:
    """Note the wish; it takes the place of an earlier one for the same work."""
    values = {"seq": event.seq, "by": body.by, "triggered_at": event.recorded_at, "job": None, "ended": None}
    key = {"work": body.work, "repository": body.repository}
    upsert(db, "triggers", key=key, values=values, once={})


def trigger_ended(db: sqlite3.Connection, _event: StoredEvent, body: TriggerEnded) -> None:
    """Note why nothing began for the wish; one that was made since waits."""
    db.execute(
        "UPDATE triggers SET ended = ? WHERE work = ? AND repository = ? AND seq = ?",
        (body.reason, body.work, body.repository, body.trigger),
    )


def attempt_began(
    db: sqlite3.Connection, event: StoredEvent, *, job: str, attempt: int, kind: str, repository: str | None
) -> None:
    """Open an attempt, and note it as the answer to a trigger that waited for one."""
    values = {"kind": kind, "started_at": event.recorded_at, "ended_at": None, "outcome": None}
    upsert(db, "job_attempts", key={"job": job, "attempt": attempt}, values=values, once={})
    if kind in _TRIGGERED:
        db.execute(
            "UPDATE triggers SET job = ? WHERE work = ? AND repository = ? AND job IS NULL AND ended IS NULL",
            (job, _TRIGGERED[kind], repository),
        )


def attempt_ended(
    db: sqlite3.Connection, event: StoredEvent, *, job: str, attempt: int, outcome: str
) -> bool:
    """Close an attempt, when it ended as far as that is known; one that is closed keeps its end. Was it open?"""
    closed = db.execute(
        "UPDATE job_attempts SET ended_at = ?, outcome = ? WHERE job = ? AND attempt = ? AND ended_at IS NULL",
        (event.occurred_at or event.recorded_at, outcome, job, attempt),
    )
    return closed.rowcount > 0
