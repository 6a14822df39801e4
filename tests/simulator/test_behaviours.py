"""Lean's behaviour, one small dialogue each: what a tactic leaves, closes, fails at, or cannot be read as.

These statements are our own; what they show was learned from recorded dialogues with a real Lean
(`test_dialogues.py` measures those where they are at hand) and from its documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., dict[str, Any]]

CLOSED, FAILED, UNREADABLE, NO_GOALS = "closed", "failed", "parse error", "error object"

# (statement, tactics before, tactic, what comes of it: one of the words above or the goals, one by line)
DIALOGUES: list[tuple[str, str, str, str]] = [
    # intro takes exactly the binders that are asked for, unfolds ¬ and nothing else
    ("∀ (a b : Prop), a → b → a", "", "intro a b", "a : Prop, b : Prop ⊢ a → b → a"),
    ("∀ (a b : Prop), a → b → a", "intro a b", "intro x y", "a : Prop, b : Prop, x : a, y : b ⊢ a"),
    ("∀ (a b : Prop), a → b → a", "intro a b", "intro x y z", FAILED),
    ("∀ (a : Prop), ¬a", "intro a", "intro x", "a : Prop, x : a ⊢ False"),
    ("∀ (a b : Prop), a ∧ b", "intro a b", "intro x", FAILED),
    ("∀ (a b : Prop), a ↔ b", "intro a b", "intro x", FAILED),
    ("2 = 2", "", "intro x", FAILED),
    ("∀ (a : Prop), a → a → a", "intro a h", "intro h", "a : Prop, h✝ : a, h : a ⊢ a"),
    ("∀ (a b : Prop), a → b → a", "intro a b", "intros", "a : Prop, b : Prop, a✝ : a, a✝ : b ⊢ a"),
    ("∀ (a : Prop), ¬a", "intro a", "intros", "a : Prop ⊢ ¬a"),
    ("True ∨ False", "", "intros", "⊢ True ∨ False"),
    ("True ∨ False", "", "skip", "⊢ True ∨ False"),
    # apply unifies with the conclusion, introduces nothing by itself
    ("∀ (a b : Prop), a → a ∨ b", "intro a b", "apply Or.inl", CLOSED),
    ("∀ (a b : Prop), b → a ∨ b", "intro a b", "apply Or.inl", FAILED),
    ("∀ (a b : Prop), a ∨ b", "intro a b", "apply Or.inl", "h: a : Prop, b : Prop ⊢ a"),
    ("∀ (a b : Prop), a ∨ b", "intro a b", "apply Or.inr", "h: a : Prop, b : Prop ⊢ b"),
    ("∀ (a b : Prop), a ∧ b", "intro a b", "apply And.intro",
     "left: a : Prop, b : Prop ⊢ a\nright: a : Prop, b : Prop ⊢ b"),
    ("∀ (a b : Prop), a ↔ b", "intro a b", "apply Iff.intro",
     "mp: a : Prop, b : Prop ⊢ a → b\nmpr: a : Prop, b : Prop ⊢ b → a"),
    ("∀ (a b : Prop), a ∨ b", "intro a b", "apply And.intro", FAILED),
    ("∀ (a b : Prop), (a → b) → b", "intro a b f", "apply f", "a : Prop, b : Prop, f : a → b ⊢ a"),
    ("∀ (a b : Prop), (a → b) → a", "intro a b f", "apply f", FAILED),
    ("∀ (a b : Prop), (a ↔ b) → b", "intro a b e", "apply e.mp", "a : Prop, b : Prop, e : a ↔ b ⊢ a"),
    ("∀ (a b : Prop), (a ↔ b) → b", "intro a b e", "apply e.mpr", FAILED),
    ("∀ (a : Prop), ¬a → False", "intro a n", "apply n", "a : Prop, n : ¬a ⊢ a"),
    ("∀ (a : Prop), ¬a → ¬a", "intro a n", "apply n", CLOSED),
    ("∀ (a b c : Prop), (a → b) → (b → c) → a → c", "intro a b c f g x", "apply g <;> apply f <;> exact x", CLOSED),
    # constructor takes the first constructor that fits, and does not unfold ¬ or →
    ("∀ (a b : Prop), a ∨ b", "intro a b", "constructor", "h: a : Prop, b : Prop ⊢ a"),
    ("∀ (a b : Prop), a ∧ b", "intro a b", "constructor",
     "left: a : Prop, b : Prop ⊢ a\nright: a : Prop, b : Prop ⊢ b"),
    ("True", "", "constructor", CLOSED),
    ("3 = 3", "", "constructor", CLOSED),
    ("2 = 3", "", "constructor", FAILED),
    ("∀ (a : Prop), ¬a", "intro a", "constructor", FAILED),
    ("∀ (a b : Prop), a → b", "intro a b", "constructor", FAILED),
    ("False", "", "constructor", FAILED),
    ("∀ (a b : Prop), a ∨ b", "intro a b", "left", "h: a : Prop, b : Prop ⊢ a"),
    ("∀ (a b : Prop), a ∧ b", "intro a b", "right", FAILED),
    # exact elaborates against the goal and leaves nothing
    ("∀ (a : Prop), a → a", "intro a", "exact id", CLOSED),
    ("∀ (a b : Prop), a → b", "intro a b", "exact id", FAILED),
    ("True", "", "exact True.intro", CLOSED),
    ("∀ (a : Prop), a ∨ True", "intro a", "exact True.intro", FAILED),
    ("True", "", "exact missing", FAILED),
    ("∀ (a b : Prop), a ∧ b → b ∧ a", "intro a b h", "exact ⟨h.2, h.1⟩", CLOSED),
    ("∀ (a b : Prop), a ∧ b → b ∧ a", "intro a b h", "exact ⟨h.1, h.2⟩", FAILED),
    ("∀ (a b : Prop), a → b", "intro a b h", "exact h.1", FAILED),
    ("∀ (a b : Prop), (a ↔ b) → (b ↔ a)", "intro a b h", "exact Iff.symm h", CLOSED),
    ("∀ (a b : Prop), a → ¬a → b", "intro a b x n", "exact absurd (by assumption) n", CLOSED),
    ("∀ (a b : Prop), ¬a → b", "intro a b n", "exact absurd (by assumption) n", FAILED),
    ("∀ (a b : Prop), a ∨ b → b ∨ a", "intro a b h", "exact h.elim (fun x => Or.inr x) (fun y => Or.inl y)", CLOSED),
    ("∀ (a b : Prop), a ∧ b", "intro a b", "exact ⟨?_, ?_⟩", FAILED),
    ("∀ (a b : Prop), a ∧ b", "intro a b", "refine ⟨?_, ?_⟩",
     "a : Prop, b : Prop ⊢ a\na : Prop, b : Prop ⊢ b"),
    # assumption and contradiction look at whole hypotheses only
    ("∀ (a b : Prop), a → b → a", "intro a b x y", "assumption", CLOSED),
    ("∀ (a b : Prop), a ∧ b → a", "intro a b h", "assumption", FAILED),
    ("∀ (a b : Prop), a → ¬a → b", "intro a b x n", "contradiction", CLOSED),
    ("∀ (a b : Prop), False → b", "intro a b f", "contradiction", CLOSED),
    ("∀ (a b : Prop), a ∧ ¬a → b", "intro a b h", "contradiction", FAILED),
    ("∀ (a : Prop), a → False", "intro a x", "contradiction", FAILED),
    ("1 = 2 → False", "intro e", "contradiction", CLOSED),
    # decide evaluates closed statements only
    ("17 % 5 = 2 ∧ ¬(3 < 2)", "", "decide", CLOSED),
    ("2 * 2 = 5", "", "decide", FAILED),
    ("∀ (a : Prop), a → a", "", "decide", FAILED),
    ("∀ (a : Prop), a ∨ True", "intro a", "decide", FAILED),
    ("4 - 6 = 0", "", "rfl", CLOSED),
    ("∀ (a : Prop), a ↔ a", "intro a", "rfl", CLOSED),
    ("∀ (a b : Prop), a ↔ b", "intro a b", "rfl", FAILED),
    ("∀ (a : Prop), a → a", "intro a", "rfl", FAILED),
    ("True", "", "trivial", CLOSED),
    ("True ∧ 1 = 1", "", "trivial", CLOSED),
    ("∀ (a : Prop), a ∨ True", "intro a", "trivial", FAILED),
    # cases by the hypothesis' connective
    ("∀ (a b : Prop), a ∧ b → a", "intro a b h", "cases h",
     "intro: a : Prop, b : Prop, left✝ : a, right✝ : b ⊢ a"),
    ("∀ (a b : Prop), a ∨ b → a", "intro a b h", "cases h",
     "inl: a : Prop, b : Prop, h✝ : a ⊢ a\ninr: a : Prop, b : Prop, h✝ : b ⊢ a"),
    ("∀ (a : Prop), False → a", "intro a h", "cases h", CLOSED),
    ("∀ (a b : Prop), (a → b) → a", "intro a b h", "cases h", FAILED),
    ("∀ (a : Prop), a → a", "intro a h", "cases h", FAILED),
    ("∀ (a : Prop), False → a", "intro a", "rintro ⟨x, y⟩", CLOSED),
    ("∀ (a b : Prop), a ∨ b → b ∨ a", "intro a b", "rintro (x | y)",
     "a : Prop, b : Prop, x : a ⊢ b ∨ a\na : Prop, b : Prop, y : b ⊢ b ∨ a"),
    # rewriting, and what it ends with
    ("∀ (a b : Prop), (a ↔ b) → b → a", "intro a b e", "rw [e]", "a : Prop, b : Prop, e : a ↔ b ⊢ b → b"),
    ("∀ (a b : Prop), (a ↔ b) → (b ↔ a)", "intro a b e", "rw [e]", CLOSED),
    ("∀ (a b : Prop), a → (b ↔ a)", "intro a b h", "rw [h]", FAILED),
    ("∀ (a b c : Prop), (a ↔ b) → c", "intro a b c e", "rw [e]", FAILED),
    ("∀ (a b : Prop), a ∧ b → b", "intro a b h", "have x := h.1",
     "a : Prop, b : Prop, h : a ∧ b, x : a ⊢ b"),
    ("∀ (a b : Prop), a → b", "intro a b h", "have x := h.1", FAILED),
    ("∀ (a : Prop), a", "intro a", "exfalso", "a : Prop ⊢ False"),
    # simp, by connective; it fails where it changes nothing
    ("∀ (a : Prop), a ∨ False", "intro a", "simp", "a : Prop ⊢ a"),
    ("∀ (a : Prop), a ∧ True", "intro a", "simp", "a : Prop ⊢ a"),
    ("∀ (a : Prop), False ∧ a", "intro a", "simp", "a : Prop ⊢ False"),
    ("∀ (a : Prop), a ∧ a", "intro a", "simp", "a : Prop ⊢ a"),
    ("∀ (a : Prop), a ∨ True", "intro a", "simp", CLOSED),
    ("∀ (a : Prop), a", "intro a", "simp", FAILED),
    ("∀ (a b : Prop), a → a ∧ b", "intro a b x", "simp [x]", "a : Prop, b : Prop, x : a ⊢ b"),
    # what runs other tactics: nothing may get lost on the way
    ("∀ (a b : Prop), a → a ∧ b", "intro a b x", "constructor\n· exact x", "right: a : Prop, b : Prop, x : a ⊢ b"),
    ("∀ (a b : Prop), a → a ∧ b", "intro a b x", "· constructor", FAILED),
    ("∀ (a b : Prop), a → a ∧ b", "intro a b x", "first | exact x | constructor",
     "left: a : Prop, b : Prop, x : a ⊢ a\nright: a : Prop, b : Prop, x : a ⊢ b"),
    # what one goal of an application decides, it decides for the others
    ("∀ (a b c : Prop), (a ↔ b) → (b ↔ c) → (a ↔ c)", "intro a b c x y", "apply Iff.trans <;> assumption", CLOSED),
    ("∃ n, n * 3 = 12", "", "apply Exists.intro <;> first | exact (rfl : 4 * 3 = 12) | skip", CLOSED),
    # what is no tactic
    ("True", "", "exact (", UNREADABLE),
    ("True", "", "foo", UNREADABLE),
    ("True", "", "intro h extra)", UNREADABLE),
    ("True", "", "cases", UNREADABLE),
    ("True", "trivial", "skip", NO_GOALS),
]  # fmt: skip


def shown(goal: dict[str, Any]) -> str:
    facts = ", ".join(f"{v['userName']} : {v['type']['pp']}" for v in goal["vars"])
    tag = f"{goal['userName']}: " if goal.get("userName") else ""
    return f"{tag}{facts} ⊢ {goal['target']['pp']}" if facts else f"{tag}⊢ {goal['target']['pp']}"


def outcome(reply: dict[str, Any]) -> str:
    if "error" in reply:
        return NO_GOALS
    if "parseError" in reply:
        return UNREADABLE
    if "nextStateId" not in reply:
        assert reply["messages"][0]["severity"] == "error"
        return FAILED
    return "\n".join(map(shown, reply["goals"])) or CLOSED


@pytest.mark.parametrize(
    ("statement", "before", "tactic", "expected"), DIALOGUES, ids=[f"{s} | {t}" for s, _, t, _ in DIALOGUES]
)
def test_a_tactic_does_what_lean_does(
    ask: Ask, statement: str, before: str, tactic: str, expected: str
) -> None:
    number = ask("goal.start", expr=statement)["stateId"]
    if before:
        number = ask("goal.tactic", stateId=number, tactic=before)["nextStateId"]

    reply = ask("goal.tactic", stateId=number, tactic=tactic)

    assert outcome(reply) == expected, reply
    # Whatever came of it, the state that it began in is as it was.
    again = ask("goal.tactic", stateId=number, tactic=tactic)
    assert outcome(again) == expected
