"""Which variables of Lean's statement a header does not write."""

from __future__ import annotations

import pytest

from pipeline.gate.headers import Variable, not_in_header

N, H, INST = (
    Variable("(", "n", "(n : Nat)"),
    Variable("(", "h", "(h : False)"),
    Variable("[", "", "[inst : Ok]"),
)
TYPE, ARROW = Variable("{", "α", "{α : Type}"), Variable("(", "", "(a : A)")


@pytest.mark.parametrize(
    ("statement", "variables", "told"),
    [
        (": 1 = 2", [], ()),
        (": 1 = 2", [H], ("(h : False)",)),
        (": 1 = 2", [INST], ("[inst : Ok]",)),
        (": [1] = [2]", [INST], ("[inst : Ok]",)),
        (": A → B", [ARROW], ()),
        (": A → B", [H, ARROW], ("(h : False)",)),
        ("(n : Nat) : n = n", [N], ()),
        ("(n : Nat) : n = n", [N, H, N], ("(n : Nat)", "(h : False)")),
        ("{α : Type} [Ok] (n : Nat) : A", [INST, TYPE, INST, N], ("[inst : Ok]",)),
        ("(n h : f (n := 1) = ⟨2, 3⟩) : A", [H, N, H], ("(h : False)",)),
        (": ∀ n, ∀ h : A, B", [N, H], ()),
        (": ∀ n : Nat, A", [H, N], ("(h : False)",)),
        (": ∀ n ∈ s, A", [H, N, ARROW], ("(h : False)",)),
        (": ∀ n < 3, A", [N, ARROW], ()),
        ("(h : B) : ∀ n ∈ s, A", [INST, H, N, ARROW], ("[inst : Ok]",)),
        (": ∀ n ∈ s, A", [N], None),
        (": ∀ n ∈ s, A", [N, H], None),
        (": 1 = 2", [ARROW], ("(a : A)",)),
        (": A → B → C", [ARROW, ARROW, ARROW], ("(a : A)",)),
        (": (A → B) = ∃ x, C -> D", [ARROW], ("(a : A)",)),
        (": f (a ↔ b) → C", [H, ARROW], ("(h : False)",)),
        (": A ↔ B → C", [ARROW], ("(a : A)",)),
        (': "→" = b', [ARROW], ("(a : A)",)),
        ('(h : a = "n) (h : False)") : A', [H, H], ("(h : False)",)),
        ("(h : a = '(') : A", [H, H], ("(h : False)",)),
        ("n : A", [N], ()),
        ("(x : Nat) : A", [N], None),
        ("", [N], None),
    ],
)
def test_what_stands_before_the_header_is_not_of_it(
    statement: str, variables: list[Variable], told: tuple[str, ...] | None
) -> None:
    assert not_in_header(statement, variables) == told
