"""Positions and difficulties as LeanDojo's files have them, read strictly and written as LeanDojo writes them."""

from __future__ import annotations

import math
import re
from typing import Any

from store.traced import Position

_TEXT = re.compile(r"(?:Pos)?\(\s*([0-9]{1,10})\s*,\s*([0-9]{1,10})\s*\)")
_LARGEST = 10**10 - 1
_TOO_LARGE = 2**1023  # for a float


def read_position(value: Any) -> Position:
    """Return (line, column) for "(12, 5)", "Pos(12, 5)" (as LeanAgent wrote it) or [12, 5].

    Raises:
        ValueError: it is none of these; the message is the reason alone.
    """
    if isinstance(value, str):
        found = _TEXT.fullmatch(value)
        if found is not None:
            return int(found[1]), int(found[2])
    elif isinstance(value, list) and len(value) == 2:
        line, column = value
        # `type`, not `isinstance`: true is an int to Python.
        if type(line) is int and type(column) is int and 0 <= line <= _LARGEST and 0 <= column <= _LARGEST:
            return line, column
    raise ValueError(f'is no position (got {_shown(value)}); write "(line, column)" or [line, column]')


def write_position(position: Position) -> str:
    """Return "(12, 5)", the form of dynamic_database.json (a dataset's files have [12, 5])."""
    return f"({position[0]}, {position[1]})"


def read_difficulty(value: Any) -> float | None:
    """Return a theorem's difficulty: None, a number, or infinity (a bare `Infinity` in the file).

    Raises:
        ValueError: it is something else, or NaN.
    """
    if value is None:
        return None
    if type(value) is int and abs(value) < _TOO_LARGE:
        return value
    if isinstance(value, float) and not math.isnan(value) and value != -math.inf:
        return value
    raise ValueError(f"is no difficulty (got {_shown(value)}); write a number, null or Infinity")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
