"""The source of declarations as their authors wrote it, from the mirrors: for people to read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from textwrap import dedent

from pipeline.jobs.mirror import file_of
from pipeline.lean.source.lexer import decode, printable
from pipeline.lean.source.scanner import LocatedFile, locate
from store.view.rows import SorryRow


@dataclass(frozen=True, slots=True)
class Written:
    """A declaration's doc comment without its marks, and its statement with its own line breaks."""

    doc: str
    statement: str


ReadWritten = Callable[[SorryRow], Written | None]
"""Returns the declaration with a sorry; None if no mirror has the file, or the sorry is in no declaration."""


def nothing_written(_row: SorryRow) -> Written | None:
    """Return None, if no mirrors are at hand."""
    return None


class Sources:
    """A reader of declarations from a folder of mirrors. The last file is kept: sorries come file by file."""

    def __init__(self, mirrors: Path) -> None:
        self._mirrors = mirrors
        self._file = lru_cache(maxsize=1)(self._read)

    def __call__(self, row: SorryRow) -> Written | None:
        text, file = self._file(row.repository, row.blob)
        at = file.positions.offset(row.byte_start)
        result = next((one for one in file.declarations if one.start <= at < one.end), None)
        if result is None:
            return None
        docs = file.docs[: bisect_left(file.docs, (result.start, 0))][-1:]
        # A doc comment belongs to the next declaration, if only white space is between them.
        doc = "".join(text[start:end] for start, end in docs if not text[end : result.start].strip())
        return Written(
            doc="\n".join(line.strip() for line in doc[3:-2].strip().splitlines()),
            statement=dedent(text[result.start : result.stated].strip()),
        )

    def _read(self, repository: str, blob: str) -> tuple[str, LocatedFile]:
        data = file_of(self._mirrors, repository, blob) or b""
        return printable(decode(data)[0]), locate(data)
