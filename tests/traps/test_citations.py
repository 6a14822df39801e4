"""Traps: the proof uses what it is to prove, or what comes after it.

A search that starts from a declaration by name has it in its environment, so `exact mine` closes its goal there. In the
file it is recursion, or an unknown name.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.gate import FILE, Case, GateProject
from tests.support.lean.real_gate import RealGate

TO_LEAN = {
    "itself": "exact mine p q h",
    "recursion": "exact h\n  termination_by p",
    "a declaration in the proof": "let rec it : q ∧ p := it\n  exact it",
    "a later lemma": "exact later _ ⟨h.2, h.1⟩",
}


@pytest.mark.parametrize("proof", TO_LEAN.values(), ids=TO_LEAN.keys())
def test_what_a_proof_may_cite_is_lean_s_to_judge(left_to_lean: Callable[[Case], None], proof: str) -> None:
    left_to_lean(Case(proof))


SIMP = FILE.replace("theorem mine", "@[simp] theorem mine")
TOGETHER = "mutual\ntheorem {} (p : Prop) : p → p := {} p\ntheorem {} (p : Prop) : p → p := by\n  HOLE\nend\n"


IN_ITS_FILE = {
    "plainly": Case(TO_LEAN["itself"]),
    "in a simp set": Case("simp only [← mine, h]"),
    "by strong recursion": Case("exact WellFounded.fix (by infer_instance) (fun _ _ => mine p q h) h"),
    "a later lemma": Case(TO_LEAN["a later lemma"]),
    "by dot notation": Case("have it := (id h).mine\n  exact it"),
    "one that is declared together with it": Case(
        "exact a p", file=TOGETHER.format("a", "b", "b"), declaration="b"
    ),
    "its own simp attribute": Case("simp", file=SIMP),
}


@pytest.mark.parametrize("case", IN_ITS_FILE.values(), ids=IN_ITS_FILE.keys())
def test_lean_itself_refuses_it_in_its_file(lean: RealGate, case: Case) -> None:
    """In a REPL that has the theorem already, each closes the goal by the theorem.

    Dot notation the text cannot tell: `hf.add hg` in a proof of `ContinuousAt.add` is mostly another type's `add`.
    """
    lean.rejected(case, step="compile")


def test_an_honest_simp_lemma_may_be_proved_by_simp(court: GateProject) -> None:
    court.verified(Case("simp [h]", file=SIMP))
