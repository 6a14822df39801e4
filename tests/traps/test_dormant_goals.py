"""Traps: a search that ends without goals to show, with goals asleep.

In a REPL that puts the goals of `constructor` to sleep while one is worked on, `True ∧ False` goes: `constructor`, then
`trivial` for the first goal, and nothing is left to see. "No goals" is a candidate and nothing more: as a text it is a
proof with a goal left, which Lean says when it elaborates the file.
"""

from __future__ import annotations

import pytest

from tests.support.gate import Case
from tests.support.lean.real_gate import RealGate

FALSE = "theorem mine : True ∧ False := by\n  HOLE\n"
TEXTS = {
    "a goal is left asleep": "constructor\n  trivial",
    "left for later": "refine ⟨trivial, ?right⟩",
    "rotated away": "constructor\n  rotate_left\n  rotate_left\n  trivial",
}


@pytest.mark.parametrize("proof", TEXTS.values(), ids=TEXTS.keys())
def test_lean_itself_refuses_it_in_the_file(lean: RealGate, proof: str) -> None:
    assert (
        "unsolved goals" in lean.rejected(Case(proof, file=FALSE, declaration="mine"), step="compile").reason
    )
