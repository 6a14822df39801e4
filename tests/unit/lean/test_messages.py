"""Replies decode to typed values, and nothing malformed gets through."""

from __future__ import annotations

import pytest

from pipeline.lean.client import messages
from pipeline.lean.client.errors import MalformedReply
from pipeline.lean.client.messages import (
    Goal,
    Message,
    StatePrint,
    TacticFailed,
    TacticOk,
    TacticParseError,
    Unit,
    render_goals,
    tactic_result,
)

GOAL = {
    "vars": [
        {"userName": "p", "type": {"pp": "Prop"}, "name": "_uniq.10", "isInaccessible": False},
        {"userName": "h✝", "type": {"pp": "p"}, "name": "_uniq.11", "isInaccessible": True},
        {
            "userName": "n",
            "type": {"pp": "Nat"},
            "value": {"pp": "3"},
            "name": "_uniq.12",
            "isInaccessible": False,
        },
    ],
    "userName": "inl",
    "target": {"pp": "p ∨ q"},
    "name": "_uniq.13",
    "fragment": "tactic",
}
FAILURE = {
    "fileName": "<Pantograph>",
    "pos": {"line": 0, "column": 0},
    "endPos": None,
    "keepFullRange": False,
    "severity": "error",
    "isSilent": False,
    "caption": "",
    "data": "unknown identifier 'x'",
    "kind": "[anonymous]",
}


def test_a_goal_renders_as_pantograph_does() -> None:
    goal = Goal.from_json(GOAL)

    assert goal.render() == "case inl\np : Prop\nh✝ : p\nn : Nat := 3\n⊢ p ∨ q"


def test_a_goal_without_hypotheses_renders_with_an_empty_line_first() -> None:
    goal = Goal.from_json({"vars": [], "target": {"pp": "True"}, "name": "_uniq.1", "fragment": "tactic"})

    assert goal.render() == "\n⊢ True"
    assert render_goals((goal, goal)) == "\n⊢ True\n\n⊢ True"


def test_a_conv_goal_has_its_own_mark() -> None:
    goal = Goal.from_json({"vars": [], "target": {"pp": "a"}, "name": "_uniq.1", "fragment": "conv"})

    assert goal.render() == "\n| a"


def test_the_three_outcomes_of_a_tactic_are_told_apart() -> None:
    ok = tactic_result(
        {"nextStateId": 4, "goals": [GOAL], "messages": [], "hasSorry": True, "hasUnsafe": False},
        generation=7,
    )
    failed = tactic_result({"messages": [FAILURE], "hasSorry": False, "hasUnsafe": False}, generation=7)
    unparsed = tactic_result({"parseError": "no tactic", "hasSorry": False, "hasUnsafe": False}, generation=7)

    assert isinstance(ok, TacticOk)
    assert (ok.state.id, ok.state.generation, ok.has_sorry) == (4, 7, True)
    assert isinstance(failed, TacticFailed)
    assert failed.reason == "unknown identifier 'x'"
    assert unparsed == TacticParseError("no tactic")


def test_a_unit_tells_errors_from_sorry_warnings() -> None:
    warning = {**FAILURE, "severity": "warning", "kind": "hasSorry", "data": "declaration uses `sorry`"}
    unit = Unit.from_json(
        {"boundary": [12, 44], "messages": [warning], "newConstants": ["a.b"]}, generation=1
    )

    assert (unit.byte_start, unit.byte_end, unit.new_constants) == (12, 44, ("a.b",))
    assert unit.uses_sorry
    assert not unit.errors


def test_older_sorry_warnings_without_a_kind_are_known_by_their_text() -> None:
    message = Message.from_json({**FAILURE, "severity": "warning", "data": "declaration uses 'sorry'"})

    assert message.is_sorry_warning


def test_a_root_that_nothing_was_assigned_to_is_not_closed() -> None:
    untouched = StatePrint.from_json(
        {"goals": [], "extraMVars": [], "rootHasSorry": False, "rootHasUnsafe": False, "rootHasMVar": False}
    )

    assert not untouched.closed


@pytest.mark.parametrize(
    ("reply", "where"),
    [
        ({"units": [{"boundary": [0], "messages": []}]}, r"units\[0\]\.boundary"),
        ({"units": [{"boundary": [5, 2], "messages": []}]}, r"units\[0\]\.boundary"),
        ({"units": [{"boundary": [0, 2]}]}, r"units\[0\]\.messages"),
        ({"units": [{"boundary": [0, 2], "messages": [{"severity": "fatal"}]}]}, "severity"),
        ({}, "units: expected a list"),
    ],
)
def test_a_malformed_reply_is_refused_with_its_path(reply: dict[str, object], where: str) -> None:
    with pytest.raises(MalformedReply, match=where):
        messages.units(reply, generation=1)


def test_an_empty_tactic_reply_is_no_outcome() -> None:
    with pytest.raises(MalformedReply, match="neither"):
        tactic_result({"hasSorry": False, "hasUnsafe": False}, generation=1)
