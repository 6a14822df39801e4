"""JSON read value by value: a file of any length in the memory that its largest single value takes.

Values are decoded by the standard library, so that every string and number comes out as `json.load` gives it (with
LeanDojo's bare `Infinity`), and every error says where. Owns the walk through the file; what the values mean is
`store.leandojo.records`.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from store.errors import LogError, translated

_SPACE = re.compile(r"[ \t\r\n]*")
_PART_OF_A_TOKEN = re.compile(r"[-+.\w]*\s*")
# A token that the end of the buffer cuts is reported this near to the end at most ("-Infinity", "\uXXXX").
_CUT = 16
_CUT_NUMBER = 3


class ImportFormatError(LogError, ValueError):
    """A file is not what an import takes; it names the file, the place in it, the reason and the remedy.

    `file` is a text where it is no file but what was given in memory.
    """

    def __init__(self, file: Path | str, place: str, reason: str, *, remedy: str) -> None:
        where = f"{file}: {place}" if place else str(file)
        super().__init__(f"{where}: {reason}; {remedy}. Nothing was imported")
        self.file = file
        self.place = place
        self.reason = reason


class JsonStream:
    """A JSON text, walked from its beginning to its end, once.

    `members` and `items` walk an object or a list whose values the caller takes, each with exactly one call of
    `value`, `members` or `items` before the next step. `unusual` says whether the last `value` holds a
    number that is not finite (Infinity, NaN, or one too large for a float).

        with JsonStream(path) as stream:
            for key in stream.members():
                stream.value()
            stream.end()
    """

    def __init__(
        self, path: Path, *, progress: Callable[[int], object] | None = None, chunk_bytes: int = 1 << 20
    ) -> None:
        """Open the file; `progress` is given the number of bytes read so far, once a chunk.

        Raises:
            LogError: the file cannot be opened.
        """
        self.path = path
        self.unusual = False
        self._progress = progress
        self._chunk_bytes = chunk_bytes
        self._decoder = json.JSONDecoder(
            object_pairs_hook=_without_repetition, parse_constant=self._constant, parse_float=self._float
        )
        self._text = ""
        self._at = 0
        self._start = 0  # of the last value, in the buffer
        self._lines = 0  # before the buffer
        self._column = 0  # in code points, of the buffer's beginning
        self._bytes = 0
        self._ended = False
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        with translated(path):
            self._file = path.open("rb")

    def __enter__(self) -> JsonStream:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def bytes_read(self) -> int:
        """How much of the file was read so far."""
        return self._bytes

    def where(self) -> str:
        """Return "line 12, column 3" of the value that was read last, both from 1."""
        return self._position(self._start)

    def peek(self) -> str:
        """Return the next character that is no white space; "" at the end of the file."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def members(self) -> Iterator[str]:
        """Walk an object: yield each key, whose value the caller then takes.

        Raises:
            ImportFormatError: no object stands here, a key is there twice, or it is no JSON.
        """
        self._opening("{", "an object")
        seen: set[str] = set()
        if self.peek() == "}":
            self._at += 1
            return
        while True:
            if self.peek() != '"':
                self._unexpected("a key in double quotes")
            key = self.value()
            if key in seen:
                self._fail(f'the key "{key}" is there twice', at=self._start)
            seen.add(key)
            if self.peek() != ":":
                self._unexpected('":"')
            self._at += 1
            yield key
            if self._separator("}"):
                return

    def items(self) -> Iterator[int]:
        """Walk a list: yield each index from 0, whose value the caller then takes.

        Raises:
            ImportFormatError: no list stands here, or it is no JSON.
        """
        self._opening("[", "a list")
        index = 0
        if self.peek() == "]":
            self._at += 1
            return
        while True:
            yield index
            index += 1
            if self._separator("]"):
                return

    def value(self) -> Any:
        """Decode the value that stands here, whole.

        Raises:
            ImportFormatError: it is no JSON, or the file ends in it.
        """
        if self.peek() == "":
            self._unexpected("a value")
        while True:
            self.unusual = False
            self._start = self._at
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                unterminated = error.msg.startswith("Unterminated string")
                offset = error.pos - self._at
                if (unterminated or error.pos > len(self._text) - _CUT) and self._more():
                    continue
                at = self._at + offset
                cut = unterminated or _PART_OF_A_TOKEN.fullmatch(self._text, at)
                ended = " (the file ends there: it is cut short)" if cut and self._ended else ""
                self._fail(f"no JSON: {_lower(error.msg)}{ended}", at=at)
            except (_RepeatedKeyError, RecursionError, ValueError) as error:
                reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
                self._fail(reason, at=self._start)
            # The end of the buffer may cut a number, and the 1 of "12", "1.5" or "1e+5" is a value too.
            length = end - self._at
            if end > len(self._text) - _CUT_NUMBER and self._more():
                continue
            self._at += length
            return value

    def end(self) -> None:
        """Check that nothing but white space follows.

        Raises:
            ImportFormatError: something does.
        """
        if self.peek():
            self._fail("no JSON: there is more after the end of the value", at=self._at)

    def _opening(self, character: str, what: str) -> None:
        if self.peek() != character:
            self._unexpected(what)
        self._start = self._at
        self._at += 1

    def _separator(self, closing: str) -> bool:
        """Step over a comma (False) or the closing bracket (True)."""
        found = self.peek()
        if found not in (",", closing) or not found:
            self._unexpected(f'"," or "{closing}"')
        self._at += 1
        if found == closing:
            return True
        if self.peek() == closing:
            self._unexpected("a value after the comma")
        return False

    def _more(self) -> bool:
        """Read on; drop what was taken. False at the end of the file."""
        if self._ended:
            return False
        dropped = self._at
        lines = self._text.count("\n", 0, dropped)
        self._column = dropped - (self._text.rfind("\n", 0, dropped) + 1) + (0 if lines else self._column)
        self._lines += lines
        rest = self._text[dropped:]
        self._at = self._start = 0
        with translated(self.path):
            # As much again as is still undecoded: a long value is then tried a few times, not once a chunk.
            data = self._file.read(max(self._chunk_bytes, len(rest)))
        self._ended = not data
        try:
            self._text = rest + self._utf8.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            self._text = rest
            raise ImportFormatError(
                self.path,
                f"near byte {self._bytes + error.start}",
                f"no UTF-8 ({error.reason})",
                remedy="LeanDojo writes UTF-8: take the file from its source again",
            ) from error
        self._bytes += len(data)
        if self._progress is not None:
            self._progress(self._bytes)
        return not self._ended

    def _position(self, at: int) -> str:
        lines = self._text.count("\n", 0, at)
        column = at - (self._text.rfind("\n", 0, at) + 1) + (0 if lines else self._column)
        return f"line {self._lines + lines + 1}, column {column + 1}"

    def _unexpected(self, wanted: str) -> NoReturn:
        found = self.peek()
        if found:
            self._fail(
                f"{wanted} should stand there, not {json.dumps(found, ensure_ascii=False)}", at=self._at
            )
        self._fail(f"the file ends where {wanted} should stand: it is cut short", at=self._at)

    def _fail(self, reason: str, *, at: int) -> NoReturn:
        raise ImportFormatError(
            self.path,
            self._position(at),
            reason,
            remedy="write the file anew, or take it from its source again",
        )

    def _constant(self, name: str) -> float:
        self.unusual = True
        return float(name.replace("Infinity", "inf"))

    def _float(self, text: str) -> float:
        number = float(text)
        self.unusual = self.unusual or not math.isfinite(number)
        return number


class _RepeatedKeyError(ValueError):
    """An object has a key twice, and one of the values would be lost."""


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(
            f'the key "{next(key for key in keys if keys.count(key) > 1)}" is there twice'
        )
    return made


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
