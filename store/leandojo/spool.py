"""Records on disk that are written once, in the order in which they come, and copied out in any other order.

LeanDojo's lists are shuffled, and one theorem stands in several of them. What stays in memory of a record is where it
begins: 8 bytes.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_CHUNK = 1 << 20


class Spool:
    """Texts in a temporary file that has no name, in `folder` (None: the system's); they are numbered from 0."""

    def __init__(self, folder: Path | None) -> None:
        # Its own buffer, and not shared with readers: what is read is flushed first.
        self._file = tempfile.TemporaryFile(dir=folder, buffering=_CHUNK)  # noqa: SIM115 - closed by __exit__
        self._starts = array("Q", (0,))
        self._end = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def add(self, text: str) -> int:
        """Append a record; return its number."""
        # The comma that parts it from the one before in a list is kept with it, so that neighbours are one copy.
        self._end += self._file.write(b",\n" + text.encode())
        self._starts.append(self._end)
        return len(self._starts) - 2

    def write_list(self, numbers: Iterable[int], out: BinaryIO, *, indent: str = "") -> None:
        """Write records as a JSON array whose closing bracket stands at `indent`; the texts bring their own."""
        self._file.flush()
        out.write(b"[")
        first = True
        for start, end in self._ranges(numbers):
            # The first record of all has no comma before it.
            self._copy(start + 1 if first else start, end, out)
            first = False
        out.write(b"]" if first else f"\n{indent}]".encode())

    def clear(self) -> None:
        """Forget all records; numbers begin at 0 again."""
        self._file.seek(0)
        self._file.truncate()
        self._starts = array("Q", (0,))
        self._end = 0

    def _ranges(self, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield the bytes of the records, neighbours together."""
        begin = end = -1
        for number in numbers:
            start = self._starts[number]
            if start != end:
                if end > begin:
                    yield begin, end
                begin = start
            end = self._starts[number + 1]
        if end > begin:
            yield begin, end

    def _copy(self, start: int, end: int, out: BinaryIO) -> None:
        while start < end:
            chunk = os.pread(self._file.fileno(), min(_CHUNK, end - start), start)
            if not chunk:
                raise OSError("a temporary file became shorter while it was read")
            out.write(chunk)
            start += len(chunk)
