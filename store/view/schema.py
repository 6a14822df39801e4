"""The DDL of database.db, made from the SQLModel classes of `store.view.tables`.

SQLAlchemy compiles the statements; STRICT is ours to add. The fingerprint tells a view of this version from any
other, and one that differs is made anew from the log.
"""

from __future__ import annotations

import sqlite3
import zlib
from functools import cache

from sqlalchemy import Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlmodel import SQLModel

from store.view import tables

PROJECTION = "view"
PROJECTION_VERSION = 1
"""Raise it when a projection changes what it writes without a change of tables."""

NOT_PROJECTED = frozenset({tables.PollState.__tablename__, tables.ViewPosition.__tablename__})
"""Tables whose rows do not follow from the log (see their docstrings)."""


@cache
def table_list() -> tuple[Table, ...]:
    """Return all tables of the view, by name."""
    named = {cls.__tablename__ for cls in SQLModel.__subclasses__() if cls.__module__ == tables.__name__}
    return tuple(table for name, table in sorted(SQLModel.metadata.tables.items()) if name in named)


def key_columns(table: Table) -> tuple[str, ...]:
    """Return the primary key's columns, in key order."""
    return tuple(column.name for column in table.primary_key.columns)


@cache
def statements() -> tuple[str, ...]:
    """Return the statements that make an empty view."""
    dialect = sqlite.dialect()
    made = []
    for table in table_list():
        statement = str(CreateTable(table).compile(dialect=dialect)).strip()
        made.append(f"{statement}, STRICT" if statement.endswith("WITHOUT ROWID") else f"{statement} STRICT")
        indices = sorted(table.indexes, key=lambda index: index.name or "")
        made.extend(str(CreateIndex(index).compile(dialect=dialect)).strip() for index in indices)
    return tuple(made)


@cache
def fingerprint() -> int:
    """Return a number (31 bits, for `user_version`) that changes with the tables and the projections."""
    text = "\n".join((*statements(), str(PROJECTION_VERSION)))
    return zlib.crc32(text.encode()) & 0x7FFF_FFFF or 1


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty view, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements():
            connection.execute(statement)
        connection.execute(
            "INSERT INTO view_position (projection, version, seq, event_id, stopped_reason) VALUES (?, ?, 0, '', '')",
            (PROJECTION, PROJECTION_VERSION),
        )
        connection.execute(f"PRAGMA user_version = {fingerprint()}")
        connection.execute("COMMIT")
    except BaseException:
        # After a disk error SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
