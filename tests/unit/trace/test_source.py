"""What a trace takes from the text alone: names' places, statements, premises."""

from __future__ import annotations

from pipeline.trace.source import FileSource, owner_site

TEXT = """\
import Init

namespace A

/-- words about -/
@[simp] theorem B.foo (p : Prop) -- a comment
    : p → p := by
  intro h
  exact h

lemma _root_.top : True := trivial

instance : Inhabited Nat := ⟨0⟩

inductive Color where
  | red -- the first
  | blue

alias bar := B.foo

def foo_bar (bar : Nat) : Nat := bar

theorem «odd name» : True := trivial

example : True := trivial

end A
"""


def source() -> FileSource:
    return FileSource.read("A.lean", TEXT.encode())


def test_a_name_s_place_is_where_as_much_of_it_as_is_written_stands() -> None:
    sites = source().sites
    assert sites["A.B.foo"] == ("A.lean", (6, 17), (6, 22))
    assert sites["top"] == ("A.lean", (11, 14), (11, 17))
    assert sites["A.bar"] == ("A.lean", (19, 7), (19, 10))
    assert sites["A.foo_bar"] == ("A.lean", (21, 5), (21, 12))
    assert sites["A.odd name"] == ("A.lean", (23, 9), (23, 19))
    assert len(sites) == 6


def test_what_a_declaration_made_is_where_the_declaration_is() -> None:
    sites = source().sites
    assert owner_site(sites, "A.Color.red") == sites["A.Color"]
    assert owner_site(sites, "A.Color.casesOn") == sites["A.Color"]
    assert owner_site(sites, "B.foo") is None


def test_a_statement_goes_from_the_first_attribute_to_the_proof_without_comments() -> None:
    found = source()
    foo = found.declarations[0]
    assert found.statement(foo) == "@[simp] theorem B.foo (p : Prop)\n    : p → p :="
    assert (found.position(foo.start), found.position(foo.end)) == ((6, 1), (9, 10))


def test_a_declaration_begins_at_its_doc_comment_as_leandojo_has_it() -> None:
    text = """\
/-! About the file. -/
theorem one : True := trivial
/-- ∀
two -/
-- and words between
@[simp]
theorem two : True := trivial
/-- three -/ theorem three : True := trivial
/- no doc -/
theorem four : True := trivial
"""
    found = FileSource.read("A.lean", text.encode())
    assert [found.begin(item) for item in found.declarations] == [(2, 1), (3, 1), (8, 1), (10, 1)]
    assert [item.start for item in found.premises()] == [(2, 1), (3, 1), (8, 1), (10, 1)]
    assert found.statement(found.declarations[2]) == "theorem three : True :="


def test_premises_are_all_declarations_but_examples_and_those_without_a_name_have_none() -> None:
    premises = source().premises()
    assert [(item.full_name, item.kind) for item in premises] == [
        ("A.B.foo", "commanddeclaration"),
        ("top", "lemma"),
        (None, "commanddeclaration"),
        ("A.Color", "commanddeclaration"),
        ("A.bar", "stdtacticaliasalias"),
        ("A.foo_bar", "commanddeclaration"),
        ("A.«odd name»", "commanddeclaration"),
    ]
    codes = [item.code for item in premises]
    assert codes[1] == "lemma _root_.top : True"
    assert codes[3] == "inductive Color where\n  | red\n  | blue"
