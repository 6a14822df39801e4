"""The prove job with models that know something; the simulator stands in for Lean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.prove import corpora, retrieving
from pipeline.prove.retrieving import PremiseFinder
from pipeline.prove.testing import parameters
from pipeline.prove.testing import run as run_job
from pipeline.retrieval.corpus import Corpus
from pipeline.retrieval.testing import write_dataset
from pipeline.retrieval.tiny import make_tiny_retriever
from pipeline.tactics.generate import Generator, Request, Suggestions
from pipeline.tactics.tiny import make_tiny_classifier

SOURCE = "theorem known : ∀ (p : Prop), p → p := sorry\ntheorem again : ∀ (p : Prop), p → p := by\n  sorry\n"


def run(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    """Run the job on SOURCE in this process; return the events that it asks for."""
    budget = {"seconds_per_sorry": 20, "nodes_per_sorry": 4, "tactic_timeout_s": 5}
    _, events = run_job(parameters(folder, SOURCE, budget=budget, **changes), folder / "job")
    return [event["data"] for event in events]


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

    def corpus_of_log(
        events_db: Path, database_db: Path, *, repository: str, simulated: bool, kept: Path
    ) -> Corpus:
        assert kept == tmp_path / "corpora"
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

    monkeypatch.setattr(corpora, "corpus_of_log", corpus_of_log)
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
