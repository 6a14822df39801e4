"""Where a setting stands in the source, however it is written."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.settings.errors import Location, line_index, line_of

SOURCE = '''\
# a comment = "no key"
title = "x"
[poll]
every = "5m" # trailing [no] = header
text = """
[not.a.header]
key = "no"
"""
[[repos]]
url = 'a#b'
branches = [
  "main", # one
  "release/*",
]
[[repos]]
inline = { every = "1s", deep = { a = 1 } }
dotted.key."quoted.part" = 1979-05-27 07:32:00
[repos.sub]
x = 1
[[repos.list]]
y = [[1, 2], [3]]
'''


@pytest.mark.parametrize(
    ("location", "line"),
    [
        (("title",), 2),
        (("poll",), 3),
        (("poll", "every"), 4),
        (("poll", "text"), 5),
        (("repos", 0), 9),
        (("repos", 0, "url"), 10),
        (("repos", 0, "branches"), 11),
        (("repos", 0, "branches", 0), 12),
        (("repos", 0, "branches", 1), 13),
        (("repos", 1), 15),
        (("repos", 1, "inline", "every"), 16),
        (("repos", 1, "inline", "deep", "a"), 16),
        (("repos", 1, "dotted", "key", "quoted.part"), 17),
        (("repos", 1, "sub", "x"), 19),
        (("repos", 1, "list", 0, "y"), 21),
    ],
)
def test_every_way_to_write_a_setting_has_its_line(location: Location, line: int) -> None:
    assert line_index(SOURCE)[location] == line


def test_text_inside_strings_and_comments_is_no_setting() -> None:
    result = line_index(SOURCE)
    assert not any("no" in location or "not" in location or "key" in location[:1] for location in result)


def test_an_absent_setting_is_placed_where_it_would_belong() -> None:
    result = line_index(SOURCE)
    assert line_of(result, ("repos", 1, "url")) == 15
    assert line_of(result, ("nothing", "here")) == 1


@pytest.mark.parametrize(
    "text",
    [
        'a = "\\"]"\nb = 1', "a = '''x'''''\nb = 1", 'a = """x\\""""""\nb = 1', "a = [ # ]\n 1,\n]\nb = 1",
        "a = {}\nb = 1", "a = []\nb = 1", "'a b' = {x = [1, {y = 2}]}\nb = 1", "a.b = 1\na.c = 2\nb = 1", "",
    ],
)  # fmt: skip
def test_awkward_but_valid_toml_is_walked_to_its_end(text: str) -> None:
    parsed = tomllib.loads(text)
    result = line_index(text)
    assert {location[0] for location in result} == set(parsed)
    if "b" in parsed and parsed["b"] == 1:
        assert result[("b",)] == text.count("\n") + 1


def locations(value: Any, prefix: Location = ()) -> set[Location]:
    result: set[Location] = {prefix} if prefix else set()
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, item in items:
        result |= locations(item, (*prefix, key))
    return result


KEYS = st.sampled_from(["a", "b", '"c d"', "e-f"])
VALUES = st.recursive(
    st.sampled_from(["1", '"x"', "'y#'", "true", "1.5", '"""m\nn"""', "2020-01-01"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(KEYS, inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"{key} = {item}" for key, item in items.items()) + "}"
        ),
    ),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=3), max_size=3))
def test_every_value_that_tomllib_finds_has_a_line(tables: list[dict[str, str]]) -> None:
    text = "".join(
        "[[repos]]\n" + "".join(f"{key} = {value}\n" for key, value in table.items()) for table in tables
    )
    result = line_index(text)
    assert locations(tomllib.loads(text)) <= set(result)
    assert all(1 <= line <= text.count("\n") + 1 for line in result.values())
