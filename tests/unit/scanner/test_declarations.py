from __future__ import annotations

import pytest

from pipeline.lean.source.scanner import scan_source
from store.domain.records import Declaration, ScannedFile


def scan(source: str) -> ScannedFile:
    return scan_source(source.encode(), path="A.lean")


def only(source: str) -> Declaration:
    (declaration,) = scan(source).declarations
    return declaration


def names(source: str) -> list[str]:
    return [item.name for item in scan(source).declarations]


@pytest.mark.parametrize(
    ("source", "kind", "name"),
    [
        ("theorem a : p := q", "theorem", "a"),
        ("lemma a : p := q", "lemma", "a"),
        ("def a := q", "def", "a"),
        ("abbrev a := q", "abbrev", "a"),
        ("instance a : p := q", "instance", "a"),
        ("instance : p := q", "instance", "_instance"),
        ("instance (priority := low) : p := q", "instance", "_instance"),
        ("instance (priority := 100) a : p := q", "instance", "a"),
        ("instance {x : Nat} : p := q", "instance", "_instance"),
        ("example : p := q", "example", "_example"),
        ("structure A where\n  x : Nat", "structure", "A"),
        ("class A (x : Nat) where\n  x : Nat", "class", "A"),
        ("class inductive A\n| a", "class inductive", "A"),
        ("class abbrev A := B", "abbrev", "A"),
        ("inductive A\n| a", "inductive", "A"),
        ("opaque a : Nat", "opaque", "a"),
        ("axiom a : p", "axiom", "a"),
        ("irreducible_def a : Nat := 1", "irreducible_def", "a"),
        ("alias a := b", "alias", "a"),
        ("deriving instance Repr for A", "deriving instance", "_instance"),
        ("proof_wanted a : p", "proof_wanted", "a"),
        ("initialize a : IO.Ref Nat ← IO.mkRef 0", "initialize", "a"),
        ("my_theorem a (x : Nat) : p := q", "my_theorem", "a"),
        ("@[simp, to_additive (attr := simp)] theorem a : p := q", "theorem", "a"),
        ("/-- doc -/\n@[simp]\nprotected noncomputable def a := q", "def", "a"),
        ("private nonrec theorem a : p := q", "theorem", "a"),
        ("@[expose] public meta partial def a := q", "def", "a"),
        ("scoped instance a : p := q", "instance", "a"),
        ("open Nat in\ntheorem a : p := q", "theorem", "a"),
        ("set_option maxHeartbeats 0 in\n/-- doc -/\nopen Nat in lemma a : p := q", "lemma", "a"),
        ("omit [Foo X] in variable {x} in theorem a : p := q", "theorem", "a"),
        ("#guard_msgs in example : p := q", "example", "_example"),
        ("theorem «a b».c : p := q", "theorem", "«a b».c"),
        ("theorem a.{u, v} (x : Type u) : p := q", "theorem", "a"),
        ("theorem x₁' : p := q", "theorem", "x₁'"),
        ("theorem ℝ.αβ : p := q", "theorem", "ℝ.αβ"),
    ],
)
def test_each_kind_is_found_with_its_name(source: str, kind: str, name: str) -> None:
    result = only(source)
    assert (result.kind, result.name) == (kind, name)


@pytest.mark.parametrize(
    "source",
    [
        "deriving Repr",
        "initialize registerTraceClass `a",
        "initialize do pure ()",
        "attribute [instance] foo",
        "attribute [local instance 1000] foo in\n#check a",
        "#print theorem",
        "#help command def",
        'local notation "theorem" => x',
        'macro "def" x:term : command => `(theorem a : $x := sorry)',
        'elab tk:"#x" : command => do pure ()',
        "open private theoremFoo from Bar",
        "grind_pattern foo => bar x",
        "-- theorem a : p := q",
        "/- theorem a : p := q -/",
        "#exit\ntheorem a : p := q",
    ],
)
def test_what_declares_nothing_is_no_declaration(source: str) -> None:
    assert scan(source).declarations == ()


def test_names_are_qualified_by_the_open_namespaces() -> None:
    source = """
namespace A.B
theorem a : p := q
section S
theorem b : p := q
namespace C
theorem _root_.D.c : p := q
example : p := q
end C
end S
end B
theorem d : p := q
end A
theorem e : p := q
"""
    assert names(source) == ["A.B.a", "A.B.b", "D.c", "A.B.C._example", "A.d", "e"]


def test_sections_without_names_and_mutual_blocks_close_what_they_opened() -> None:
    source = """
namespace A
noncomputable section
mutual
  inductive X
    | mk : Y → X
  inductive Y
    | mk : X → Y
end
end
theorem a : p := q
end A
@[expose] public section
theorem b : p := q
"""
    assert names(source) == ["A.X", "A.Y", "A.a", "b"]


def test_an_end_that_fits_nothing_closes_nothing() -> None:
    assert names("namespace A\nend B\ntheorem a : p := q\nend A\nend A\ntheorem b : p := q") == ["A.a", "b"]


def test_an_alias_of_an_equivalence_declares_both_names() -> None:
    assert names("alias ⟨a, _⟩ := b\nalias ⟨c, d⟩ := e") == ["a", "c", "d"]


def test_constructors_named_like_keywords_begin_no_command() -> None:
    assert names(
        "inductive A where\n  | axiom : A\n  | def (x : Nat)\n  | example : A\ntheorem a : p := q"
    ) == ["A", "a"]


def test_indented_commands_are_found_and_tactic_blocks_are_not_taken_for_commands() -> None:
    source = """
namespace A
  theorem a : p := by
    open Nat in
    set_option maxHeartbeats 0 in
    simp
  private lemma b : p := q
  structure C where
    private mk ::
    protected x : Nat
end A
"""
    assert names(source) == ["A.a", "A.b", "A.C"]


def test_a_term_that_opens_a_namespace_at_the_margin_stays_with_its_declaration() -> None:
    source = "theorem a : p :=\nopen Nat in\nq\n\ntheorem b : p := q"
    first, second = scan(source).declarations
    assert first.end_line == 3
    assert second.name == "b"


def test_an_open_bracket_costs_one_command_and_not_the_file() -> None:
    assert names("theorem a : f ( x := q\ntheorem b : p := q") == ["a", "b"]


def test_a_command_of_a_library_ends_the_declaration_before() -> None:
    first, second = scan("theorem a : p := q\n\nsome_command foo bar\n\ntheorem b : p := q").declarations
    assert (first.end_line, second.name) == (1, "b")


@pytest.mark.parametrize(
    ("source", "statement"),
    [
        ("theorem a : p := q", ": p"),
        ("theorem a (h : p := by simp) :\n    p -- c\n  ∧ q := r", "(h : p := by simp) : p ∧ q"),
        ("theorem a : let x := 1; x = 1 := rfl", ": let x := 1; x = 1"),
        ("theorem a :\n  letI := f\n  let ⟨x, y⟩ := g\n  p := q", ": letI := f let ⟨x, y⟩ := g p"),
        ("theorem a : |x - y| ≤ 1 := by\n  exact fun z => z", ": |x - y| ≤ 1"),
        ("theorem a :\n    |x| = fun y => |y| := q", ": |x| = fun y => |y|"),
        ("theorem a : ∀ n, p n\n  | 0 => q\n  | n + 1 => r", ": ∀ n, p n"),
        ("theorem a : ∀ n, |n| ≤ p n\n  | 0 => q\n  | n + 1 => r", ": ∀ n, |n| ≤ p n"),
        ("def a : Nat → Nat | 0 => 1 | n => 2", ": Nat → Nat"),
        ("theorem a : match x with | 0 => p | _ => q := r", ": match x with | 0 => p | _ => q"),
        ("theorem a : {x | p x} = ∅ := q", ": {x | p x} = ∅"),
        ("instance : Foo Bar where\n  x := 1", ": Foo Bar"),
        ("structure A (x : Nat) extends B where\n  y : Nat", "(x : Nat) extends B"),
        ("inductive A : Type\n  | a\n  deriving Repr", ": Type"),
        ("inductive A where | a", ""),
        ("axiom a (x : Nat) : p x", "(x : Nat) : p x"),
        ("theorem a.{u} (X : Type u) : p := q", "(X : Type u) : p"),
        ("theorem a : answer(sorry) ↔ p := by sorry", ": answer(sorry) ↔ p"),
        ('theorem a : f "x := y" := q', ': f "x := y"'),
        ("alias a := b.c", "b.c"),
        ("theorem a : P ⊢ |==> Q := by simp", ": P ⊢ |==> Q"),
        ("theorem a : P ⊢\n  |={E1,E2}=> Q := by simp", ": P ⊢ |={E1,E2}=> Q"),
        ("theorem a : p ▷=> q := by cases h with | inl x => y", ": p ▷=> q"),
        ("theorem a : f = fun₀ | 3 => 1 | 4 => 2 := q", ": f = fun₀ | 3 => 1 | 4 => 2"),
        ("theorem a : f fun | 0 => p | _ => q := r", ": f fun | 0 => p | _ => q"),
        ("theorem a : |x| => |y| := q", ": |x| => |y|"),
        ("def a : A → B\n  |some x, _ => b\n  |none, _ => c", ": A → B"),
        ("def a : Nat → Nat |0 => 1 |n=>2", ": Nat → Nat"),
    ],
)
def test_a_statement_ends_where_the_declarations_own_body_begins(source: str, statement: str) -> None:
    assert only(source).statement == statement


def test_hashes_ignore_comments_and_white_space_and_nothing_else() -> None:
    one = only("theorem a (x : Nat) : p x := by simp")
    other = only("/-- doc -/\ntheorem a\n    (x : Nat) : -- why\n    p x :=  by\n  /- so -/ simp")
    changed = only("theorem a (x : Nat) : p x := by simp_all")
    assert (one.statement_hash, one.text_hash) == (other.statement_hash, other.text_hash)
    assert one.statement_hash == changed.statement_hash
    assert one.text_hash != changed.text_hash


def test_a_range_is_the_declarations_own_text() -> None:
    source = (
        "import A\n\nopen Nat in\n/-- α -/\n@[simp] theorem a : p :=\n  q -- c\n\n-- d\ntheorem b : p := q"
    )
    first = scan(source).declarations[0]
    assert source.encode()[first.byte_start : first.byte_end].decode() == "@[simp] theorem a : p :=\n  q"
    assert (first.line, first.column, first.end_line, first.end_column) == (5, 0, 6, 3)


@pytest.mark.parametrize(
    ("header", "imports"),
    [
        ("import A.B\nimport C", ("A.B", "C")),
        ("prelude\nimport A", ("A",)),
        (
            "/- Copyright -/\nmodule -- c\n\npublic import A\nimport all B\npublic meta import C.D\n",
            ("A", "B", "C.D"),
        ),
        ("-- import A\n/-! import B -/\nopen C", ()),
        ("import «a b».C", ("«a b».C",)),
    ],
)
def test_imports_are_those_of_the_header(header: str, imports: tuple[str, ...]) -> None:
    assert scan(header).imports == imports
