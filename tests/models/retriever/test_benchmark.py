"""benchmarks/retrieval.py runs: every figure comes out, whatever it is. How good they are is not a test's to say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.retrieval import Sizes, import_neighbours, main, sorted_whole
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.index import top_k
from tests.support.retrieval import imports_of, write_dataset

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_every_measurement_prints_its_figures_and_those_without_a_peer_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads, target = torch.get_num_threads(), tmp_path / "retrieval.json"
    try:
        arguments = ["--quick", "--no-peer", "--folder", str(tmp_path), "--json", str(target)]
        assert main(arguments) == 0
    finally:
        torch.set_num_threads(threads)
    assert [path.name for path in tmp_path.iterdir()] == ["retrieval.json"]
    document: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    assert document["quick"] is True
    assert [(row["of"], row["target"]) for row in document["rows"] if row["target"]] == [
        ("search", "above 1"),
        ("embedding", "above 1"),
        ("batches", "at least 20"),
        ("lengths", "at least 81"),
    ]
    found = {row["what"]: row["value"] for row in document["rows"] if row["of"] == "incremental"}
    assert found["optimiser steps, 40 new theorems"] == 1
    assert found["pairs to learn, 40 new theorems"] >= 40
    assert found["premises embedded, 40 new theorems appeared"] == 100
    printed = capsys.readouterr().out
    for row in document["rows"]:
        missing = "LeanDojo-v2" in row["what"]
        assert (row["value"] is None) == missing, row
        assert ("not measured" in row["note"]) == missing, row
        assert row["what"] in printed


def test_both_ways_of_searching_find_the_same_premises() -> None:
    rng = np.random.Generator(np.random.Philox(key=5))
    queries, documents = (torch.from_numpy(rng.standard_normal((n, 16), dtype=np.float32)) for n in (4, 60))
    allowed = torch.from_numpy(rng.random((4, 60)) < 0.5)
    ours = [indices.tolist() for indices, _ in top_k(queries, documents, allowed, 10)]
    assert ours == [[place for place, _ in best] for best in sorted_whole(queries, documents, allowed, 10)]


def test_a_file_of_the_large_corpus_sees_a_third_to_a_half_of_it_as_in_mathlib(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, files=Sizes().files, premises_per_file=1, theorems=10, imports=1)
    before = Corpus(dataset / "corpus.jsonl")
    import_neighbours(dataset)
    corpus = Corpus(dataset / "corpus.jsonl")
    for file in corpus.files:
        assert set(imports_of(before, file.path)) <= set(imports_of(corpus, file.path))
    seen = [int(corpus.imported_files(file.path).sum()) for file in corpus.files]
    assert 1 / 3 < sum(seen) / len(seen) / len(corpus.files) < 1 / 2
