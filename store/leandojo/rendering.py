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
        self._tactic = (
            f'{at[4]}{{\n{at[6]}"tactic": %s,\n{at[6]}"annotated_tactic": [\n{at[8]}%s,\n{at[8]}%s\n{at[6]}],\n'
            f'{at[6]}"state_before": %s,\n{at[6]}"state_after": %s%s\n{at[4]}}}'
        )
        where = self._positions[12]
        self._use = (
            f'{at[10]}{{\n{at[12]}"full_name": %s,\n{at[12]}"def_path": %s,\n{at[12]}"def_pos": {where},\n'
            f'{at[12]}"def_end_pos": {where}%s\n{at[10]}}}'
        )

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

    def object(self, pairs: Iterable[tuple[str, str]], *, depth: int = 0) -> str:
        """Write an object whose braces stand at `depth`; the record itself is one at depth 0."""
        pad = self._pads[depth]
        return f"{pad}{{\n{self.members(pairs, depth=depth + 2)}\n{pad}}}"

    def array(self, items: Iterable[str], *, depth: int = 2) -> str:
        """Write the array of a key at `depth`; the items bring their indentation."""
        text = ",\n".join(items)
        return f"[\n{text}\n{self._pads[depth]}]" if text else "[]"

    def strings(self, items: Iterable[str], *, depth: int = 2) -> str:
        """Write an array of strings."""
        pad = self._pads[depth + 2]
        return self.array((pad + self.text(item) for item in items), depth=depth)

    def unknown(self, data: Mapping[str, Any], *, depth: int = 2) -> list[tuple[str, str]]:
        """Return the keys of an imported record that have no name here (`extra`), as members for `depth`."""
        return [(key, self.value(value, depth=depth)) for key, value in data.get("extra", {}).items()]

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
            self._more(data, depth=6) if "extra" in data else "",
        )

    def _premise_use(self, data: Mapping[str, Any], paths: Mapping[str, str]) -> str:
        return self._use % (
            self.text(data["full_name"]),
            self.text(paths[data["def_path"]]),
            *data["def_pos"],
            *data["def_end_pos"],
            self._more(data, depth=12) if "extra" in data else "",
        )

    def _more(self, data: Mapping[str, Any], *, depth: int) -> str:
        pad = self._pads[depth]
        return "".join(
            f",\n{pad}{self.text(key)}: {self.value(value, depth=depth)}"
            for key, value in data["extra"].items()
        )
