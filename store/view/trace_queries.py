"""Queries of traces: files, tactics of theorems, imports, proofs to learn from.

Read-only and light, like `store.view.queries`, whose `connect` makes the connection. Only closed traces, not
withdrawn, are in the answers: a half-done import is in the tables and in no answer. Long answers are
iterators, with some hundred rows in memory; do not close the connection under them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from store.domain.splits import Side, Split, exported_side, files_of
from store.view.reading import columns, make_all
from store.view.rows import (
    FileOfTrace,
    GapRow,
    LineFile,
    MeasureRow,
    SorryGoalRow,
    TraceRow,
    TrainingProof,
)

if TYPE_CHECKING:
    from store.domain.records import TracedTactic

Row = TypeVar("Row")

_CHUNK = 500

_FILES_OF_TRACE = (
    f"traces CROSS JOIN traced_files ON {files_of()} AND traces.trace = ? AND traces.state = 'current'"
)


def traces(
    db: sqlite3.Connection, *, repository: str | None = None, state: str | None = "current"
) -> list[TraceRow]:
    """Return the closed traces, the newest first. `state`: "current", "withdrawn", or None for both."""
    return make_all(
        TraceRow,
        db.execute(
            f"SELECT {_names(TraceRow, 'traces')} FROM traces "
            "WHERE (:repository IS NULL OR repository = :repository) AND (:state IS NULL OR state = :state) "
            "ORDER BY seq DESC",
            {"repository": repository, "state": state},
        ),
    )


def newest_traces(db: sqlite3.Connection) -> list[TraceRow]:
    """Return the newest trace of each repository, by repository."""
    return make_all(
        TraceRow,
        db.execute(
            f"SELECT {_names(TraceRow, 'traces')} FROM traces WHERE seq IN (SELECT max(seq) FROM traces "
            "WHERE state = 'current' GROUP BY repository) ORDER BY repository"
        ),
    )


def newest_trace(db: sqlite3.Connection, repository: str) -> TraceRow | None:
    """Return the newest trace of a repository."""
    rows = db.execute(
        f"SELECT {_names(TraceRow, 'traces')} FROM traces WHERE repository = ? AND state = 'current' "
        "ORDER BY seq DESC LIMIT 1",
        (repository,),
    )
    return next(iter(make_all(TraceRow, rows)), None)


def trace_of_branch(db: sqlite3.Connection, repository: str, branch: str) -> TraceRow | None:
    """Return the newest trace of a branch's lines or of its scanned commit."""
    rows = db.execute(
        f"SELECT {_names(TraceRow, 'traces')} FROM traces WHERE repository = :repository AND state = 'current' "
        "AND (line = :line OR substr(line, 1, length(:line) + 1) = :line || ':' "
        "OR sha = (SELECT scanned FROM branches "
        "WHERE repository = :repository AND branch = :branch)) ORDER BY seq DESC LIMIT 1",
        {
            "repository": repository,
            "branch": branch,
            "line": branch_line(branch),
        },
    )
    return next(iter(make_all(TraceRow, rows)), None)


def gaps_of_trace(db: sqlite3.Connection, trace: str) -> list[GapRow]:
    """Return the gaps of a trace, each with its reason, by path."""
    rows = db.execute(
        "SELECT traced_files.path, json_extract(gap.value, '$[0]'), json_extract(gap.value, '$[1]'), "
        f"json_extract(gap.value, '$[2]') FROM {_FILES_OF_TRACE} "
        "CROSS JOIN traced_contents ON traced_contents.content = traced_files.content "
        "CROSS JOIN json_each(traced_contents.gaps_json) AS gap ORDER BY traced_files.path, gap.key",
        (trace,),
    )
    return make_all(GapRow, rows)


def files_of_trace(db: sqlite3.Connection, trace: str) -> Iterator[FileOfTrace]:
    """Yield the files of a traced commit, by path."""
    return _stream(
        db,
        FileOfTrace,
        f"SELECT {_names(FileOfTrace, 'traced_files')} FROM {_FILES_OF_TRACE} ORDER BY traced_files.path",
        (trace,),
    )


def imports_of(db: sqlite3.Connection, content: int) -> list[str]:
    """Return a file's direct imports, in the order of its source."""
    rows = db.execute("SELECT path FROM imports WHERE content = ? ORDER BY position", (content,))
    return [row[0] for row in rows]


def tactics_of_theorem(db: sqlite3.Connection, content: int, index: int) -> list[TracedTactic]:
    """Return a proof's steps in order, each with its named premises; empty for a proof by a term.

    An import's unknown keys (`extra`) are in the log's payload alone and not here.
    """
    from store.domain.records import (
        PremiseUse,
        TracedTactic,
    )  # useless for the completeness of a trace

    used = {
        number: tuple(PremiseUse(name, path, (a, b), (c, d)) for _, name, path, a, b, c, d in rows)
        for number, rows in groupby(
            db.execute(
                "SELECT tactic, full_name, def_path, def_line, def_column, def_end_line, def_end_column "
                "FROM tactic_premises WHERE content = ? AND theorem = ? ORDER BY tactic, position",
                (content, index),
            ),
            key=lambda row: row[0],
        )
    }
    return [
        TracedTactic(tactic, annotated, used.get(number, ()), before, after)
        for number, tactic, annotated, before, after in db.execute(
            'SELECT "index", tactic, annotated, state_before, state_after FROM traced_tactics '
            'WHERE content = ? AND theorem = ? ORDER BY "index"',
            (content, index),
        )
    ]


def training_proofs(
    db: sqlite3.Connection,
    split: Split,
    side: Side,
    *,
    traces: Sequence[str] | None = None,
) -> Iterator[TrainingProof]:
    """Yield the tactic proofs of the theorems on one side of a split.

    Of the given traces (ids), or of the newest trace of each repository. Without the split's withheld
    theorems (see `store.domain.splits`) and proofs with a sorry. A version of a file shared by several traces
    is read once.
    """
    chosen = traces if traces is not None else [row.trace for row in newest_traces(db)]
    condition = "AND traces.trace IN (SELECT value FROM json_each(:traces))"
    theorems = db.execute(
        f'SELECT t.content, t."index", t.full_name, t.split_key, {_path("t")} FROM traced_theorems AS t '
        f"WHERE t.n_tactics > 0 AND t.has_sorry = 0 AND {_stands('t', condition)} "
        f'AND {exported_side(split, theorem="t")} = :side ORDER BY t.content, t."index"',
        {"traces": json.dumps(list(chosen)), "side": side},
    )
    for content, index, name, split_key, path in theorems:
        yield TrainingProof(path, name, split_key, tuple(tactics_of_theorem(db, content, index)))


def _stands(table: str, also: str = "") -> str:
    """Return an SQL condition: a valid trace has this row's version of its file."""
    return (
        f"EXISTS (SELECT 1 FROM traced_files AS f CROSS JOIN traces ON {files_of(files='f')} "
        f"WHERE f.content = {table}.content AND traces.state = 'current' {also})"
    )


def _path(table: str) -> str:
    # A payload holds its file's path: all its files have the same one.
    return f"(SELECT path FROM traced_files AS f WHERE f.content = {table}.content LIMIT 1)"


def _names(cls: type[Any], table: str, *, path: str | None = None) -> str:
    # Quoted, as `index` and `column` are words of SQL.
    return ", ".join(
        path if path is not None and name == "path" else f'{table}."{name}"' for name in columns(cls)
    )


def _stream(db: sqlite3.Connection, cls: type[Row], statement: str, parameters: Any) -> Iterator[Row]:
    rows = db.execute(statement, parameters)
    while chunk := rows.fetchmany(_CHUNK):
        yield from make_all(cls, chunk)


def branch_line(branch: str, project: str = "") -> str:
    """Return the line of our own traces of a branch, of the Lake project in this folder."""
    return (
        f"branch:{branch}:{project}" if project else f"branch:{branch}"
    )  # no branch has a colon in its name


def place_of_line(line: str) -> tuple[str, str]:
    """Return the branch and the Lake project's folder of a line of our own traces."""
    branch, _, project = line.removeprefix(branch_line("")).partition(":")
    return branch, project


def newest_measures(db: sqlite3.Connection) -> list[MeasureRow]:
    """Return the completeness of the newest trace of each line, by repository and line."""
    return make_all(
        MeasureRow,
        db.execute(
            f"SELECT {', '.join(columns(MeasureRow))} FROM trace_measures AS m WHERE seq = (SELECT max(seq) FROM "
            "trace_measures WHERE repository = m.repository AND line = m.line) ORDER BY repository, line"
        ),
    )


def line_files(db: sqlite3.Connection, repository: str, line: str) -> list[LineFile]:
    """Return the present files of a line, by path: also those of a commit with an unclosed trace."""
    names = {
        "path": "f.path",
        "key": "f.key",
        "error": "f.error",
        "seen": "c.seen_json",
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
    """Return the position of the last event that changed a line or closed a commit on it; 0 for none."""
    # Not `traces`: a commit on two branches is one trace, on the line of its last closing. For ended versions
    # of files, the beginning does not matter.
    return int(
        db.execute(
            "SELECT max(coalesce((SELECT max(from_seq) FROM traced_files WHERE repository = :repository "
            "AND line = :line AND until_seq IS NULL), 0), "
            "coalesce((SELECT max(until_seq) FROM traced_files WHERE repository = :repository "
            "AND line = :line), 0), "
            "coalesce((SELECT max(seq) FROM trace_measures WHERE repository = :repository "
            "AND line = :line), 0))",
            {"repository": repository, "line": line},
        ).fetchone()[0]
    )


def sorry_goals(
    db: sqlite3.Connection,
    *,
    repository: str | None = None,
    branch: str | None = None,
    sorry: str | None = None,
) -> list[SorryGoalRow]:
    """Return Lean's last goals of sorries, by repository, branch and sorry, without unknown ones."""
    return make_all(
        SorryGoalRow,
        db.execute(
            f"SELECT {', '.join(columns(SorryGoalRow))} FROM sorry_goals "
            "WHERE (:repository IS NULL OR repository = :repository) AND (:branch IS NULL OR branch = :branch) "
            "AND (:sorry IS NULL OR sorry = :sorry) ORDER BY repository, branch, sorry",
            {"repository": repository, "branch": branch, "sorry": sorry},
        ),
    )
