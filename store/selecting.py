"""How a table of the view is read: its rows as row objects, in an order that is always the same.

Table and column names and orders are the caller's own words and never a person's; values are bound.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, TypeVar

from store.rows import columns, make_all

Row = TypeVar("Row")


def select(cls: type[Any], table: str) -> str:
    """Return the statement's beginning: the columns that make a row object, out of a table."""
    # Quoted, for `index` and `column` are words of SQL; with the table, for two questions join others to it.
    names = [f'{table}."{name}"' for name in columns(cls)]
    return f"SELECT {', '.join(names)} FROM {table}"


def read(
    db: sqlite3.Connection,
    cls: type[Row],
    table: str,
    *,
    equal: dict[str, str | None] | None = None,
    conditions: Sequence[str] = (),
    parameters: Sequence[Any] = (),
    order: str = "1",
    limit: int | None = None,
    offset: int = 0,
) -> list[Row]:
    """Return a table's rows.

    Args:
        equal: what columns have to be; None means any.
        conditions, parameters: further ones, and the values of their question marks.
    """
    given = {name: value for name, value in (equal or {}).items() if value is not None}
    clauses = [*(f"{name} = ?" for name in given), *conditions]
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    statement = f"{select(cls, table)}{where} ORDER BY {order} LIMIT ? OFFSET ?"
    bound = (*given.values(), *parameters, -1 if limit is None else limit, offset)
    return make_all(cls, db.execute(statement, bound))


def by_prefix(db: sqlite3.Connection, cls: type[Row], table: str, key: str, prefix: str) -> list[Row]:
    """Return the rows whose key starts so."""
    # A range, and not LIKE: the prefix may hold any character, and the key's index serves it.
    conditions = [f"{key} >= ?", f"substr({key}, 1, ?) = ?"]
    return read(db, cls, table, conditions=conditions, parameters=[prefix, len(prefix), prefix], order=key)


def named_so(name: str) -> str:
    """Return the condition on a column `name`: one with `*`, `?` or `[` in it is a pattern, any other the full name."""
    return "name GLOB ?" if any(sign in name for sign in "*?[") else "name = ?"


def first(rows: list[Row]) -> Row | None:
    """Return the first row; None where there is none."""
    return rows[0] if rows else None
