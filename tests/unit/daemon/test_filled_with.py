"""A file that an agent writes back is the repository's file, whatever its line ends: only the sorry's place counts."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import cast

import pytest

from daemon.agents.server import filled_with
from store.text import clean_block
from store.view.rows import SorryRow

LINES = "theorem a : 1 = 1 := by\n  sorry\n\ntheorem b : True := trivial\n"
FILLED = LINES.replace("sorry", "skip\n  rfl")


def row_of(data: bytes) -> SorryRow:
    return row_at(data.index(b"sorry"), sorry="s")


def row_at(start: int, *, sorry: str) -> SorryRow:
    named = {"sorry": sorry, "path": "A.lean", "declaration": "a", "byte_start": start, "byte_end": start + 5}
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


PAIR = b"theorem a : p \xe2\x88\xa7 q := \xe2\x9f\xa8sorry, sorry\xe2\x9f\xa9\n"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("hp, hq", {"0": "hp", "1": "hq"}),
        ("sorry, hq", {"1": "hq"}),
        ("(f, g), hq", "cannot be told apart in the file"),
        ("hp; hq", "is changed between the sorries"),
    ],
)
def test_the_proofs_of_several_sorries_are_told_apart_where_there_is_one_way(
    written: str, expected: dict[str, str] | str
) -> None:
    starts = [one.start() for one in re.finditer(b"sorry", PAIR)]
    rows = [row_at(start, sorry=str(number)) for number, start in enumerate(starts)]
    after = PAIR.replace(b"sorry, sorry", written.encode())
    result = filled_with(rows[-1], PAIR, after, beside=rows)
    assert result == expected if isinstance(result, dict) else str(expected) in str(result.reason)


def test_line_ends_of_two_bytes_are_no_control_characters() -> None:
    assert clean_block("a\r\nb\rc") == "a\nb�c"
