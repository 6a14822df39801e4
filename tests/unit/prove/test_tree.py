"""The graph of a search without Lean, and the tree that is kept of it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from pipeline.lean.client.messages import Goal, StateRef, Variable
from pipeline.lean.goal_text import ambiguous, goals_key
from pipeline.lean.pool.session import State
from pipeline.prove import graph as outlining
from pipeline.prove.graph import (
    Candidate,
    Graph,
    ModelScoring,
    TacticResult,
    best,
    by_steps,
    normalised,
    outline,
)
from pipeline.prove.tree import Tree, TreeError, TriedOutcome, TriedTactic, number_of


def goal(target: str, **hypotheses: str) -> Goal:
    variables = tuple(
        Variable(name, name.replace("_dagger", "✝"), inaccessible=False, type=text)
        for name, text in hypotheses.items()
    )
    return Goal("g", target, variables)


def graph(*, model: bool = False) -> Graph:
    state = State((goal("A"),), ref=StateRef(0, 1), names=("g",))
    return Graph((goal("A"),), ModelScoring() if model else by_steps, first=0, state=state)


def expand(of: Graph, *found: tuple[str, str, float]) -> None:
    """Expand the next state: each tactic leads to these targets, "" to none left, "!" fails."""
    node = of.pop()
    for tactic, targets, log_probability in found:
        candidate = Candidate(tactic, tactic, log_probability=log_probability)
        outcome: TriedOutcome = "failed" if targets == "!" else "step"
        goals = () if targets in ("", "!") else tuple(goal(one) for one in targets.split())
        of.took(node, candidate, TacticResult(tactic, outcome, "no" if targets == "!" else "", goals))
    of.rank(node, None)
    of.close(node)


def outcomes(of: Graph) -> dict[str, str]:
    tree = outline(of, outcome="exhausted", limit="")
    return {node.goals[0][-1] if node.goals else "": node.outcome for node in tree.nodes}


def test_a_state_with_dead_successors_is_dead_cycles_or_not() -> None:
    one = graph()
    expand(one, ("b", "B", 0), ("c", "C", 0))
    assert outcomes(one) == {"A": "expanded", "B": "open", "C": "open"}
    expand(one, ("back", "A", 0), ("over", "C", 0))
    assert outcomes(one) == {"A": "expanded", "B": "expanded", "C": "open"}
    expand(one, ("fail", "!", 0), ("again", "B", 0))
    assert set(outcomes(one).values()) == {"dead"}
    assert not one.any_open


def test_states_on_the_way_to_a_proof_are_proved() -> None:
    one = graph()
    expand(one, ("b", "B", 0), ("c", "C", 0))
    expand(one, ("over", "C", 0))
    expand(one, ("done", "", 0))
    assert outcomes(one) == {"A": "proved", "B": "proved", "C": "proved", "": "proved"}
    tree = outline(one, outcome="found", limit="")
    assert [tree.node(number).tactic for number in tree.proof] == ["", "c", "done"]
    assert best(one) == "proved with 2 tactics"


def test_a_better_way_moves_a_state_that_nothing_was_tried_on_and_no_other() -> None:
    one = graph(model=True)
    expand(one, ("good", "B", -1), ("bad", "C", -9))
    expand(one, ("better", "C", -1), ("home", "A", 0), ("self", "B", 0))
    assert [node.parent.number if node.parent else None for node in one.nodes] == [None, 0, 1]
    assert one.nodes[2].log_probability == -2
    assert [step.tactic for step in one.nodes[2].steps] == ["good", "better"]
    expand(one, ("around", "B", 0))
    assert one.nodes[1].parent is one.root


def test_equal_scores_go_in_the_order_of_discovery() -> None:
    one = graph()
    expand(one, ("d", "D", 0), ("b", "B", 0), ("c", "C", 0))
    assert [one.pop().goals[0].target for _ in range(3)] == ["D", "B", "C"]


def test_progress_is_the_fewest_goals_and_then_the_most_closed() -> None:
    one = graph()
    expand(one, ("split", "B C D", 0), ("swap", "E", 0))
    # `swap` left one goal, and so did the beginning: the deeper one is further.
    assert best(one) == "1 of 1 goal left after 1 tactic: ⊢ E"
    expand(one, ("none", "!", 0))
    expand(one, ("close", "C D", 0))
    expand(one, ("close", "D", 0))
    assert best(one) == "1 of 3 goals left after 3 tactics: ⊢ D"


def test_a_tree_goes_through_json_and_back() -> None:
    one = graph(model=True)
    expand(one, ("b", "B C", -0.25), ("c", "C", -math.inf), ("no", "!", -1))
    expand(one, ("d", "", 0))
    tree = outline(one, outcome="found", limit="")
    assert Tree.from_json(json.loads(json.dumps(tree.as_json(), allow_nan=False))) == tree


def damaged(**changes: Any) -> dict[str, Any]:
    one = graph()
    expand(one, ("b", "B", 0), ("no", "!", 0))
    return outline(one, outcome="budget", limit="nodes").as_json() | changes


@pytest.mark.parametrize("raw", [10**400, -(10**400), True, "1", None, float("nan")])
def test_values_that_are_no_numbers_are_refused(raw: object) -> None:
    with pytest.raises(ValueError, match="expected a number"):
        number_of(raw)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ([], "tree: expected an object"),
        (damaged(version=2), "this version reads 1"),
        (damaged(outcome="great"), "tree.outcome: Input should be 'found'"),
        (damaged(nodes=[]), "not numbered upwards from 0"),
        (damaged(nodes=[7]), r"tree.nodes\[0\]: .*\(it is 7\)"),
        (damaged(proof=[0, 9]), "tree.proof: state 9 does not come after 0"),
        (damaged(nodes_left_out=-1), "tree.nodes_left_out: .* greater than or equal to 0"),
        (damaged(best=None), "tree.best: .* valid string"),
    ],
)
def test_damaged_trees_are_refused_with_the_place(raw: object, complaint: str) -> None:
    with pytest.raises(TreeError, match=complaint):
        Tree.from_json(raw)


def test_states_that_do_not_hang_together_are_refused() -> None:
    raw = damaged()
    for parent, complaint in ((5, "the parent 5"), (1, "comes after itself"), (None, "the parent None")):
        raw["nodes"][1]["parent"] = parent
        with pytest.raises(TreeError, match=complaint):
            Tree.from_json(raw)
    raw = damaged()
    raw["nodes"][0]["tried"][1]["outcome"] = "fine"
    with pytest.raises(TreeError, match=r"tree.nodes\[0\].tried\[1\].outcome"):
        Tree.from_json(raw)
    raw = damaged()
    raw["nodes"][0]["score"] = True
    with pytest.raises(TreeError, match=r"tree.nodes\[0\].score: expected a number"):
        Tree.from_json(raw)


def test_a_tree_says_how_much_it_left_out_and_keeps_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlining, "NODES", 5)
    monkeypatch.setattr(outlining, "TRIED", 3)
    one = graph()
    expand(one, *((f"t{at}", f"X{at}", 0) for at in range(8)), *((f"n{at}", "!", 0) for at in range(5)))
    for _ in range(7):
        expand(one, ("no", "!", 0))
    expand(one, ("done", "", 0))
    tree = outline(one, outcome="found", limit="")
    assert tree.proof == (0, 8, 9)
    assert [node.number for node in tree.nodes] == [0, 1, 2, 8, 9]
    assert tree.nodes_left_out == 5
    assert len(tree.node(0).tried) + tree.node(0).tried_left_out == 13
    assert Tree.from_json(tree.as_json()) == tree


def test_texts_without_end_do_not_make_a_tree_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlining, "CHARACTERS", 50_000)
    one = graph()
    node = one.pop()
    for at in range(200):
        wide = (goal("x" * 5000 + str(at)),)
        one.took(node, Candidate(f"t{at}" * 500, ""), TacticResult(f"t{at}" * 500, "step", "", wide))
    one.rank(node, None)
    one.close(node)
    tree = outline(one, outcome="budget", limit="nodes")
    assert len(json.dumps(tree.as_json())) < 80_000
    assert 1 < len(tree.nodes) < 50
    assert len(tree.nodes) + tree.nodes_left_out == 201
    assert len(tree.best) < 200


def test_goals_that_differ_in_unmentioned_names_and_counters_only_are_one() -> None:
    assert goals_key((goal("p", h="p"),)) == goals_key((goal("p", k="p"),))
    assert goals_key((goal("h = 1", h="Nat"),)) != goals_key((goal("k = 1", k="Nat"),))
    assert goals_key((goal("?m.12 = ?m.9"),)) == goals_key((goal("?m.4 = ?m.77"),))
    assert goals_key((goal("?m.12 = ?m.12"),)) != goals_key((goal("?m.4 = ?m.77"),))


def test_shadowed_names_make_a_goal_ambiguous_where_they_are_mentioned() -> None:
    twice = (
        Variable("a", "h✝", True, "Prop"),
        Variable("b", "h✝", True, "Prop"),
    )
    assert ambiguous((Goal("g", "h✝", twice),))
    assert not ambiguous((Goal("g", "True", twice),))
    assert not ambiguous((Goal("g", "h✝", twice[:1]),))


def test_white_space_is_normalised_but_for_indentation() -> None:
    assert normalised("  simp   at  h \n\n") == normalised("simp at h") == "simp at h"
    assert normalised("a\n  b") != normalised("a\nb") != normalised("a b")
    assert normalised("a\n\n  b  c") == "a\n  b c"


def test_tried_tactics_are_in_order_with_their_reasons() -> None:
    one = graph()
    expand(one, ("no", "!", -2), ("b", "B", -1), ("back", "A", 0))
    tree = outline(one, outcome="budget", limit="nodes")
    assert tree.node(0).tried == (
        TriedTactic("no", "failed", "no", -2),
        TriedTactic("b", "step", "", -1, 1),
        TriedTactic("back", "repeated", "", 0, 0),
    )
