"""Every recorded exchange with a real REPL decodes to typed messages and encodes back to the same JSON.

The recordings are not part of this repository; where they are absent, `test_messages_exchanges.py` holds the
essentials with statements of our own.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.client import messages
from pipeline.lean.client.errors import ReplRefused, ReplSuspect, refusal
from pipeline.lean.client.messages import TacticFailed, TacticOk, TacticParseError
from pipeline.lean.client.requests import spec
from tests.support.lean.request_decoding import TYPES, RawRequest, decode, reply_json
from tests.support.lean.scripted_repl import ScriptedRepl

RECORDS = Path(__file__).resolve().parents[3].parent / "shared" / "reference" / "pantograph-transcripts.jsonl"
# What recordings that are marked `elided` leave out although the wire always has it.
PROMISED: dict[str, dict[str, Any]] = {
    "frontend.process": {"units": []},
    "env.inspect": {"type": {}, "isUnsafe": False},
    "goal.start": {"stateId": 0, "root": ""},
}


def _records() -> list[dict[str, Any]]:
    if not RECORDS.is_file():
        pytest.skip(f"{RECORDS} is not on this machine; test_messages_exchanges.py holds the essentials")
    records = [json.loads(line) for line in RECORDS.read_text("utf-8").splitlines()]
    # What the product does not send, it has no type for.
    sent = {kind.command: {wire for _, wire, _ in spec(kind)} for kind in TYPES}
    whole = ("goal.tactic", "goal.print")
    return [
        record
        for record in records
        if record["command"] in sent
        and not (record["command"] in whole and record["request"].keys() - sent[record["command"]])
    ]


def completed(command: str, reply: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what a recording elides, so that the rest of it can be decoded."""
    whole = {**PROMISED.get(command, {}), **copy.deepcopy(dict(reply))}
    for key in ("goals", "messages"):
        if key in whole:
            # A placeholder text stands for what is elided, in the list or instead of it.
            found = whole[key] if isinstance(whole[key], list) else []
            whole[key] = [item for item in found if not isinstance(item, str)]
    for owner in (whole, *whole.get("units", ()), *whole.get("targets", ())):
        for goal in owner.get("goals", ()):
            goal.setdefault("target", {})
            goal.setdefault("vars", [])
    for unit in whole.get("units", ()):
        unit.setdefault("boundary", [0, 0])
        unit.setdefault("messages", [])
    for place in (whole.get("sourceStart"), whole.get("sourceEnd")):
        if place is not None:
            place.setdefault("line", 1)
    return whole


def test_every_request_encodes_back_to_the_very_same_object() -> None:
    typed: Counter[bool] = Counter()
    for record in _records():
        request = decode(record["command"], record["request"], generation=1)
        assert request.payload() == record["request"], record["id"]
        assert request.command == record["command"]
        typed[not isinstance(request, RawRequest)] += 1
    assert typed[True] >= 160
    assert typed[False] <= 15


def test_a_request_that_only_fits_raw_is_one_that_the_repl_refuses() -> None:
    for record in _records():
        if isinstance(decode(record["command"], record["request"], generation=1), RawRequest):
            assert "error" in (record["response"] or {}), record["id"]


def test_every_reply_decodes_and_complete_ones_encode_back_to_the_very_same_object() -> None:
    counted: Counter[str] = Counter()
    for record in _records():
        command, reply = record["command"], record["response"]
        if reply is None:
            counted["not shown"] += 1
            continue
        request = decode(command, record["request"], generation=1)
        if "error" in reply:
            assert isinstance(refusal(reply["error"], reply["desc"], command=command), ReplRefused)
            counted["error object"] += 1
            continue
        assert not isinstance(request, RawRequest), record["id"]
        whole = completed(command, reply) if record["elided"] else reply
        typed = request.reply(whole, 1)
        if record["elided"]:
            counted["elided"] += 1
            continue
        assert reply_json(command, typed) == {k: v for k, v in reply.items() if k != "extraMVars"}, record[
            "id"
        ]
        counted["exact"] += 1
    assert counted["exact"] >= 90
    assert counted["error object"] >= 15
    assert counted["exact"] + counted["error object"] + counted["elided"] + counted["not shown"] == len(
        _records()
    )


def test_the_bytes_of_the_wire_decode_as_the_replies_do() -> None:
    for record in _records():
        wire = record.get("wire_response")
        if wire is not None and not record["elided"]:
            assert json.loads(wire) == record["response"], record["id"]


def test_side_files_decode_to_the_invocations_that_the_reply_counts() -> None:
    found = 0
    for record in _records():
        content = (record.get("side_file") or {}).get("content")
        if content is None:
            continue
        records = messages.invocations(content, where="side file")
        assert [len(one) for one in records] == [unit["nInvocations"] for unit in record["response"]["units"]]
        back = {"units": [{"invocations": [one.to_json() for one in unit]} for unit in records]}
        assert back == content
        found += 1
    assert found >= 3


def test_tactic_records_keep_their_outcome() -> None:
    for record in _records():
        reply = record["response"]
        if record["command"] != "goal.tactic" or reply is None or "error" in reply:
            continue
        result = messages.tactic_result(completed("goal.tactic", reply), generation=1)
        wanted = (
            TacticParseError
            if "parseError" in reply
            else TacticOk
            if "nextStateId" in reply
            else TacticFailed
        )
        assert isinstance(result, wanted), record["id"]


def test_no_recorded_error_kind_is_unknown() -> None:
    for record in _records():
        reply = record["response"] or {}
        if "error" in reply:
            error = refusal(reply["error"], reply["desc"], command=record["command"])
            assert not isinstance(error, ReplSuspect), record["id"]


def fields(value: object, of: str = "") -> set[str]:
    """Return the names of all fields in a reply, each after the name of what it is in."""
    if isinstance(value, dict):
        return {f"{of}.{name}" for name in value}.union(*(fields(one, name) for name, one in value.items()))
    return set[str]().union(*(fields(one, of) for one in value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("dialect", ["older", "newer"])
def test_the_stand_in_of_the_tests_has_the_recorded_refusals_and_shapes(dialect: str) -> None:
    """What it answers instead of a real one says no more than that one says (or its source, of two fields)."""
    recorded = {".parseError", "units.newConstants"}.union(
        *(fields(record["response"]) for record in _records())
    )
    outcomes = [
        ["", "trivial", []],
        ["", "split", ["p", "case b\nx✝ : Nat\nn : Nat := 2\n⊢ q"]],
        ["", "no", "no"],
    ]
    script = {"tactics": outcomes, "sorries": {"theorem": ["p : Prop\n⊢ p"]}}
    repl = ScriptedRepl(script=script, dialect=dialect)
    word = "old" if dialect == "older" else "new"
    refused = 0
    for record in _records():
        if record["exchange"].startswith(f"error_paths_{word}"):
            reply = repl.answer({"cmd": record["command"], "payload": record["request"]})
            if "error" in record["response"]:
                assert reply == record["response"]
                refused += 1
    assert refused >= 6
    flags = {"readHeader": False, "inheritEnv": False, "newConstants": True}
    flags |= {"sorrys": True, "typeErrorsAsGoals": False}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("reset", {}),
        ("goal.start", {"expr": "p"}),
        *(("goal.tactic", {"stateId": 0, "tactic": tactic}) for tactic in ("split", "trivial", "no", "(")),
        ("goal.print", {"stateId": 1, "goals": True, "rootExpr": True}),
        ("goal.print", {"stateId": 2, "rootExpr": True}),
        ("frontend.process", {"file": "theorem t : p := sorry", **flags}),
        ("frontend.distil", {"file": "theorem t : p := sorry", "ignoreValues": False}),
        ("stat", {}),
    ]
    for command, payload in asked:
        reply = repl.answer({"cmd": command, "payload": payload})
        if "error" in reply:
            assert (dialect, command) == ("older", "frontend.distil")
        else:
            assert fields(reply) <= recorded, command
