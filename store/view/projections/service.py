"""The service itself: starts, configurations, channels of notifications, pauses and triggers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from store.events.jobs import TriggerEnded, WorkPaused, WorkResumed, WorkTriggered
from store.events.service import (
    ConfigLoaded,
    ConfigRejected,
    DaemonStarted,
    DaemonStopped,
    LeanChosen,
    NotificationFailed,
    NotificationSent,
    NotificationsSwitched,
)
from store.log.envelope import StoredEvent
from store.view.projections.rows import as_json, upsert

_EMPTY = {
    "version": "",
    "host": "",
    "lean": "none",
    "lean_detail": "",
    "stop_reason": "",
    "config_path": "",
    "config_digest": "",
    "config_errors_json": "[]",
}


def daemon_started(db: sqlite3.Connection, event: StoredEvent, body: DaemonStarted) -> None:
    """Record the running daemon. A start without a stop before it means a killed predecessor."""
    _set(
        db,
        version=body.version,
        pid=body.pid,
        host=body.host,
        lean=body.lean,
        lean_detail=body.lean_detail,
        started_at=event.recorded_at,
        stopped_at=None,
        stop_reason="",
    )


def daemon_stopped(db: sqlite3.Connection, event: StoredEvent, body: DaemonStopped) -> None:
    """Record the end; `pid` stays the ended daemon's."""
    _set(db, pid=body.pid, stopped_at=event.recorded_at, stop_reason=body.reason)


def lean_chosen(db: sqlite3.Connection, _event: StoredEvent, body: LeanChosen) -> None:
    """Record the program that runs Lean from here on."""
    _set(db, lean=body.lean, lean_detail=body.lean_detail)


def config_loaded(db: sqlite3.Connection, event: StoredEvent, body: ConfigLoaded) -> None:
    """Record the settings in force and clear the errors of refused files."""
    _set(
        db,
        config_path=body.path,
        config_digest=body.digest,
        config_loaded_at=event.recorded_at,
        config_errors_json="[]",
        config_rejected_at=None,
    )


def config_rejected(db: sqlite3.Connection, event: StoredEvent, body: ConfigRejected) -> None:
    """Record why the newest file was refused; path and digest stay those of the settings in force."""
    _set(db, config_errors_json=as_json(body.errors), config_rejected_at=event.recorded_at)


def _set(db: sqlite3.Connection, **values: Any) -> None:
    once: Mapping[str, Any] = {name: value for name, value in _EMPTY.items() if name not in values}
    upsert(db, "service", key={"id": 1}, values=values, once=once)


_WELL = {"problem": "", "reason": "", "remedy": "", "failing_since": None}


def notifications_switched(db: sqlite3.Connection, event: StoredEvent, body: NotificationsSwitched) -> None:
    """Begin new kinds at the position, and keep the others' beginnings; clear earlier problems."""
    row = db.execute("SELECT kinds_json FROM notifiers WHERE channel = ?", (body.channel,)).fetchone()
    before = {} if row is None else json.loads(row[0])
    kinds = {kind: before.get(kind, body.position) for kind in body.kinds}
    upsert(
        db,
        "notifiers",
        key={"channel": body.channel},
        # A switched-off channel begins anew.
        values={
            "kinds_json": as_json(kinds),
            **_WELL,
            **({} if before else {"digest_at": event.recorded_at}),
        },
        once={"position": body.position, "messages": 0, "told": 0},
    )


def notification_sent(db: sqlite3.Connection, event: StoredEvent, body: NotificationSent) -> None:
    """Move the channel on; it works."""
    db.execute(
        "UPDATE notifiers SET position = max(position, ?), messages = messages + 1, told = told + ?, sent_at = ?, "
        "digest_at = CASE ? WHEN 0 THEN ? ELSE digest_at END, "
        "problem = '', reason = '', remedy = '', failing_since = NULL WHERE channel = ?",
        (
            body.position,
            len(body.events),
            event.recorded_at,
            len(body.events),
            event.recorded_at,
            body.channel,
        ),
    )


def notification_failed(db: sqlite3.Connection, event: StoredEvent, body: NotificationFailed) -> None:
    """Record the problem, and the beginning of the failures."""
    db.execute(
        "UPDATE notifiers SET problem = ?, reason = ?, remedy = ?, failing_since = coalesce(failing_since, ?) "
        "WHERE channel = ?",
        (body.problem, body.reason, body.remedy, event.recorded_at, body.channel),
    )


_TRIGGERED = {
    "trace": "trace",
    "prove": "prove",
    "train": "train",
    "train_tactics": "train",
    "train_progress": "train",
}
"""The trigger answered by a job of this kind."""


def work_paused(db: sqlite3.Connection, event: StoredEvent, body: WorkPaused) -> None:
    """Record the pause, under the last user who paused."""
    values = {"by": body.by, "reason": body.reason, "since": event.recorded_at}
    upsert(db, "pauses", key={"work": body.work}, values=values, once={})


def work_resumed(db: sqlite3.Connection, _event: StoredEvent, body: WorkResumed) -> None:
    """Forget the pause; all of them if everything is resumed."""
    if body.work == "all":
        db.execute("DELETE FROM pauses")
    else:
        db.execute("DELETE FROM pauses WHERE work = ?", (body.work,))


def work_triggered(db: sqlite3.Connection, event: StoredEvent, body: WorkTriggered) -> None:
    """Record the wish; it takes the place of an earlier one for the same work."""
    values = {"seq": event.seq, "by": body.by, "triggered_at": event.recorded_at, "job": None, "ended": None}
    key = {"work": body.work, "repository": body.repository}
    upsert(db, "triggers", key=key, values=values, once={})


def trigger_ended(db: sqlite3.Connection, _event: StoredEvent, body: TriggerEnded) -> None:
    """Record why nothing began for the wish; a later one waits."""
    db.execute(
        "UPDATE triggers SET ended = ? WHERE work = ? AND repository = ? AND seq = ?",
        (body.reason, body.work, body.repository, body.trigger),
    )


def attempt_began(
    db: sqlite3.Connection, event: StoredEvent, *, job: str, attempt: int, kind: str, repository: str | None
) -> None:
    """Open an attempt, and record it as the answer to a waiting trigger."""
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
    """Close an open attempt at its end, as far as known; return whether it was open."""
    closed = db.execute(
        "UPDATE job_attempts SET ended_at = ?, outcome = ? WHERE job = ? AND attempt = ? AND ended_at IS NULL",
        (event.occurred_at or event.recorded_at, outcome, job, attempt),
    )
    return closed.rowcount > 0
