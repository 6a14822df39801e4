"""A file that an agent writes back is the repository's file, whatever its line ends: only the sorry's place counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from daemon.agents.server import filled_with
from store.text import clean_block
from store.view.rows import SorryRow

LINES = "theorem a : 1 = 1 := by\n  sorry\n\ntheorem b : True := trivial\n"
FILLED = LINES.replace("sorry", "skip\n  rfl")


def row_of(data: bytes) -> SorryRow:
    start = data.index(b"sorry")
    named = {"sorry": "s", "path": "A.lean", "declaration": "a", "byte_start": start, "byte_end": start + 5}
    return cast(SorryRow, SimpleNamespace(**named))


@pytest.mark.parametrize("before", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("after", ["\n", "\r\n"], ids=["written lf", "written crlf"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["no mark", "a mark"])
@pytest.mark.parametrize("end", [0, 1], ids=["whole", "without the last line's end"])
def test_a_file_that_is_written_back_is_the_same_file(before: str, after: str, mark: str, end: int) -> None:
    data = LINES.replace("\n", before).encode()
    written = mark + FILLED[: len(FILLED) - end].replace("\n", after)
    row = row_of(data)
    assert filled_with(row, data, written.encode(), beside=[row]) == {"s": f"skip{before}  rfl"}


def test_what_differs_elsewhere_is_named_by_its_line() -> None:
    data = LINES.replace("\n", "\r\n").encode()
    row = row_of(data)
    for old, new, said in (
        ("1 = 1", "2 = 2", "before the sorry too, at line 1"),
        ("trivial", "sorry", "behind the sorry too, at line 4"),
    ):
        result = filled_with(row, data, FILLED.replace(old, new).encode(), beside=[row])
        assert not isinstance(result, dict)
        assert said in str(result.reason)


def test_line_ends_of_two_bytes_are_no_control_characters() -> None:
    assert clean_block("a\r\nb\rc") == "a\nb�c"
