"""The journal's file by itself; what a search makes of it is in tests/lean/test_best_first.py."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.client.messages import Expression, Goal, StateRef
from pipeline.lean.pool.session import State
from pipeline.prove.graph import Candidate, Graph, ModelScoring, TacticResult
from pipeline.prove.journal import Identity, Journal, JournalError, SearchCost, replay

IDENTITY = Identity("⊢ A", "generator", "m1", "Budget()", "ModelScoring()", 0, False)
ODD = Candidate("\ud800 ⟨h⟩\n", "t", cost=math.inf, commits=True, log_probability=-math.inf, tokens=3)


def goal(target: str) -> Goal:
    return Goal("g", Expression(pp=target))


def graph() -> Graph:
    return Graph(
        (goal("A"),), ModelScoring(), first=0, state=State((goal("A"),), ref=StateRef(0, 1), names=("g",))
    )


def begun(path: Path, identity: Identity = IDENTITY) -> tuple[Journal, list[Mapping[str, Any]]]:
    """Open the journal at the path; return it with the lines that it had."""
    lines: list[Mapping[str, Any]] = []
    journal = Journal(path, prover=identity.prover, model=identity.model)
    journal.begin(identity, lines.extend)
    return journal, lines


def written(path: Path) -> Graph:
    """Write a search of two states; return its graph."""
    live, (journal, _) = graph(), begun(path)
    with journal:
        node = live.pop()
        plain = Candidate("b", "b", log_probability=-0.1)
        journal.answered(node, [plain, ODD])
        for candidate, ran in (
            (plain, TacticResult("b", "step", goals=(goal("B"),), first=1, parsed=True)),
            (ODD, TacticResult(ODD.text, "unparsed", "no", parsed=False)),
        ):
            journal.tried(node, candidate, ran, SearchCost(1, 2, 0.5))
            live.took(node, candidate, ran)
        journal.expanded(node, [math.nan], SearchCost(2, 4, 1.25), lost=False)
        live.rank(node, [math.nan])
        live.close(node)
    return live


def test_a_journal_reads_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "one.jsonl"
    live = written(path)
    journal, lines = begun(path)
    heard: list[tuple[Candidate, bool]] = []
    again = graph()
    spent = replay(again, lines, saw=lambda candidate, parsed: heard.append((candidate, parsed)))
    journal.close()
    assert spent == SearchCost(2, 4, 1.25)
    assert [parsed for _, parsed in heard] == [True, False]
    assert heard[1][0] == ODD
    for one, other in zip(live.nodes, again.nodes, strict=True):
        assert (one.goals, one.first, one.score, one.tried) == (
            other.goals,
            other.first,
            other.score,
            other.tried,
        )
        assert one.status == other.status
    assert again.nodes[0].answered == [heard[0][0], ODD]
    assert again.expanded == live.expanded == 1
    assert journal.refused == ""


def test_a_torn_end_is_cut_off_wherever_it_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    written(path)
    data = path.read_bytes()
    last = data[:-1].rfind(b"\n") + 1
    for length in range(last + 1, len(data), 7):
        path.write_bytes(data[:length])
        journal, lines = begun(path)
        journal.close()
        assert len(lines) == 3
        assert path.read_bytes() == data[:last]
        assert journal.refused == ""


def test_an_empty_or_headless_file_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    for torn in (b"", b'{"search"'):
        path.write_bytes(torn)
        journal, lines = begun(path)
        journal.close()
        assert lines == []
        assert [json.loads(line)["prover"] for line in path.read_text().splitlines()] == ["generator"]


@pytest.mark.parametrize("field", ["root", "prover", "model", "budget", "scoring"])
def test_a_journal_under_another_sign_is_set_aside(tmp_path: Path, field: str) -> None:
    path = tmp_path / "one.jsonl"
    written(path)
    before = path.read_bytes()
    change: dict[str, Any] = {field: "other"}
    journal, lines = begun(path, dataclasses.replace(IDENTITY, **change))
    journal.close()
    assert lines == []
    assert journal.refused == f"it is of other work, with another {field}"
    assert (tmp_path / "one.jsonl.aside").read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        {"node": 1},
        {"node": 7, "answered": []},
        {"node": True, "answered": [["too", "short"]]},
        {"node": 0, "expanded": True, "remaining": [1.0, 2.0], "spent": [0, 0, 0]},
        {"node": 0, "expanded": True, "remaining": None, "spent": [0]},
        {"node": 0, "tried": ["t", "t", "x", False, 0, 0], "tactic": "t", "spent": [0, 0, 0]},
    ],
)
def test_lines_that_do_not_fit_are_refused_with_their_number(tmp_path: Path, line: dict[str, Any]) -> None:
    with pytest.raises(JournalError, match=r"^line 2 does not fit: "):
        replay(graph(), [line], saw=lambda *_: None)
