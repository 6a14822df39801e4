"""The simulator speaks the REPL's protocol: ids, sites, dormancy, error objects, units in bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.lean.simulator.protocol import render
from pipeline.lean.simulator.server import Server, serve

Ask = Callable[..., dict[str, Any]]


def test_state_ids_count_from_zero_and_failures_take_none(ask: Ask) -> None:
    assert ask("goal.start", expr="∀ (p : Prop), p → p")["stateId"] == 0
    assert "nextStateId" not in ask("goal.tactic", stateId=0, tactic="exact nonexistent")
    assert "parseError" in ask("goal.tactic", stateId=0, tactic="exact (")
    assert ask("goal.tactic", stateId=0, tactic="intro p h")["nextStateId"] == 1
    distilled = ask("frontend.distil", file="theorem t : True := sorry", ignoreValues=False)
    assert distilled["targets"][0]["stateId"] == 2
    assert ask("stat")["nGoals"] == 3


def test_a_reset_counts_the_states_and_starts_the_ids_again(ask: Ask) -> None:
    ask("goal.start", expr="True")
    ask("goal.start", expr="True")

    assert ask("reset") == {"nGoals": 2}
    assert ask("goal.start", expr="True")["stateId"] == 0


def test_a_goal_carries_names_types_and_case_tags(ask: Ask) -> None:
    ask("goal.start", expr="∀ (p q : Prop), p ∨ q → q ∨ p")
    reply = ask("goal.tactic", stateId=0, tactic="intro p q h\ncases h")

    first = reply["goals"][0]
    assert first["userName"] == "inl"
    assert first["target"] == {"pp": "q ∨ p"}
    assert [(v["userName"], v["type"]["pp"], v["isInaccessible"]) for v in first["vars"]] == [
        ("p", "Prop", False),
        ("q", "Prop", False),
        ("h✝", "p", True),
    ]


def test_acting_on_a_later_goal_moves_it_to_the_front_and_keeps_its_siblings(ask: Ask) -> None:
    ask("goal.start", expr="True ∧ (1 = 1 → True)")
    ask("goal.tactic", stateId=0, tactic="constructor")
    reply = ask("goal.tactic", stateId=1, tactic="intro h", goalId=1)

    assert [goal["userName"] for goal in reply["goals"]] == ["right", "left"]


def test_an_untouched_root_is_absent_and_has_no_mvar_flag(ask: Ask) -> None:
    ask("goal.start", expr="True")
    printed = ask("goal.print", stateId=0, rootExpr=True, goals=True)

    assert "root" not in printed
    assert printed["rootHasMVar"] is False


def test_a_closed_root_is_printed(ask: Ask) -> None:
    ask("goal.start", expr="∀ (p : Prop), p → p")
    ask("goal.tactic", stateId=0, tactic="intro p h\nexact h")

    assert ask("goal.print", stateId=1, rootExpr=True, goals=True)["root"] == {"pp": "fun p h => h"}


def test_sorry_closes_a_goal_and_says_so(ask: Ask) -> None:
    ask("goal.start", expr="False")

    for tactic in ("sorry", "exact sorry", "admit"):
        reply = ask("goal.tactic", stateId=0, tactic=tactic)
        assert reply["goals"] == []
        assert reply["hasSorry"] is True


@pytest.mark.parametrize(
    ("command", "payload", "kind"),
    [
        ("invalid", {}, "command"),
        ("goal.start", {}, "command"),
        ("goal.start", {"expr": "1 +"}, "parse"),
        ("goal.start", {"expr": "unknown → True"}, "elab"),
        ("goal.start", {"copyFrom": "no.such"}, "index"),
        ("goal.tactic", {"stateId": 9, "tactic": "skip"}, "index"),
        ("goal.tactic", {"tactic": "skip"}, "command"),
        ("frontend.process", {"file": "example : True := trivial"}, "command"),
        ("frontend.process", {"readHeader": False, "inheritEnv": False, "newConstants": False}, "command"),
        ("frontend.distil", {"file": "theorem t : True := False", "ignoreValues": False}, "io"),
        ("env.inspect", {"name": "no.such"}, "index"),
        ("options.set", {"printExprPretty": 3}, "command"),
    ],
)
def test_errors_have_the_newer_dialects_kinds(
    ask: Ask, command: str, payload: dict[str, object], kind: str
) -> None:
    reply = ask(command, **payload)

    assert reply["error"] == kind
    assert reply["desc"]


def test_a_missing_bool_is_named_as_lean_names_it(ask: Ask) -> None:
    reply = ask("frontend.process", file="example : True := trivial")

    assert (
        reply["desc"] == "Unable to parse json: Pantograph.Protocol.FrontendProcess.readHeader: Bool expected"
    )


def test_names_in_requests_are_names_of_lean(ask: Ask) -> None:
    assert ask("env.inspect", name="«And».«comm»") == ask("env.inspect", name="And.comm")
    for text in ("", "a b", ".a", "a.", "a..b", "«a", "h✝"):
        reply = ask("env.inspect", name=text)
        assert reply["error"] == "command", text
        assert reply["desc"].endswith(f"expected a `Name`, got '\"{text}\"'")
    assert ask("env.inspect", name="_uniq.10")["error"] == "index"
    assert ask("env.inspect", name=3)["desc"].endswith("name: String expected")


def test_to_the_older_dialect_any_text_is_a_name(server: Server) -> None:
    old = Server(server.core.modules, server.core.env, dialect="old")

    assert old.answer("env.inspect", {"name": "a b"})["error"] == "index"


def test_a_tactic_on_a_closed_state_is_an_exception(ask: Ask) -> None:
    ask("goal.start", expr="True")
    ask("goal.tactic", stateId=0, tactic="trivial")

    assert ask("goal.tactic", stateId=1, tactic="trivial")["error"] == "exception"


def test_units_are_utf8_byte_ranges_that_meet(ask: Ask) -> None:
    text = "-- π\ntheorem α_β (p : Prop) : p → p := id\n\n/-- doc ∀ -/\ntheorem b : True := trivial\n"
    reply = ask("frontend.process", file=text, readHeader=False, inheritEnv=False, newConstants=True)

    data = text.encode()
    first, second = (data[slice(*unit["boundary"])].decode() for unit in reply["units"])
    assert first == "-- π\ntheorem α_β (p : Prop) : p → p := id\n\n"
    assert second == "/-- doc ∀ -/\ntheorem b : True := trivial\n"
    assert [unit["newConstants"] for unit in reply["units"]] == [["α_β"], ["b"]]


@pytest.mark.parametrize(
    ("broken", "made"),
    [
        ('"no end', ["good"]),
        ("«no end", ["good"]),
        ("/- no end", ["good"]),
        ("/-- no end", ["good"]),
        ("theorem t : True := § trivial\ntheorem later : True := trivial", ["good", "later"]),
    ],
)
def test_what_is_no_token_spoils_only_the_command_it_is_in(ask: Ask, broken: str, made: list[str]) -> None:
    text = f"import Init\ntheorem good : True := trivial\n{broken}\n"
    units = ask("frontend.process", file=text, readHeader=True, inheritEnv=False, newConstants=True)["units"]

    assert [name for unit in units for name in unit["newConstants"]] == made
    assert units[-1]["boundary"][1] == len(text.encode())
    (message,) = [message for unit in units for message in unit["messages"]]
    assert message["data"].startswith(("unterminated", "unexpected token"))
    assert message["pos"]["line"] == 3


def test_the_header_is_no_unit(ask: Ask) -> None:
    text = "import Init\nopen Classical\nuniverse u"
    reply = ask("frontend.process", file=text, readHeader=True, inheritEnv=True, newConstants=False)

    assert [unit["boundary"] for unit in reply["units"]] == [[12, 27], [27, 37]]


def test_each_frontend_call_starts_with_a_fresh_scope(ask: Ask) -> None:
    ask(
        "frontend.process",
        file="namespace A\ntheorem t : True := trivial",
        readHeader=False,
        inheritEnv=True,
        newConstants=False,
    )
    reply = ask("frontend.process", file="#check t", readHeader=False, inheritEnv=False, newConstants=False)

    assert reply["units"][0]["messages"][0]["severity"] == "error"
    # Tactics do run in the scope that the inherited file ended in.
    ask("goal.start", expr="True")
    assert ask("goal.tactic", stateId=0, tactic="exact t")["goals"] == []


def test_without_inherit_env_nothing_stays(ask: Ask) -> None:
    text = "theorem t : True := trivial"
    ask("frontend.process", file=text, readHeader=False, inheritEnv=False, newConstants=False)

    assert ask("env.inspect", name="t")["error"] == "index"


def test_distil_keeps_the_local_context_or_closes_the_statement(ask: Ask) -> None:
    text = "theorem mystery (p q : Prop) (hp : p) : p ∧ q := by\n  constructor\n  · exact hp\n  · sorry"
    kept = ask("frontend.distil", file=text, ignoreValues=False)["targets"]
    closed = ask("frontend.distil", file=text, ignoreValues=True)["targets"]

    (goal,) = kept[0]["goals"]
    assert goal["target"]["pp"] == "q"
    assert [v["userName"] for v in goal["vars"]] == ["p", "q", "hp"]
    (goal,) = closed[0]["goals"]
    assert goal["target"]["pp"] == "∀ (p q : Prop), p → p ∧ q"
    assert goal["vars"] == []


def test_distil_gives_one_goal_for_each_sorry_in_source_order(ask: Ask) -> None:
    text = "theorem t (p q : Prop) : (p → p) ∧ (q ∨ True) := ⟨sorry, by right; sorry⟩"
    (target,) = ask("frontend.distil", file=text, ignoreValues=False)["targets"]

    assert [goal["target"]["pp"] for goal in target["goals"]] == ["p → p", "True"]


def test_a_distilled_target_closes_only_when_all_its_sorries_are_proved(ask: Ask) -> None:
    text = "theorem t (p : Prop) (h : p) : p ∧ p := ⟨sorry, sorry⟩"
    (target,) = ask("frontend.distil", file=text, ignoreValues=False)["targets"]
    first = ask("goal.tactic", stateId=target["stateId"], tactic="assumption")
    second = ask("goal.tactic", stateId=first["nextStateId"], tactic="exact h")

    assert len(first["goals"]) == 1
    assert second["goals"] == []
    printed = ask("goal.print", stateId=second["nextStateId"], rootExpr=True, goals=True)
    assert (printed["rootHasMVar"], printed["rootHasSorry"]) == (False, False)


def test_an_example_is_never_a_target(ask: Ask) -> None:
    assert ask("frontend.distil", file="example : True := sorry", ignoreValues=False) == {"targets": []}


def test_a_theorem_cannot_be_proved_by_itself_through_distil(ask: Ask) -> None:
    (target,) = ask("frontend.distil", file="theorem t : 1 = 2 := sorry", ignoreValues=False)["targets"]
    reply = ask("goal.tactic", stateId=target["stateId"], tactic="exact t")

    assert "nextStateId" not in reply


def test_a_timeout_interrupts_as_an_error_object(ask: Ask) -> None:
    ask("options.set", timeout=1)
    atoms = " ".join(f"p{index}" for index in range(8))
    clauses = " ∨ ".join(f"(p{index} ∧ ¬p{(index + 1) % 8})" for index in range(8))
    ask("goal.start", expr=f"∀ ({atoms} : Prop), {clauses} ∨ ({' ∧ '.join(atoms.split())}) ∨ ¬(p0 ∨ p1)")

    reply = ask("goal.tactic", stateId=0, tactic="tauto")
    assert (reply["error"], reply["desc"]) == ("io", "interrupt")
    ask("options.set", timeout=0)
    assert ask("goal.tactic", stateId=0, tactic="skip")["nextStateId"] == 1


def test_replies_are_compact_raw_utf8_with_descending_keys() -> None:
    assert render({"a": {"x": 1, "y": "∀"}, "b": []}) == '{"b":[],"a":{"y":"∀","x":1}}'.encode()


def test_the_loop_ends_on_a_blank_line(server: Server) -> None:
    sink = io.BytesIO()
    serve(server, io.BytesIO(b'stat {}\n{"cmd":"stat"}\nnot json {\n\nstat {}\n'), sink)

    lines = sink.getvalue().decode().splitlines()
    assert lines[0] == "ready."
    assert len(lines) == 4
    assert json.loads(lines[1])["nGoals"] == 0
    assert json.loads(lines[3])["error"] == "command"


def test_stat_says_that_this_is_not_lean(ask: Ask) -> None:
    assert "not Lean" in ask("stat")["simulator"]
