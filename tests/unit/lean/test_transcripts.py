"""Every recorded exchange with a real REPL that concerns our commands decodes to a typed message."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean import messages
from pipeline.lean.errors import MalformedReply
from pipeline.lean.messages import Constant, StatePrint, TacticFailed, TacticOk, TacticParseError

RECORDS = Path(__file__).resolve().parents[3].parent / "shared" / "reference" / "pantograph-transcripts.jsonl"

DECODERS: dict[str, Callable[[messages.Json], object]] = {
    "frontend.process": messages.units,
    "frontend.distil": lambda raw: messages.targets(raw, generation=1),
    "goal.start": lambda raw: messages.number(raw, "stateId", command="goal.start"),
    "goal.tactic": lambda raw: messages.tactic_result(raw, generation=1),
    "goal.print": StatePrint.from_json,
    "goal.delete": lambda raw: dict(raw) or "empty",
    "options.set": lambda raw: dict(raw) or "empty",
    "stat": lambda raw: messages.number(raw, "nGoals", command="stat"),
    "reset": lambda raw: messages.number(raw, "nGoals", command="reset"),
    "env.inspect": Constant.from_json,
}
# Commands that the client has no typed reply for yet; a new one in the file fails the test.
NOT_MODELLED = {
    "options.print", "expr.echo", "env.add", "env.catalog", "env.module_read", "goal.continue", "goal.subsume",
    "goal.save", "goal.load", "frontend.track", "frontend.refactor", "invalid",
}  # fmt: skip


def _records() -> list[dict[str, Any]]:
    if not RECORDS.is_file():
        pytest.skip(f"{RECORDS} is not on this machine; the facts that matter most stand in test_messages.py")
    return [json.loads(line) for line in RECORDS.read_text("utf-8").splitlines()]


def test_every_complete_record_of_a_modelled_command_decodes() -> None:
    decoded: Counter[str] = Counter()
    for record in _records():
        command, reply = record["command"], record["response"]
        if command in NOT_MODELLED:
            continue
        if reply is None or "error" in reply:
            decoded["error or unknown"] += 1
            continue
        try:
            assert DECODERS[command](reply) is not None, record["id"]
            decoded[command] += 1
        except MalformedReply:
            # Library-level records leave out what the wire would carry, and say so.
            assert record["elided"], record["id"]
            decoded[f"{command}, elided"] += 1
    print(dict(decoded))  # noqa: T201 - the rates are worth reading
    assert decoded["goal.tactic"] >= 50
    assert decoded["frontend.process"] >= 8
    assert sum(count for name, count in decoded.items() if name.endswith("elided")) <= 40


def test_no_record_has_a_command_that_nobody_listed() -> None:
    commands = {record["command"] for record in _records()}

    assert commands <= DECODERS.keys() | NOT_MODELLED


def test_tactic_records_keep_their_outcome() -> None:
    for record in _records():
        reply = record["response"]
        if record["command"] != "goal.tactic" or record["elided"] or reply is None or "error" in reply:
            continue
        result = messages.tactic_result(reply, generation=1)
        wanted = (
            TacticParseError
            if "parseError" in reply
            else TacticOk
            if "nextStateId" in reply
            else TacticFailed
        )
        assert isinstance(result, wanted), record["id"]
