from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipeline.protocol import JobError
from pipeline.prove.rungs import _suggesting
from pipeline.tactics.generate import Generator
from pipeline.tactics.requests import Decoding
from pipeline.tactics.tiny import make_tiny_causal

SAMPLES = Decoding(mode="sampling")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny_causal(tmp_path_factory.mktemp("model"), hidden=32, layers=1))


def test_a_job_loads_the_model_by_itself_unless_vllm_is_asked_for(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(_suggesting({"path": folder, "device": "cpu"}, Decoding()), Generator)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(JobError, match="vLLM is not installed") as found:
        _suggesting({"path": folder, "engine": "vllm"}, SAMPLES)
    assert found.value.reason == "bad_model"


def test_an_engine_that_is_none_and_beams_with_vllm_are_refused_before_anything_is_loaded(
    tmp_path: Path,
) -> None:
    for part, decoding, why in (
        ({"engine": "llama.cpp"}, SAMPLES, "it takes transformers or vllm"),
        ({"engine": "vllm"}, Decoding(), 'set decoding to "sample"'),
    ):
        with pytest.raises(JobError, match=why):
            _suggesting({"path": str(tmp_path), **part}, decoding)
