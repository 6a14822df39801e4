from __future__ import annotations

from pipeline.lean.client.messages import Expression, Goal, Variable
from pipeline.prove.curated import CLOSERS, CuratedTactics
from pipeline.prove.graph import Candidate


def goal(target: str, **hypotheses: str) -> Goal:
    variables = tuple(
        Variable(name, name, inaccessible=False, type=Expression(pp=text))
        for name, text in hypotheses.items()
    )
    return Goal("g", Expression(pp=target), variables)


def texts(state: Goal, *, at_start: bool = False) -> list[str]:
    return [candidate.text for candidate in CuratedTactics().candidates(state, at_start=at_start)]


def test_closing_tactics_come_first_and_slow_ones_last() -> None:
    offered = texts(goal("p → q"), at_start=True)
    assert tuple(offered[: len(CLOSERS)]) == CLOSERS
    assert offered[-1] == "exact?"


def test_the_slow_ones_are_for_the_sorry_s_own_goal_only() -> None:
    assert "exact?" not in texts(goal("p"))


def test_an_introduced_name_is_one_that_is_free() -> None:
    assert "intro h1" in texts(goal("p → q", h="r"))
    assert "intro q" in texts(goal("∀ (q : Prop), q", p="Prop"))


def test_a_hypothesis_is_taken_apart_by_its_connective() -> None:
    assert "obtain ⟨h1, h2⟩ := h" in texts(goal("r", h="p ∧ q"))
    assert "rcases h with h1 | h1" in texts(goal("r", h="p ∨ q"))
    assert "exact h.elim" in texts(goal("r", h="False"))


def test_a_hypothesis_whose_conclusion_could_help_is_applied() -> None:
    assert "apply f" in texts(goal("q", f="p → q"))
    assert "apply p" not in texts(goal("q", p="Prop"))
    assert "apply P" not in texts(goal("q", P="Nat → Prop"))


def test_an_implication_with_its_premise_is_used_forward_once() -> None:
    assert "have h := f a" in texts(goal("q", f="p → q ∧ r", a="p"))
    assert "have h := f a" not in texts(goal("q", f="p → q ∧ r", a="p", b="q ∧ r"))


def test_inaccessible_hypotheses_are_not_named() -> None:
    hidden = Variable("h✝", "h✝", inaccessible=True, type=Expression(pp="p → q"))
    assert not any("✝" in text for text in texts(Goal("g", Expression(pp="q"), (hidden,))))


def test_a_tactic_that_does_not_parse_is_not_offered_again() -> None:
    ladder = CuratedTactics()
    ladder.saw(Candidate("tauto", "tauto"), parsed=False)
    offered = [candidate.text for candidate in ladder.candidates(goal("p"), at_start=False)]
    assert "tauto" not in offered
    assert "simp" in offered


def test_a_shape_is_given_up_only_after_several_failures_to_parse() -> None:
    """One bad name must not cost every hypothesis its `obtain`."""
    ladder = CuratedTactics()
    candidate = Candidate("obtain ⟨a, b⟩ := c", "obtain ⟨_, _⟩ := _")
    ladder.saw(candidate, parsed=False)
    assert ladder.offers(candidate)
    ladder.saw(candidate, parsed=False)
    ladder.saw(candidate, parsed=False)
    assert not ladder.offers(candidate)
    ladder.saw(candidate, parsed=True)
    assert ladder.offers(candidate)


def test_the_same_goal_gives_the_same_list() -> None:
    state = goal("p ∧ q → q ∨ r", h="p ∧ q", f="p → q", n="Nat", e="n = 0")
    assert texts(state, at_start=True) == texts(state, at_start=True)
