"""Lean's text of goals in LeanDojo's form, and a REPL's goal objects as Lean prints them."""

from __future__ import annotations

from pipeline.lean.client.messages import Goal, Variable
from pipeline.lean.goal_text import as_lean_prints, dojo_state, hypotheses, same_goal, split_goals

TWO = "case inl\np q : Prop\nh : p\n⊢ q ∨\n    p\ncase inr\np q : Prop\nh : q\n⊢ q ∨ p"


def test_goals_are_parted_and_a_target_may_have_several_lines() -> None:
    first, second = split_goals(TWO)
    assert first == "case inl\np q : Prop\nh : p\n⊢ q ∨\n    p"
    assert second.startswith("case inr")
    assert split_goals("⊢ True\n⊢ False") == ["⊢ True", "⊢ False"]
    assert dojo_state(TWO) == f"{first}\n\n{second}"
    assert dojo_state("") == "no goals"


def test_hypotheses_are_names_before_a_colon() -> None:
    assert hypotheses(TWO) == {"p", "q", "h"}
    assert hypotheses("h✝ : p\n⊢ ∀ x : Nat, x = x") == {"h✝"}


def variable(name: str, said: str, value: str | None = None) -> Variable:
    return Variable(
        name="_uniq.1",
        user_name=name,
        inaccessible=False,
        type=said,
        value=None if value is None else value,
    )


def test_a_goal_object_is_printed_with_hypotheses_of_one_type_on_a_line() -> None:
    goal = Goal(
        name="_uniq.9",
        target="p ∧ q",
        vars=(
            variable("p", "Prop"),
            variable("q", "Prop"),
            variable("n", "Nat", "2"),
            variable("m", "Nat"),
            variable("h", "p"),
        ),
        user_name="left",
    )
    assert as_lean_prints(goal) == "case left\np q : Prop\nn : Nat := 2\nm : Nat\nh : p\n⊢ p ∧ q"


def test_a_goal_without_hypotheses_is_its_target_and_a_conv_goal_has_its_own_mark() -> None:
    for fragment, printed in (("tactic", "⊢ True"), ("conv", "| True")):
        assert as_lean_prints(Goal("g", "True", (), fragment=fragment)) == printed


def test_goals_are_the_same_whatever_universe_variables_are_called_and_lines_are_shared() -> None:
    assert same_goal("α : Sort ?u.7\nh : α\ng : α\n⊢ α", "α : Sort ?u.12\nh g : α\n⊢ α")
    assert not same_goal("h : p\n⊢ p", "h : q\n⊢ p")
