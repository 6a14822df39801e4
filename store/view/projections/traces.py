"""Traces: each file's facts, once for each content, and each path's content on a line through time.

Rows of a commit with an unclosed trace are in the tables like all others; nothing reaches them, as queries
begin at `traces`, and a trace lists only the files on its line at its closing.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from store.domain.identity import split_key
from store.domain.records import ConstantUse, TracedFile, TracedTheorem, holds_sorry
from store.events.traces import (
    CommitTraced,
    FileTraced,
    SorryStated,
    TracedFileRemoved,
    TraceMeasured,
    TraceWithdrawn,
)
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from store.view.projections.rows import as_json, payload, upsert
from store.view.projections.sorries import add_step


def file_traced(db: sqlite3.Connection, event: StoredEvent, body: FileTraced, log: LogReader) -> None:
    """Record a path's content from here on; read the payload if the content is new."""
    digest = body.trace.sha256
    row = db.execute("SELECT content FROM traced_contents WHERE sha256 = ?", (digest,)).fetchone()
    if row is None:
        content = event.seq
        _add_content(db, content, digest, TracedFile.from_json(payload(log, digest)))
    else:
        content = row[0]
    where = (body.repository, body.line, body.path)
    standing = db.execute(
        "SELECT from_seq, content, error, key FROM traced_files "
        "WHERE repository = ? AND line = ? AND path = ? AND +until_seq IS NULL",  # by its key, see _close
        where,
    ).fetchone()
    if standing is not None:
        if (standing[1], standing[2]) == (content, body.error):
            if standing[3] != body.key:  # its dependencies changed, Lean's facts did not
                db.execute(
                    "UPDATE traced_files SET key = ? WHERE repository = ? AND line = ? AND path = ? AND from_seq = ?",
                    (body.key, *where, standing[0]),
                )
            return
        _close(db, where, event.seq)
    db.execute(
        "INSERT INTO traced_files (repository, line, path, from_seq, until_seq, content, sha, error, key) "
        "VALUES (?, ?, ?, ?, NULL, ?, ?, ?, ?)",
        (*where, event.seq, content, body.sha, body.error, body.key),
    )


def traced_file_removed(db: sqlite3.Connection, event: StoredEvent, body: TracedFileRemoved) -> None:
    """Record the end of a path on its line."""
    _close(db, (body.repository, body.line, body.path), event.seq)


def commit_traced(db: sqlite3.Connection, event: StoredEvent, body: CommitTraced) -> None:
    """Close a commit's trace. The same trace again is the newer one, and counts even after a withdrawal."""
    upsert(
        db,
        "traces",
        key={"trace": body.trace},
        values={
            "repository": body.repository,
            "line": body.line,
            "sha": body.sha,
            "seq": event.seq,
            "state": "current",
            "url": body.url,
            "name": body.name,
            "lean_version": body.lean_version,
            "tracer": body.tracer,
            "tracer_version": body.tracer_version,
            "source": body.source,
            "pr_url": body.pr_url,
            "metadata_json": as_json(body.metadata),
            "manifest_sha256": None if body.manifest is None else body.manifest.sha256,
            "files_traced": body.files_traced,
            "files_failed": body.files_failed,
            "n_theorems": body.n_theorems,
            "n_premises": body.n_premises,
            "n_tactics": body.n_tactics,
            "traced_at": event.recorded_at,
        },
        once={},
    )


def trace_measured(db: sqlite3.Connection, event: StoredEvent, body: TraceMeasured) -> None:
    """Record the completeness of a line's trace; the gaps are with its files' contents."""
    upsert(
        db,
        "trace_measures",
        key={"repository": body.repository, "line": body.line},
        values={
            "trace": body.trace,
            "sha": body.sha,
            "seq": event.seq,
            "files_seen": body.files_seen,
            "files_traced": body.files_traced,
            "theorems_seen": body.theorems_seen,
            "theorems_traced": body.theorems_traced,
            "tactics_seen": body.tactics_seen,
            "tactics_traced": body.tactics_traced,
            "n_dependencies": body.n_dependencies,
            "gaps_json": as_json(body.gaps),
            "measured_at": event.recorded_at,
        },
        once={},
    )


def sorry_stated(db: sqlite3.Connection, event: StoredEvent, body: SorryStated) -> None:
    """Record the goal of a sorry, and the step in its history."""
    where = (body.repository, body.branch, body.sorry)
    upsert(
        db,
        "sorry_goals",
        key={"repository": body.repository, "branch": body.branch, "sorry": body.sorry},
        values={
            "goal": body.goal,
            "sha": body.sha,
            "statement_hash": body.statement_hash,
            "context_hash": body.context_hash,
            "stated_at": event.recorded_at,
        },
        once={},
    )
    detail = f"goal: {_one_line(body.goal)}"
    if body.before is not None:
        why = ", its own text is the same" if body.same_text else ""
        detail = f"goal: {_one_line(body.before)} -> {_one_line(body.goal)}{why}"
    add_step(db, event, where, "stated", body.sha, detail)


def _one_line(goal: str) -> str:
    return " ".join(goal.split())


def trace_withdrawn(db: sqlite3.Connection, _event: StoredEvent, body: TraceWithdrawn) -> None:
    """Leave a trace out of queries and exports."""
    db.execute("UPDATE traces SET state = 'withdrawn' WHERE trace = ?", (body.trace,))


def _close(db: sqlite3.Connection, where: tuple[str, str, str], seq: int) -> None:
    # With the plus by its key: SQLite would take `traced_files_now`, and read every present file of the line.
    db.execute(
        "UPDATE traced_files SET until_seq = ? WHERE repository = ? AND line = ? AND path = ? AND +until_seq IS NULL",
        (seq, *where),
    )


def _add_content(db: sqlite3.Connection, content: int, digest: str, file: TracedFile) -> None:
    db.execute(
        "INSERT INTO traced_contents (content, sha256, in_corpus, n_theorems, n_premises, n_tactics, seen_json, "
        "gaps_json) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            content,
            digest,
            int(file.in_corpus),
            len(file.theorems),
            len(file.premises),
            sum(len(theorem.tactics) for theorem in file.theorems),
            None if file.seen is None else as_json(file.seen.as_json()),
            as_json([gap.as_json() for gap in file.gaps]),
        ),
    )
    db.executemany(
        "INSERT INTO imports (content, position, path) VALUES (?, ?, ?)",
        [(content, position, path) for position, path in enumerate(file.imports)],
    )
    db.executemany(
        'INSERT INTO premises (content, "index", full_name, kind, code, line, "column", end_line, end_column) '
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (content, index, item.full_name, item.kind, item.code, *item.start, *item.end)
            for index, item in enumerate(file.premises)
        ],
    )
    db.executemany(
        'INSERT INTO traced_theorems (content, "index", full_name, statement, split_key, line, "column", end_line, '
        'end_column, n_tactics, has_sorry, url, "commit") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
        [_theorem_row(content, index, item) for index, item in enumerate(file.theorems)],
    )
    tactics = [
        (content, number, index, step)
        for number, theorem in enumerate(file.theorems)
        for index, step in enumerate(theorem.tactics)
    ]
    db.executemany(
        'INSERT INTO traced_tactics (content, theorem, "index", tactic, annotated, state_before, state_after) '
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*key, step.tactic, step.annotated, step.state_before, step.state_after) for *key, step in tactics],
    )
    db.executemany(
        "INSERT INTO tactic_premises (content, theorem, tactic, position, full_name, def_path, def_line, def_column, "
        "def_end_line, def_end_column) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (*key, position, use.full_name, use.def_path, *use.def_pos, *use.def_end_pos)
            for *key, step in tactics
            for position, use in enumerate(step.premises)
        ],
    )
    db.executemany(
        "INSERT INTO theorem_premises (content, theorem, position, full_name, def_path, def_line, def_column, "
        "def_end_line, def_end_column) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (content, number, position, use.full_name, *_site(use))
            for number, theorem in enumerate(file.theorems)
            for position, use in enumerate(theorem.premises)
        ],
    )
    db.executemany(
        "INSERT INTO theorem_types (content, theorem, position, digest, full_name, path, proved, proof) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (content, number, position, theorem.type, *one)
            for number, theorem in enumerate(file.theorems)
            if theorem.type
            for position, one in enumerate(_stating(file.path, theorem))
        ],
    )


def _stating(path: str, theorem: TracedTheorem) -> list[tuple[str, str, int, str]]:
    """Return name, file, whether proved, and proof, of a theorem and those with the same statement."""
    proved = int(not _has_sorry(theorem))
    alike = [(use.full_name, use.site[0], 1, "") for use in theorem.alike if use.site is not None]
    return [(theorem.full_name, path, proved, theorem.proof if proved else ""), *alike]


def _has_sorry(theorem: TracedTheorem) -> bool:
    return theorem.sorry or any(holds_sorry(step.tactic) for step in theorem.tactics)


def _site(use: ConstantUse) -> tuple[Any, ...]:
    if use.site is None:
        return (None,) * 5
    path, start, end = use.site
    return path, *start, *end


def _theorem_row(content: int, index: int, theorem: TracedTheorem) -> tuple[Any, ...]:
    return (
        content,
        index,
        theorem.full_name,
        theorem.statement,
        split_key(theorem.full_name, theorem.statement),
        *theorem.start,
        *theorem.end,
        len(theorem.tactics),
        int(_has_sorry(theorem)),
        theorem.url,
        theorem.commit,
    )
