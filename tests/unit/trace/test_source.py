"""What a trace takes from the text alone: statements, premises, the texts of steps."""

from __future__ import annotations

from pipeline.trace.source import FileSource

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


def test_a_step_s_text_has_no_comments_stands_at_the_margin_and_may_be_marked() -> None:
    text = "theorem t : p := by\n  exact foo -- words\n    -- ∀ more\n\n      (A.bar\n q)\n"
    found = FileSource.read("A.lean", text.encode())
    start, end = text.index("exact"), text.index("q)") + 2
    assert found.step(start, end) == "exact foo\n    (A.bar\nq)"
    marks = [(at, at + len(word)) for word in ("foo", "A.bar") for at in (text.index(word),)]
    assert found.step(start, end, marks) == "exact <a>foo</a>\n    (<a>A.bar</a>\nq)"


def test_a_byte_is_in_the_declaration_that_holds_it() -> None:
    assert source().declaration_at(TEXT.encode().index(b"intro h")) == "A.B.foo"
    assert source().declaration_at(0) == ""
