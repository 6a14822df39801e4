"""Writes an export in lean4export's format: what a stand-in for Lean hands to the gate, and tests to its reader.

export = Exported("4.28.0")
export.record("axiom", name=export.name("A.b"), levelParams=[], type=export.text("T"), isUnsafe=False)
"""

from __future__ import annotations

import json
from pathlib import Path


class Exported:
    """Lines of an export. Each node is written once, and its number returned."""

    def __init__(self, version: str) -> None:
        header = {
            "exporter": {"name": "tests", "version": "1"},
            "lean": {"githash": "", "version": version},
            "format": {"version": "3.1.0"},
        }
        self.lines = [_line({"meta": header})]
        self._numbers: dict[tuple[str, str], int] = {("in", ""): 0, ("il", ""): 0}

    def name(self, name: str) -> int:
        """Return the number of a name without quotes, by its parts between dots."""
        number = 0
        for part in name.split("."):
            number = self.node("in", "str", {"pre": number, "str": part.strip("«»")})
        return number

    def text(self, text: str) -> int:
        """Return the number of a term that is this text."""
        return self.node("ie", "strVal", text)

    def node(self, table: str, kind: str, value: object) -> int:
        """Return the number of a node of `in`, `il` or `ie`."""
        key = (table, _line({kind: value}))
        if key not in self._numbers:
            number = sum(1 for known, _ in self._numbers if known == table)
            self._numbers[key] = number
            self.lines.append(_line({table: number, kind: value}))
        return self._numbers[key]

    def record(self, kind: str, /, **fields: object) -> None:
        """Add a declaration."""
        self.lines.append(_line({kind: fields}))

    def write(self, file: Path) -> None:
        """Write the lines."""
        file.write_text("".join(f"{line}\n" for line in self.lines), "utf-8")


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
