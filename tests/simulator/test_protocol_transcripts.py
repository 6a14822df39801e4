"""The simulator against the recorded exchanges with a real REPL: the same reply, up to internal names.

Every dialogue is replayed in order against a fresh simulator of its dialect. A record that leaves something out
says so and is compared in what it holds; error texts are the simulator's own. What is outside its logic stands in
OUTSIDE with the reason; everything else must agree.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.simulator.frontend import Modules
from pipeline.lean.simulator.protocol import REQUESTS
from pipeline.lean.simulator.server import COMMANDS, Server

RECORDS = Path(__file__).resolve().parents[2].parent / "shared" / "reference" / "pantograph-transcripts.jsonl"

SORT = "universe levels are outside its logic"
NAT_LEMMA = "the lemma is not among its built-in facts"
TYPES = "the type is not among its built-in ones"
COUPLED = "declarations that mention one with a sorry become a subtype, which it has not"
SEARCH = "library search"
LEMMAS = "simp with lemmas that have arguments"
FORMS = "a step has one form here"
BY_HAND = "the record has placeholders for names; replayed by hand in test_protocol_goals.py"
# (exchange, number of the request in it; None for all) -> why it is not replayed
OUTSIDE: dict[tuple[str, int | None], str] = {
    ("test_option_modify", 0): NAT_LEMMA,
    ("test_option_modify", 2): NAT_LEMMA,
    ("test_env_add_inspect", 2): TYPES,
    ("test_env_add_inspect", 3): TYPES,
    ("test_env_add_inspect", 4): SORT,
    ("test_env_add_inspect", 5): SORT,
    ("test_frontend_process_import_open", 2): "it prints `Nat.succ n` for `n.succ`",
    ("test_frontend_process_import_open", 3): NAT_LEMMA,
    ("test_frontend_process_import_open", 4): SORT,
    ("test_frontend_process_circular", 1): SEARCH,
    ("test_frontend_distil_circular", 1): SEARCH,
    ("conflict_poly", None): TYPES,
    ("conflict_axiom", None): TYPES,
    ("conflict_fake_implementation", None): TYPES,
    ("conflict_fail_inductive_modification", None): "inductive declarations",
    ("conflict_fail_noncomputable", None): TYPES,
    ("distil_induction", None): "the record's goals are not in source order, its `have` is a let",
    ("distil_instance_sorry", None): "instance arguments",
    ("distil_instance_by_sorry", None): "instance arguments",
    ("distil_companion", None): COUPLED,
    ("distil_multiple_cond", None): COUPLED,
    ("test_distil_coupled", None): COUPLED,
    ("coupled_distil", None): COUPLED,
    ("test_refactor_search_target", None): COUPLED,
    ("tactic_failure_unresolved_goals", 2): LEMMAS,
    ("tactic_failure_synthesize_placeholder", 2): LEMMAS,
    ("capture_type_mismatch", None): "typeErrorsAsGoals",
    ("sorry_in_coupled", 0): "the case tag of a goal for a sorry",
    ("test_dependent_mvars", 2): BY_HAND,
    ("error_paths_old", 5): FORMS,
    ("error_paths_new", 5): FORMS,
    ("test_env_catalog", None): "declarations by equations",
    ("test_load_header", None): NAT_LEMMA,
    ("test_load_sorry", 3): "the hypothesis of a drafted `have` is a let there",
    ("tactic_invocations", None): "the file's first proof is by aesop",
    ("inspect_kinds", 1): TYPES,
    ("inspect_kinds", 2): "recursors",
    ("inspect_kinds", 3): TYPES,
    ("inspect_kinds", 4): NAT_LEMMA,
    ("inspect_kinds", 5): "it has other modules",
    ("sexp_of_symbol", 2): NAT_LEMMA,
    ("sexp_of_symbol", 3): "the names of unnamed arguments",
    ("sexp_of_symbol", 4): TYPES,
}
_INTERNAL = re.compile(r"_uniq\.\d+")
_HOLE = re.compile(r"\?(?:m\.\d+|m\b)")


class Replay:
    """One dialogue with a fresh simulator; remembers which recorded name is which of ours."""

    def __init__(self, records: list[dict[str, Any]], folder: Path) -> None:
        first = records[0]
        self.server = Server.start(
            Modules(folder), first["imports"], "old" if first["exchange"].endswith("@old") else "new"
        )
        self.folder = folder
        self.names: dict[str, str] = {}

    def ask(self, record: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(record["request"], ensure_ascii=False).replace("<TMP>", str(self.folder))
        text = _INTERNAL.sub(lambda found: self.names.get(found[0], found[0]), text)
        return self.server.answer(record["command"], json.loads(text))

    def differs(self, want: object, got: object, *, partly: bool, at: str = "") -> str:
        """Return where the two differ first, "" when they agree."""
        if isinstance(want, str) and want.startswith("<elided"):
            return ""
        if isinstance(want, dict) and isinstance(got, dict):
            extra = set() if partly else got.keys() - want.keys() - {"simulator"}
            if extra or want.keys() - got.keys():
                return f"{at}: keys {sorted(want)} != {sorted(got)}"
            parts = [(f"{at}.{key}", want[key], got[key]) for key in sorted(want)]
        elif isinstance(want, list) and isinstance(got, list):
            if len(want) != len(got):
                return f"{at}: {len(want)} items != {len(got)}"
            parts = [(f"{at}[{i}]", *pair) for i, pair in enumerate(zip(want, got, strict=True))]
        else:
            return "" if self._same(want, got, at) else f"{at}: {want!r} != {got!r}"
        return next((d for where, a, b in parts if (d := self.differs(a, b, partly=partly, at=where))), "")

    def _same(self, want: object, got: object, at: str) -> bool:
        if not (isinstance(want, str) and isinstance(got, str)):
            return want == got
        if at.endswith((".data", ".kind")) and "essages[" in at:
            return bool(got)  # the simulator's own words
        theirs, ours = _INTERNAL.findall(want), _INTERNAL.findall(got)
        if len(theirs) != len(ours):
            return False
        named = all(self.names.setdefault(a, b) == b for a, b in zip(theirs, ours, strict=True))
        masked = [_HOLE.sub("?m", _INTERNAL.sub("_uniq", text)) for text in (want, got)]
        return named and masked[0] == masked[1]


def _dialogues() -> dict[str, list[dict[str, Any]]]:
    if not RECORDS.is_file():
        pytest.skip(f"{RECORDS} is not on this machine; test_protocol*.py hold the essentials")
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in RECORDS.read_text("utf-8").splitlines():
        record = json.loads(line)
        found[record["exchange"]].append(record)
    return found


def _sent_by_the_client(record: dict[str, Any]) -> bool:
    """Return whether it knows the command with all these fields; it has no other than our client sends."""
    if record["command"] not in COMMANDS or record["command"] == "goal.subsume":
        return False
    off = (None, False) if record["command"] == "goal.print" else (None,)
    asked = {name for name, value in record["request"].items() if value not in off}
    return asked - {"binderName"} <= REQUESTS[record["command"]].fields.keys()


def test_every_recorded_exchange_of_its_fragment_gets_the_recorded_reply(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for exchange, records in _dialogues().items():
        name = exchange.removesuffix("@old")
        if (name, None) in OUTSIDE:
            counts["outside"] += len(records)
            continue
        replay = Replay(records, tmp_path)
        for number, record in enumerate(records):
            if not _sent_by_the_client(record):
                if record["command"] == "goal.print":
                    counts["outside"] += 1
                    continue
                # What follows may rest on it.
                counts["outside"] += len(records) - number
                break
            reply, want = replay.ask(record), record["response"]
            if (name, record["seq"]) in OUTSIDE:
                counts["outside"] += 1
                continue
            if want is None:
                difference = str(reply) if "error" in reply else ""
            else:
                difference = replay.differs(want, reply, partly=record["elided"])
            counts[record["fidelity"]] += 1
            if difference:
                wrong.append(f"{exchange}#{record['seq']} {record['command']} {difference}")
    print(dict(counts))  # noqa: T201 - how much was replayed is worth reading
    assert wrong == []
    assert counts["exact"] >= 20
    assert counts["exact"] + counts["source-derived"] + counts["derived"] >= 80


def test_every_entry_of_the_list_names_a_recorded_exchange() -> None:
    known = {
        (name, number)
        for exchange, records in _dialogues().items()
        for name in [exchange.removesuffix("@old")]
        for number in (None, *(record["seq"] for record in records))
    }

    assert OUTSIDE.keys() <= known
