"""LeanDojo's records as JSON text, byte for byte as its own `json.dump(…, indent=2)` writes them.

Python's encoder takes a slow path, many times slower, as soon as it is to indent. Here the frame of a record is laid
down once, and only strings go through the (fast) encoder. The values are those of a `file_traced` payload
(`store.traced`), as they were parsed, with no dataclass in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any


class Frame:
    """How one kind of file is written: where its records stand, how text is escaped, what a position looks like.

    `margin` is the number of spaces before a record's braces; `ascii_only` escapes all else, as json.dump does unless
    told not to; `text_positions` writes "(12, 5)", where it is false [12, 5] (over four lines).
    """

    def __init__(self, *, margin: int, ascii_only: bool, text_positions: bool) -> None:
        self._pads = {depth: " " * (margin + depth) for depth in range(0, 18, 2)}
        self._ascii = ascii_only
        self.text = encode_basestring_ascii if ascii_only else encode_basestring
        self._positions = {
            depth: '"(%d, %d)"' if text_positions else f"[\n{pad}  %d,\n{pad}  %d\n{pad}]"
            for depth, pad in self._pads.items()
        }
        at = self._pads
        steps = f"[\n{at[8]}%s,\n{at[8]}%s\n{at[6]}]"
        keys = self.layout("tactic", "annotated_tactic", "state_before", "state_after", depth=4)
        self._tactic = keys % ("%s", steps, "%s", "%s", "%s")
        keys = self.layout("full_name", "def_path", "def_pos", "def_end_pos", depth=10)
        self._use = keys % ("%s", "%s", self._positions[12], self._positions[12], "%s")

    def layout(self, *keys: str, depth: int = 0) -> str:
        """Return a %-format of an object whose braces stand at `depth`: a %s for each key's value, one for `more`."""
        pad, inner = self._pads[depth], self._pads[depth + 2]
        members = ",\n".join(f"{inner}{self.text(key)}: %s" for key in keys)
        return f"{pad}{{\n{members}%s\n{pad}}}"

    def position(self, value: Iterable[int], *, depth: int = 2) -> str:
        """Write a position that is the value of a key at `depth` inside the record."""
        return self._positions[depth] % tuple(value)

    def value(self, value: Any, *, depth: int = 2) -> str:
        """Write any JSON value of a key at `depth`."""
        text = json.dumps(value, ensure_ascii=self._ascii, indent=2)
        return text.replace("\n", "\n" + self._pads[depth])  # no string has a bare newline in it

    def members(self, pairs: Iterable[tuple[str, str]], *, depth: int = 2) -> str:
        """Write the inside of an object: keys with values that are JSON already."""
        pad = self._pads[depth]
        return ",\n".join(f"{pad}{self.text(key)}: {value}" for key, value in pairs)

    def array(self, items: Iterable[str], *, depth: int = 2) -> str:
        """Write the array of a key at `depth`; the items bring their indentation."""
        text = ",\n".join(items)
        return f"[\n{text}\n{self._pads[depth]}]" if text else "[]"

    def strings(self, items: Iterable[str], *, depth: int = 2) -> str:
        """Write an array of strings."""
        pad = self._pads[depth + 2]
        return self.array((pad + self.text(item) for item in items), depth=depth)

    def more(self, data: Mapping[str, Any], *, depth: int = 2) -> str:
        """Write the keys of an imported record that have no name here (`extra`), as last members at `depth`."""
        if "extra" not in data:
            return ""
        pad = self._pads[depth]
        return "".join(
            f",\n{pad}{self.text(key)}: {self.value(value, depth=depth)}"
            for key, value in data["extra"].items()
        )

    def tactic(self, data: Mapping[str, Any], paths: Mapping[str, str]) -> str:
        """Write a traced tactic, an item of the record's own list; `paths` gives each path its name in the export."""
        text, uses = data["annotated_tactic"]
        write = self.text
        return self._tactic % (
            write(data["tactic"]),
            write(text),
            self.array([self._premise_use(use, paths) for use in uses], depth=8),
            write(data["state_before"]),
            write(data["state_after"]),
            self.more(data, depth=6),
        )

    def _premise_use(self, data: Mapping[str, Any], paths: Mapping[str, str]) -> str:
        return self._use % (
            self.text(data["full_name"]),
            self.text(paths[data["def_path"]]),
            *data["def_pos"],
            *data["def_end_pos"],
            self.more(data, depth=12),
        )
