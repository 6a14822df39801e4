"""The one row of `service`: what the daemon last said of itself and of its configuration."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from store.events.service import ConfigLoaded, ConfigRejected, DaemonStarted, DaemonStopped
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
    """Note who runs. A start without a stop before it means that the last daemon was killed."""
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
    """Note the end; `pid` stays that of the daemon that ended."""
    _set(db, pid=body.pid, stopped_at=event.recorded_at, stop_reason=body.reason)


def config_loaded(db: sqlite3.Connection, event: StoredEvent, body: ConfigLoaded) -> None:
    """Note the settings in force and clear the errors of files that were refused before."""
    _set(
        db,
        config_path=body.path,
        config_digest=body.digest,
        config_loaded_at=event.recorded_at,
        config_errors_json="[]",
        config_rejected_at=None,
    )


def config_rejected(db: sqlite3.Connection, event: StoredEvent, body: ConfigRejected) -> None:
    """Note why the newest file was refused; path and digest stay those of the settings in force."""
    _set(db, config_errors_json=as_json(body.errors), config_rejected_at=event.recorded_at)


def _set(db: sqlite3.Connection, **values: Any) -> None:
    once: Mapping[str, Any] = {name: value for name, value in _EMPTY.items() if name not in values}
    upsert(db, "service", key={"id": 1}, values=values, once=once)
