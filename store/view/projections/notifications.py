"""The channels of notifications: how far each has come, and what keeps it from getting on."""

from __future__ import annotations

import json
import sqlite3

from store.events.service import NotificationFailed, NotificationSent, NotificationsSwitched
from store.log.envelope import StoredEvent
from store.view.projections.rows import as_json, upsert

_WELL = {"problem": "", "reason": "", "remedy": "", "failing_since": None}


def notifications_switched(db: sqlite3.Connection, _event: StoredEvent, body: NotificationsSwitched) -> None:
    """Begin new kinds at the position, and keep where the others began; what an earlier switch met is history."""
    row = db.execute("SELECT kinds_json FROM notifiers WHERE channel = ?", (body.channel,)).fetchone()
    before = {} if row is None else json.loads(row[0])
    kinds = {kind: before.get(kind, body.position) for kind in body.kinds}
    upsert(
        db,
        "notifiers",
        key={"channel": body.channel},
        values={"kinds_json": as_json(kinds), **_WELL},
        once={"position": body.position, "messages": 0, "told": 0},
    )


def notification_sent(db: sqlite3.Connection, event: StoredEvent, body: NotificationSent) -> None:
    """Move the channel on; it works."""
    db.execute(
        "UPDATE notifiers SET position = max(position, ?), messages = messages + 1, told = told + ?, sent_at = ?, "
        "problem = '', reason = '', remedy = '', failing_since = NULL WHERE channel = ?",
        (body.position, len(body.events), event.recorded_at, body.channel),
    )


def notification_failed(db: sqlite3.Connection, event: StoredEvent, body: NotificationFailed) -> None:
    """Note what is wrong, and since when something is."""
    db.execute(
        "UPDATE notifiers SET problem = ?, reason = ?, remedy = ?, failing_since = coalesce(failing_since, ?) "
        "WHERE channel = ?",
        (body.problem, body.reason, body.remedy, event.recorded_at, body.channel),
    )
