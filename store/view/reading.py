"""Read rows as objects of the row classes. Standard library only: see `store.view.queries`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from store.view.schema import Row, columns_of


def _decode(value: str | None) -> Any:
    return None if value is None else json.loads(value)


def columns(cls: type[Any]) -> tuple[str, ...]:
    """Return the columns of a row class, in the order of its fields."""
    return _read_as(cls)[0]  # type: ignore[arg-type] # a class is hashable


def make_all(cls: type[Row], rows: Iterable[sqlite3.Row]) -> list[Row]:
    """Make row objects from rows of `columns(cls)`, in this order."""
    _, conversions = _read_as(cls)  # type: ignore[arg-type] # a class is hashable
    if not any(conversions):
        return [cls(*row) for row in rows]
    return [
        cls(*(value if to is None else to(value) for to, value in zip(conversions, row, strict=True)))
        for row in rows
    ]


@cache
def _read_as(cls: type[Any]) -> tuple[tuple[str, ...], tuple[Callable[[Any], Any] | None, ...]]:
    """Return a class's columns, and the conversions to its fields; cached, as plans ask hundreds of times."""
    of = columns_of(cls)
    return (
        tuple(column.name for column in of),
        tuple(_decode if column.is_json else bool if column.type == "bool" else None for column in of),
    )


def select(cls: type[Any], table: str) -> str:
    """Return the statement's beginning: the columns of a row object, out of a table."""
    # Quoted, as `index` and `column` are words of SQL; with the table, as two queries join others to it.
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
        equal: the wanted values of columns; None means any.
        conditions, parameters: further ones, and the values of their question marks.
    """
    options = {name: value for name, value in (equal or {}).items() if value is not None}
    clauses = [*(f"{name} = ?" for name in options), *conditions]
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    statement = f"{select(cls, table)}{where} ORDER BY {order} LIMIT ? OFFSET ?"
    bound = (*options.values(), *parameters, -1 if limit is None else limit, offset)
    return make_all(cls, db.execute(statement, bound))


def by_prefix(db: sqlite3.Connection, cls: type[Row], table: str, key: str, prefix: str) -> list[Row]:
    """Return the rows with this beginning of their key."""
    # A range, and not LIKE: the prefix may hold any character, and the key's index serves it.
    conditions = [f"{key} >= ?", f"substr({key}, 1, ?) = ?"]
    return read(db, cls, table, conditions=conditions, parameters=[prefix, len(prefix), prefix], order=key)


def named_so(name: str) -> str:
    """Return the condition on a column `name`: with `*`, `?` or `[` a pattern, else the full name."""
    return "name GLOB ?" if any(sign in name for sign in "*?[") else "name = ?"


def first(rows: list[Row]) -> Row | None:
    """Return the first row; None if there is none."""
    return rows[0] if rows else None
