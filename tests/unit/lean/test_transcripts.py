"""Every recorded exchange with a real REPL that this program could have decodes, and the stand-in answers like it.

The recordings are not part of this repository; where they are absent, `test_messages.py` holds the essentials with
statements of our own.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.client import messages
from pipeline.lean.client.errors import ReplSuspect, refusal
from pipeline.lean.client.messages import TacticFailed, TacticOk, TacticParseError
from tests.support.lean.scripted_repl import ScriptedRepl

RECORDS = Path(__file__).resolve().parents[3].parent / "shared" / "reference" / "pantograph-transcripts.jsonl"
DECODERS: dict[str, Callable[[Mapping[str, object], int], Any]] = {
    "frontend.process": messages.units,
    "frontend.distil": messages.targets,
    "goal.start": messages.started,
    "goal.tactic": messages.tactic_result,
    "goal.print": messages.printed,
}


def _all_records() -> list[dict[str, Any]]:
    if not RECORDS.is_file():
        pytest.skip(f"{RECORDS} is not on this machine; test_messages.py holds the essentials")
    return [json.loads(line) for line in RECORDS.read_text("utf-8").splitlines()]


def _records() -> list[dict[str, Any]]:
    """Return the recordings of the commands that have an answer to decode, of tactics in the form that we send."""
    return [
        record
        for record in _all_records()
        if record["command"] in DECODERS
        and record["response"] is not None
        and (
            record["command"] != "goal.tactic" or record["request"].keys() <= {"stateId", "goalId", "tactic"}
        )
    ]


def completed(command: str, reply: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what a recording elides, so that the rest of it can be decoded."""
    whole = {**({"units": []} if command == "frontend.process" else {}), **copy.deepcopy(dict(reply))}
    for key in ("goals", "messages"):
        if key in whole:
            # A placeholder text stands for what is elided, in the list or instead of it.
            result = whole[key] if isinstance(whole[key], list) else []
            whole[key] = [item for item in result if not isinstance(item, str)]
    for owner in (whole, *whole.get("units", ()), *whole.get("targets", ())):
        for goal in owner.get("goals", ()):
            goal.setdefault("target", {})
            goal.setdefault("vars", [])
    for unit in whole.get("units", ()):
        unit.setdefault("boundary", [0, 0])
        unit.setdefault("messages", [])
    return whole


def test_every_reply_decodes_and_no_error_is_unknown() -> None:
    counted: Counter[str] = Counter()
    for record in _records():
        command, reply = record["command"], record["response"]
        if "error" in reply:
            error = refusal(reply["error"], reply["desc"], command=command)
            assert not isinstance(error, ReplSuspect), record["id"]
            counted["error object"] += 1
            continue
        result = DECODERS[command](completed(command, reply), 1)
        counted["decoded"] += 1
        if command == "goal.tactic":
            wanted = (
                TacticParseError
                if "parseError" in reply
                else TacticOk
                if "nextStateId" in reply
                else TacticFailed
            )
            assert isinstance(result, wanted), record["id"]
    assert counted["decoded"] >= 90
    assert counted["error object"] >= 10


def fields(value: object, of: str = "") -> set[str]:
    """Return the names of all fields in a reply, each after the name of what it is in."""
    if isinstance(value, dict):
        return {f"{of}.{name}" for name in value}.union(*(fields(one, name) for name, one in value.items()))
    return set[str]().union(*(fields(one, of) for one in value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("dialect", ["older", "newer"])
def test_the_stand_in_of_the_tests_has_the_recorded_refusals_and_shapes(dialect: str) -> None:
    """What it answers instead of a real one says no more than that one says (or its source, of one field)."""
    recorded = {".parseError"}.union(*(fields(record["response"]) for record in _all_records()))
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
    flags = {"readHeader": False, "inheritEnv": False, "newConstants": False}
    flags |= {"sorrys": True, "typeErrorsAsGoals": False}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("reset", {}),
        ("goal.start", {"expr": "p"}),
        *(("goal.tactic", {"stateId": 0, "tactic": tactic}) for tactic in ("split", "trivial", "no", "(")),
        ("goal.print", {"stateId": 1, "goals": True}),
        ("frontend.process", {"file": "theorem t : p := sorry", **flags}),
        ("frontend.distil", {"file": "theorem t : p := sorry", "ignoreValues": False}),
        ("stat", {}),
    ]
    for command, payload in requests:
        reply = repl.answer({"cmd": command, "payload": payload})
        if "error" in reply:
            assert (dialect, command) == ("older", "frontend.distil")
        else:
            assert fields(reply) <= recorded, command
