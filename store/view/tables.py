"""The tables of database.db, the view of the log: made of schema.sql, which `store.view.table_models` declares.

The fingerprint tells a view of this version from any other, and one that differs is made anew from the log.
"""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

PROJECTION = "view"
PROJECTION_VERSION = 1
"""Raise it when a projection changes what it writes without a change of tables."""

NOT_PROJECTED = frozenset({"poll_states", "view_position"})
"""Tables whose rows do not follow from the log (see their models' docstrings)."""

SCHEMA = Path(__file__).with_name("schema.sql")


class Table(NamedTuple):
    """A table: its columns in their order, and its primary key in key order."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


@cache
def statements() -> tuple[str, ...]:
    """Return the statements that make an empty view."""
    text = SCHEMA.read_text(encoding="utf-8").partition("\n\n")[2]
    return tuple(statement.strip() for statement in text.split(";\n") if statement.strip())


@cache
def table_list() -> tuple[Table, ...]:
    """Return all tables of the view, by name."""
    with closing(sqlite3.connect(":memory:")) as empty:
        for statement in statements():
            empty.execute(statement)
        names = [
            name
            for (name,) in empty.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")
        ]
        return tuple(_table(empty, name) for name in names)


def _table(connection: sqlite3.Connection, name: str) -> Table:
    found = connection.execute("SELECT name, pk FROM pragma_table_info(?) ORDER BY cid", (name,)).fetchall()
    keys = sorted((place, column) for column, place in found if place)
    return Table(name, tuple(column for column, _ in found), tuple(column for _, column in keys))


@cache
def fingerprint() -> int:
    """Return a number (31 bits, for `user_version`) that changes with the tables and the projections."""
    whole = "\n".join((*statements(), str(PROJECTION_VERSION)))
    return zlib.crc32(whole.encode()) & 0x7FFF_FFFF or 1


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
