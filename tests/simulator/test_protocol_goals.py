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


def test_a_step_without_auto_resume_puts_the_siblings_to_sleep(ask: Ask, split: dict[str, Any]) -> None:
    assert targets(split) == ["p", "q"]
    done = ask("goal.tactic", stateId=1, tactic="exact b", goalId=1, autoResume=False)
    assert done["goals"] == []
    assert ask("goal.print", stateId=done["nextStateId"])["rootHasMVar"] is True


def test_manual_mode_as_an_option_makes_every_step_focus(ask: Ask, split: dict[str, Any]) -> None:
    ask("options.set", automaticMode=False)

    assert ask("goal.tactic", stateId=1, tactic="exact a")["goals"] == []
    assert targets(ask("goal.tactic", stateId=1, tactic="exact a", autoResume=True)) == ["q"]


def test_a_closed_state_has_no_goal_to_work_on_in_either_mode(ask: Ask) -> None:
    ask("goal.start", expr="True")
    ask("goal.tactic", stateId=0, tactic="trivial")

    automatic = ask("goal.tactic", stateId=1, tactic="trivial")
    manual = ask("goal.tactic", stateId=1, tactic="trivial", autoResume=False)
    assert (automatic["error"], automatic["desc"]) == ("exception", "no goals to be solved")
    assert (manual["error"], manual["desc"]) == ("index", "No goals to be solved")
    assert ask("goal.tactic", stateId=0, tactic="trivial", goalId=7)["desc"] == "Invalid goal index 7"


# ---- printing


def test_print_shows_the_parents_term_and_named_holes(ask: Ask, split: dict[str, Any]) -> None:
    ask("goal.tactic", stateId=1, tactic="exact a")
    first, second = (goal["name"] for goal in split["goals"])
    printed = ask(
        "goal.print", stateId=2, rootExpr=True, parentExprs=True, goals=True, extraMVars=[first, second]
    )

    assert printed["root"]["pp"].startswith("fun p q a b => And.intro a ?")
    assert printed["parentExprs"] == [{"pp": "a"}]
    assert printed["extraMVars"] == [{"pp": "a"}, {}]
    assert targets(printed) == ["q"]
    assert (printed["rootHasMVar"], printed["rootHasSorry"], printed["rootHasUnsafe"]) == (True, False, False)


def test_print_gives_only_what_is_asked_for(ask: Ask, split: dict[str, Any]) -> None:
    printed = ask("goal.print", stateId=1)

    assert printed.keys() == {"goals", "extraMVars", "rootHasSorry", "rootHasUnsafe", "rootHasMVar"}
    assert printed["goals"] == []
    assert ask("goal.print", stateId=0, parentExprs=True)["parentExprs"] == []


def test_a_sorry_in_the_root_is_seen_long_after_its_step(ask: Ask, split: dict[str, Any]) -> None:
    ask("goal.tactic", stateId=1, tactic="sorry")
    assert ask("goal.tactic", stateId=2, tactic="exact b")["hasSorry"] is False
    assert ask("goal.print", stateId=3)["rootHasSorry"] is True


def test_options_choose_how_terms_are_shown(ask: Ask) -> None:
    ask("options.set", printExprAST=True, printExprPretty=False)
    ask("goal.start", expr="∀ (p : Prop), p → p")
    (goal,) = ask("goal.tactic", stateId=0, tactic="intro p")["goals"]

    name = goal["vars"][0]["name"]
    assert goal["target"] == {"sexp": f"(:forall a (:fv {name}) (:fv {name}))"}
    ask("options.set", printExprAST=False, printExprPretty=True, printDependentMVars=True)
    ask("goal.start", expr="∃ (x : Nat), x + 1 = 0")
    state = ask("goal.tactic", stateId=2, tactic="apply Exists.intro")
    first, second = state["goals"]
    assert (first["target"]["dependentMVars"], second["target"]["dependentMVars"]) == ([second["name"]], [])


def test_without_repeats_a_known_hypothesis_is_only_named(ask: Ask) -> None:
    ask("options.set", noRepeat=True)
    ask("goal.start", expr="∀ (p : Prop), p → p")
    ask("goal.tactic", stateId=0, tactic="intro p")
    (goal,) = ask("goal.tactic", stateId=1, tactic="intro h")["goals"]

    assert ["type" in variable for variable in goal["vars"]] == [False, True]


# ---- the forms of a step


def test_an_expression_fills_the_goal_and_its_holes_become_goals(ask: Ask) -> None:
    ask("goal.start", expr=SPLIT)
    reply = ask("goal.tactic", stateId=0, expr="fun p q a b => And.intro ?_ _")

    assert targets(reply) == ["p", "q"]
    assert "messages" in ask("goal.tactic", stateId=0, expr="fun p => p")
    assert "parseError" in ask("goal.tactic", stateId=0, expr="fun p =>")


def test_a_structured_have_gives_a_root_that_proves_nothing(ask: Ask) -> None:
    """The REPL's pitfall: what `have` asserts is never applied, so an unproved branch leaves no trace."""
    ask("goal.start", expr="∀ (p : Prop), False")
    ask("goal.tactic", stateId=0, tactic="intro p")
    reply = ask("goal.tactic", stateId=1, have="False", binderName="y")
    assert targets(reply) == ["False", "False"]
    assert [v["userName"] for v in reply["goals"][1]["vars"]] == ["p", "y"]
    main = ask("goal.tactic", stateId=2, goalId=1, expr="y", autoResume=False)
    assert main["goals"] == []
    printed = ask("goal.print", stateId=main["nextStateId"], rootExpr=True)
    assert (printed["root"]["pp"], printed["rootHasMVar"]) == ("fun p y => y", False)


def test_a_have_as_a_tactic_keeps_the_root_honest(ask: Ask) -> None:
    ask("goal.start", expr="∀ (p : Prop), False")
    ask("goal.tactic", stateId=0, tactic="intro p")
    reply = ask("goal.tactic", stateId=1, tactic="have y : False := ?_\nexact y")

    assert targets(reply) == ["False"]


def test_the_sorries_of_a_draft_become_goals(ask: Ask) -> None:
    ask("goal.start", expr="∀ (p : Prop), p → p ∧ p")
    reply = ask(
        "goal.tactic", stateId=0, draft="by\n  intro p h\n  have i : p ∨ p := sorry\n  exact ⟨sorry, h⟩"
    )

    assert targets(reply) == ["p ∨ p", "p"]
    assert reply["hasSorry"] is False
    first = ask("goal.tactic", stateId=1, tactic="exact Or.inl h")
    closed = ask("goal.tactic", stateId=first["nextStateId"], tactic="exact h")
    printed = ask("goal.print", stateId=closed["nextStateId"])
    assert closed["goals"] == []
    assert (printed["rootHasMVar"], printed["rootHasSorry"]) == (False, False)


def test_a_let_fails_and_says_that_the_simulator_has_none(ask: Ask) -> None:
    ask("goal.start", expr="True")
    reply = ask("goal.tactic", stateId=0, let="Nat", binderName="n")

    assert "nextStateId" not in reply
    assert "outside its logic: `let`" in reply["messages"][0]["data"]


def test_a_step_has_exactly_one_form(ask: Ask) -> None:
    ask("goal.start", expr="True")
    said = "Exactly one of {tactic, mode, expr, have, let, draft} must be supplied"

    assert ask("goal.tactic", stateId=0) == {"error": "command", "desc": said}
    assert ask("goal.tactic", stateId=0, tactic="trivial", expr="trivial")["desc"] == said


def test_a_calculation_goes_step_by_step(ask: Ask) -> None:
    ask("goal.start", expr="∀ (a b c d : Nat), a = b → b = c → c = d → a = d")
    ask("goal.tactic", stateId=0, tactic="intro a b c d h i j")
    entered = ask("goal.tactic", stateId=1, mode="calc")
    assert entered["goals"][0]["fragment"] == "calc"
    first = ask("goal.tactic", stateId=2, tactic="a = b")
    assert [(g.get("userName"), g["fragment"], g["target"]["pp"]) for g in first["goals"]] == [
        ("calc", "tactic", "a = b"),
        (None, "calc", "b = d"),
    ]
    second = ask("goal.tactic", stateId=3, tactic="_ = c", goalId=1)
    assert targets(second) == ["b = c", "c = d"]
    last = ask("goal.tactic", stateId=4, tactic="_ = d", goalId=1)
    assert targets(last) == ["c = d"]
    closed = ask("goal.tactic", stateId=last["nextStateId"], tactic="exact j")
    # The siblings of a calculation's step are asleep: no goals, and yet no proof.
    assert closed["goals"] == []
    assert ask("goal.print", stateId=closed["nextStateId"])["rootHasMVar"] is True


@pytest.mark.parametrize("step", ["a = c", "b = d", "_ ≤ d", "a + 1 = b", "True"])
def test_a_wrong_step_of_a_calculation_fails_or_leaves_what_is_missing(ask: Ask, step: str) -> None:
    ask("goal.start", expr="∀ (a b c d : Nat), a = d")
    ask("goal.tactic", stateId=0, tactic="intro a b c d")
    ask("goal.tactic", stateId=1, mode="calc")
    reply = ask("goal.tactic", stateId=2, tactic=step)

    assert "nextStateId" not in reply or targets(reply) == ["a = c", "c = d"]


def test_modes_are_entered_and_left_as_documented(ask: Ask) -> None:
    ask("goal.start", expr="1 + 1 = 2")
    assert ask("goal.tactic", stateId=0, mode="nonsense") == {
        "error": "command",
        "desc": "Invalid mode nonsense",
    }
    assert ask("goal.tactic", stateId=0, mode="tactic") == {
        "error": "invalid",
        "desc": "Goal does not have a fragment",
    }
    ask("goal.tactic", stateId=0, mode="conv")
    assert ask("goal.tactic", stateId=1, mode="conv")["desc"] == "Already in conv state"
    assert ask("goal.tactic", stateId=1, mode="calc")["desc"] == "Goal already has a fragment"
    left = ask("goal.tactic", stateId=1, mode="tactic")
    assert left["goals"][0]["fragment"] == "tactic"
    assert ask("goal.tactic", stateId=left["nextStateId"], tactic="rfl")["goals"] == []


def test_a_conv_tactic_is_a_failure_that_says_why(ask: Ask) -> None:
    ask("goal.start", expr="1 + 1 = 2")
    ask("goal.tactic", stateId=0, mode="conv")
    reply = ask("goal.tactic", stateId=1, tactic="skip")

    assert "nextStateId" not in reply
    assert "outside its logic: conv tactics" in reply["messages"][0]["data"]


# ---- time and work


def test_a_sleeping_tactic_is_interrupted_and_the_old_state_stays_usable(ask: Ask) -> None:
    ask("goal.start", expr="1 + 1 = 2")
    ask("options.set", timeout=10)
    assert ask("goal.tactic", stateId=0, expr="by\nsleep 60000; simp") == {"error": "io", "desc": "interrupt"}
    assert ask("frontend.process", file="example : True := by\n  sleep 60000\n  trivial", readHeader=False,
               inheritEnv=False, newConstants=False) == {"error": "io", "desc": "interrupt"}  # fmt: skip
    ask("options.set", timeout=0)
    assert ask("goal.tactic", stateId=0, tactic="rfl")["goals"] == []


# ---- states that are compared and deleted


def test_a_goal_that_another_one_covers_is_subsumed(ask: Ask, server: Server) -> None:
    ask("goal.start", expr="∀ (p q : Prop), q → (p → q) ∧ q")
    reply = ask("goal.tactic", stateId=0, tactic="intro p q h\nconstructor\nintro a")
    narrow, wide = (goal["name"] for goal in reply["goals"])

    found = ask("goal.subsume", stateId=1, goal=narrow, candidates=[narrow, wide])
    assert found == {"result": "subsumed", "subsumptor": wide, "stateId": 2}
    closed = ask("goal.tactic", stateId=2, tactic="exact h")
    assert closed["goals"] == []
    assert ask("goal.print", stateId=closed["nextStateId"])["rootHasMVar"] is False
    # The other way round there is a hypothesis too many.
    assert ask("goal.subsume", stateId=1, goal=wide, candidates=[narrow]) == {"result": "none"}


def test_a_candidate_that_rests_on_the_goal_is_a_cycle(ask: Ask) -> None:
    ask("goal.start", expr="∀ (p : Prop), p → p")
    replies = [
        ask("goal.tactic", stateId=i, tactic=t) for i, t in enumerate(["intro p", "intro h", "revert h"])
    ]
    first, second, third = (reply["goals"][0]["name"] for reply in replies)

    assert ask("goal.subsume", stateId=3, goal=third, candidates=[first, second]) == {
        "result": "cycle",
        "subsumptor": first,
    }
    assert ask("goal.subsume", stateId=3, goal="nonsense", candidates=[])["error"] == "index"


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
    reply = ask("goal.tactic", stateId=0, tactic=f"try ({endless} trivial)")

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
