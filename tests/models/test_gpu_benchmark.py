"""benchmarks/gpu.py runs, on the CPU with tiny shapes: every figure comes out but a CPU's peak of memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import T5Config, T5EncoderModel

from benchmarks.gpu import BYT5_SMALL, PARTS, main, operations


@pytest.mark.slow
def test_every_figure_comes_out_with_tiny_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "gpu.json"
    assert main(["--quick", "--folder", str(tmp_path), "--json", str(target)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]
    rows = json.loads(target.read_text(encoding="utf-8"))["rows"]
    assert {row["of"] for row in rows} == set(PARTS)
    printed = capsys.readouterr().out
    for row in rows:
        peak = row["unit"] == "GiB"
        assert (row["value"] is None) if peak else (row["value"] > 0), row
        assert row["what"] in printed


def test_without_a_gpu_nothing_is_measured_and_the_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(part in printed for part in PARTS)


def test_the_operations_of_a_text_are_those_that_pytorch_counts() -> None:
    shape = {**BYT5_SMALL, "num_layers": 2}
    with torch.device("meta"):
        encoder = T5EncoderModel(T5Config(vocab_size=384, feed_forward_proj="gated-gelu", **shape))
        ids = torch.ones(1, 300, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            encoder(input_ids=ids)
    assert operations(300, shape) == counter.get_total_flops()
