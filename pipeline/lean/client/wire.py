"""Strict reading of the REPL's JSON: each helper returns a typed value or raises `MalformedReply` with its path.

`where` is the path so far (`goal.tactic.goals[2]`). An `optional_*` helper or a default reads a key that may be left
out; null and absent are the same there, as they are to the REPL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from pipeline.lean.client.errors import MalformedReply
from store.text import shown

Json = Mapping[str, object]
T = TypeVar("T")


def loads(data: bytes) -> object:
    """Decode JSON in UTF-8. Half a surrogate pair, which cannot be written again, is a ValueError like the rest.

    Raises:
        ValueError, RecursionError: it is no JSON, or nested beyond all measure.
    """
    raw: object = json.loads(data.decode("utf-8"))
    if b"\\ud" in data or b"\\uD" in data:
        json.dumps(raw, ensure_ascii=False).encode("utf-8")
    return raw


def object_(raw: object, where: str) -> Json:
    # `json.loads` makes exact dicts; the abstract check is ten times slower and only for others.
    if type(raw) is not dict and not isinstance(raw, Mapping):
        raise MalformedReply(f"{where}: expected an object, got {shown(raw)}")
    return raw


def text(table: Json, key: str, where: str, *, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise MalformedReply(f"{where}.{key}: expected a string, got {shown(value)}")
    return value


def optional_text(table: Json, key: str, where: str) -> str | None:
    return None if table.get(key) is None else text(table, key, where)


def boolean(table: Json, key: str, where: str, *, default: bool | None = None) -> bool:
    value = table.get(key, default)
    if not isinstance(value, bool):
        raise MalformedReply(f"{where}.{key}: expected a Bool, got {shown(value)}")
    return value


def natural(table: Json, key: str, where: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MalformedReply(f"{where}.{key}: expected a whole number, got {shown(value)}")
    return value


def optional_natural(table: Json, key: str, where: str) -> int | None:
    return None if table.get(key) is None else natural(table, key, where)


def list_(raw: object, where: str, one: Callable[[object, str], T]) -> tuple[T, ...]:
    if not isinstance(raw, list):
        raise MalformedReply(f"{where}: expected a list, got {shown(raw)}")
    try:
        return tuple([one(item, where) for item in raw])
    except MalformedReply:
        # Once more, for the path: only the faulty item needs one, and lists are long.
        for index, item in enumerate(raw):
            one(item, f"{where}[{index}]")
        raise


def optional(table: Json, key: str, where: str, one: Callable[[object, str], T]) -> T | None:
    value = table.get(key)
    return None if value is None else one(value, f"{where}.{key}")


def byte_range(raw: object, where: str) -> tuple[int, int]:
    match raw:
        case [int() as start, int() as end] if 0 <= start <= end:
            return start, end
    raise MalformedReply(f"{where}: expected [start, end], got {shown(raw)}")
