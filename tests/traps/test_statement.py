"""Traps: the theorem that is proved is not the one that was stated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.gate import FILE, Case, GateProject, Refused
from tests.support.lean.credulous import Rule

HONEST = "exact ⟨h.2, h.1⟩"
RECORDS = {
    "the proof is put somewhere else": {"byte_start": 20, "byte_end": 25},
    "more than the sorry is replaced, the colon too": {"byte_start": FILE.index("q ∧ p := by")},
    "less than the sorry is replaced": {"byte_end": FILE.index("HOLE") + 8},
    "nothing is replaced, the proof is put before the sorry": {"byte_end": FILE.index("HOLE") + 6},
}


@pytest.mark.parametrize("edit", RECORDS.values(), ids=RECORDS.keys())
def test_a_proof_that_touches_other_bytes_is_refused(refused: Refused, edit: dict[str, object]) -> None:
    refused(Case(HONEST, edit=edit), step="shape")


def test_a_proof_of_another_declaration_s_sorry_is_refused(refused: Refused) -> None:
    """The record names the hard theorem, the bytes are the easy one's."""
    event = refused(Case(HONEST, edit={"declaration": "Demo.later"}), step="statement")
    assert "Demo.mine, not in Demo.later" in event.reason


def test_a_proof_found_for_another_text_is_refused(refused: Refused) -> None:
    refused(Case(HONEST, edit={"declaration_text_hash": "of something else"}), step="statement")


def test_a_sorry_in_the_statement_is_no_proof_to_fill_in(refused: Refused) -> None:
    """With `True` in the sorry's place the theorem is proved, and is another one."""
    file = "theorem mine (p : Prop) : p → HOLE := fun _ => trivial\n"
    refused(Case("True", file=file, declaration="mine"), step="statement")


@pytest.mark.parametrize("kind", ["def mine : Nat", "abbrev mine : Nat"])
def test_data_is_no_proof(refused: Refused, kind: str) -> None:
    event = refused(Case("3", file=f"{kind} := HOLE\n", declaration="mine"), step="statement")
    assert "data" in event.reason


def test_whether_an_instance_is_data_is_lean_s_to_say(left_to_lean: Callable[[Case], None]) -> None:
    """Lean itself refuses this one (`test_lean_itself`): without and with the proof it is a definition."""
    left_to_lean(Case("⟨3⟩", file="instance mine : Inhabited Nat := HOLE\n", declaration="mine"))


def test_a_statement_that_lean_reads_differently_with_the_proof_is_refused(refused_by_lean: Refused) -> None:
    """Older Leans let a proof's text decide which `variable`s belong to the theorem: one more hypothesis is enough."""
    file = "variable (p : Prop) (h : p)\ntheorem mine : p ∨ True := by\n  HOLE\n"
    case = Case(
        "exact Or.inl h",
        file=file,
        declaration="mine",
        rules=(Rule("Or.inl h", type="∀ (p : Prop), p → p ∨ True"),),
    )
    assert "type" in refused_by_lean(case, step="statement").reason


def test_a_script_that_runs_only_without_the_proof_leaves_the_statement_unjudged(court: GateProject) -> None:
    case = Case("finish_it", rules=(Rule("finish_it", questions=1),))
    assert "statement" in court.candidate(case).not_checked


LOCAL_INSTANCES = {
    "a local instance after the proof": "exact h\n\nlocal instance : Add Nat := ⟨Nat.mul⟩",
    "a local instance by attribute": "exact h\nattribute [local instance] weird",
    "an attribute on a local declaration": "let rec @[instance] weird : Add Nat := ⟨Nat.mul⟩\n  exact h",
    "a scoped instance": "exact h\nscoped instance : Add Nat := ⟨Nat.mul⟩",
    "an attribute in front of a command": "exact h\n@[instance] def weird : Add Nat := ⟨Nat.mul⟩",
    "a macro that rewrites the goal": 'exact h\nmacro "goal" : term => `(True)',
    "macro rules for the statement's own notation": "exact h\nmacro_rules | `($a ∧ $b) => `(True)",
    "a notation that changes what follows": 'exact h\nlocal notation "False" => True',
    "an elaborator": 'exact h\nelab "goal" : tactic => pure ()',
    "a syntax": 'exact h\nsyntax "goal" : tactic',
    "a simproc": "exact h\nsimproc goal (_ ∧ _) := fun _ => return .done",
    "a unification hint": "exact h\nunif_hint goal where |- False ≟ True",
}


@pytest.mark.parametrize("proof", LOCAL_INSTANCES.values(), ids=LOCAL_INSTANCES.keys())
def test_what_would_change_the_meaning_of_statements_is_refused(refused: Refused, proof: str) -> None:
    refused(Case(proof), step="text")
