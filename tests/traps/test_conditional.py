"""Traps: a proof that is fine by itself and rests on something that is not proved.

It is "conditional on …" and never "proved": Lean tells, by `sorryAx` among the axioms.
"""

from __future__ import annotations

from tests.support.gate import Case, GateProject
from tests.support.lean.credulous import Rule

HEAD = "theorem gap (p : Prop) : p → p := sorry\n"
MINE = "theorem mine (p : Prop) : p → p := HOLE\n"


def test_lean_names_the_gap(court: GateProject) -> None:
    """By an instance, a tactic of a library, a macro: whatever put it there, the constant rests on it."""
    rules = (Rule("finish_it", axioms=("propext", "sorryAx"), sorried=("Library.Hidden.gap",)),)
    verdict = court.rejected(Case("finish_it", rules=rules), step="axioms")
    assert verdict.conditional_on == ("Library.Hidden.gap",)


def test_a_gap_that_no_one_names_is_still_a_gap(court: GateProject) -> None:
    rules = (Rule("finish_it", axioms=("sorryAx",)),)
    verdict = court.rejected(Case("finish_it", rules=rules), step="axioms")
    assert verdict.conditional_on == ("a sorry that Lean does not name",)


def test_a_gap_that_the_proof_does_not_touch_is_no_condition(court: GateProject) -> None:
    court.verified(Case("fun h => h", file=HEAD + MINE, declaration="mine"))
