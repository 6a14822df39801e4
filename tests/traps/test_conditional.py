"""Traps: a proof that is fine by itself and rests on something that is not proved.

It is "conditional on …" and never "proved". Lean tells by `sorryAx` among the axioms; where there is no Lean to ask the
source is read on the safe side, by name.
"""

from __future__ import annotations

import pytest

from tests.support.gate import Case, GateProject
from tests.support.lean.credulous import Rule

HEAD = "theorem gap (p : Prop) : p → p := sorry\n"
MINE = "theorem mine (p : Prop) : p → p := HOLE\n"
BY_SOURCE = {
    "directly": (HEAD, "gap p", "gap"),
    "by another name of it": (HEAD, "_root_.gap p", "gap"),
    "through a lemma": (HEAD + "theorem bridge (p : Prop) : p → p := gap p\n", "bridge p", "gap"),
    "through two lemmas": (
        HEAD + "theorem a (p : Prop) : p → p := gap p\ntheorem b (p : Prop) : p → p := a p\n",
        "b p",
        "gap",
    ),
    "an admit": ("theorem gap (p : Prop) : p → p := by admit\n", "gap p", "gap"),
    "the axiom itself": ("theorem gap (p : Prop) : p → p := sorryAx _ false\n", "gap p", "gap"),
    "through simp": ("@[simp] theorem gap (p : Prop) : p = True := sorry\n", "by simp", "gap"),
    "through simp, by a command": (HEAD + "attribute [simp] gap\n", "by simp", "gap"),
    "through simp, among other attributes": (
        "@[norm_cast, simp] theorem gap : 1 = 2 := sorry\n",
        "by norm_cast",
        "gap",
    ),
    "through another tactic's set": ("@[aesop safe] theorem gap : 1 = 2 := sorry\n", "by aesop", "gap"),
    "through extensionality": ("@[ext] theorem gap : 1 = 2 := sorry\n", "by ext", "gap"),
    "through an instance": ("instance gap : Inhabited Nat := sorry\n", "fun h => h", "gap"),
    "through an instance by attribute": (HEAD + "attribute [instance] gap\n", "fun h => h", "gap"),
    "through a definition": ("def gap : Nat := sorry\n", "fun h => (gap, h).2", "gap"),
    "through a macro": ('macro "gap!" : term => `(sorry)\n', "gap!", 'macro "gap!" : term => `(sorry)'),
}
ELSEWHERE = "import Lib.Gap\n"
LIBRARY = {
    "Lib/Gap.lean": "import Lib.Deep\ntheorem lib_bridge (p : Prop) : p → p := lib_gap p\n"
    "@[simp] theorem lib_simp : 1 = 2 := sorry\n",
    "Lib/Deep.lean": "theorem lib_gap (p : Prop) : p → p := sorry\n",
}
IN_ANOTHER_FILE = {
    "directly": ("lib_gap p", "lib_gap"),
    "through a lemma": ("lib_bridge p", "lib_gap"),
    "through simp": ("by simp", "lib_simp"),
}


@pytest.mark.parametrize(("head", "proof", "named"), BY_SOURCE.values(), ids=BY_SOURCE.keys())
def test_without_lean_to_ask_the_source_names_the_gap(
    court: GateProject, head: str, proof: str, named: str
) -> None:
    case = Case(proof, file=head + MINE, declaration="mine")
    assert court.rejected(case, step="axioms", lean="none").conditional_on == (named,)


@pytest.mark.parametrize(("proof", "named"), IN_ANOTHER_FILE.values(), ids=IN_ANOTHER_FILE.keys())
def test_a_gap_in_an_imported_file_is_named(court: GateProject, proof: str, named: str) -> None:
    case = Case(proof, file=ELSEWHERE + MINE, declaration="mine", others=LIBRARY)
    assert court.rejected(case, step="axioms", lean="none").conditional_on == (named,)


def test_lean_names_the_gap_that_the_source_hides(court: GateProject) -> None:
    """By an instance, a tactic of a library, a macro: whatever put it there, the constant rests on it."""
    rules = (Rule("finish_it", axioms=("propext", "sorryAx"), sorried=("Library.Hidden.gap",)),)
    verdict = court.rejected(Case("finish_it", rules=rules), step="axioms")
    assert verdict.conditional_on == ("Library.Hidden.gap",)


def test_a_gap_that_no_one_names_is_still_a_gap(court: GateProject) -> None:
    rules = (Rule("finish_it", axioms=("sorryAx",)),)
    verdict = court.rejected(Case("finish_it", rules=rules), step="axioms")
    assert verdict.conditional_on == ("a sorry that the source does not name",)


def test_a_gap_that_the_proof_does_not_touch_is_no_condition(court: GateProject) -> None:
    court.verified(Case("fun h => h", file=HEAD + MINE, declaration="mine"))
