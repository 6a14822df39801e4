"""Models in vLLM: which are, what the engine is asked (a double here), and the real one where there is a GPU."""

from __future__ import annotations

import gc
import logging
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from pipeline.models.libraries import quiet_libraries
from pipeline.models.tactics import generate as loading
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import load_model, read_model
from pipeline.models.tactics.requests import Decoding, Prompt, Request
from pipeline.models.tactics.vllm_loop import VllmLoop, vllm_loop
from tests.support import vllm_double
from tests.support.serve import make_saying
from tests.support.tiny_models import make_tiny_causal, make_tiny_seq2seq

GPU = torch.device("cuda")


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_saying(tmp_path_factory.mktemp("causal"), {"simp": 0.7, "rfl": 0.3})


def adapter_of(base: Path, folder: Path, rank: int) -> Path:
    model = load_model(base)
    with quiet_libraries():
        adapted = get_peft_model(model.model, LoraConfig(r=rank, target_modules=["q_proj"]))
    adapted.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def test_a_request_has_its_seed_its_number_of_answers_and_its_adapter_and_adapters_share_an_engine(
    causal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = vllm_double.install(monkeypatch)
    names = [adapter_of(causal, tmp_path / name, rank) for name, rank in (("one", 4), ("two", 6))]
    generators = []
    for name in names:
        read = read_model(name)
        loop = vllm_loop(read, device=GPU, dtype=torch.bfloat16)
        assert loop is not None
        generators.append(Generator(read, loop))
    assert engine.made == [
        {
            "model": str(causal),
            "dtype": "bfloat16",
            "enable_prefix_caching": True,
            "enable_lora": True,
            "max_lora_rank": 8,
        }
    ]
    requests = [Request("⊢ p", seed=seed, decoding=Decoding(2, max_tokens=9)) for seed in (3, 2**40 + 5)]
    for generator in generators:
        for found in generator.suggest(requests):
            assert {one.tactic for one in found.tactics} <= {"simp", "rfl"}
            assert found.tactics
    (params, adapter), (_, other) = engine.asked
    assert [(one.n, one.seed, one.max_tokens, one.logprobs) for one in params] == [(2, 3, 9, 0), (2, 5, 9, 0)]
    assert adapter is not None
    assert other is not None
    assert [Path(one.lora_path) for one in (adapter, other)] == names
    assert adapter.lora_int_id != other.lora_int_id


def test_what_vllm_cannot_run_transformers_does(
    causal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def loop(folder: Path, device: str) -> object:
        return vllm_loop(read_model(folder), device=torch.device(device), dtype=torch.float32)

    if find_spec("vllm") is None:
        assert loop(causal, "cuda") is None, "it is not installed"
    engine = vllm_double.install(monkeypatch)
    assert loop(causal, "cpu") is loop(causal, "cuda:1") is None
    assert loop(make_tiny_seq2seq(tmp_path / "seq2seq", d_model=16, layers=1), "cuda") is None
    assert engine.made == []
    assert isinstance(loop(causal, "cuda"), VllmLoop)
    gc.collect()
    vllm_double.install(monkeypatch, refuses="architecture unknown\nand more")
    with caplog.at_level(logging.WARNING):
        assert loop(causal, "cuda") is None
    assert "so transformers does, slower: architecture unknown" in caplog.text


def test_a_generator_is_loaded_without_its_weights_where_vllm_runs_it(
    causal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm_double.install(monkeypatch)
    monkeypatch.setattr(loading, "device_of", lambda _name: GPU)
    monkeypatch.setattr(loading, "inference_dtype", lambda _device: torch.float32)
    monkeypatch.setattr(loading, "load_model", lambda *_, **__: pytest.fail("its weights are vLLM's"))
    generator = loading.load_generator(causal)
    assert generator.positions == 1024
    (found,) = generator.suggest([Request("⊢ p", decoding=Decoding(1, max_tokens=9))])
    assert [one.tactic for one in found.tactics] == ["simp"]


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("vllm") is None, reason="needs a GPU and the extra vllm"
)
def test_vllm_itself_answers_as_transformers_does(tmp_path: Path) -> None:
    folder = make_tiny_causal(tmp_path, hidden=256, layers=2)
    read = read_model(folder)
    loop = vllm_loop(read, device=GPU, dtype=torch.float32)
    assert loop is not None
    there = Generator(read, loop)
    here = Generator(load_model(folder))
    prompts = [tuple(here.prompts.ids(f"⊢ p{number}")) for number in range(8)]
    greedy = Decoding(1, max_tokens=12)
    for mine, theirs in zip(
        here.complete([Prompt(ids, greedy) for ids in prompts]),
        there.complete([Prompt(ids, greedy) for ids in prompts]),
        strict=True,
    ):
        assert [one.ids for one in mine] == [one.ids for one in theirs]
        assert mine[0].log_probability == pytest.approx(theirs[0].log_probability, abs=0.05)
    drawn = Decoding(6, "sampling", max_tokens=12)
    first, again = (there.complete([Prompt(prompts[0], drawn, 7)]) for _ in range(2))
    assert first == again
    assert first != there.complete([Prompt(prompts[0], drawn, 8)])
