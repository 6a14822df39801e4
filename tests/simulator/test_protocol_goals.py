"""Goal states over the simulator's protocol: sites, sleeping goals, the forms of a step, files of states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.simulator.frontend import Modules
from pipeline.lean.simulator.server import Server

Ask = Callable[..., dict[str, Any]]
SPLIT = "∀ (p q : Prop), p → q → p ∧ q"


def targets(reply: dict[str, Any]) -> list[str]:
    return [goal["target"]["pp"] for goal in reply["goals"]]


@pytest.fixture
def split(ask: Ask) -> dict[str, Any]:
    """State 1 has the goals p and q."""
    ask("goal.start", expr=SPLIT)
    return ask("goal.tactic", stateId=0, tactic="intro p q a b\nconstructor")


# ---- goals that sleep


def test_a_closed_state_has_no_goal_to_work_on(ask: Ask) -> None:
    ask("goal.start", expr="True")
    ask("goal.tactic", stateId=0, tactic="trivial")

    reply = ask("goal.tactic", stateId=1, tactic="trivial")
    assert (reply["error"], reply["desc"]) == ("exception", "no goals to be solved")
    assert ask("goal.tactic", stateId=0, tactic="trivial", goalId=7)["desc"] == "Invalid goal index 7"


# ---- printing


def test_print_gives_only_what_is_asked_for(ask: Ask, split: dict[str, Any]) -> None:
    printed = ask("goal.print", stateId=1)

    assert printed.keys() == {"goals", "extraMVars", "rootHasSorry", "rootHasUnsafe", "rootHasMVar"}
    assert printed["goals"] == []


def test_a_sorry_in_the_root_is_seen_long_after_its_step(ask: Ask, split: dict[str, Any]) -> None:
    ask("goal.tactic", stateId=1, tactic="sorry")
    assert ask("goal.tactic", stateId=2, tactic="exact b")["hasSorry"] is False
    assert ask("goal.print", stateId=3)["rootHasSorry"] is True


def test_options_choose_how_terms_are_shown(ask: Ask) -> None:
    ask("options.set", printExprPretty=False)
    ask("goal.start", expr="∀ (p : Prop), p → p")
    (goal,) = ask("goal.tactic", stateId=0, tactic="intro p")["goals"]

    assert goal["target"] == {}
    ask("options.set", printExprPretty=True, printDependentMVars=True)
    ask("goal.start", expr="∃ (x : Nat), x + 1 = 0")
    state = ask("goal.tactic", stateId=2, tactic="apply Exists.intro")
    first, second = state["goals"]
    assert (first["target"]["dependentMVars"], second["target"]["dependentMVars"]) == ([second["name"]], [])


# ---- the forms of a step


def test_a_have_as_a_tactic_keeps_the_root_honest(ask: Ask) -> None:
    ask("goal.start", expr="∀ (p : Prop), False")
    ask("goal.tactic", stateId=0, tactic="intro p")
    reply = ask("goal.tactic", stateId=1, tactic="have y : False := ?_\nexact y")

    assert targets(reply) == ["False"]


@pytest.mark.parametrize("step", ["a = c", "b = d", "_ ≤ d", "a + 1 = b", "True"])
def test_a_wrong_step_of_a_calculation_fails_or_leaves_what_is_missing(ask: Ask, step: str) -> None:
    ask("goal.start", expr="∀ (a b c d : Nat), a = d")
    ask("goal.tactic", stateId=0, tactic="intro a b c d")
    ask("goal.tactic", stateId=1, mode="calc")
    reply = ask("goal.tactic", stateId=2, tactic=step)

    assert "nextStateId" not in reply or targets(reply) == ["a = c", "c = d"]


# ---- time and work


def test_a_long_tactic_is_interrupted_and_the_old_state_stays_usable(ask: Ask) -> None:
    ask("goal.start", expr="1 + 1 = 2")
    ask("options.set", timeout=1)
    long = "skip;" * 15_000
    assert ask("goal.tactic", stateId=0, tactic=f"{long} rfl") == {"error": "io", "desc": "interrupt"}
    assert ask("frontend.process", file=f"example : True := by {long} trivial", readHeader=False,
               inheritEnv=False, newConstants=False) == {"error": "io", "desc": "interrupt"}  # fmt: skip
    ask("options.set", timeout=0)
    assert ask("goal.tactic", stateId=0, tactic="rfl")["goals"] == []


# ---- states that are compared and deleted


def test_deleting_ignores_unknown_ids_and_never_reuses_one(ask: Ask, split: dict[str, Any]) -> None:
    assert ask("goal.delete", stateIds=[0, 1, 99]) == {}
    assert ask("goal.print", stateId=1)["error"] == "index"
    assert ask("goal.start", expr="True")["stateId"] == 2


def test_reset_keeps_scope_and_environment(ask: Ask) -> None:
    text = "namespace A\ntheorem mine : True := trivial"
    ask("frontend.process", file=text, readHeader=False, inheritEnv=True, newConstants=False)
    ask("goal.start", expr="True")
    ask("reset")

    assert ask("goal.start", expr="True")["stateId"] == 0
    assert ask("goal.tactic", stateId=0, tactic="exact mine")["goals"] == []


def test_work_without_end_is_an_error_object_that_no_tactic_catches(ask: Ask) -> None:
    ask("goal.start", expr="True")
    endless = "skip;" * 25_000
    reply = ask("goal.tactic", stateId=0, tactic=f"first | ({endless} trivial) | trivial")

    assert reply["error"] == "io"
    assert reply["desc"].startswith("(deterministic) timeout")
    assert ask("goal.tactic", stateId=0, tactic="trivial")["nextStateId"] == 1


def test_each_state_keeps_the_environment_it_was_started_in(tmp_path: Path) -> None:
    server = Server.start(Modules(tmp_path), ["Init"])
    server.answer("goal.start", {"expr": "True"})
    late = {
        "file": "theorem late : True := trivial",
        "readHeader": False,
        "inheritEnv": True,
        "newConstants": False,
    }
    server.answer("frontend.process", late)

    assert "nextStateId" not in server.answer("goal.tactic", {"stateId": 0, "tactic": "exact late"})
    server.answer("goal.start", {"expr": "True"})
    assert server.answer("goal.tactic", {"stateId": 1, "tactic": "exact late"})["goals"] == []
