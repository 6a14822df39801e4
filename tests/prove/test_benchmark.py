"""benchmarks/prove.py runs: every figure comes out, whatever it is. How good they are is not a test's to say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.prove import main
from benchmarks.prove_family import shapes, steps_of
from benchmarks.prove_gpu import GpuSizes, measure_gpu

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SMALL = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 300,
}


TARGETS = {
    "throughput": ["at least 10", "at least the other's"],
    "scaling": [],
    "learning": ["above 0", "above 0"],
    "gpu": [],
}


@pytest.mark.parametrize("only", [["throughput", "gpu"], pytest.param([*TARGETS], marks=pytest.mark.slow)])
def test_every_measurement_prints_its_figures_or_that_there_is_no_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], only: list[str]
) -> None:
    threads, target = torch.get_num_threads(), tmp_path / "prove.json"
    try:
        arguments = ["--quick", "--folder", str(tmp_path), "--json", str(target), "--only", *only]
        assert main(arguments) == 0
    finally:
        torch.set_num_threads(threads)
    assert [path.name for path in tmp_path.iterdir()] == ["prove.json"]
    document: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    assert document["quick"] is True
    assert {row["of"] for row in document["rows"]} == set(only)
    assert [(row["of"], row["target"]) for row in document["rows"] if row["target"]] == [
        (of, target) for of, targets in TARGETS.items() if of in only for target in targets
    ]
    printed = capsys.readouterr().out
    for row in document["rows"]:
        assert (row["value"] is None) == (row["of"] == "gpu" and not torch.cuda.is_available()), row
        assert row["what"] in printed


def test_a_gpu_measurement_runs_on_the_named_device(tmp_path: Path) -> None:
    sizes = GpuSizes(shape=SMALL, requests=4, candidates=2, tokens=4, theorems=4, examples=8, batch_size=4)
    rows = list(measure_gpu(tmp_path, sizes, device="cpu"))
    assert len(rows) == 10
    assert all(row.value is not None and row.value > 0 for row in rows if row.unit != "GiB"), rows


def test_each_theorem_of_the_family_is_proved_by_its_own_steps_and_no_two_are_alike(tmp_path: Path) -> None:
    given = [*shapes(1, 2, 12), *shapes(1, 4, 12)]
    assert len({theorem.stated for theorem in given}) == 24
    rows = asyncio.run(steps_of(given, tmp_path))
    assert len(rows.rows) == sum(len(theorem.steps) for theorem in given)
