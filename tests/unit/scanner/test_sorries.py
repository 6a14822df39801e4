from __future__ import annotations

import pytest

from pipeline.lean.source.scanner import scan_source
from store.domain.records import ScannedFile, Sorry


def scan(source: str) -> ScannedFile:
    return scan_source(source.encode(), path="A.lean")


def modes(source: str) -> list[str]:
    return [item.mode for item in scan(source).sorries]


@pytest.mark.parametrize(
    "source",
    [
        "theorem a : p := q -- sorry",
        "theorem a : p := q /- sorry /- sorry -/ sorry -/",
        "/-- sorry -/ theorem a : p := q",
        "/-! sorry -/",
        'theorem a : f "sorry" := q',
        'def a := s!"sorry {b}"',
        'def a := r#"sorry"#',
        "theorem sorry_free : p := q",
        "theorem a : p := sorryAx p",
        "theorem a : p := hsorry",
        "theorem a : p := sorry'",
        "theorem a : p := sorry₁",
        "theorem a : p := «sorry»",
        "theorem a : p := foo.sorry",
        "theorem a : p := sorry.foo",
        "theorem a : p := `sorry",
        "def a := ``Lean.Parser.Term.sorry",
        "def a : MacroM Syntax := `(sorry)",
        "def a : MacroM Syntax := `(tactic| sorry)",
        'macro "x" : tactic => `(tactic| sorry)',
        'notation "x" => sorry',
        "#check (sorry : p)",
        "#print axioms sorry",
        "def admit := 1",
        "def stop := 1",
        "theorem a (stop : p) : p := by exact stop",
        "theorem a : p := by exact Stream.stop x",
        "theorem a : p := admit",
        "theorem a : p := by exact admit x",
        "#exit\ntheorem a : p := sorry",
    ],
)
def test_what_lean_would_not_elaborate_as_a_sorry_is_none(source: str) -> None:
    assert scan(source).sorries == ()


@pytest.mark.parametrize(
    ("source", "mode"),
    [
        ("theorem a : p := sorry", "term"),
        ("theorem a : p :=\n  sorry", "term"),
        ("theorem a : p := by sorry", "tactic"),
        ("theorem a : p := by\n  sorry", "tactic"),
        ("theorem a : p := by\n  simp\n  sorry -- c", "tactic"),
        ("theorem a : p := by exact sorry", "term"),
        ("theorem a : p := by\n  exact\n    sorry", "term"),
        ("theorem a : p := by\n  have h : q := sorry\n  exact h", "term"),
        ("theorem a : p := by\n  have h : q := by sorry\n  exact h", "tactic"),
        ("theorem a : p := by\n  have h : q := by\n    simp\n    sorry\n  exact h", "tactic"),
        ("theorem a : p := by\n  constructor\n  · sorry\n  · simp", "tactic"),
        ("theorem a : p := by\n  constructor\n  · simp\n    sorry", "tactic"),
        ("theorem a : p := by\n  constructor\n  . sorry", "tactic"),
        ("theorem a : p := by constructor <;> sorry", "tactic"),
        ("theorem a : p := by simp; sorry", "tactic"),
        ("theorem a : p := by\n  cases h with\n  | inl x => sorry\n  | inr y => simp", "tactic"),
        ("theorem a : p := by\n  induction n with\n  | zero => simp\n  | succ n ih =>\n    sorry", "tactic"),
        ("theorem a : p := by\n  rcases h with x | y\n  · sorry\n  · simp", "tactic"),
        ("theorem a : p := by\n  match h with\n  | x => sorry", "tactic"),
        ("theorem a : p := by\n  exact match h with\n  | x => sorry", "term"),
        ("theorem a : p := by\n  case inl h => sorry", "tactic"),
        ("theorem a : p := by\n  all_goals sorry", "tactic"),
        ("theorem a : p := by\n  first | simp | sorry", "tactic"),
        ("theorem a : p := by\n  try sorry", "tactic"),
        ("theorem a : p := by\n  (simp; sorry)", "tactic"),
        ("theorem a : p := by\n  constructor\n  { sorry }", "tactic"),
        ("theorem a : p := by\n  by_cases h : q\n  if h : q then simp else sorry", "tactic"),
        ("theorem a : p := if h : q then r else sorry", "term"),
        ("theorem a : p := by\n  refine ⟨by simp, sorry⟩", "term"),
        ("theorem a : p := by\n  refine ⟨by\n      simp,\n      sorry⟩", "term"),
        ("theorem a : p := fun x => sorry", "term"),
        ("theorem a : p := by\n  exact fun x => sorry", "term"),
        ("theorem a : p := ⟨sorry, q⟩", "term"),
        ("theorem a : p := by\n  apply f (x := sorry)", "term"),
        ("theorem a : p := by\n  calc a = b := sorry\n    _ = c := q", "term"),
        ("theorem a : p := show p by sorry", "tactic"),
        ("theorem a : p := let x := 1; sorry", "term"),
        ("theorem a : p := by\n  exact let x := 1; sorry", "term"),
        ("theorem a : answer(sorry) ↔ p := q", "term"),
        ("theorem a : ∀ n, p n\n  | 0 => sorry\n  | n => q", "term"),
        ("def a : Nat := sorry", "term"),
        ("def a := b where b := sorry", "term"),
        ("def a := b\nwhere\n  b : Nat := by\n    sorry", "tactic"),
        ("def a (n : Nat) := b n\ntermination_by n\ndecreasing_by sorry", "tactic"),
        ("instance : Foo := ⟨sorry⟩", "term"),
        ("instance : Foo where\n  x := sorry", "term"),
        ("structure A where\n  x : p := sorry", "term"),
        ("example : p := sorry", "term"),
        ("abbrev a : p := sorry", "term"),
        ("mutual\ndef a := sorry\nend", "term"),
        ("#guard_msgs in\nexample : p := sorry", "term"),
        ("def a := { b with ..sorry }", "term"),
        ("def a := `($(sorry))", "term"),
        ("theorem a : p := by admit", "tactic"),
        ("theorem a : p := by\n  constructor\n  stop\n  exact h", "tactic"),
        ("theorem a : p := by stop exact h", "tactic"),
        ("theorem a : p := by\n  constructor\n  · admit", "tactic"),
        ("theorem a : p := by\n  open Nat in sorry", "tactic"),
        ("my_theorem a : p := sorry", "term"),
    ],
)
def test_each_sorry_is_found_and_told_tactic_from_term(source: str, mode: str) -> None:
    assert modes(source) == [mode]


def test_alternatives_on_one_line_are_tactics_each() -> None:
    assert modes("theorem a : p := by cases h with | inl x => sorry | inr y => sorry") == ["tactic", "tactic"]


def test_places_are_exact_behind_characters_of_many_bytes() -> None:
    source = (
        "namespace Α\n/-- ∀ -/\ntheorem β (h : ∀ x, x ∈ s) : «sorry» := by\n  have : ℝ := sorry; admit\nend Α"
    )
    first, second = scan(source).sorries
    data = source.encode()
    assert (first.declaration, first.index, first.ordinal, first.token, first.mode) == (
        "Α.β",
        0,
        0,
        "sorry",
        "term",
    )
    assert (first.line, first.column) == (4, 14)
    assert data[first.byte_start : first.byte_end] == b"sorry"
    assert (second.ordinal, second.token, second.mode) == (1, "admit", "tactic")
    assert data[second.byte_start : second.byte_end] == b"admit"


def test_two_declarations_of_one_name_are_told_apart_by_their_index() -> None:
    sorries = scan("example : p := sorry\nexample : p := q\nexample : r := by\n  sorry").sorries
    assert [(item.declaration, item.index, item.ordinal) for item in sorries] == [
        ("_example", 0, 0),
        ("_example", 2, 0),
    ]


def contexts(source: str) -> list[str]:
    return [item.context_hash for item in scan(source).sorries]


def test_the_context_stays_when_the_declaration_moves() -> None:
    assert contexts("theorem a : p := by\n  simp\n  sorry") == contexts(
        "import B\n\n/-- doc -/\ntheorem a : p := by\n  simp -- c\n  sorry"
    )


def test_filling_the_sorry_before_leaves_half_of_the_context() -> None:
    before = contexts("theorem a : p := by\n  constructor\n  · sorry\n  · sorry")[1]
    (after,) = contexts("theorem a : p := by\n  constructor\n  · exact f x y z\n  · sorry")
    assert before != after
    assert before[8:] == after[8:]


def test_the_record_survives_json() -> None:
    result = scan("import B\ntheorem a : p := by\n  sorry")
    assert ScannedFile.from_json(result.as_json()) == result
    assert isinstance(result.sorries[0], Sorry)
