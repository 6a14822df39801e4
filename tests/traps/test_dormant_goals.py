"""Traps: a search that ends without goals to show, with goals asleep.

In a REPL that puts the goals of `constructor` to sleep while one is worked on, `True ∧ False` goes: `constructor`, then
`trivial` for the first goal, and nothing is left to see. "No goals" is a candidate and nothing more: as a text it is a
proof with a goal left, which Lean says when it elaborates the file.
"""

from __future__ import annotations

import pytest

from tests.support.gate import Case, GateProject
from tests.support.lean.credulous import Rule

FALSE = "theorem mine : True ∧ False := by\n  HOLE\n"
UNSOLVED = "unsolved goals\ncase right\n⊢ False"
TEXTS = {
    "a goal is left asleep": "constructor\n  trivial",
    "with a dot": "constructor\n  · trivial",
    "on one line": "(constructor; trivial)",
    "left for later": "refine ⟨trivial, ?right⟩",
    "rotated away": "constructor\n  rotate_left\n  rotate_left\n  trivial",
}


@pytest.mark.parametrize("proof", TEXTS.values(), ids=TEXTS.keys())
def test_the_simulator_refuses_it_in_the_file(court: GateProject, proof: str) -> None:
    court.rejected(Case(proof, file=FALSE, declaration="mine"), step="compile", lean="simulator")


def test_lean_s_error_refuses_it(court: GateProject) -> None:
    rules = (Rule("trivial", error=UNSOLVED),)
    case = Case(TEXTS["a goal is left asleep"], file=FALSE, declaration="mine", rules=rules)
    assert "unsolved goals" in court.rejected(case, step="compile").reason


def test_an_error_that_only_the_build_has_refuses_it(court: GateProject) -> None:
    rules = (Rule("trivial", build=UNSOLVED),)
    case = Case(TEXTS["a goal is left asleep"], file=FALSE, declaration="mine", rules=rules)
    assert "lake build" in court.rejected(case, step="compile").reason
