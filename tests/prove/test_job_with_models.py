"""The prove job with models that know something; the simulator stands in for Lean."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.lean.backend import simulator
from pipeline.lean.source.scanner import scan_source
from pipeline.protocol import JobSpec, Reporter
from pipeline.prove import retrieving
from pipeline.prove.__main__ import work
from pipeline.prove.file import git_blob
from pipeline.prove.retrieving import PremiseFinder
from pipeline.retrieval.corpus import Corpus
from pipeline.retrieval.testing import write_dataset
from pipeline.retrieval.tiny import make_tiny_retriever
from pipeline.tactics.generate import Generator, Request, Suggestions
from pipeline.tactics.tiny import make_tiny_classifier

SOURCE = "theorem known : ∀ (p : Prop), p → p := sorry\ntheorem again : ∀ (p : Prop), p → p := by\n  sorry\n"


def run(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    """Run the job on SOURCE in this process; return the events that it asks for."""
    data = SOURCE.encode()
    (folder / "A.lean").write_bytes(data)
    sorries = [
        {
            "sorry": one.declaration, "path": "A.lean", "blob": git_blob(data, like="0" * 40), "ordinal": one.ordinal,
            "byte_start": one.byte_start, "byte_end": one.byte_end, "declaration": one.declaration, "kind": "theorem",
        }
        for one in scan_source(data, path="A.lean").sorries
    ]  # fmt: skip
    given = {
        "repository": "local/x/demo",
        "branch": "main",
        "sha": "a" * 40,
        "worktree": str(folder),
        "lean": simulator().as_json(),
        "budget": {"seconds_per_sorry": 20, "nodes_per_sorry": 4, "tactic_timeout_s": 5},
        "budget_key": "small",
        "parallel": 2,
        "sorries": sorries,
    }
    out = io.StringIO()
    spec = JobSpec("prove-1", "prove", 1, folder / "job", given | changes)
    work(spec, Reporter(spec, out))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return [event["data"] for line in lines if line["line"] == "events" for event in line["events"]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[Request]]:
    """The batches that generators are asked for."""
    batches: list[list[Request]] = []
    real = Generator.suggest

    def suggest(self: Generator, requests: Sequence[Request]) -> list[Suggestions]:
        batches.append(list(requests))
        return real(self, requests)

    monkeypatch.setattr(Generator, "suggest", suggest)
    return batches


def test_a_generator_s_tactics_fill_the_sorrys_that_it_is_asked_about(
    tmp_path: Path, learned: Path, asked: list[list[Request]]
) -> None:
    generator = {"path": str(learned), "device": "cpu", "candidates": 2, "decoding": "beam"}
    events = run(tmp_path, prover="generator", rung=2, model="tactics-1", generator=generator)
    found = [event for event in events if "replacement" in event]
    assert {event["sorry"] for event in found} == {"known", "again"}
    assert {tuple(event["tactics"]) for event in found} == {("intro p h", "exact h")}
    tried = [event for event in events if "outcome" in event]
    assert [(event["outcome"], event["goals_left"], event["model"]) for event in tried] == [
        ("found", 0, "tactics-1")
    ] * 2
    assert {request.decoding.candidates for batch in asked for request in batch} == {2}


def test_a_progress_model_is_asked_how_far_it_is(tmp_path: Path, learned: Path) -> None:
    progress = {"path": str(make_tiny_classifier(tmp_path / "progress")), "weight": 0.3}
    generator = {"path": str(learned), "device": "cpu", "candidates": 2, "decoding": "beam"}
    events = run(tmp_path, prover="generator", rung=2, model="t", generator=generator, progress=progress)
    digest = next(event["tree"]["sha256"] for event in events if "outcome" in event)
    tree = json.loads((tmp_path / "job" / "staging" / digest).read_text())
    assert any(node["remaining"] is not None for node in tree["nodes"])


def test_the_retriever_s_premises_reach_the_generator(
    tmp_path: Path, learned: Path, asked: list[list[Request]], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus(write_dataset(tmp_path / "data", files=2) / "corpus.jsonl")
    retriever = make_tiny_retriever(tmp_path / "chain" / "retriever-1", d_model=32, layers=1)

    def corpus_of_log(events_db: Path, database_db: Path, *, repository: str, simulated: bool) -> Corpus:
        assert (events_db.name, database_db.name, repository, simulated) == (
            "e.db",
            "d.db",
            "local/x/demo",
            True,
        )
        return corpus

    def of_checkpoint(
        chain: Path, checkpoint: str, corpus: Corpus, *, indices: Path, premises: int, device: Any
    ) -> PremiseFinder:
        assert chain / checkpoint == retriever
        return PremiseFinder.load(retriever, corpus, premises=premises, device=device)

    monkeypatch.setattr(retrieving, "corpus_of_log", corpus_of_log)
    monkeypatch.setattr(PremiseFinder, "of_checkpoint", of_checkpoint)
    monkeypatch.setattr(retrieving, "accessible", lambda corpus, place: np.ones(len(corpus), dtype=bool))
    events = run(
        tmp_path,
        prover="retrieval",
        rung=1,
        model="retriever-1+g",
        generator={"path": str(learned), "device": "cpu", "candidates": 2},
        retriever={
            "chain": str(tmp_path / "chain"), "checkpoint": "retriever-1", "indices": str(tmp_path), "premises": 3,
            "events_db": str(tmp_path / "e.db"), "database_db": str(tmp_path / "d.db"),
        },
    )  # fmt: skip
    assert {event["prover"] for event in events} == {"retrieval"}
    assert all(len(request.premises) == 3 for batch in asked for request in batch)
    assert any("Demo.F" in code for code in asked[0][0].premises)
