"""Scanned sources: files, their declarations, counts by kind, and the numbers of the time before.

A branch's rows are those of its newest scanned commit. The scan of one commit is one batch in the log, or it
begins with `scan_begun`: then its events change no row before the closing one: nobody sees half a scan.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from store.domain.identity import theorem_id
from store.domain.records import ScannedFile
from store.events.scans import (
    CommitScanned,
    FileRemoved,
    FileScanned,
    PastCounted,
    PastListed,
    ScanBegun,
    SorryEvent,
    TheoremsFollowed,
)
from store.log.envelope import StoredEvent, utc_text
from store.log.reader import LogReader
from store.view.projections.rows import as_json, upsert

SCAN_EVENTS = (FileScanned, FileRemoved, SorryEvent, TheoremsFollowed)
_TYPES = frozenset(
    {
        "file_scanned",
        "file_removed",
        "sorry_opened",
        "sorry_moved",
        "sorry_changed",
        "sorry_filled",
        "sorry_removed",
        "theorems_followed",
    }
)
_BRANCH = "repository = ? AND branch = ?"


def scan_begun(db: sqlite3.Connection, event: StoredEvent, body: ScanBegun) -> None:
    """Record the open scan attempt; events of earlier attempts are ignored."""
    upsert(
        db,
        "unfinished_scans",
        key={"repository": body.repository, "branch": body.branch},
        values={"attempt": event.causation_id or "", "version": event.version},
        once={},
    )


def waits(
    db: sqlite3.Connection,
    event: StoredEvent,
    body: FileScanned | FileRemoved | SorryEvent | TheoremsFollowed,
) -> bool:
    """Return whether an event is part of an unclosed scan."""
    where = (body.repository, body.branch, event.causation_id or "")
    result = db.execute(f"SELECT 1 FROM unfinished_scans WHERE {_BRANCH} AND attempt = ?", where)
    return result.fetchone() is not None


def waiting(
    db: sqlite3.Connection, event: StoredEvent, body: CommitScanned, log: LogReader
) -> Iterator[StoredEvent]:
    """Yield the waiting events of the scan closed by this event, if it was recorded in parts."""
    where = (body.repository, body.branch)
    row = db.execute(f"SELECT attempt, version FROM unfinished_scans WHERE {_BRANCH}", where).fetchone()
    if row is None:
        return
    db.execute(f"DELETE FROM unfinished_scans WHERE {_BRANCH}", where)
    attempt, version = row
    if attempt != (event.causation_id or ""):
        return
    for one in log.read_stream(event.stream, from_version=version + 1):
        if one.version >= event.version:
            return
        if one.type in _TYPES and one.causation_id == event.causation_id:
            yield one


def file_scanned(db: sqlite3.Connection, _event: StoredEvent, body: FileScanned, scan: ScannedFile) -> None:
    """Replace all facts of a file by its new scan."""
    where = (body.repository, body.branch, body.path)
    upsert(
        db,
        "files",
        key={"repository": body.repository, "branch": body.branch, "path": body.path},
        values={
            "blob": body.blob,
            "sha": body.sha,
            "error": body.error,
            "imports_json": as_json(scan.imports),
            "n_declarations": body.n_declarations,
            "n_sorries": body.n_sorries,
            "exercise_words": body.exercise_words,
            "declarations_taken": body.declarations_taken,
            "sorries_taken": body.sorries_taken,
            "marked_json": as_json(body.marked),
        },
        once={},
    )
    before = _forget_declarations(db, where)
    theorems = {(name, statement_hash): theorem for _, name, statement_hash, theorem in before}
    sorries: dict[int, int] = {}
    for sorry in scan.sorries:
        sorries[sorry.index] = sorries.get(sorry.index, 0) + 1
    db.executemany(
        'INSERT INTO declarations (repository, branch, path, "index", theorem, name, kind, statement, '
        'statement_hash, text_hash, line, "column", end_line, end_column, n_sorries) '
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                *where,
                index,
                theorems.get((item.name, item.statement_hash))
                or theorem_id(body.repository, item.name, item.statement_hash),
                item.name,
                item.kind,
                item.statement,
                item.statement_hash,
                item.text_hash,
                item.line,
                item.column,
                item.end_line,
                item.end_column,
                sorries.get(index, 0),
            )
            for index, item in enumerate(scan.declarations)
        ],
    )
    _tally(db, where, (row[0] for row in before), (declaration.kind for declaration in scan.declarations))


def file_removed(db: sqlite3.Connection, _event: StoredEvent, body: FileRemoved) -> None:
    """Forget a file and its declarations; its sorries have events of their own."""
    where = (body.repository, body.branch, body.path)
    before = _forget_declarations(db, where)
    db.execute("DELETE FROM files WHERE repository = ? AND branch = ? AND path = ?", where)
    _tally(db, where, (row[0] for row in before), ())


def commit_scanned(db: sqlite3.Connection, event: StoredEvent, body: CommitScanned) -> None:
    """Close a commit. One dropped during its scan stays dropped, but its files are the present ones."""
    db.execute(
        "UPDATE commits SET state = CASE state WHEN 'dropped' THEN state ELSE 'scanned' END, "
        "files_scanned = ?, files_failed = ?, seconds = ? WHERE repository = ? AND branch = ? AND sha = ?",
        (body.files_scanned, body.files_failed, body.seconds, body.repository, body.branch, body.sha),
    )
    db.execute(
        "UPDATE branches SET scanned = ?, scanned_seq = ?, scanned_include_json = ?, scanned_exclude_json = ?, "
        "projects_json = ?, challenges_json = ? WHERE repository = ? AND branch = ?",
        (
            body.sha,
            event.seq,
            as_json(body.include),
            as_json(body.exclude),
            as_json([asdict(project) for project in body.projects]),
            as_json(body.challenges),
            body.repository,
            body.branch,
        ),
    )


def past_listed(db: sqlite3.Connection, event: StoredEvent, body: PastListed) -> None:
    """Add the commits to count; no committer's clock is ahead of ours."""
    db.executemany(
        "INSERT INTO past_commits (repository, branch, sha, committed_at, begins) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        [
            (
                body.repository,
                body.branch,
                commit.sha,
                min(utc_text(commit.committed_at), event.recorded_at),
                commit.begins,
            )
            for commit in body.commits
        ],
    )


def past_counted(db: sqlite3.Connection, _event: StoredEvent, body: PastCounted) -> None:
    """Record the number of a commit's sorries."""
    db.execute(
        f"UPDATE past_commits SET sorries = ? WHERE {_BRANCH} AND sha = ?",
        (body.sorries, body.repository, body.branch, body.sha),
    )


def _forget_declarations(
    db: sqlite3.Connection, where: tuple[str, str, str]
) -> list[tuple[str, str, str, str]]:
    """Remove a file's declarations; return the kind, name, statement's hash and identity of each."""
    rows = db.execute(
        "SELECT kind, name, statement_hash, theorem FROM declarations "
        "WHERE repository = ? AND branch = ? AND path = ?",
        where,
    ).fetchall()
    if rows:
        db.execute("DELETE FROM declarations WHERE repository = ? AND branch = ? AND path = ?", where)
    return rows


def _tally(
    db: sqlite3.Connection, where: tuple[str, str, str], before: Iterable[str], now: Iterable[str]
) -> None:
    before, now = sorted(before), sorted(now)
    if before == now:
        return
    difference = Counter(now)
    difference.subtract(before)
    repository, branch, _ = where
    db.executemany(
        "INSERT INTO tallies (repository, branch, kind, declarations) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (repository, branch, kind) DO UPDATE SET declarations = declarations + excluded.declarations",
        [(repository, branch, kind, number) for kind, number in difference.items() if number],
    )
    db.execute(
        "DELETE FROM tallies WHERE repository = ? AND branch = ? AND declarations = 0", (repository, branch)
    )
