"""The questions about lines: what a branch has been traced to, how complete that is, what a trace job needs to go on.

A line is what traces follow one another on (`store.trace_events`). Unlike in `store.trace_queries`, what counts here is
also the part of a commit that was traced before it was closed: a job that is started again goes on from there.
Read-only and light, like `store.queries`, whose `connect` makes the connection.
"""

from __future__ import annotations

import sqlite3
from dataclasses import fields
from typing import Any

from store.queries import sorries
from store.rows import columns, make_all
from store.trace_rows import LineFile, MeasureRow, SorryGoalRow

_STATED = (
    "sorry", "path", "blob", "declaration", "ordinal", "mode", "byte_start", "byte_end", "statement_hash",
    "context_hash",
)  # fmt: skip


def branch_line(branch: str) -> str:
    """Return the line of our own traces of a branch."""
    return f"branch:{branch}"


def newest_measures(db: sqlite3.Connection) -> list[MeasureRow]:
    """Return how complete the newest trace of each line is, by repository and line; simulated ones among them."""
    return make_all(
        MeasureRow,
        db.execute(
            f"SELECT {', '.join(columns(MeasureRow))} FROM trace_measures AS m WHERE seq = (SELECT max(seq) FROM "
            "trace_measures WHERE repository = m.repository AND line = m.line) ORDER BY repository, line"
        ),
    )


def closed_by_other(db: sqlite3.Connection, *, repository: str, branch: str, simulated: bool) -> int:
    """Return the log position at which the other tracer (of Lean and the simulator) last closed a commit of a branch;
    0 for never."""
    row = db.execute(
        "SELECT max(seq) FROM trace_measures WHERE repository = ? AND line = ? AND simulated <> ?",
        (repository, branch_line(branch), int(simulated)),
    ).fetchone()
    return row[0] or 0


def line_files(db: sqlite3.Connection, repository: str, line: str) -> list[LineFile]:
    """Return the files that a line has now, by path: also those of a commit whose trace was not closed yet."""
    names = {
        "path": "f.path",
        "key": "f.key",
        "error": "f.error",
        "seen": "coalesce(c.seen_json, 'null')",
        "gaps": "c.gaps_json",
    }
    return make_all(
        LineFile,
        db.execute(
            f"SELECT {', '.join(names.get(f.name, f'c.{f.name}') for f in fields(LineFile))} "
            "FROM traced_files AS f JOIN traced_contents AS c ON c.content = f.content "
            "WHERE f.repository = ? AND f.line = ? AND f.until_seq IS NULL ORDER BY f.path",
            (repository, line),
        ),
    )


def line_position(db: sqlite3.Connection, repository: str, line: str) -> int:
    """Return the log position of the last event that changed a line or closed a commit on it; 0 for none."""
    # Not `traces`: a commit that two branches have is one trace, and stands on the line that closed it last. Of the
    # files' versions those that ended need no look at where they began.
    return int(
        db.execute(
            "SELECT max(coalesce((SELECT max(from_seq) FROM traced_files WHERE repository = ?1 AND line = ?2 "
            "AND until_seq IS NULL), 0), "
            "coalesce((SELECT max(until_seq) FROM traced_files WHERE repository = ?1 AND line = ?2), 0), "
            "coalesce((SELECT max(seq) FROM trace_measures WHERE repository = ?1 AND line = ?2), 0))",
            (repository, line),
        ).fetchone()[0]
    )


def sorry_goals(
    db: sqlite3.Connection,
    *,
    repository: str | None = None,
    branch: str | None = None,
    sorry: str | None = None,
) -> list[SorryGoalRow]:
    """Return what Lean last said of sorrys, by repository, branch and sorry; of those where it said something."""
    return make_all(
        SorryGoalRow,
        db.execute(
            f"SELECT {', '.join(columns(SorryGoalRow))} FROM sorry_goals WHERE (?1 IS NULL OR repository = ?1) "
            "AND (?2 IS NULL OR branch = ?2) AND (?3 IS NULL OR sorry = ?3) ORDER BY repository, branch, sorry",
            (repository, branch, sorry),
        ),
    )


def trace_parameters(db: sqlite3.Connection, *, repository: str, branch: str) -> dict[str, Any]:
    """Return what a trace job needs of the view at the moment that it starts.

    `known` maps each path of the line to what it was traced under and what it holds.
    """
    line = branch_line(branch)
    files = line_files(db, repository, line)
    goals = {row.sorry: row for row in sorry_goals(db, repository=repository, branch=branch)}
    rows = sorries(db, repository=repository, branch=branch)
    return {
        "line": line,
        "after": line_position(db, repository, line),
        "known": {
            file.path: {
                "key": file.key,
                "theorems": file.n_theorems,
                "premises": file.n_premises,
                "tactics": file.n_tactics,
                "failed": file.error is not None,
                "seen": file.seen,
                "gaps": file.gaps,
            }
            for file in files
        },
        "sorries": [
            {
                **{name: getattr(row, name) for name in _STATED},
                "stated": None if row.sorry not in goals else _stated(goals[row.sorry]),
            }
            for row in rows
            if row.state in ("open", "verified")
        ],
    }


def _stated(row: SorryGoalRow) -> dict[str, Any]:
    names = ("goal", "statement_hash", "context_hash", "simulated")
    return {name: getattr(row, name) for name in names}
