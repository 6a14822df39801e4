"""Sorries in forms of their own, before Lean itself: what is searched, and what is data and not invented."""

from __future__ import annotations

from pathlib import Path

from tests.support.prove import attempts, parameters, run
from tests.support.trace import lean_itself

SOURCE = """\
class Holds (p : Prop) : Prop where
  out : p

instance holds_true : Holds True := ⟨sorry⟩

instance holds_where (p : Prop) : Holds (p → p) where
  out := by
    sorry

instance some_number : Inhabited Nat := ⟨sorry⟩

def number : Nat := sorry

mutual
theorem first (p : Prop) (h : p) : p := by
  sorry
theorem second (p q : Prop) (h : p) (k : q) : p ∧ q := ⟨sorry, sorry⟩
end

theorem in_a_row (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor; sorry; exact k

structure Pair (p q : Prop) : Prop where
  l : p
  r : q

theorem in_braces (p q : Prop) (h : p) (k : q) : Pair p q := { l := sorry, r := k }
"""


def test_propositions_are_searched_whatever_declares_them_and_data_is_not_invented(
    real_lean: Path, tmp_path: Path
) -> None:
    bodies, _ = run(parameters(tmp_path, SOURCE, lean=lean_itself(real_lean)), tmp_path / "job")
    said = attempts(bodies)
    assert {name: one.outcome for name, one in said.items()} == {
        **dict.fromkeys(("holds_true", "holds_where", "first", "second", "in_a_row", "in_braces"), "found"),
        "some_number": "error",
        "number": "unsupported",
    }
    assert "is data, which may not be invented" in said["some_number"].detail
    assert said["second"].detail == "together with the declaration's other 1"
