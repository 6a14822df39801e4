"""Hand-written exchanges, one or more for every command and error kind of both dialects: typed, and back again.

They hold what the recordings hold (`test_transcripts.py`) wherever those are absent. Statements and names are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.lean.client.errors import (
    BadRequest,
    InputRejected,
    LimitReached,
    MalformedReply,
    ReplRefused,
    ReplSuspect,
    RequestFailed,
    is_failed_tactic,
    refusal,
)
from pipeline.lean.client.requests import (
    FrontendProcess,
    GoalStart,
    OptionsSet,
)
from tests.support.lean.request_decoding import TYPES, RawRequest, decode, reply_json

Json = dict[str, Any]

EVEN = {
    "name": "_uniq.31",
    "fragment": "tactic",
    "target": {"pp": "∃ m, k + k = 2 * m"},
    "vars": [
        {"name": "_uniq.30", "userName": "k", "isInaccessible": False, "type": {"pp": "ℕ"}},
        {
            "name": "_uniq.29",
            "userName": "s✝",
            "isInaccessible": True,
            "type": {"pp": "ℕ"},
            "value": {"pp": "k + k"},
        },
    ],
}
CASE = {
    **EVEN,
    "userName": "succ.h",
    "fragment": "conv",
    "target": {"pp": "𝓝 k", "dependentMVars": ["_uniq.8"]},
}
WARNING = {
    "fileName": "<anonymous>",
    "pos": {"line": 3, "column": 8},
    "endPos": {"line": 3, "column": 12},
    "keepFullRange": False,
    "severity": "warning",
    "isSilent": False,
    "caption": "",
    "data": "declaration uses `sorry`",
    "kind": "hasSorry",
}
THROWN = {
    **WARNING,
    "fileName": "<Pantograph>",
    "pos": {"line": 0, "column": 0},
    "endPos": None,
    "severity": "error",
    "data": "unsolved goals\n⊢ False",
    "kind": "[anonymous]",
}
FLAGS = {"hasSorry": False, "hasUnsafe": False}
LEFT = {"goals": [EVEN], "messages": [], **FLAGS}
ROOT = {"rootHasSorry": False, "rootHasUnsafe": False, "rootHasMVar": True}
FILE = {"file": "theorem twice : ∃ m, 4 = 2 * m := ⟨2, rfl⟩\n", "readHeader": False, "inheritEnv": True}

EXCHANGES: list[tuple[str, Json, Json]] = [
    ("reset", {}, {"nGoals": 3}),
    ("stat", {}, {"nGoals": 0}),
    ("options.set", {"printExprAST": True, "printDependentMVars": False, "timeout": 2500}, {}),
    ("options.set", {"automaticMode": False}, {}),
    ("env.describe", {}, {"imports": ["Init"], "modules": ["Init.Prelude", "Init"]}),
    ("env.inspect", {"name": "Ours.twice"}, {"type": {"pp": "∃ m, 4 = 2 * m"}, "isUnsafe": False}),
    (
        "env.inspect",
        {"name": "Ours.double", "value": True, "dependency": True, "source": True},
        {
            "type": {"pp": "ℕ → ℕ"},
            "isUnsafe": True,
            "module": "Ours.Basic",
            "publicName": "double",
            "value": {"pp": "fun k => k + k"},
            "typeDependency": ["Nat"],
            "valueDependency": ["HAdd.hAdd", "Nat"],
            "sourceUri": "file:///ours/Basic.lean",
            "sourceStart": {"line": 7, "column": 0},
            "sourceEnd": {"line": 7, "column": 31},
        },
    ),
    (
        "env.inspect",
        {"name": "Colour", "value": False, "dependency": False, "source": False},
        {
            "type": {"pp": "Type"},
            "isUnsafe": False,
            "inductInfo": {"numParams": 0, "all": ["Colour"], "ctors": ["Colour.red"], "isRec": False},
        },
    ),
    (
        "env.inspect",
        {"name": "Colour.red"},
        {
            "type": {"pp": "Colour"},
            "isUnsafe": False,
            "constructorInfo": {"induct": "Colour", "cidx": 0, "numParams": 0, "numFields": 0},
        },
    ),
    (
        "env.inspect",
        {"name": "Colour.rec"},
        {
            "type": {"pp": "…"},
            "isUnsafe": False,
            "recursorInfo": {"numMinors": 1, "k": False, "rules": [{"rhs": {"pp": "m"}}]},
        },
    ),
    ("goal.start", {"expr": "∀ k : ℕ, ∃ m, k + k = 2 * m"}, {"stateId": 4, "root": "_uniq.28"}),
    ("goal.start", {"copyFrom": "Ours.twice", "levels": ["u"]}, {"stateId": 5, "root": "_uniq.2"}),
    ("goal.start", {"expr": "True", "copyFrom": None}, {"stateId": 0, "root": "_uniq.1"}),
    ("goal.tactic", {"stateId": 4, "tactic": "intro k\nskip"}, {"nextStateId": 6, **LEFT}),
    (
        "goal.tactic",
        {"stateId": 6, "goalId": 1, "tactic": "sorry"},
        {"nextStateId": 7, "goals": [], "messages": [WARNING], "hasSorry": True, "hasUnsafe": True},
    ),
    ("goal.tactic", {"stateId": 6, "goalId": 0, "tactic": "a"}, {"messages": [THROWN], **FLAGS}),
    ("goal.tactic", {"stateId": 6, "tactic": "exact ("}, {"parseError": "<input>:1:7: unexpected end", **FLAGS}),
    ("goal.delete", {"stateIds": [4, 5, 404]}, {}),
    ("goal.print", {"stateId": 6}, {"goals": [], **ROOT}),
    (
        "goal.print",
        {"stateId": 6, "rootExpr": True, "goals": True},
        {
            "root": {"pp": "fun k => ?m.3"},
            "goals": [EVEN],
            **ROOT,
        },
    ),
    (
        "frontend.process",
        {**FILE, "newConstants": True},
        {"units": [{"boundary": [0, 47], "messages": [WARNING], "newConstants": ["twice"]}]},
    ),
    (
        "frontend.process",
        {"fileName": "/a.lean", "readHeader": True, "inheritEnv": False, "newConstants": False, "invocations": "i"},
        {"units": [{"boundary": [12, 20], "messages": [], "nInvocations": 0}]},
    ),
    (
        "frontend.process",
        {**FILE, "newConstants": False, "sorrys": True, "typeErrorsAsGoals": False},
        {
            "units": [
                {
                    "boundary": [0, 47],
                    "messages": [],
                    "goalStateId": 2,
                    "goals": [EVEN, CASE],
                    "goalSrcBoundaries": [[10, 15], [10, 15]],
                }
            ]
        },
    ),
    ("frontend.process", {**FILE, "newConstants": False}, {"units": []}),
    (
        "frontend.distil",
        {"file": "theorem t : 1 = 1 := sorry", "ignoreValues": False},
        {"targets": [{"stateId": 17, "goals": [EVEN]}]},
    ),
    ("frontend.distil", {"file": "", "ignoreValues": True, "binderName": "f"}, {"targets": []}),
    ("frontend.track", {"src": "def a := sorry", "dst": "def a := 1"}, {"srcMessages": [WARNING], "dstMessages": []}),
    (
        "frontend.track",
        {"src": "def a : ℕ := 0", "dst": "def b : ℕ := 1"},
        {"srcMessages": [], "dstMessages": [THROWN], "failure": "[a] not accounted for"},
    ),
]  # fmt: skip

ERRORS: list[tuple[str, str, str, type[ReplRefused]]] = [
    ("nonsense", "command", "Unknown command nonsense", BadRequest),
    ("goal.tactic", "command", "Unable to parse json: Pantograph.Protocol.GoalTactic.stateId", BadRequest),
    ("goal.start", "command", "Exactly one of {expr, copyFrom} must be supplied", BadRequest),
    ("goal.start", "arguments", "Exactly one of {expr, copyFrom} must be supplied", BadRequest),
    ("goal.tactic", "operation", "Invalid mode upside-down", BadRequest),
    ("goal.tactic", "index", "Invalid state index 77", BadRequest),
    ("env.inspect", "index", "Symbol not found Ours.none", BadRequest),
    ("goal.start", "parse", "<input>:1:4: expected term", InputRejected),
    ("goal.start", "parsing", "<input>:1:4: expected term", InputRejected),
    ("env.add", "expr", "<input>:1:4: expected term", InputRejected),
    ("goal.start", "elab", "unknown universe level 'w'", InputRejected),
    ("goal.start", "typing", "type expected", InputRejected),
    ("frontend.distil", "io", "<anonymous>:1:0: error: unknown identifier\n", InputRejected),
    ("frontend.distil", "io", "<anonymous>:1:0: error: (deterministic) timeout at `whnf`\n", InputRejected),
    ("goal.tactic", "exception", "no goals to be solved", RequestFailed),
    ("goal.tactic", "invalid", "Goal does not have a fragment", RequestFailed),
    ("env.load", "io", "no such file or directory: /tmp/env", RequestFailed),
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


@pytest.mark.parametrize(
    ("command", "payload", "reply"), EXCHANGES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_an_exchange_is_typed_and_encodes_back_to_the_very_same_objects(
    command: str, payload: Json, reply: Json
) -> None:
    request = decode(command, payload, generation=3)

    assert not isinstance(request, RawRequest)
    assert request.payload() == payload
    assert reply_json(command, request.reply(reply, 3)) == reply
    assert all(state.generation == 3 for state in request.states)


def test_every_command_has_an_exchange() -> None:
    assert {kind.command for kind in TYPES} == {command for command, _, _ in EXCHANGES}
    assert {type(decode(command, payload, generation=1)) for command, payload, _ in EXCHANGES} == set(TYPES)


@pytest.mark.parametrize(("command", "kind", "desc", "wanted"), ERRORS)
def test_an_error_object_becomes_the_exception_of_its_class(
    command: str, kind: str, desc: str, wanted: type[ReplRefused]
) -> None:
    error = refusal(kind, desc, command=command)

    assert type(error) is wanted
    assert (error.kind, error.desc, error.command) == (kind, desc, command)


def test_only_what_escapes_the_tactic_sandbox_by_a_limit_is_a_failed_tactic() -> None:
    for command, kind, desc, wanted in ERRORS:
        if command == "goal.tactic":
            error = refusal(kind, desc, command=command)
            assert is_failed_tactic(error) == (wanted is LimitReached), desc


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        ("nonsense", {"x": 1}),
        ("goal.tactic", {"stateId": 1}),
        ("goal.tactic", {"stateId": -1, "tactic": "a"}),
        ("goal.tactic", {"stateId": True, "tactic": "a"}),
        ("goal.start", {}),
        ("goal.start", {"expr": "a", "copyFrom": "b"}),
        ("goal.start", {"expr": "a", "levels": "u"}),
        ("goal.delete", {"stateIds": ["1"]}),
        ("frontend.process", {"file": "x"}),
        ("frontend.process", {"readHeader": False, "inheritEnv": False, "newConstants": False}),
        ("frontend.process", {**FILE, "newConstants": "no"}),
    ],
)
def test_what_no_well_formed_client_sends_stays_raw(command: str, payload: Json) -> None:
    request = decode(command, payload, generation=1)

    assert request == RawRequest(command, payload)
    assert request.payload() == payload


def test_requests_that_contradict_themselves_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="exactly one of expr, copy_from must be given, not 0"):
        GoalStart()
    with pytest.raises(ValueError, match="not 2"):
        GoalStart(expr="True", copy_from="True.intro")
    with pytest.raises(ValueError, match="exactly one"):
        FrontendProcess()
    with pytest.raises(ValueError, match="one-line framing"):
        OptionsSet(extra=(("printJsonPretty", True),))


def test_fields_beyond_the_known_ones_are_kept() -> None:
    request = decode("goal.start", {"expr": "True", "copyFrom": None, "colour": 3}, generation=1)

    assert isinstance(request, GoalStart)
    assert dict(request.extra) == {"copyFrom": None, "colour": 3}


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
    for command, payload, reply in EXCHANGES:
        request = decode(command, payload, generation=1)
        assert not isinstance(request, RawRequest)
        for spoiled in _spoiled(reply):
            if not isinstance(spoiled, dict):
                continue
            try:
                reply_json(command, request.reply(spoiled, 1))
                decoded += 1
            except MalformedReply:
                malformed += 1
    assert malformed > decoded > 0
