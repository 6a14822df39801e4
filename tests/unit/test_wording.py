"""The list of constructions finds what it is made to find, and nothing in code, tables and links."""

from __future__ import annotations

import pytest

from tests.support.wording import wrong


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("A page shows what is stored.", [1]),
        ("It says which\none that failed.", [1, 2]),
        ("Plain words.\n\nNo token is known. Asked are all hosts.", [3]),
        (f"- {'word ' * 36}end.\n- Short.", [1]),
        (f"{'word ' * 20}end. {'word ' * 20}end.", []),
        ("`what is stored`, [a page](what-is.md)\n\n```\nwhat is stored\n```\n\n| what is | stored |\n", []),
    ],
)
def test_a_construction_of_the_list_is_named_with_its_line(text: str, lines: list[int]) -> None:
    assert [line for line, _ in wrong(text)] == lines
