"""On which line of config.toml a setting stands.

tomllib keeps no positions, so this walks the source a second time and notes the line of every key, table header and
array element. It only looks at text that tomllib has accepted; it checks nothing itself.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

Location = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_OTHER_VALUE = re.compile(r"[^,\]}#\n]*")


def line_index(text: str) -> dict[Location, int]:
    """Map the location of every key, table and array element to its line, counted from 1.

    ("repos", 0, "every") is `every` in the first [[repos]] table, wherever and however it is written.
    """
    return _Walk(text).run()


def line_of(lines: Mapping[Location, int], location: Location) -> int:
    """Return the line of the location, or of the nearest thing around it that has one."""
    for end in range(len(location), 0, -1):
        if location[:end] in lines:
            return lines[location[:end]]
    return 1


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: dict[Location, int] = {}
        self._tables_in: dict[Location, int] = {}  # array of tables -> how many tables so far
        self._counted_to = 0
        self._line = 1

    def run(self) -> dict[Location, int]:
        prefix: Location = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                prefix = self._header()
            else:
                self._key_and_value(prefix)
            self._skip(_BLANK)
        return self._lines

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match.group()

    def _note(self, location: Location) -> None:
        self._line += self._text.count("\n", self._counted_to, self._at)
        self._counted_to = self._at
        self._lines.setdefault(location, self._line)

    def _header(self) -> Location:
        double = self._text.startswith("[[", self._at)
        self._at += 2 if double else 1
        self._skip(_SPACE)
        parts = self._key()
        location: Location = ()
        for part in parts[:-1] if double else parts:
            location = self._latest((*location, part))
        if double:
            array = (*location, parts[-1])
            self._note(array)
            index = self._tables_in.get(array, 0)
            self._tables_in[array] = index + 1
            location = (*array, index)
        self._note(location)
        self._at += 2 if double else 1
        return location

    def _latest(self, location: Location) -> Location:
        """A header below an array of tables means its newest table."""
        count = self._tables_in.get(location)
        return location if count is None else (*location, count - 1)

    def _key(self) -> tuple[str, ...]:
        parts: list[str] = []
        while True:
            if self._text[self._at] in "\"'":
                quoted = self._skip(_STRING)
                parts.append(str(tomllib.loads(f"key = {quoted}")["key"]))
            else:
                parts.append(self._skip(_BARE_KEY))
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return tuple(parts)
            self._at += 1
            self._skip(_SPACE)

    def _key_and_value(self, prefix: Location) -> None:
        location = prefix
        start = self._at
        parts = self._key()
        end, self._at = self._at, start
        for part in parts:
            location = (*location, part)
            self._note(location)
        self._at = end + 1  # the equals sign
        self._skip(_SPACE)
        self._value(location)

    def _value(self, location: Location) -> None:
        match self._text[self._at : self._at + 1]:
            case "[":
                self._at += 1
                index = 0
                self._skip(_BLANK)
                while not self._text.startswith("]", self._at):
                    self._note((*location, index))
                    self._value((*location, index))
                    index += 1
                    self._comma()
                self._at += 1
            case "{":
                self._at += 1
                self._skip(_BLANK)
                while not self._text.startswith("}", self._at):
                    self._key_and_value(location)
                    self._comma()
                self._at += 1
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_OTHER_VALUE)

    def _comma(self) -> None:
        self._skip(_BLANK)
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip(_BLANK)
