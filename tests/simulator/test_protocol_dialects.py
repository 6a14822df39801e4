"""What the two dialects of the protocol share and what they do not: commands, fields, the names of errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.simulator.frontend import Modules
from pipeline.lean.simulator.protocol import REQUESTS, Dialect, Refusal, parse_line
from pipeline.lean.simulator.server import COMMANDS, Server

Ask = Callable[..., dict[str, Any]]
PROCESS = {"readHeader": False, "inheritEnv": False, "newConstants": False}
OLD_PROCESS = PROCESS | {"sorrys": False, "typeErrorsAsGoals": False}


@pytest.fixture
def old(tmp_path: Path) -> Ask:
    """Ask a simulator of the older dialect."""
    server = Server.start(Modules(tmp_path), ["Init"], "old")
    return lambda command, **payload: server.answer(command, payload)


def test_every_command_has_a_request_and_every_request_a_command() -> None:
    assert COMMANDS.keys() == REQUESTS.keys()


@pytest.mark.parametrize("command", ["frontend.distil", "frontend.track", "goal.subsume"])
def test_a_newer_command_is_unknown_to_the_older_dialect(ask: Ask, old: Ask, command: str) -> None:
    assert old(command) == {"error": "command", "desc": f"Unknown command {command}"}
    assert ask(command)["desc"].startswith("Unable to parse json: Pantograph.Protocol.")


@pytest.mark.parametrize(
    ("command", "payload", "older", "newer"),
    [
        ("goal.start", {"expr": "True", "copyFrom": "trivial"}, "arguments", "command"),
        ("goal.start", {"expr": "1 +"}, "parsing", "parse"),
        ("goal.start", {"expr": "unknown"}, "elab", "elab"),
        ("goal.tactic", {"stateId": 0}, "operation", "command"),
        ("frontend.process", OLD_PROCESS, "arguments", "command"),
        ("frontend.process", OLD_PROCESS | {"fileName": "/no/such"}, "io", "io"),
        ("nonsense", {}, "command", "command"),
    ],
)
def test_each_dialect_has_its_name_for_an_error(
    ask: Ask, old: Ask, command: str, payload: dict[str, object], older: str, newer: str
) -> None:
    for one, kind in ((old, older), (ask, newer)):
        one("goal.start", expr="True")
        assert one(command, **payload)["error"] == kind


def test_every_required_field_is_missed_by_its_name(ask: Ask) -> None:
    for command, request in REQUESTS.items():
        required = [
            name for name, field in request.fields.items() if field.required and "new" in field.dialects
        ]
        if required:
            reply = ask(command)
            assert reply["error"] == "command"
            assert reply["desc"].startswith(
                f"Unable to parse json: Pantograph.Protocol.{request.type}.{required[0]}: "
            )


def test_required_fields_are_looked_up_in_order_and_flags_have_no_defaults(ask: Ask, old: Ask) -> None:
    said = "Unable to parse json: Pantograph.Protocol.FrontendProcess.{}: Bool expected"

    assert ask("frontend.process", file="", readHeader=False)["desc"] == said.format("inheritEnv")
    assert ask("frontend.process", file="", readHeader=0)["desc"] == said.format("readHeader")
    assert old("frontend.process", file="", **PROCESS)["desc"] == said.format("sorrys")


def test_null_is_absent_and_unknown_fields_do_not_matter(ask: Ask, server: Server) -> None:
    assert ask("goal.start", expr="True", copyFrom=None, nonsense=[1])["stateId"] == 0
    assert ask("options.set", timeout=None, automaticMode=None, unknownOption=3) == {}
    assert server.answer("stat", None)["nGoals"] == 1
    assert ask("goal.start", expr=3)["desc"] == (
        "Unable to parse json: Pantograph.Protocol.GoalStart.expr?: String expected"
    )


def test_the_newer_dialect_ignores_the_fields_that_are_gone(ask: Ask) -> None:
    (unit,) = ask("frontend.process", file="example : True := sorry", **OLD_PROCESS | {"sorrys": True})[
        "units"
    ]

    assert "goalStateId" not in unit


# ---- the older dialect


def test_the_older_dialect_takes_one_tactic_and_the_newer_a_sequence(ask: Ask, old: Ask) -> None:
    for one in (ask, old):
        one("goal.start", expr="∀ (p : Prop), p → p")

    assert ask("goal.tactic", stateId=0, tactic="intro p; intro h\nexact h")["goals"] == []
    assert "parseError" in old("goal.tactic", stateId=0, tactic="intro p; intro h")
    assert "parseError" in old("goal.tactic", stateId=0, tactic="intro p\nintro h")
    assert old("goal.tactic", stateId=0, tactic="(intro p; intro h; exact h)")["goals"] == []


def test_sorries_of_a_unit_are_one_state_with_their_byte_ranges(old: Ask) -> None:
    text = (
        "theorem α (p : Prop) (h : p) : p ∧ p := by\n  constructor\n  · sorry\n  · exact sorry\n\n"
        "example : True := sorry"
    )
    first, second = old("frontend.process", file=text, **OLD_PROCESS | {"sorrys": True})["units"]

    data = text.encode()
    assert [goal["target"]["pp"] for goal in first["goals"]] == ["p", "p"]
    assert [data[slice(*where)] for where in first["goalSrcBoundaries"]] == [b"sorry", b"sorry"]
    assert (first["goalStateId"], second["goalStateId"]) == (0, 1)
    assert first["messages"][0]["data"] == "declaration uses 'sorry'"
    # The theorem is not there yet, and the root is no one's.
    assert "nextStateId" not in old("goal.tactic", stateId=0, tactic="exact (α p h).1")
    half = old("goal.tactic", stateId=0, tactic="exact h")
    done = old("goal.tactic", stateId=half["nextStateId"], tactic="exact h")
    assert done["goals"] == []
    printed = old("goal.print", stateId=done["nextStateId"], rootExpr=True)
    assert "root" not in printed
    assert printed["rootHasMVar"] is False


def test_a_unit_without_sorries_has_no_state(old: Ask) -> None:
    (unit,) = old("frontend.process", file="example : True := trivial", **OLD_PROCESS | {"sorrys": True})[
        "units"
    ]

    assert unit.keys() == {"boundary", "messages"}


def test_type_errors_as_goals_are_refused_instead_of_left_out(old: Ask) -> None:
    request = OLD_PROCESS | {"sorrys": True, "typeErrorsAsGoals": True}
    reply = old("frontend.process", file="example : Nat := trivial", **request)
    assert "outside its logic: typeErrorsAsGoals" in reply["desc"]


# ---- lines


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        (b'{"cmd":"stat","payload":{"a":1}}\n', ("stat", {"a": 1})),
        (b'{"cmd":"stat"}\n', ("stat", None)),
        (b'stat {"a": "\xe2\x88\x80"}\n', ("stat", {"a": "∀"})),
        (b"stat \n", ("stat", None)),
        (b"stat\n", ("stat\n", None)),
    ],
)
def test_a_line_is_an_object_or_a_command_with_its_payload(line: bytes, request_: tuple[str, object]) -> None:
    assert parse_line(line) == request_


@pytest.mark.parametrize(
    "line", [b"stat {\n", b"{]\n", b"\xff\n", b'{"payload":{}}\n', b'{"cmd":3}\n', b"stat {} {}\n"]
)
def test_anything_else_is_a_command_error(line: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        parse_line(line)

    assert caught.value.kind == "command"


@pytest.mark.parametrize("dialect", ["old", "new"])
def test_a_payload_that_is_no_object_misses_its_fields(dialect: Dialect, tmp_path: Path) -> None:
    server = Server.start(Modules(tmp_path), ["Init"], dialect)
    for payload in (3, "text", [1], True):
        assert str(server.answer("goal.print", payload)["desc"]).endswith(
            "GoalPrint.stateId: Natural number expected"
        )
