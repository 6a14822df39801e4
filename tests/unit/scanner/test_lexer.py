from __future__ import annotations

import pytest

from pipeline.lean.source.lexer import Positions, decode, lex


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("a -- b\nc", "a     \nc"),
        ("a /- b -/ c", "a         c"),
        ("a /- b /- c -/ d -/ e", "a" + " " * 19 + "e"),
        ("a /-- b /- c -/ d -/ e", "a" + " " * 20 + "e"),
        ("a /- -- -/ b", "a          b"),
        ("a -- /-\nb", "a      \nb"),
        ('a "-- /- b" c', 'a "-- /- b" c'),
        ('"\\"--" -- x', '"\\"--"     '),
        ("'\"' -- x", "'\"'     "),
        ("f' -- x", "f'     "),
        ('r"\\" -- x', 'r"\\"     '),
        ('r#"a"b"# -- x', 'r#"a"b"#     '),
        ("«-- a» -- x", "«-- a»     "),
        ("f ⁻¹' s -- x", "f ⁻¹' s     "),
        ("a-b - c/d", "a-b - c/d"),
        ("{x //-x = x} -- a", "{x //-x = x}     "),
        ("q <--x -- a", "q <--x     "),
        ("q ←-- a", "q ←    "),
        ("(-- a", "(    "),
        ("a--b", "a   "),
        ('f 0r"\\" -- a', 'f 0r"\\"     '),
        ("f 'a''\"' -- a", "f 'a''\"'     "),
        ("x[0]'\"'\" -- a", "x[0]'\"'\"     "),
        ("1_0?'\"' -- a", "1_0?'\"'     "),
        ('`r"\\" -- a"', '`r"\\" -- a"'),
        ('x.r"\\" -- a"', 'x.r"\\" -- a"'),
        ('(x).r"\\" -- a', '(x).r"\\"     '),
    ],
)
def test_comments_and_only_comments_are_blanked(source: str, code: str) -> None:
    assert lex(source).code == code


@pytest.mark.parametrize(
    ("source", "hidden", "seen"),
    [
        ('"sorry" a', "sorry", "a"),
        ('s!"sorry {a} sorry" b', "sorry", "a"),
        ('s!"x {f "sorry"} y" a', "sorry", "f"),
        ('s!"x {f { b := "sorry" }} sorry" a', "sorry", "b :="),
        ('s!"\\{ sorry" a', "sorry", " a"),
        ('throwError "sorry {a}"', "sorry", "a"),
        ('r#"sorry"# a', "sorry", "a"),
        ("«sorry» a", "sorry", "a"),
    ],
)
def test_what_a_string_or_name_quotes_is_hidden_and_the_code_in_its_holes_is_not(
    source: str, hidden: str, seen: str
) -> None:
    bare = lex(source).bare
    assert hidden not in bare
    assert seen in bare


def test_a_comment_right_behind_a_symbol_may_be_none_and_is_an_error() -> None:
    lexed = lex("a\nb +-- c")
    assert lexed.code == "a\nb +    "
    assert lexed.errors == ("a comment right behind +, which could be part of a longer token, in line 2",)


@pytest.mark.parametrize(
    ("source", "apart"),
    [("0sorry", '"sorry'), ("0x1fsorry", '0x1"sorry'), ("x0sorry", "x0sorry"), ("«a»sorry", "xx»sorry"),
     ("a«b»", "a«xx"), ("«a».«b»", "xxx.xxx"), ("1theorem", '"theorem'), ("(!sorry", '("sorry'),
     ("x!sorry", "x!sorry")],
)  # fmt: skip
def test_a_word_right_behind_a_number_or_a_quoted_name_stands_apart(source: str, apart: str) -> None:
    assert lex(source).bare == apart


def test_a_quotation_mark_between_ticks_behind_a_symbol_may_be_no_character_and_is_an_error() -> None:
    assert lex("f ⁻¹'\"'\"").errors[0] == (
        "a character right behind ¹, which could be part of a longer token, in line 1"
    )


def test_prose_of_a_document_is_blank_but_for_its_blocks_of_lean() -> None:
    text = 'a\n#doc (Manual) "T" =>\n`/-` 1"\n```lean\ndef b := 1\n```\n```text\nc\n```\n'
    lexed = lex(text)
    assert lexed.code.split() == ["a", "#doc", "(Manual)", '"T"', "=>", "def", "b", ":=", "1"]
    assert len(lexed.code) == len(lexed.bare) == len(text)
    assert [text[start:end].strip() for start, end in lexed.parts[1:]] == ["def b := 1"]


def test_the_masks_have_the_length_of_the_text() -> None:
    text = 'theorem «a b» : "é\\"" = \'x\' /- α /- β -/ -/ := s!"{1}" -- γ\n/-- d -/'
    lexed = lex(text)
    assert len(lexed.code) == len(lexed.bare) == len(text)


@pytest.mark.parametrize("source", ["a\nb /- c", 'a\nb "c', 'a\nb r#"c"', 'a\nb s!"c'])
def test_what_is_not_closed_is_reported_with_its_line(source: str) -> None:
    lexed = lex(source)
    assert lexed.code.startswith("a\nb")
    (error,) = lexed.errors
    assert "line 2 is not closed" in error


def test_a_hole_that_never_closes_does_not_swallow_the_rest_of_the_file() -> None:
    assert "theorem" in lex('def a := s!"{"\ntheorem b').bare


def test_positions_count_code_points_and_original_bytes() -> None:
    text, problem = decode("α\nβγ x".encode())
    places = Positions(text, text)
    at = text.index("x")
    assert problem is None
    assert (places.line(at), places.column(at), places.byte(at)) == (2, 3, 8)


def test_bytes_that_are_no_utf8_keep_the_offsets_of_what_follows() -> None:
    data = b"a\xff\xc3(\nb sorry"
    text, problem = decode(data)
    assert problem == "not valid UTF-8 at byte 1"
    assert Positions(text, text).byte(text.index("sorry")) == data.index(b"sorry")


def test_offsets_agree_with_encoding_far_into_a_text() -> None:
    text = "aβ𝔸\n" * 3000
    places = Positions(text, text)
    for at in (0, 1, 1023, 1024, 1025, 5000, len(text)):
        assert places.byte(at) == len(text[:at].encode())
        assert places.offset(len(text[:at].encode())) == at
    short = Positions("aβ", "aβ")
    assert short.offset(3) == 2
