from __future__ import annotations

import pytest

from pipeline.lean.source.scanner import parse

SOURCE = """\
/- Copyright -/
import A
-- about

/-! Module -/
universe u
open Nat
namespace A.B
variable {x : Nat}
section S
open List in
/-- doc -/
theorem a : p := sorry
set_option autoImplicit false
local notation "N" => Nat
variable (y : Nat) -- c
  {z : Nat}
lemma b : p := q
mutual
def c := 1
def d := sorry
end
end S
end B
attribute [simp] a
attribute [local simp] b
example : p := q
end A
"""


def at(needle: str) -> int:
    return SOURCE.encode().index(needle.encode())


def test_commands_lie_in_order_and_hold_their_own_text() -> None:
    source = parse(SOURCE.encode())
    data = SOURCE.encode()
    assert source.header_end == at("/-! Module")
    assert source.imports == ("A",)
    assert all(data[item.byte_start : item.byte_end].decode() == item.text for item in source.commands)
    ends = [item.byte_end for item in source.commands]
    assert all(
        end <= item.byte_start for end, item in zip([source.header_end, *ends], source.commands, strict=False)
    )
    between = SOURCE
    for item in source.commands:
        between = between.replace(item.text, "", 1)
    assert (
        between.split() == ["/-", "Copyright", "-/", "import", "A", "--", "about", "--", "c"]
        or "theorem" not in between
    )


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("/- a\nb -/ module -- c\r\n\r\npublic  import A.B\nimport all C\n\ndef x := 1\n",
         "module\npublic  import A.B\nimport all C\n"),
        ("module\n\n@[expose] public section\n", "module\n"),
        ("prelude\nimport Init.Core\n", "prelude\nimport Init.Core\n"),
        ("import A\n\ndef module := 1\n", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_a_header_says_more_than_imports_only_where_it_begins_with_module_or_prelude(
    text: str, header: str
) -> None:
    assert parse(text.encode()).own_header == header


def test_commands_have_their_kinds() -> None:
    kinds = [item.kind for item in parse(SOURCE.encode()).commands]
    assert kinds == [
        "other",
        "universe",
        "open",
        "namespace",
        "variable",
        "section",
        "declaration",
        "set_option",
        "notation",
        "variable",
        "declaration",
        "declaration",
        "end",
        "end",
        "attribute",
        "attribute",
        "declaration",
        "end",
    ]


def test_a_prefix_and_a_doc_comment_belong_to_the_command() -> None:
    texts = [item.text for item in parse(SOURCE.encode()).commands]
    assert "open List in\n/-- doc -/\ntheorem a : p := sorry" in texts
    assert "mutual\ndef c := 1\ndef d := sorry\nend" in texts


def test_the_preamble_re_issues_what_is_in_force() -> None:
    source = parse(SOURCE.encode())
    assert source.preamble_at(at("theorem a")).splitlines() == [
        "universe u",
        "open Nat",
        "namespace A",
        "namespace B",
        "variable {x : Nat}",
        "section S",
    ]
    assert source.preamble_at(at("lemma b")).splitlines()[-4:] == [
        "section S",
        "set_option autoImplicit false",
        'local notation "N" => Nat',
        "variable (y : Nat) {z : Nat}",
    ]


def test_the_preamble_forgets_what_an_end_closed() -> None:
    source = parse(SOURCE.encode())
    assert source.preamble_at(at("example")).splitlines() == [
        "universe u",
        "open Nat",
        "namespace A",
        "attribute [local simp] b",
    ]
    assert source.preamble_at(len(SOURCE.encode())).splitlines() == ["universe u", "open Nat"]


def test_the_preamble_of_a_file_without_scopes_is_empty() -> None:
    assert parse(b"theorem a : p := sorry").preamble_at(3) == ""
