"""vLLM as the generator, on a stand-in that has the names and the behaviour that vLLM documents."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model

from pipeline.retrieval.quiet import quiet_libraries
from pipeline.tactics.errors import ModelError, SettingsError
from pipeline.tactics.models import load_model
from pipeline.tactics.requests import Decoding, Request
from pipeline.tactics.service import GenerationService
from pipeline.tactics.tiny import make_tiny_causal, make_tiny_seq2seq
from pipeline.tactics.vllm import VLLMGenerator

SAMPLES = Decoding(candidates=3, mode="sampling", temperature=0.7, top_p=0.9, max_tokens=20)


@dataclass
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int | None = 16
    stop_token_ids: list[int] | None = None
    seed: int | None = None
    logprobs: int | None = None
    detokenize: bool = True


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: Sequence[int]
    cumulative_logprob: float | None
    logprobs: None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class RequestOutput:
    outputs: list[CompletionOutput]


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str


@dataclass
class LLM:
    """Says `answers` to each prompt, as (tokens, log-probability, finish reason)."""

    answers: Any = field(default_factory=list)
    made: dict[str, Any] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)

    def __call__(self, model: str, **engine: Any) -> LLM:
        self.made = {"model": model, **engine}
        return self

    def generate(
        self,
        prompts: Sequence[dict[str, list[int]]],
        sampling_params: Sequence[SamplingParams],
        *,
        use_tqdm: bool = True,
        lora_request: LoRARequest | None = None,
    ) -> list[RequestOutput]:
        self.asked.append((list(prompts), list(sampling_params), use_tqdm, lora_request))
        return [
            RequestOutput(
                [
                    CompletionOutput(number, "", tuple(ids), logprob, finish_reason=reason)
                    for number, (ids, logprob, reason) in enumerate(self.answers)
                ]
            )
            for _ in prompts
        ]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> LLM:
    module, lora, request = ModuleType("vllm"), ModuleType("vllm.lora"), ModuleType("vllm.lora.request")
    made = LLM()
    module.LLM, module.SamplingParams = made, SamplingParams  # type: ignore[attr-defined]
    request.LoRARequest = LoRARequest  # type: ignore[attr-defined]
    for one in (module, lora, request):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_causal(tmp_path_factory.mktemp("model"), hidden=32, layers=1, max_length=512)


def test_prompts_go_as_tokens_and_answers_come_back_as_tactics(engine: LLM, folder: Path) -> None:
    generator = VLLMGenerator(folder, gpu_memory_utilization=0.5)
    end = generator.prompts.end
    said = [generator.prompts.answer_ids(text) for text in ("exact h", "simp", "rw [", "intro")]
    engine.answers = [
        (said[0], -1.5, "stop"),
        (said[1], -0.5, "stop"),
        (said[2][:-1], -2.0, "length"),
        (said[3], None, "stop"),
    ]
    requests = [
        Request("h : p\n⊢ p", ("theorem <a>foo</a> : p",), SAMPLES, -3),
        Request("⊢ q", (), SAMPLES, 2),
    ]

    async def ask() -> list[Any]:
        async with GenerationService(generator, wait_s=0.2) as service:
            return await asyncio.gather(*map(service.suggest, requests))

    found = asyncio.run(ask())
    assert [(one.tactic, one.log_probability, one.tokens) for one in found[0].tactics] == [
        ("simp", -0.5, 5),
        ("exact h", -1.5, 8),
    ]
    assert found[0].left_out == {"unended": 1, "no_numbers": 1}
    ((prompts, sampling, shown, adapter),) = engine.asked
    plain = load_model(folder).prompts
    assert prompts == [{"prompt_token_ids": plain.ids(one.state, one.premises)} for one in requests]
    assert sampling[0] == SamplingParams(3, 0.7, 0.9, 20, [end], (1 << 63) - 3, 0, False)
    assert (sampling[1].seed, shown, adapter) == (2, False, None)
    assert engine.made == {"model": str(folder), "max_model_len": 512, "gpu_memory_utilization": 0.5}
    assert generator.suggest([]) == []


def test_an_adapter_is_asked_on_its_base(engine: LLM, folder: Path, tmp_path: Path) -> None:
    model: Any = load_model(folder).model
    with quiet_libraries():
        get_peft_model(model, LoraConfig(r=12, target_modules="all-linear")).save_pretrained(str(tmp_path))
    load_model(folder).tokenizer.save_pretrained(tmp_path)
    VLLMGenerator(tmp_path).suggest([Request("⊢ p", (), SAMPLES)])
    assert (engine.made["model"], engine.made["max_lora_rank"]) == (str(folder), 16)
    assert engine.asked[0][3] == LoRARequest("adapter", 1, str(tmp_path))


def test_beams_and_encoder_decoders_are_refused_with_what_to_do(
    engine: LLM, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="Set the decoding to sampling"):
        VLLMGenerator(folder).suggest([Request("⊢ p")])
    with pytest.raises(ModelError, match="is an encoder-decoder, which vLLM does not serve"):
        VLLMGenerator(make_tiny_seq2seq(tmp_path, d_model=32, layers=1))


def test_without_vllm_it_is_said_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ModelError, match=r"vLLM is not installed\. Install it .* `pip install vllm`"):
        VLLMGenerator(folder)


@pytest.mark.gpu
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="no vLLM")
def test_vllm_itself_answers_with_log_probabilities(tmp_path: Path) -> None:
    # Its attention kernels take heads of 64 and more.
    generator = VLLMGenerator(make_tiny_causal(tmp_path, hidden=256, layers=1), gpu_memory_utilization=0.2)
    decoding = Decoding(candidates=4, mode="sampling", max_tokens=8)
    (found,) = generator.suggest([Request("⊢ p", (), decoding, 1)])
    assert len(found.tactics) + sum(found.left_out.values()) == 4
    assert "no_numbers" not in found.left_out
    assert all(one.log_probability < 0 for one in found.tactics)
