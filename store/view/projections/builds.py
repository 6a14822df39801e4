"""Built commits and their toolchains: one row each, of the newest build."""

from __future__ import annotations

import sqlite3

from store.events.jobs import ProjectBuilt
from store.log.envelope import StoredEvent
from store.view.projections.rows import as_json, upsert


def project_built(db: sqlite3.Connection, event: StoredEvent, body: ProjectBuilt) -> None:
    """Add the build, or replace an earlier one of the same commit."""
    upsert(
        db,
        "builds",
        key={"repository": body.repository, "sha": body.sha},
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
