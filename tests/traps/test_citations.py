"""Traps: the proof uses what it is to prove, or what comes after it.

A search that starts from a declaration by name has it in its environment, so `exact mine` closes its goal there. In the
file it is recursion, or an unknown name.
"""

from __future__ import annotations

import pytest

from tests.support.gate import FILE, Case, GateProject, Refused
from tests.support.lean.real_gate import RealGate

ITSELF = {
    "plainly": "exact mine p q h",
    "with its namespace": "exact Demo.mine p q h",
    "from the root": "exact _root_.Demo.mine p q h",
    "quoted": "exact «mine» p q h",
    "quoted, with its namespace": "exact «Demo».«mine» p q h",
    "explicitly": "exact @mine p q h",
    "by a leading dot": "exact .mine p q h",
    "a projection of it": "exact ⟨(mine p q h).1, (mine p q h).2⟩",
    "its symmetric": "exact (mine p q h).symm",
    "with open": "open Demo in exact mine p q h",
    "renamed with open": "open Demo renaming mine → it in exact it p q h",
    "by apply": "apply mine; exact h",
    "by rw": "rw [mine]",
    "in a simp set": "simp [mine]",
    "in a simp set, backwards": "simp only [← mine, h]",
    "in a term in a tactic": "refine ⟨?_, (mine p q h).2⟩; exact h.2",
    "in a have": "have it := mine p q h\n  exact it",
    "by strong recursion": "exact WellFounded.fix (by infer_instance) (fun _ _ => mine p q h) h",
}
BY_RECURSION = {
    "termination_by": "exact h\n  termination_by p",
    "decreasing_by": "exact h\n  decreasing_by trivial",
    "let rec": "let rec it : q ∧ p := it\n  exact it",
}
LATER = {
    "plainly": "exact later _ ⟨h.2, h.1⟩",
    "with its namespace": "exact Demo.later _ ⟨h.2, h.1⟩",
    "quoted": "exact «later» _ ⟨h.2, h.1⟩",
    "in a simp set": "simp [later, h]",
    "a projection of it": "exact (later _ ⟨h.2, h.1⟩).symm",
}


@pytest.mark.parametrize("proof", ITSELF.values(), ids=ITSELF.keys())
def test_a_proof_that_cites_its_own_theorem_is_refused(court: GateProject, proof: str) -> None:
    event = court.rejected(Case(proof), step="statement", lean="none")
    assert "cites Demo.mine itself" in event.reason


@pytest.mark.parametrize("proof", BY_RECURSION.values(), ids=BY_RECURSION.keys())
def test_recursion_is_lean_s_to_judge(left_to_lean: Refused, proof: str) -> None:
    left_to_lean(Case(proof), step="text")


def test_a_search_is_refused_whoever_judges(refused: Refused) -> None:
    refused(Case("exact?"), step="text")


@pytest.mark.parametrize("proof", LATER.values(), ids=LATER.keys())
def test_a_later_lemma_is_refused_where_no_lean_sees_that_it_is_not_there(
    left_to_lean: Refused, proof: str
) -> None:
    event = left_to_lean(Case(proof), step="statement")
    assert "Demo.later, which is declared after Demo.mine" in event.reason


SIMP = FILE.replace("theorem mine", "@[simp] theorem mine")
TOGETHER = "mutual\ntheorem {} (p : Prop) : p → p := {} p\ntheorem {} (p : Prop) : p → p := by\n  HOLE\nend\n"


@pytest.mark.parametrize("proof", ["exact a p", "exact _root_.a p", "exact «a» p", "simp [a]"])
def test_a_theorem_that_is_declared_together_with_it_is_no_earlier_one(
    left_to_lean: Refused, proof: str
) -> None:
    """Each of two would rest on the other; what stands first in a `mutual` block is not proved first."""
    event = left_to_lean(Case(proof, file=TOGETHER.format("a", "b", "b"), declaration="b"), step="statement")
    assert "cites a, which is declared after b or with it" in event.reason


def test_a_later_namesake_of_an_imported_lemma_is_that_lemma(court: GateProject) -> None:
    """`later` is declared below, and by an import: here it can only be the import's."""
    court.verified(Case("exact later _ ⟨h.2, h.1⟩"))


IN_ITS_FILE = {
    "plainly": Case(ITSELF["plainly"]),
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
