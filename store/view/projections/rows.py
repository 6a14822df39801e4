"""Writing rows of the view: upserts, with SQL made once for each set of columns."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic_core import from_json

from store.log.reader import LogReader

_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True)


def upsert(
    db: sqlite3.Connection,
    table: str,
    *,
    key: Mapping[str, Any],
    values: Mapping[str, Any],
    once: Mapping[str, Any],
) -> None:
    """Insert a row, or set `values` in the row with this key; `once` only counts for a new row."""
    db.execute(
        _upsert(table, tuple(key), tuple(values), tuple(once)),
        (*key.values(), *values.values(), *once.values()),
    )


@cache
def _upsert(table: str, key: tuple[str, ...], values: tuple[str, ...], once: tuple[str, ...]) -> str:
    columns = (*key, *values, *once)
    action = ", ".join(f'"{name}" = excluded."{name}"' for name in values)
    return (
        f"INSERT INTO {table} ({', '.join(quoted(columns))}) VALUES ({', '.join('?' * len(columns))}) "
        f"ON CONFLICT ({', '.join(quoted(key))}) DO {f'UPDATE SET {action}' if action else 'NOTHING'}"
    )


def quoted(names: tuple[str, ...]) -> tuple[str, ...]:
    """Quote column names: `index` and `column` are words of SQL."""
    return tuple(f'"{name}"' for name in names)


def payload(log: LogReader, sha256: str) -> Any:
    """Return the JSON value of a payload, by the fastest parser: payloads are half of a rebuild's reading.

    Raises:
        BlobMissingError, BlobCorruptError: it is absent or damaged.
        ValueError: it is no JSON.
    """
    return from_json(log.blob(sha256), cache_strings="keys")


def as_json(value: Any) -> str:
    """Write a `*_json` column; keys are sorted, for the same text in a rebuild."""
    return _ENCODER.encode(value)
