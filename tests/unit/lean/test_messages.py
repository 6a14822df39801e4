"""Replies decode to typed values, and nothing malformed gets through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.lean.client import messages
from pipeline.lean.client.errors import (
    BadRequest,
    InputRejected,
    LimitReached,
    MalformedReply,
    ReplRefused,
    ReplSuspect,
    RequestFailed,
    refusal,
)
from pipeline.lean.client.messages import (
    Message,
    TacticFailed,
    TacticOk,
    TacticParseError,
    Unit,
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


def test_the_three_outcomes_of_a_tactic_are_told_apart() -> None:
    ok = tactic_result(
        {"nextStateId": 4, "goals": [GOAL], "messages": [], "hasSorry": True, "hasUnsafe": False},
        7,
    )
    failed = tactic_result({"messages": [FAILURE], "hasSorry": False, "hasUnsafe": False}, 7)
    unparsed = tactic_result({"parseError": "no tactic", "hasSorry": False, "hasUnsafe": False}, 7)

    assert isinstance(ok, TacticOk)
    assert (ok.state.id, ok.state.generation, ok.has_sorry) == (4, 7, True)
    assert isinstance(failed, TacticFailed)
    assert failed.reason == "unknown identifier 'x'"
    assert unparsed == TacticParseError("no tactic")


def test_a_unit_tells_errors_from_sorry_warnings() -> None:
    warning = {**FAILURE, "severity": "warning", "kind": "hasSorry", "data": "declaration uses `sorry`"}
    unit = Unit.from_json(
        {"boundary": [12, 44], "messages": [warning], "of a later version": 1}, generation=1
    )

    assert (unit.byte_start, unit.byte_end) == (12, 44)
    assert unit.uses_sorry
    assert not unit.errors


def test_older_sorry_warnings_without_a_kind_are_known_by_their_text() -> None:
    message = Message.from_json({**FAILURE, "severity": "warning", "data": "declaration uses 'sorry'"})

    assert message.is_sorry_warning


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
        messages.units(reply, 1)


def test_an_empty_tactic_reply_is_no_outcome() -> None:
    with pytest.raises(MalformedReply, match="neither"):
        tactic_result({"hasSorry": False, "hasUnsafe": False}, 1)


FLAGS = {"hasSorry": False, "hasUnsafe": False}
REPLIES: list[tuple[Any, dict[str, Any]]] = [
    (messages.started, {"stateId": 4, "root": "_uniq.28"}),
    (messages.tactic_result, {"nextStateId": 6, "goals": [GOAL], "messages": [FAILURE], **FLAGS}),
    (messages.tactic_result, {"messages": [FAILURE], **FLAGS}),
    (messages.tactic_result, {"parseError": "<input>:1:7: unexpected end", **FLAGS}),
    (messages.printed, {"goals": [GOAL]}),
    (messages.units, {"units": [{"boundary": [0, 47], "messages": [FAILURE]}]}),
    (messages.units, {"units": [{"boundary": [0, 47], "messages": [], "goalStateId": 2, "goals": [GOAL]}]}),
    (messages.targets, {"targets": [{"stateId": 17, "goals": [GOAL]}]}),
]


def _spoiled(raw: Any) -> Iterator[Any]:
    """Every JSON value that differs from this one in one place: something of another type, or missing."""
    others: tuple[Any, ...] = (None, True, -1, 0.5, "x", [], {}, ["x"], [[3, 1]])
    for other in others:
        if other != raw:
            yield other
    if isinstance(raw, dict):
        for key, value in raw.items():
            yield {name: one for name, one in raw.items() if name != key}
            for spoiled in _spoiled(value):
                yield {**raw, key: spoiled}
    elif isinstance(raw, list):
        for index, value in enumerate(raw[:1]):
            for spoiled in _spoiled(value):
                yield [*raw[:index], spoiled, *raw[index + 1 :]]


def test_a_reply_spoiled_in_any_one_place_decodes_or_is_malformed_and_nothing_else() -> None:
    malformed = decoded = 0
    for decode, reply in REPLIES:
        decode(reply, 1)
        for spoiled in _spoiled(reply):
            if not isinstance(spoiled, dict):
                continue
            try:
                decode(spoiled, 1)
                decoded += 1
            except MalformedReply:
                malformed += 1
    assert malformed > decoded > 0


# ---- error objects


ERRORS: list[tuple[str, str, str, type[ReplRefused]]] = [
    ("nonsense", "command", "Unknown command nonsense", BadRequest),
    ("goal.tactic", "command", "Unable to parse json: Pantograph.Protocol.GoalTactic.stateId", BadRequest),
    ("goal.start", "command", "Exactly one of {expr, copyFrom} must be supplied", BadRequest),
    ("goal.start", "arguments", "Exactly one of {expr, copyFrom} must be supplied", BadRequest),
    ("goal.tactic", "operation", "Invalid mode upside-down", BadRequest),
    ("goal.tactic", "index", "Invalid state index 77", BadRequest),
    ("goal.start", "parse", "<input>:1:4: expected term", InputRejected),
    ("goal.start", "parsing", "<input>:1:4: expected term", InputRejected),
    ("goal.start", "expr", "<input>:1:4: expected term", InputRejected),
    ("goal.start", "elab", "unknown universe level 'w'", InputRejected),
    ("goal.start", "typing", "type expected", InputRejected),
    ("frontend.distil", "io", "<anonymous>:1:0: error: unknown identifier\n", InputRejected),
    ("frontend.distil", "io", "<anonymous>:1:0: error: (deterministic) timeout at `whnf`\n", InputRejected),
    ("goal.tactic", "exception", "no goals to be solved", RequestFailed),
    ("goal.tactic", "invalid", "Goal does not have a fragment", RequestFailed),
    ("frontend.process", "io", "no such file or directory: /tmp/a.lean", RequestFailed),
    ("goal.tactic", "io", "interrupt", LimitReached),
    ("goal.tactic", "internal", "interrupt", LimitReached),
    ("frontend.process", "io", "interrupt", LimitReached),
    (
        "goal.tactic",
        "core",
        "(deterministic) timeout at `isDefEq`, maximum number of heartbeats (200000) has been reached",
        LimitReached,
    ),
    ("goal.tactic", "io", "maximum recursion depth has been reached", LimitReached),
    ("goal.tactic", "io", "unexpected internal error: not implemented", ReplSuspect),
    ("goal.tactic", "main", "uncaught exception", ReplSuspect),
    ("goal.tactic", "a kind of next year", "?", ReplSuspect),
]


@pytest.mark.parametrize(("command", "kind", "desc", "wanted"), ERRORS)
def test_an_error_object_becomes_the_exception_of_its_class(
    command: str, kind: str, desc: str, wanted: type[ReplRefused]
) -> None:
    error = refusal(kind, desc, command=command)

    assert type(error) is wanted
    assert (error.kind, error.desc, error.command) == (kind, desc, command)
