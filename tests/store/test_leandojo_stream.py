"""The ground of an import: positions, difficulties, and JSON that is read value by value."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.leandojo.jsonstream import ImportFormatError, JsonStream
from store.leandojo.positions import read_difficulty, read_position, write_position

# Positions and difficulties


@pytest.mark.parametrize("value", ["(12, 5)", "Pos(12, 5)", [12, 5], "(12,5)"])
def test_a_position_is_read_in_every_form_that_leandojo_wrote(value: Any) -> None:
    assert read_position(value) == (12, 5)
    assert write_position(read_position(value)) == "(12, 5)"


@pytest.mark.parametrize(
    "value",
    ["12, 5", "(12)", "(a, b)", "(1, 2) ", "(-1, 2)", [1], [1, 2, 3], [1.0, 2], [True, 1], None, {}, 7],
)
def test_anything_else_is_no_position(value: Any) -> None:
    with pytest.raises(ValueError, match="is no position"):
        read_position(value)


@pytest.mark.parametrize("value", [None, 0, 3, 20.085536923187668, math.inf])
def test_a_difficulty_is_a_number_nothing_or_infinity(value: Any) -> None:
    assert read_difficulty(value) == value


@pytest.mark.parametrize("value", [math.nan, -math.inf, "Infinity", True, [], 10**400])
def test_anything_else_is_no_difficulty(value: Any) -> None:
    with pytest.raises(ValueError, match="is no difficulty"):
        read_difficulty(value)


# The stream

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(
    document=st.dictionaries(st.text(), st.lists(VALUES, max_size=4), max_size=4),
    chunk_bytes=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
    ascii_only=st.booleans(),
)
def test_the_stream_gives_what_json_load_gives_wherever_a_chunk_ends(
    tmp_path_factory: pytest.TempPathFactory,
    document: dict[str, list[Any]],
    chunk_bytes: int,
    indent: int | None,
    ascii_only: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / "stream.json"
    path.write_text(json.dumps(document, indent=indent, ensure_ascii=ascii_only), encoding="utf-8")
    with JsonStream(path, chunk_bytes=chunk_bytes) as stream:
        found = {key: [stream.value() for _ in stream.items()] for key in stream.members()}
        stream.end()
        assert stream.bytes_read == path.stat().st_size
    assert found == document


def walked(path: Path, chunk_bytes: int) -> str:
    """Read a database's outline with small chunks; return what is wrong with it."""
    try:
        with JsonStream(path, chunk_bytes=chunk_bytes) as stream:
            for _ in stream.members():
                for _ in stream.items():
                    stream.value()
            stream.end()
    except ImportFormatError as error:
        return str(error)
    return "nothing"


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ('{"a": [\n {"b": 1,}\n]}', "line 2", "no JSON"),
        ('{"a": [\n 1,\n]}', "line 3, column 1", "a value after the comma"),
        ('{"a": [\n 1 2\n]}', "line 2, column 4", '"," or "]"'),
        ('{"a" [1]}', "line 1, column 6", '":"'),
        ("{a: [1]}", "line 1, column 2", "a key in double quotes"),
        ('{"a": [\n "b\nc"]}', "line 2, column 4", "invalid control character"),
        ('{"a": [1]}\n}', "line 2, column 1", "more after the end"),
        ('{"a": [1], "a": [2]}', "line 1, column 12", 'the key "a" is there twice'),
        ('{"a": [{"b": 1, "b": 2}]}', "line 1, column 8", 'the key "b" is there twice'),
        ("[]", "line 1, column 1", "an object"),
        ('{"a": 3}', "line 1, column 7", "a list"),
        ("", "line 1, column 1", "cut short"),
        ('{"a": [nul', "line 1, column 8", "cut short"),
        ('{"a": ["b', "line 1, column 8", "cut short"),
        ('{"a": [' + "[" * 100_000, "line 1, column 8", "nested too deeply"),
        ('{"a": [' + "9" * 5_000 + "]}", "line 1, column 8", "digits"),
    ],
)
def test_what_is_no_json_is_named_with_its_place(
    tmp_path: Path, text: str, place: str, reason: str, chunk_bytes: int
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    message = walked(path, chunk_bytes)
    assert place in message
    assert reason in message


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes('{"a": ["é"]}'.encode("latin-1"))
    assert "no UTF-8" in walked(path, 1 << 20)
