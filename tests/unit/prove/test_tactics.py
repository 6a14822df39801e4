from __future__ import annotations

import asyncio

import pytest

from pipeline.lean.client.messages import Goal, Variable
from pipeline.models.retriever.corpus import Premise
from pipeline.prove.curated import CLOSERS, CuratedTactics
from pipeline.prove.graph import Candidate, TacticRequest
from pipeline.prove.premises import ShownPremises, citable


def goal(target: str, **hypotheses: str) -> Goal:
    variables = tuple(
        Variable(name, name, inaccessible=False, type=text) for name, text in hypotheses.items()
    )
    return Goal("g", target, variables)


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
    hidden = Variable("h✝", "h✝", inaccessible=True, type="p → q")
    assert not any("✝" in text for text in texts(Goal("g", "q", (hidden,))))


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


# ---- with premises


def premise(name: str, code: str = "", path: str = "Other.lean") -> Premise:
    return Premise(path, name, (1, 1), (1, 9), code or f"theorem {name} : p")


def shown(*found: Premise) -> tuple[ShownPremises, list[str]]:
    states: list[str] = []

    async def find(state: str) -> tuple[Premise, ...]:
        states.append(state)
        return found

    return ShownPremises(find, "Mine.lean"), states


def proposed(proposer: CuratedTactics, state: Goal, *steps: str) -> list[str]:
    return [one.text for one in asyncio.run(proposer.propose(TacticRequest((state,), steps, 0)))]


def test_the_first_few_premises_are_named_alone_and_together() -> None:
    source, _ = shown(*(premise(f"A.p{number}") for number in range(9)))
    offered = proposed(CuratedTactics(shown=source), goal("p"))
    alone = ["exact A.p0 ..", "simp [A.p0]", "grind [A.p0]", "apply A.p0", "rw [A.p0]", "rw [← A.p0]"]
    assert set(alone) <= set(offered)
    assert {"simp [A.p0, A.p1, A.p2, A.p3]", "aesop (add unsafe [A.p0, A.p1, A.p2, A.p3])"} <= set(offered)
    assert not [text for text in offered if "A.p4" in text]
    assert offered[: len(CLOSERS)] == [*CLOSERS], "after what needs no premise"
    core = proposed(CuratedTactics(core_only=True, shown=source), goal("p"))
    assert not [text for text in core if text.startswith("aesop")], "a tactic of a library"


def test_premises_are_looked_up_for_a_search_s_first_goal_and_named_at_all_its_states() -> None:
    source, states = shown(premise("A.b"))
    proposer = CuratedTactics(shown=source)
    assert "exact A.b .." in proposed(proposer, goal("p → q", h="r"))
    assert "exact A.b .." in proposed(proposer, goal("q", h="r"), "intro h1")
    assert states == ["h : r\n⊢ p → q"]


def test_a_hypothesis_does_not_shadow_a_premise() -> None:
    source, _ = shown(premise("h.foo"), premise("bar"))
    offered = proposed(CuratedTactics(shown=source), goal("p", h="q"))
    assert {"exact _root_.h.foo ..", "exact bar .."} <= set(offered)


def test_a_retriever_s_failure_leaves_the_other_tactics_and_is_told() -> None:
    async def find(_state: str) -> tuple[Premise, ...]:
        raise ValueError("the index is gone")

    proposer = CuratedTactics(shown=ShownPremises(find))
    assert proposed(proposer, goal("p")) == texts(goal("p"), at_start=True)
    assert proposer.reason == "no premises were found for 1 of 1 states: the index is gone"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("Nat.add_comm", "Nat.add_comm"),
        ("Demo.«a b».c", "Demo.«a b».c"),
        ("Demo.a-b", "Demo.«a-b»"),
        ("Demo.Ω'.h₁", "Demo.Ω'.h₁"),
        ("_private.Demo.0.secret", None),
        ("Demo.x._@.Demo._hyg.12", None),
        ("Demo._proof_1", None),
        ("Demo.foo.1", None),
        ("Demo.h✝", None),
        ("Demo..x", None),
        ("", None),
    ],
)
def test_a_name_is_written_as_source_can_have_it_or_left_out(name: str, written: str | None) -> None:
    assert citable(premise(name), "Mine.lean") == written


def test_a_private_premise_is_named_in_its_own_file_alone() -> None:
    for code in (
        "private theorem a : p",
        "@[simp] private noncomputable def a := 1",
        "protected private lemma a : p",
    ):
        assert citable(premise("D.a", code), "Mine.lean") is None
        assert citable(premise("D.a", code, path="Mine.lean"), "Mine.lean") == "D.a"
    assert citable(premise("D.a", "theorem a (private : p) : p"), "Mine.lean") == "D.a"
