"""What the simulator's language and tactics do, one behaviour each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.simulator.frontend import ImportFailure, Modules

Ask = Callable[..., dict[str, Any]]
Process = Callable[[str], list[str]]
Closes = Callable[[str, str], bool]

PROOFS = [
    ("∀ (p q : Prop), p ∧ q → q ∧ p", "exact fun p q ⟨a, b⟩ => ⟨b, a⟩"),
    ("∀ (p q : Prop), p ∧ q → q ∧ p", "intro p q h\nexact ⟨h.2, h.1⟩"),
    ("∀ (p q : Prop), p ∧ q → q ∧ p", "rintro p q ⟨a, b⟩\nconstructor <;> assumption"),
    (
        "∀ (p q : Prop), p ∨ q → q ∨ p",
        "intro p q h\ncases h with\n| inl a => right; exact a\n| inr b => left; exact b",
    ),
    ("∀ (p q : Prop), p ∨ q → q ∨ p", "intro p q h\nexact h.elim (fun a => Or.inr a) Or.inl"),
    ("∀ (p q : Prop), p ∨ q → q ∨ p", "intro p q h\nrcases h with a | b\n· exact .inr a\n· exact .inl b"),
    ("∀ (p q : Prop), p ∨ q → q ∨ p", "intro p q h\nobtain a | b := h <;> simp [*]"),
    ("∀ (p : Prop), ¬¬¬p → ¬p", "intro p h hp\nexact h (fun hn => hn hp)"),
    ("∀ (p q : Prop), p → ¬p → q", "intro p q hp hn\nexact absurd hp hn"),
    ("∀ (p q : Prop), p → ¬p → q", "intros\ncontradiction"),
    ("∀ (p q : Prop), (p ↔ q) → (q ↔ p)", "intro p q h\nexact ⟨h.mpr, h.mp⟩"),
    ("∀ (p q : Prop), (p ↔ q) → p → q", "intro p q h hp\nrw [← h]\nexact hp"),
    ("∀ (p : Prop), p ∨ ¬p", "intro p\nexact Classical.em p"),
    ("∀ (p q : Prop), (p → q) → ¬q → ¬p", "intro p q f hn hp\napply hn\napply f\nassumption"),
    ("∀ (p q r : Prop), (p ∧ q → r) ↔ (p → q → r)", "tauto"),
    ("2 + 3 * 4 = 14", "rfl"),
    ("2 ^ 10 = 1024", "decide"),
    ("3 - 10 = 0 ∧ 7 / 2 = 3 ∧ 7 % 4 = 3", "decide"),
    ("1 ≠ 2", "decide"),
    ("5 < 7", "omega"),
    ("¬ (7 ≤ 5)", "decide"),
    ("1 = 2 → False", "intro h\ncases h"),
    ("∀ (n : Nat), n + 0 = n", "intro n\nrfl"),
    (
        "∀ (n : Nat), 0 + n = n",
        "intro n\ninduction n with\n| zero => rfl\n| succ k ih => rw [← Nat.add_assoc, ih]",
    ),
    ("∀ (a b : Nat), a + b = b + a", "intro a b\nrw [Nat.add_comm]"),
    ("∀ (a b : Nat), a = b → b = a", "intro a b h\nsubst h\nrfl"),
    ("∃ n, n * n = 9", "exact ⟨3, rfl⟩"),
    ("∀ (p q : Prop), p → (p → q) → q", "intro p q a f\nhave b : q := f a\nexact b"),
    ("∀ (p q : Prop), p ∧ q → p", "intro p q h\nhave ⟨a, _⟩ := h\nshow p\nexact a"),
    ("∀ (p : Prop), p → p", "first\n| exact nonexistent\n| exact fun _ h => h"),
    ("∀ (p : Prop), p ∧ True ↔ p", "intro p\nsimp"),
]

REFUSED = [
    ("∀ (p q : Prop), p → q", "tauto"),
    ("∀ (p q : Prop), p ∨ q → p", "intro p q h\ncases h with\n| inl a => exact a\n| inr b => exact b"),
    ("1 = 2", "decide"),
    ("1 = 2", "rfl"),
    ("False", "trivial"),
    ("False", "simp"),
    ("∀ (p : Prop), p", "intro p\nassumption"),
    ("∀ (p : Prop), p ∨ ¬p", "intro p\ndecide"),
    ("∃ n, n * n = 10", "exact ⟨3, rfl⟩"),
    ("True ∧ False", "constructor\ntrivial"),
    ("∀ (n : Nat), n = 0", "intro n\ninduction n with\n| zero => rfl\n| succ k ih => exact ih"),
    ("∀ (n m : Nat), n - m + m = n", "intro n m\nomega"),
    ("5 < 5", "omega"),
]


@pytest.mark.parametrize(("statement", "tactics"), PROOFS)
def test_a_right_proof_is_accepted(closes: Closes, statement: str, tactics: str) -> None:
    assert closes(statement, tactics)


@pytest.mark.parametrize(("statement", "tactics"), REFUSED)
def test_a_wrong_proof_is_refused(closes: Closes, statement: str, tactics: str) -> None:
    assert not closes(statement, tactics)


@pytest.mark.parametrize(
    "tactic", ["foo", "exact (", "intro h;; skip", "norm_num", "cases h with", "rw [h", ""]
)
def test_what_is_no_tactic_is_a_parse_error(ask: Ask, tactic: str) -> None:
    ask("goal.start", expr="True")

    assert "parseError" in ask("goal.tactic", stateId=0, tactic=tactic)


def test_a_file_with_scopes_elaborates(process: Process) -> None:
    text = """
/-! module docs -/
namespace Logic

variable (p q r : Prop) {s : Prop}

/-- swaps -/
@[simp] theorem swap (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩

theorem uses_swap : p ∧ q ↔ q ∧ p := ⟨swap p q, swap q p⟩

section Inner
variable (hp : p)
theorem left_of (hp : p) : p ∨ s := .inl hp
end Inner

protected def three : Nat := 3
theorem three_eq : Logic.three + 1 = 4 := rfl

private lemma hidden : True := by
  trivial

set_option autoImplicit false in
theorem with_option (h : p) : p := by
  first
    | exact nonexistent
    | exact h

example : (swap True True ⟨trivial, trivial⟩).1 = trivial ∨ True := .inr trivial

end Logic

open Logic in
theorem outside (p q : Prop) (h : p ∧ q) : q ∧ p := by
  have h' := swap p q h
  show q ∧ p
  exact h'

open Classical
theorem middle (p : Prop) : p ∨ ¬p := em p
"""

    assert process(text) == []


def test_a_protected_constant_is_never_meant_by_its_last_part_alone(process: Process) -> None:
    text = (
        "namespace A.B\nprotected theorem c : True := trivial\ntheorem d : True := trivial\n{}\nend A.B\n"
        "open A.B in\n{}\nopen A in\n{}"
    )
    good = ("example : True := B.c", "example : True := d", "example : True := B.c")
    assert process(text.format(*good)) == []

    wrong = ("example : True := c", "example : True := c", "example : True := B.c")
    errors = process(text.replace("A", "C").format(*wrong))
    assert [error.partition(":")[2] for error in errors] == ["unknown identifier 'c'"] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("theorem t : False := trivial", "type mismatch"),
        ("theorem t : True := by\n  skip", "unsolved goals"),
        ("theorem t : True := unknown", "unknown identifier 'unknown'"),
        ("theorem t : True := trivial\ntheorem t : True := trivial", "already been declared"),
        ("theorem t (n : Nat) : Nat := n", "not a proposition"),
        ("end A", "insufficient scopes"),
        ("namespace A\nend B", "name mismatch"),
        ("open Nowhere", "unknown namespace"),
        ("structure S where\n  a : Nat", "outside its logic"),
        ("instance : Inhabited Nat := ⟨0⟩", "outside its logic"),
        ("#eval 1 + 1", "outside its logic"),
        ("theorem t : ∀ n : Nat, n = 0 := fun n => rfl", "type mismatch"),
        ("import Init", "it must be used in the beginning of the file"),
        ("theorem t : True := by norm_num", "unknown tactic"),
        ('theorem t : "a" = "b" := rfl', "type mismatch"),
        ("theorem t : True := (fun x => x x) trivial", ""),
        ("/- open", "unterminated comment"),
    ],
)
def test_an_error_stays_an_error(process: Process, text: str, said: str) -> None:
    errors = process(text)

    assert errors
    assert said in "\n".join(errors)


def test_a_proof_cannot_pull_in_a_variable_that_the_statement_does_not_mention(process: Process) -> None:
    # Since Lean 4.12 only the statement decides which section variables a theorem has.
    text = "variable (p q : Prop) (hp : p)\ntheorem t : p ∨ q := Or.inl hp"

    assert process(text) == ["2:unknown identifier 'hp'"]


def test_an_error_does_not_stop_the_file(ask: Ask) -> None:
    text = "theorem a : False := by\n  trivial\n\ntheorem b : ) := 1\n\ntheorem c : True := trivial\n"
    reply = ask("frontend.process", file=text, readHeader=False, inheritEnv=False, newConstants=True)

    assert [unit["newConstants"] for unit in reply["units"]] == [[], [], ["c"]]
    assert reply["units"][-1]["messages"] == []


def test_a_sorry_is_a_warning_at_the_declarations_name(ask: Ask) -> None:
    text = "theorem hole (p : Prop) : p := by\n  sorry"
    reply = ask("frontend.process", file=text, readHeader=False, inheritEnv=False, newConstants=False)

    (message,) = reply["units"][0]["messages"]
    assert (message["severity"], message["kind"]) == ("warning", "hasSorry")
    assert (message["pos"], message["endPos"]) == ({"line": 1, "column": 8}, {"line": 1, "column": 12})


def test_print_axioms_tells_what_a_proof_rests_on(ask: Ask) -> None:
    text = (
        "theorem a : True := trivial\ntheorem b (p : Prop) : p ∨ ¬p := Classical.em p\n"
        "theorem c : False := sorry\ntheorem d : False := c\naxiom bad : False\ntheorem e : 1 = 2 := bad.elim\n"
        "#print axioms a\n#print axioms b\n#print axioms d\n#print axioms e"
    )
    reply = ask("frontend.process", file=text, readHeader=False, inheritEnv=False, newConstants=False)

    assert [unit["messages"][0]["data"] for unit in reply["units"][-4:]] == [
        "'a' does not depend on any axioms",
        "'b' depends on axioms: [Classical.choice, Quot.sound, propext]",
        "'d' depends on axioms: [sorryAx]",
        "'e' depends on axioms: [bad]",
    ]


def test_garbage_never_crashes_it(ask: Ask) -> None:
    for text in (
        "\0",
        "«",
        "theorem",
        "by",
        "⟨" * 500,
        "(" * 5000,
        "fun " * 300,
        "¬" * 3000 + "True",
        "𝓝 𝕜",
        "\r\n",
    ):
        ask("frontend.process", file=text, readHeader=False, inheritEnv=False, newConstants=False)
        reply = ask("goal.start", expr=text)
        assert "error" in reply, text[:20]
        assert "internal" not in reply["desc"]


def test_a_giant_power_is_refused_instead_of_computed(closes: Closes) -> None:
    assert not closes("2 ^ 2 ^ 100 = 0", "decide")
    assert not closes("9 ^ 9 ^ 9 ^ 9 = 1", "rfl")


def test_simp_rules_that_feed_each_other_end_in_an_error(closes: Closes) -> None:
    statement = "∀ (p q : Prop), (p ↔ q ∧ q) → (q ↔ p ∧ p) → p"

    assert not closes(statement, "intro p q h1 h2\nsimp_all")


def test_an_axiom_that_is_no_type_is_an_error(process: Process) -> None:
    assert process("axiom a : 3")


# ---- modules


def _write(root: Path, **files: str) -> Modules:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".lean")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return Modules(root)


def test_an_import_is_elaborated_from_its_source(tmp_path: Path) -> None:
    modules = _write(
        tmp_path,
        Demo__Base="theorem base : True := trivial\n",
        Demo__Top="import Demo.Base\n\ntheorem top : True := base\n",
    )

    assert modules.environment(["Demo.Top"]).get("base") is not None


def test_a_missing_module_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImportFailure, match=r"no file .*Demo/Gone\.lean"):
        Modules(tmp_path).environment(["Demo.Gone"])


def test_an_import_cycle_is_an_error(tmp_path: Path) -> None:
    modules = _write(tmp_path, A="import B\n", B="import A\n")

    with pytest.raises(ImportFailure, match="cycle: A -> B -> A"):
        modules.environment(["A"])


def test_a_module_with_an_error_cannot_be_imported(tmp_path: Path) -> None:
    modules = _write(tmp_path, A="theorem t : False := trivial\n")

    with pytest.raises(ImportFailure, match=r"A\.lean:1: type mismatch"):
        modules.environment(["A"])


def test_two_modules_that_declare_one_name_cannot_be_joined(tmp_path: Path) -> None:
    modules = _write(tmp_path, A="theorem t : True := trivial\n", B="theorem t : True := trivial\n")

    with pytest.raises(ImportFailure, match="already contains 't'"):
        modules.environment(["A", "B"])
