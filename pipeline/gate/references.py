"""Lean's end of a declaration, from the references (`.ilean`) a build leaves beside a compiled module.

Between a proof and the end of its text there may be commands of the project's own, in words only Lean knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pipeline.gate.answers import same_constant

Place = tuple[int, int]
"""A line and a column, both from 0; the column counts UTF-16 code units, as in the language server's protocol."""

_OF_A_PARENT = 4
"""Index of the enclosing declaration in a reference's fields; before it stands the reference's own range."""


def ends_at(references: bytes, declaration: str) -> Place | None:
    """Return the place behind a declaration's last token; None if the references do not have it."""
    try:
        known = json.loads(references)
        ranges = [place for name, place in _ranges(known) if same_constant(name, declaration)]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    ends = {(line, column) for _, _, line, column, *_ in ranges}
    return ends.pop() if len(ends) == 1 else None


def _ranges(known: Any) -> Iterator[tuple[str, list[int]]]:
    """Yield the ranges of declarations with their names: since format 5 from their list, before from the references."""
    if "decls" in known:
        yield from known["decls"].items()
        return
    for one in known["references"].values():
        for fields in (one["definition"] or [], *one["usages"]):
            if len(fields) > _OF_A_PARENT + 1:
                yield fields[_OF_A_PARENT], fields[_OF_A_PARENT + 1 :]


def place_of(data: bytes, offset: int) -> Place:
    """Return the place of a byte of a source."""
    start = data.rfind(b"\n", 0, offset) + 1
    return data.count(b"\n", 0, offset), len(data[start:offset].decode().encode("utf-16-le")) // 2
