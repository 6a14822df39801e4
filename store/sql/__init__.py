"""The SQL of the store, kept in files: `statements(name)` reads a file of `-- name: x` sections."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def script(name: str) -> str:
    """Return the whole text of `<name>.sql`."""
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


@cache
def statements(name: str) -> dict[str, str]:
    """Return the named statements of `<name>.sql`: each starts after a line `-- name: <identifier>`."""
    found: dict[str, str] = {}
    for section in script(name).split("-- name: ")[1:]:
        title, _, body = section.partition("\n")
        found[title.strip()] = body.strip().removesuffix(";")
    return found
