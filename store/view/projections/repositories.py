"""Watched repositories with their branches and commits."""

from __future__ import annotations

import sqlite3

from store.events.repositories import (
    BranchCreated,
    BranchDeleted,
    BranchRewritten,
    BranchUnwatched,
    CommitObserved,
    RepositoryArchived,
    RepositoryFailed,
    RepositoryFailing,
    RepositoryIdentified,
    RepositoryRecovered,
    RepositoryRenamed,
    RepositoryReplaced,
    RepositoryUnwatched,
    RepositoryWatched,
)
from store.log.envelope import StoredEvent, utc_text
from store.view.projections.rows import as_json, upsert

DROPPED_LIMIT = 1000
"""`branch_rewritten.dropped` is cut at this length; see `branch_rewritten` below."""


_NEW_BRANCH = {
    "rewrites": 0,
    "scanned_include_json": "[]",
    "scanned_exclude_json": "[]",
    "challenges_json": "[]",
}


def repository_watched(db: sqlite3.Connection, event: StoredEvent, body: RepositoryWatched) -> None:
    """Add a repository or take over its changed settings; its facts stay, also after a break."""
    upsert(
        db,
        "repositories",
        key={"repository": body.repository},
        values={
            "url": body.url,
            "watched": 1,
            "enabled": int(body.enabled),
            "opt_out": int(body.opt_out),
            "every_s": body.every_s,
            "branches_json": as_json(body.branches),
            "include_json": as_json(body.include),
            "exclude_json": as_json(body.exclude),
            "projects_json": as_json(body.projects),
        },
        once={
            "state": "new",
            "reason": "",
            "remedy": "",
            "failing_told": 0,
            "archived": 0,
            "private": 0,
            "first_seen_at": event.recorded_at,
        },
    )


def repository_unwatched(db: sqlite3.Connection, _event: StoredEvent, body: RepositoryUnwatched) -> None:
    """Mark it; no fact goes."""
    db.execute("UPDATE repositories SET watched = 0 WHERE repository = ?", (body.repository,))


def repository_failed(db: sqlite3.Connection, event: StoredEvent, body: RepositoryFailed) -> None:
    """Set the problem as its state; only a change to or from `empty` begins anew, as that is reachable."""
    row = db.execute("SELECT state FROM repositories WHERE repository = ?", (body.repository,)).fetchone()
    if "empty" in (body.problem, row[0] if row else ""):
        db.execute(
            "UPDATE repositories SET failing_since = NULL, failing_told = 0 WHERE repository = ?",
            (body.repository,),
        )
    since = None if body.problem == "empty" else event.recorded_at
    db.execute(
        "UPDATE repositories SET state = ?, reason = ?, remedy = ?, failing_since = coalesce(failing_since, ?) "
        "WHERE repository = ?",
        (body.problem, body.reason, body.remedy, since, body.repository),
    )


def repository_failing(db: sqlite3.Connection, _event: StoredEvent, body: RepositoryFailing) -> None:
    """Record that its failing was reported."""
    db.execute("UPDATE repositories SET failing_told = 1 WHERE repository = ?", (body.repository,))


def repository_recovered(db: sqlite3.Connection, _event: StoredEvent, body: RepositoryRecovered) -> None:
    """Clear the problem."""
    db.execute(
        "UPDATE repositories SET state = 'ok', reason = '', remedy = '', failing_since = NULL, failing_told = 0, "
        "replaced_by = NULL "
        "WHERE repository = ?",
        (body.repository,),
    )


def repository_renamed(db: sqlite3.Connection, _event: StoredEvent, body: RepositoryRenamed) -> None:
    """Follow it to its new address, under its old key."""
    db.execute(
        "UPDATE repositories SET url = ?, forge_id = coalesce(?, forge_id) WHERE repository = ?",
        (body.new_url, body.forge_id, body.repository),
    )


def repository_identified(db: sqlite3.Connection, _event: StoredEvent, body: RepositoryIdentified) -> None:
    """Take the number for its own."""
    db.execute(
        "UPDATE repositories SET forge_id = ?, private = ?, replaced_by = NULL WHERE repository = ?",
        (body.forge_id, int(body.private), body.repository),
    )


def repository_replaced(db: sqlite3.Connection, event: StoredEvent, body: RepositoryReplaced) -> None:
    """Set it as its state, with the number for a person to accept."""
    db.execute(
        "UPDATE repositories SET state = 'replaced', reason = ?, remedy = ?, replaced_by = ?, "
        "failing_since = coalesce(failing_since, ?) WHERE repository = ?",
        (body.reason, body.remedy, body.forge_id, event.recorded_at, body.repository),
    )


def repository_archived(db: sqlite3.Connection, _event: StoredEvent, body: RepositoryArchived) -> None:
    """Mark it as archived, or as open again."""
    db.execute(
        "UPDATE repositories SET archived = ? WHERE repository = ?", (int(body.archived), body.repository)
    )


def branch_created(db: sqlite3.Connection, _event: StoredEvent, body: BranchCreated) -> None:
    """Add a branch, or bring a deleted one back; its earlier scan stays the base of the next one."""
    upsert(
        db,
        "branches",
        key={"repository": body.repository, "branch": body.branch},
        values={"state": "live", "tip": body.tip},
        once=_NEW_BRANCH,
    )
    db.execute(
        "UPDATE repositories SET state = CASE state WHEN 'new' THEN 'ok' ELSE state END, "
        "default_branch = CASE WHEN ? THEN ? ELSE default_branch END WHERE repository = ?",
        (int(body.is_default), body.branch, body.repository),
    )


def branch_rewritten(db: sqlite3.Connection, _event: StoredEvent, body: BranchRewritten) -> None:
    """Drop the commits no longer on the branch: none of them is scanned any more.

    The event lists at most the newest thousand. If the list is full, everything observed after the merge base
    goes, or everything at all if the base was never observed: first-parent order has no branches.
    """
    where = (body.repository, body.branch)
    db.executemany(
        "UPDATE commits SET state = 'dropped' WHERE repository = ? AND branch = ? AND sha = ?",
        [(*where, sha) for sha in body.dropped],
    )
    if len(body.dropped) >= DROPPED_LIMIT:
        db.execute(
            "UPDATE commits SET state = 'dropped' WHERE repository = :repository AND branch = :branch AND seq > "
            "coalesce((SELECT seq FROM commits WHERE repository = :repository AND branch = :branch "
            "AND sha = :base), 0)",
            {"repository": body.repository, "branch": body.branch, "base": body.base},
        )
    db.execute(
        "UPDATE branches SET tip = ?, rewrites = rewrites + 1 WHERE repository = ? AND branch = ?",
        (body.new, *where),
    )


def branch_deleted(db: sqlite3.Connection, _event: StoredEvent, body: BranchDeleted) -> None:
    """Mark it; its files and sorries stay as last seen."""
    db.execute(
        "UPDATE branches SET state = 'deleted' WHERE repository = ? AND branch = ?",
        (body.repository, body.branch),
    )


def branch_unwatched(db: sqlite3.Connection, _event: StoredEvent, body: BranchUnwatched) -> None:
    """Mark it; its files and sorries stay as last seen."""
    db.execute(
        "UPDATE branches SET state = 'unwatched' WHERE repository = ? AND branch = ?",
        (body.repository, body.branch),
    )


def commit_observed(db: sqlite3.Connection, event: StoredEvent, body: CommitObserved) -> None:
    """Add a commit and move the tip. One dropped by a force-push and brought back by another is due again."""
    upsert(
        db,
        "commits",
        key={"repository": body.repository, "branch": body.branch, "sha": body.sha},
        values={
            "seq": event.seq,
            "parent": body.parents[0] if body.parents else None,
            "author": body.author,
            "subject": body.subject,
            "committed_at": utc_text(body.committed_at),
            "observed_at": event.recorded_at,
            "baseline": int(body.baseline),
            "state": "observed",
        },
        once={},
    )
    upsert(
        db,
        "branches",
        key={"repository": body.repository, "branch": body.branch},
        values={"tip": body.sha},
        once={"state": "live", **_NEW_BRANCH},
    )
