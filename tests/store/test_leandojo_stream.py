"""The ground of an import: positions, difficulties, and the JSON files that hold them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import text as plain
from store.leandojo.records import (
    ImportFormatError,
    items,
    load,
    read_difficulty,
    read_position,
    write_position,
)

# Positions and difficulties


@pytest.mark.parametrize("value", ["(12, 5)", "Pos(12, 5)", [12, 5], "(12,5)"])
def test_a_position_is_read_in_every_form_that_leandojo_wrote(value: Any) -> None:
    assert read_position(value) == [12, 5]
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


# The files


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=20, deadline=None)
@given(
    document=st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=6),
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
    ascii_only=st.booleans(),
)
def test_a_list_is_what_json_load_gives_wherever_a_chunk_ends(
    tmp_path_factory: pytest.TempPathFactory,
    document: list[dict[str, Any]],
    chunk: int,
    indent: int | None,
    ascii_only: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / "list.json"
    path.write_text(json.dumps(document, indent=indent, ensure_ascii=ascii_only), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "_CHUNK", chunk)
        assert list(items(path)) == document
    assert load(path) == document


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ('[{"b": 1,}]', "[0]", "no JSON"),
        ('[{"a": 1},\n]', "[1]", "expecting value"),
        ('[{"a": 1} {"a": 2}]', "[1]", "no JSON"),
        ('[{"b": "b\nc"}]', "[0]", "invalid control character"),
        ('[{"a": 1}]\n}', "[1]", "no JSON"),
        ('[{"b": 1, "b": 2}]', "[0]", 'the key "b" is there twice'),
        ('{"a": 3}', "[0]", "a list of values"),
        ("", "[0]", "a list of values"),
        ('[{"a": nul', "[0]", "expecting value"),
        ('[{"a": "b', "[0]", "unterminated string"),
        ("[" + "[" * 100_000, "[0]", "nested too deeply"),
        ('[{"a": ' + "9" * 5_000 + "}]", "[0]", "digits"),
    ],
)
def test_what_is_no_list_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, place: str, reason: str, chunk: int
) -> None:
    monkeypatch.setattr(plain, "_CHUNK", chunk)
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ImportFormatError) as caught:
        list(items(path))
    assert (caught.value.place, reason in caught.value.reason) == (place, True), caught.value


def test_a_file_is_refused_that_is_no_json_too_large_or_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": [\n {"b": 1,}\n]}')
    with pytest.raises(ImportFormatError, match=r"a\.json: line 2, column \d+: no JSON"):
        load(path)
    with pytest.raises(ImportFormatError, match="has 21 bytes, and 20 are the most"):
        load(path, limit=20)
    path.write_bytes('[{"a": "é"}]'.encode("latin-1"))
    for read in (load, lambda path: list(items(path))):
        with pytest.raises(ImportFormatError, match=r"near byte 8: no UTF-8"):
            read(path)
