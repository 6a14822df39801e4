"""What the view has of a trace, theorem by theorem and premise by premise, for tests to compare."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from store.view.reading import columns, make_all
from store.view.rows import PremiseRow, TracedTheoremRow, TraceRow
from store.view.trace_queries import files_of_trace, traces

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class TheoremOfTrace(TracedTheoremRow):
    """A theorem of a trace and the path of its file."""

    path: str


@dataclass(frozen=True, slots=True)
class PremiseOfTrace(PremiseRow):
    """A declaration that proofs may use and the path of its file."""

    path: str


def trace_of(db: sqlite3.Connection, trace: str) -> TraceRow:
    """Return a closed trace by its id, withdrawn or not."""
    (row,) = (row for row in traces(db, state=None) if row.trace == trace)
    return row


def theorems_of_trace(db: sqlite3.Connection, trace: str) -> list[TheoremOfTrace]:
    """Return the theorems of a traced commit, by path and place."""
    return [*_in_files(db, TheoremOfTrace, "traced_theorems", trace)]


def premises_of_trace(db: sqlite3.Connection, trace: str) -> list[PremiseOfTrace]:
    """Return the premises of a traced commit, by path and place."""
    return [*_in_files(db, PremiseOfTrace, "premises", trace)]


def _in_files(db: sqlite3.Connection, cls: type[Row], table: str, trace: str) -> Iterator[Row]:
    names = ", ".join(":path" if name == "path" else f'"{name}"' for name in columns(cls))
    for file in files_of_trace(db, trace):
        rows = db.execute(
            f'SELECT {names} FROM {table} WHERE content = :content ORDER BY "index"',
            {"path": file.path, "content": file.content},
        )
        yield from make_all(cls, rows)
