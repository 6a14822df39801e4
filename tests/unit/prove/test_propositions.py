from __future__ import annotations

import pytest

from pipeline.lean.goal_text import Shape, shape


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p ∧ q → r", Shape("arrow", "p ∧ q", "r")),
        ("(p → q) ∧ r", Shape("and", "(p → q)", "r")),
        ("p → q → r", Shape("arrow", "p", "q → r")),
        ("p ∧ q ↔ q ∧ p", Shape("iff", "p ∧ q", "q ∧ p")),
        ("¬p ∨ q", Shape("or", "¬p", "q")),
        ("¬(p ∨ q)", Shape("not", "(p ∨ q)")),
        ("∀ (p q : Prop), p → q", Shape("forall", names=("p", "q"))),
        ("∀ p, p ∧ p", Shape("forall", names=("p",))),
        ("p ∧ ∀ q, q → p", Shape("and", "p", "∀ q, q → p")),
        ("(∀ p, p) → False", Shape("arrow", "(∀ p, p)", "False")),
        ("∃ n, n = 1", Shape("exists")),
        ("2 + 2 = 4", Shape("equation")),
        ("False", Shape("false")),
        ("(p)", Shape("other")),
        ("", Shape("other")),
    ],
)
def test_the_outermost_connective_is_read_off_the_text(text: str, expected: Shape) -> None:
    assert shape(text) == expected
