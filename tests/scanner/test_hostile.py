from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lean.source.scanner import parse, scan_source

_PIECES = [
    *(
        "theorem",
        "lemma",
        "def",
        "instance",
        "example",
        "structure",
        "inductive",
        "mutual",
        "end",
        "namespace A.B",
    ),
    *(
        "section",
        "open",
        "set_option",
        "variable",
        "in",
        "where",
        "by",
        "sorry",
        "admit",
        "«",
        "»",
        "«sorry»",
        "`",
    ),
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "⟨",
        "⟩",
        "@[",
        ":=",
        ":",
        "|",
        "=>",
        "·",
        ";",
        "<;>",
        ",",
        "fun",
        "match",
        "with",
    ),
    *(
        "--",
        "/-",
        "-/",
        "/--",
        "/-!",
        '"',
        's!"',
        'r#"',
        '"#',
        "'",
        "\\",
        "#exit",
        "#check",
        "\n",
        "\r\n",
        "\n\n",
        " ",
    ),
    *(
        "α",
        "ℝ",
        "𝔸",
        "a",
        "a.b",
        "x₁",
        "\0",
        "\ufeff",
        "\x01",
        "\x02",
        "\u2028",
        "private",
        "noncomputable",
        "alias",
    ),
    *(
        "deriving",
        "instance",
        "class inductive",
        "first",
        "then",
        "else",
        "if",
        "let",
        "$",
        "..",
        "import A",
        "module",
    ),
]
_sources = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from(_PIECES), max_size=60).map(lambda pieces: " ".join(pieces).encode()),
    st.lists(st.sampled_from(_PIECES), max_size=60).map(lambda pieces: "".join(pieces).encode()),
    st.tuples(st.lists(st.sampled_from(_PIECES), max_size=30), st.binary(max_size=5)).map(
        lambda pair: " ".join(pair[0]).encode() + pair[1] + b" theorem a : p := by sorry"
    ),
)


@settings(max_examples=400, deadline=None)
@given(_sources)
def test_no_bytes_make_the_scanner_raise_and_every_range_is_exact(data: bytes) -> None:
    source = parse(data, path="A.lean")
    scanned = source.scanned
    assert scanned == scan_source(data, path="A.lean")
    last = 0
    for sorry in scanned.sorries:
        assert data[sorry.byte_start : sorry.byte_end] == sorry.token.encode()
        assert sorry.byte_start >= last
        last = sorry.byte_end
        owner = scanned.declarations[sorry.index]
        assert owner.byte_start <= sorry.byte_start
        assert sorry.byte_end <= owner.byte_end
        assert owner.name == sorry.declaration
    end = 0
    for command in source.commands:
        assert end <= command.byte_start < command.byte_end <= len(data)
        end = command.byte_end
        source.preamble_at(command.byte_start)
    str(scanned.as_json()).encode()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"theorem a : p := sorry -- \xff\n", "not valid UTF-8 at byte 26"),
        (b"theorem a : p := sorry\0", "a NUL at byte 22"),
        (b"theorem a : p := sorry\n/- ", "a comment that begins in line 2 is not closed"),
        (b'theorem a : p := sorry\n"', "a string that begins in line 2 is not closed"),
    ],
)
def test_a_file_that_cannot_be_read_in_full_says_why_and_is_read_as_far_as_possible(
    data: bytes, error: str
) -> None:
    scanned = scan_source(data, path="A.lean")
    assert scanned.error == error
    assert [item.byte_start for item in scanned.sorries] == [17]


def test_bytes_that_are_no_utf8_show_as_replacement_characters() -> None:
    (declaration,) = scan_source(b"theorem a : f \xff\xfe = 1 := sorry", path="A.lean").declarations
    assert declaration.statement == ": f \ufffd\ufffd = 1"


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_carriage_returns_and_byte_order_marks_are_no_error(newline: bytes, mark: bytes) -> None:
    data = mark + newline.join([b"import A", b"", b"theorem a : p :=", b"  by", b"  sorry", b""])
    scanned = scan_source(data, path="A.lean")
    assert scanned.error is None
    assert scanned.imports == ("A",)
    (found,) = scanned.sorries
    assert (found.line, found.column, found.mode) == (5, 2, "tactic")
    assert data[found.byte_start : found.byte_end] == b"sorry"


_SHAPES = {
    "brackets": b"(",
    "closers": b"]",
    "attributes": b"@[",
    "comments": b"/-",
    "strings": b'"',
    "holes": b's!"{',
    "raw strings": b'r#"',
    "hashes": b'#"',
    "name quotes": "«".encode(),
    "ticks": b"a' ",
    "blocks": b"by ",
    "modifiers": b"private ",
    "namespaces": b"namespace a\n",
    "prefixes": b"open a in ",
    "indented": b"  open a in\n",
    "docs": b"/-- a -/ ",
    "sorrys": b"sorry ",
    "antiquotations": b"`($(",
    "conditionals": b"if a then ",
    "alternatives": b"| a => sorry ",
    "theorems": b"theorem a : p := by sorry ",
    "lemmas": b"lemma a (b) (",
    "words": b"a.",
    "no utf-8": b"\xff",
    "letters": "ℝ".encode(),
    "blanks": b" ",
}


@pytest.mark.parametrize("shape", _SHAPES.values(), ids=_SHAPES.keys())
def test_time_grows_in_step_with_a_line_of_any_shape(shape: bytes) -> None:
    def seconds(size: int) -> float:
        data = b"theorem a : p := by " + shape * (size // len(shape)) + b" sorry\n"
        started = time.process_time()
        scan_source(data, path="A.lean")
        return time.process_time() - started

    small = min(seconds(5_000) for _ in range(3))
    # Eight times the size: a quadratic reader takes 64 times as long. One of three: a busy machine adds to any.
    assert any(seconds(40_000) < 24 * small + 0.02 for _ in range(3))


def test_time_grows_in_step_with_sections_that_are_never_closed() -> None:
    def seconds(number: int) -> float:
        data = b"section\n" * number + b"theorem a : p := q\n" * number
        started = time.process_time()
        scan_source(data, path="A.lean")
        return time.process_time() - started

    small = min(seconds(1_000) for _ in range(3))
    assert any(seconds(8_000) < 16 * small + 0.02 for _ in range(2))


def test_a_line_of_ten_megabytes_is_read() -> None:
    data = b"theorem a : p := by simp only [" + (b"foo_" * 250 + b", ") * 10_000 + b"bar]; sorry"
    scanned = scan_source(data, path="A.lean")
    assert len(data) > 10_000_000
    assert [item.byte_end for item in scanned.sorries] == [len(data)]
    assert scanned.error is None
