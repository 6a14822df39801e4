"""`everlean export progress`: what a line says, what is left out, and when it refuses."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.domain.records import TracedFile
from store.view import queries
from store.view.trace_queries import training_proofs
from tests.support.state_folder import StateFolder, record_traced
from tests.support.traced_repository import make_traced_repository
from tests.support.verbs import hold_to_schema


@pytest.fixture
def files() -> list[TracedFile]:
    return list(make_traced_repository(0, 8, 6))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_each_step_of_a_proof_is_a_line_with_the_steps_before_it_and_the_number_after_it(
    folder: StateFolder, files: list[TracedFile]
) -> None:
    record_traced(folder, files)
    answer = folder.everlean("export", "progress", "out.jsonl", "--json")
    assert answer.code == 0, answer.err
    written = rows(folder.root / "out.jsonl")
    assert {tuple(row) for row in written} == {
        ("goal", "prefix", "tactic", "steps_remaining", "proof", "theorem")
    }
    proofs = defaultdict(list)
    for row in written:
        proofs[row["theorem"]].append(row)
    traced = {item.full_name: item.tactics for file in files for item in file.theorems}
    assert len(proofs) > 10
    for name, steps in proofs.items():
        assert [row["tactic"] for row in steps] == [step.tactic for step in traced[name]]
        assert [row["goal"] for row in steps] == [step.state_before for step in traced[name]]
        assert [row["steps_remaining"] for row in steps] == list(reversed(range(len(steps))))
        assert [row["prefix"] for row in steps] == [
            "\n".join(step.tactic for step in traced[name][:number]) for number in range(len(steps))
        ]
    document = answer.json
    assert (document["steps"], document["proofs"]) == (len(written), len(proofs))


def test_neither_the_test_side_nor_a_sorry_is_written(folder: StateFolder, files: list[TracedFile]) -> None:
    record_traced(folder, files)
    assert folder.everlean("export", "progress", "out.jsonl").code == 0
    with closing(queries.connect(folder.state / "database.db")) as view:
        sides = {
            side: {proof.theorem for proof in training_proofs(view, "random", side)}
            for side in ("train", "val", "test")
        }
    written = rows(folder.root / "out.jsonl")
    assert sides["test"], "the made-up repository has theorems to leave out"
    assert {row["theorem"] for row in written} == sides["train"] | sides["val"]
    assert not any(row["tactic"] == "sorry" for row in written)


def test_a_copy_in_a_fork_is_one_proof(folder: StateFolder, files: list[TracedFile]) -> None:
    record_traced(folder, files)
    alone = folder.everlean("export", "progress", "out.jsonl", "--json").json
    moved = [replace(file, path=f"Fork/{file.path}") for file in files]
    record_traced(folder, moved, repository="example.org/demo/fork", sha="2" * 40)
    both = folder.everlean("export", "progress", "out.jsonl", "--json").json
    assert (both["steps"], both["repeated"]) == (alone["steps"], alone["proofs"])


def test_an_earlier_export_is_replaced_and_any_other_file_is_refused(
    folder: StateFolder, files: list[TracedFile]
) -> None:
    record_traced(folder, files[:4])
    out = folder.root / "out.jsonl"
    out.write_text('{"my": "notes"}\n', encoding="utf-8")
    refused = folder.everlean("export", "progress", "out.jsonl")
    assert refused.code == 1
    assert "is no earlier export" in refused.err
    assert out.read_text(encoding="utf-8") == '{"my": "notes"}\n'
    out.unlink()
    assert folder.everlean("export", "progress", "out.jsonl").code == 0
    few = len(rows(out))
    record_traced(folder, files, sha="2" * 40)
    hold_to_schema("export progress", folder.everlean("export", "progress", "out.jsonl", "--json").json)
    assert len(rows(out)) > few
