"""A file of JSON lines that work is written down in while it is done, so that what was killed goes on where it was.

It is only appended to. The first line says which work it is of. Each line is handed to the system at once; one that a
kill has torn at the end is cut off. A journal of other work, or a damaged one, is set aside under another name, and
the work begins anew. What the lines say is a search's (`journal.py`) or an author's (`kept.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

ASIDE = ".aside"


class JournalError(Exception):
    """A journal cannot be read, or is another work's; the message says why."""


class JournalFile:
    """One journal. Also a context that closes it.

    Attributes:
        refused: why what was found at the path was set aside; "" where nothing was.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        """Args:
        path: of the file; its folder is made where it is missing.
        durable: whether a line is on the disk before the work goes on: the machine may stop, too.
        """
        self.path = path
        self.refused = ""
        self._durable = durable
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; more may be written only after the next `begin`."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _begin(self, header: Mapping[str, Any], replay: Callable[[list[Mapping[str, Any]]], None]) -> None:
        """Open the journal and hand what is in it to `replay`, if it is this work's.

        What is not, and what `replay` raises `JournalError` at, is set aside; `replay` has then been given a list of
        lines that it refused, or none. Raises OSError where the file cannot be written.
        """
        self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            good, lines = self._read()
            if lines:
                if lines[0] != header:
                    raise JournalError(_difference(lines[0], header))
                replay(lines[1:])
        except JournalError as error:
            self.refused = str(error)
            self._set_aside()
            good, lines = 0, []
        self._file = self.path.open("ab")
        if self._file.tell() != good:
            self._file.truncate(good)
        if not lines:
            self._write(header)

    def _write(self, entry: Mapping[str, Any]) -> None:
        assert self._file is not None, "a journal is written between its beginning and close"
        # Half a character, which a model may write, has no UTF-8: it stays escaped.
        self._file.write(json.dumps(entry, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n")
        self._file.flush()
        if self._durable:
            os.fsync(self._file.fileno())

    def _read(self) -> tuple[int, list[Mapping[str, Any]]]:
        """Return the length of what is whole, and its lines."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return 0, []
        good = data.rfind(b"\n") + 1
        lines: list[Mapping[str, Any]] = []
        for number, line in enumerate(data[:good].split(b"\n")[:-1], start=1):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise JournalError(f"line {number} is damaged: {error}") from error
            if not isinstance(entry, dict):
                raise JournalError(f"line {number} is no JSON object")
            lines.append(entry)
        return good, lines

    def _set_aside(self) -> None:
        self.path.replace(self.path.with_name(self.path.name + ASIDE))


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    other = [name for name in wanted if found.get(name) != wanted[name]]
    return f"it is of other work, with another {', '.join(other) or 'header'}"
