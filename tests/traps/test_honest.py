"""Not traps: proofs that the gate must let through. A gate that is too strict throws proofs away and teaches nothing.

What is decided here, with its reason:
- A forbidden word inside a comment or a string is no code and passes: people write why a sorry was there.
- A word inside a longer name (`sorry_free`, `axiomatic`, `Classical.axiom_of_choice`, `Nat.unsafe_eq`) is another name.
- The three axioms of Lean's own logic pass, in any order and number.
- `open … in` inside a proof passes, and `set_option … in` for the options that a proof may need (limits, printing).
- A tactic's configuration passes, unless it names what acts on the world (`IO`, `unsafe…`).
- `decide`, `decide +kernel` and big `simp` sets pass: the kernel checks what they make.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gate import FILE, Case, GateProject
from tests.support.lean.credulous import Rule

TEXTS = {
    "a term": "exact ⟨h.2, h.1⟩",
    "lines": "constructor\n  · exact h.2\n  · exact h.1",
    "a comment that says sorry": "exact ⟨h.2, h.1⟩ /- was a sorry -/",
    "a nested comment that says sorry": "exact ⟨h.2, h.1⟩ /- /- -/\n  sorry -/",
    "a line comment that says sorry": "-- no sorry is left\n  exact ⟨h.2, h.1⟩",
    "a string that says sorry": 'exact absurd h (by simp [show "sorry" = "sorry" from rfl])',
    "a name with sorry in it": "exact sorry_free h",
    "a name that begins with a forbidden word": "exact axiom_of_choice h",
    "a dotted name with a longer word": "exact Classical.axiom_of_choice h",
    "a name with unsafe in it": "exact Nat.unsafe_eq h",
    "a name with native in it": "exact nativeOrder h",
    "a name with macro in it": "exact macro_free.elim h",
    "a name with admit in it": "exact admits_left h",
    "a quoted name": "exact «a name with spaces» h",
    "Greek hypotheses": "rcases h with ⟨hα, hβ⟩\n  exact ⟨hβ, hα⟩",
    "subscripts": "rcases h with ⟨h₁, h₂⟩\n  exact ⟨h₂, h₁⟩",
    "open in": "open Classical in exact ⟨h.2, h.1⟩",
    "an option for one tactic": "set_option maxRecDepth 2000 in exact ⟨h.2, h.1⟩",
    "heartbeats for one tactic": "set_option maxHeartbeats 400000 in simp [h]",
    "decide by the kernel": "decide +kernel",
    "calc": "calc q ∧ p\n      _ = (q ∧ p) := rfl",
    "a local definition": "let rec_depth := 3\n  exact ⟨h.2, h.1⟩",
    "conv": "conv => rhs; rfl",
    "a namesake of another namespace": "exact Other.mine h",
    "a local namesake of a later lemma": "intro later\n  exact later",
    "strong automation": "nlinarith [sq_nonneg (a - b), mul_pos ha hb]",
    "a trace of a matrix": "simp [Matrix.trace, trace A]",
    "anonymous constructors and projections": "exact ⟨h.2, ⟨h.1, trivial⟩.1⟩",
    "a configuration": "simp (config := { maxSteps := 1000, decide := true }) [h]",
    "a configuration in the new spelling": "simp +arith (maxSteps := 1000) [h]",
    "names that hold forbidden ones": "exact radIOus (Leaning.unsafe_bound h) IOta",
    "a dotted quoted name": "exact Foo.«a b».bar h «c»",
    "a lemma before it": "exact helper _ ⟨h.2, h.1⟩",
}
AXIOMS = ("propext", "Classical.choice", "Quot.sound")


@pytest.mark.parametrize("proof", TEXTS.values(), ids=TEXTS.keys())
def test_an_honest_text_passes_all_that_reads_the_source(court: GateProject, proof: str) -> None:
    court.candidate(Case(proof), lean="none")


def test_the_axioms_of_lean_s_own_logic_are_allowed(court: GateProject) -> None:
    case = Case("exact ⟨h.2, h.1⟩", rules=(Rule("", axioms=AXIOMS),))
    assert court.verified(case).axioms == AXIOMS


def test_both_sorries_of_a_declaration_may_be_filled_at_once(court: GateProject) -> None:
    file = FILE.replace("HOLE", "exact ⟨HOLE⟩")
    court.verified(Case("h.2, h.1", file=file, hole="sorry, sorry", parts=(3, 3)))


def test_a_file_with_other_sorries_does_not_speak_against_the_proof(court: GateProject) -> None:
    file = "theorem gap : 1 = 2 := sorry\n" + FILE + "theorem late_gap : 1 = 2 := by\n  sorry\n"
    court.verified(Case("exact ⟨h.2, h.1⟩", file=file))


def test_an_unused_tactic_s_sorry_does_not_speak_against_the_proof(court: GateProject) -> None:
    file = 'macro "magic" : tactic => `(tactic| sorry)\n' + FILE
    court.candidate(Case("exact ⟨h.2, h.1⟩", file=file), lean="none")


def test_without_a_kernel_replay_a_proof_is_verified_and_says_what_was_not_checked(tmp_path: Path) -> None:
    court = GateProject(tmp_path, leanchecker=False)
    assert court.verified(Case("exact ⟨h.2, h.1⟩")).not_checked == ("kernel",)


def test_a_replay_that_refuses_the_module_anyway_blames_no_one_and_verifies_nothing(
    court: GateProject,
) -> None:
    case = Case("exact ⟨h.2, h.1⟩", rules=(Rule("", replay="no olean"),))
    assert court.candidate(case).not_checked == ("kernel",)
