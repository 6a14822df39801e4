"""Traps: a proof that ends early and goes on as commands, swallows the rest of the file, or runs code."""

from __future__ import annotations

import pytest

from tests.support.gate import Case, Refused
from tests.support.lean.credulous import Rule
from tests.support.lean.real_gate import RealGate

COMMANDS = {
    "a second theorem": "exact ⟨h.2, h.1⟩\n\ntheorem extra : 1 = 1 := rfl",
    "a lemma": "exact ⟨h.2, h.1⟩\n\nlemma extra : 1 = 1 := rfl",
    "an example": "exact ⟨h.2, h.1⟩\n\nexample : 1 = 1 := rfl",
    "closing the theorem early by its namespace": "exact ⟨h.2, h.1⟩\nend Demo\nnamespace Demo",
    "opening a section over what follows": "exact ⟨h.2, h.1⟩\nsection\nend",
    "a variable for what follows": "exact ⟨h.2, h.1⟩\nvariable (cheat : False)",
    "an option for what follows": "exact ⟨h.2, h.1⟩\nset_option autoImplicit true",
    "an open for what follows": "exact ⟨h.2, h.1⟩\nopen Classical",
    "a local declaration with where": "exact foo\nwhere foo : q ∧ p := foo",
    "an import": "exact ⟨h.2, h.1⟩\nimport Evil",
    "code that runs": "exact ⟨h.2, h.1⟩\n#eval IO.println 1",
    "code that runs as a tactic": "run_tac Lean.Elab.admitGoal",
    "code that runs as a term": "exact by_elab return Lean.mkConst `h",
    "code that runs at the start": "exact ⟨h.2, h.1⟩\ninitialize pure ()",
    "code that replaces code": "exact ⟨h.2, h.1⟩\n@[implemented_by f] def g := 1",
    "the kernel switched off": "set_option debug.skipKernelTC true in exact h",
    "the kernel switched off, quoted": "set_option «debug».skipKernelTC true in exact h",
    "the kernel switched off, quoted whole": "set_option «debug.skipKernelTC» true in exact h",
    "the kernel switched off, a comment between": "set_option /- -/ debug.skipKernelTC true in exact h",
    "the kernel switched off, a line between": "set_option\n    debug.skipKernelTC true in exact h",
    "the warning of a sorry switched off": "set_option warn.sorry false in exact h",
    "another option of the elaborator's own": "set_option Elab.async true in exact h",
}
SHAPES = {
    "at the column of the declaration": "exact ⟨h.2, h.1⟩\nlibrary_command x",
    "further to the left": " exact ⟨h.2, h.1⟩\nlibrary_command x",
}


@pytest.mark.parametrize("proof", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_command_in_a_proof_is_refused(refused: Refused, proof: str) -> None:
    refused(Case(proof), step="text")


@pytest.mark.parametrize("proof", SHAPES.values(), ids=SHAPES.keys())
def test_a_library_s_own_command_is_seen_by_where_it_stands(refused: Refused, proof: str) -> None:
    """The scanner knows no library's commands; a proof's lines stand further right than its declaration."""
    refused(Case(proof), step="shape")


def test_a_constant_that_the_text_does_not_show_is_seen_by_lean(refused_by_lean: Refused) -> None:
    """A tactic of the project that makes a declaration too."""
    event = refused_by_lean(
        Case("finish_it", rules=(Rule("finish_it", made=("Demo.extra",)),)), step="statement"
    )
    assert "Demo.extra is declared too, by the proof" in event.reason


AND_AN_AXIOM = """syntax "finish_by" ident : tactic
macro_rules
  | `(theorem $n:declId $s:declSig := by finish_by $m) => `(axiom $m:ident : False theorem $n $s := by assumption)
"""


def test_a_declaration_that_a_macro_of_the_project_adds_to_the_proof_s_is_seen_by_lean_itself(
    lean: RealGate,
) -> None:
    file = f"{AND_AN_AXIOM}theorem mine (p : Prop) (h : p) : p := by\n  HOLE\n"
    event = lean.rejected(Case("finish_by cheat", file=file, declaration="mine"), step="statement")
    assert "cheat is declared too, by the proof" in event.reason


def test_an_environment_that_skipped_the_kernel_is_seen_by_the_replay(refused_by_lean: Refused) -> None:
    """`debug.skipKernelTC`, or a declaration that a tactic of the project added without a check."""
    rules = (Rule("finish_it", replay="(kernel) declaration type mismatch, 'Demo.mine'"),)
    assert "type mismatch" in refused_by_lean(Case("finish_it", rules=rules), step="kernel").reason
