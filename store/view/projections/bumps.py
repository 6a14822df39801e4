"""Projections of bumps: the requests, the breaks and the mended proofs."""

from __future__ import annotations

import sqlite3

from store.events.bumps import BumpAsked, BumpBuilt, BumpFinished, BumpTried
from store.log.envelope import StoredEvent
from store.view.projections.rows import as_json, upsert

_NOTHING = {
    "branch": None,
    "sha": None,
    "job": None,
    "broken_json": "[]",
    "mended_json": "[]",
    "left_json": "[]",
    "modules_failed_json": "[]",
    "tried": 0,
    "unrecorded": 0,
    "series_sha256": None,
    "finished_at": None,
}


def bump_asked(db: sqlite3.Connection, event: StoredEvent, body: BumpAsked) -> None:
    """Open a trial for a user."""
    about = {"toolchain": body.toolchain, "package": body.package, "rev": body.rev, "by": body.by}
    once = {"seq": event.seq, "since": event.recorded_at, **about, **_NOTHING}
    upsert(db, "bumps", key={"repository": body.repository, "bump": body.bump}, values={}, once=once)


def bump_built(db: sqlite3.Connection, event: StoredEvent, body: BumpBuilt) -> None:
    """Record the breaks; the texts of an earlier attempt are tried once more."""
    broken = as_json([one.model_dump() for one in body.broken])
    values = {
        "branch": body.branch,
        "sha": body.sha,
        "job": body.job,
        "broken_json": broken,
        "left_json": broken,
        "modules_failed_json": as_json(body.modules_failed),
        "tried": 0,
        "unrecorded": 0,
    }
    once = {
        "seq": event.seq,
        "since": event.recorded_at,
        "toolchain": body.toolchain,
        "package": body.package,
        "rev": body.rev,
        "by": "",
        **{name: value for name, value in _NOTHING.items() if name not in values},
    }
    upsert(db, "bumps", key={"repository": body.repository, "bump": body.bump}, values=values, once=once)


def bump_tried(db: sqlite3.Connection, _event: StoredEvent, body: BumpTried) -> None:
    """Count a text, and the unrecorded ones before it."""
    db.execute(
        "UPDATE bumps SET tried = ? WHERE repository = ? AND bump = ?",
        (body.number, body.repository, body.bump),
    )


def bump_finished(db: sqlite3.Connection, event: StoredEvent, body: BumpFinished) -> None:
    """Record the result of a trial."""
    db.execute(
        "UPDATE bumps SET mended_json = ?, left_json = ?, modules_failed_json = ?, tried = ?, unrecorded = ?,"
        " series_sha256 = ?, finished_at = ? WHERE repository = ? AND bump = ?",
        (
            as_json([one.model_dump() for one in body.mended]),
            as_json([one.model_dump() for one in body.left]),
            as_json(body.modules_failed),
            body.tried,
            body.unrecorded,
            body.series.sha256,
            event.recorded_at,
            body.repository,
            body.bump,
        ),
    )
