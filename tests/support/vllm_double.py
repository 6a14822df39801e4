"""A double of the part of vLLM 0.32's Python interface in use, by its names, over a model that transformers loads.

It refuses what the real one refuses; `LLM.made` and `LLM.asked` say what was asked.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, TypedDict

import pytest

from pipeline.models.tactics.loop import TransformersLoop
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.requests import Decoding, Prompt

_ENGINE = {"enable_prefix_caching", "enable_lora", "max_lora_rank"}
"""Those of EngineArgs that `LLM` takes beside its own."""


@dataclass
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    seed: int | None = None
    stop_token_ids: list[int] | None = None
    max_tokens: int | None = 16
    logprobs: int | None = None
    detokenize: bool = True

    def __post_init__(self) -> None:
        if self.temperature == 0 and self.n > 1:
            raise ValueError(f"n must be 1 when using greedy sampling, got {self.n}.")


class TokensPrompt(TypedDict):
    prompt_token_ids: list[int]


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str = ""

    def __post_init__(self) -> None:
        if self.lora_int_id < 1:
            raise ValueError(f"id must be > 0, got {self.lora_int_id}")
        assert self.lora_path, "lora_path cannot be empty"


@dataclass
class CompletionOutput:
    token_ids: Sequence[int]
    cumulative_logprob: float | None
    finish_reason: str | None = None


@dataclass
class RequestOutput:
    outputs: list[CompletionOutput]


class LLM:
    made: ClassVar[list[dict[str, Any]]] = []
    asked: ClassVar[list[tuple[list[SamplingParams], LoRARequest | None]]] = []
    ends: ClassVar[list[int] | None] = None
    refuses: ClassVar[str] = ""

    def __init__(
        self,
        model: str,
        *,
        dtype: str = "auto",
        seed: int = 0,
        gpu_memory_utilization: float = 0.92,
        **kwargs: Any,
    ) -> None:
        if unknown := kwargs.keys() - _ENGINE:
            raise TypeError(f"EngineArgs.__init__() got an unexpected keyword argument {min(unknown)!r}")
        if self.refuses:
            raise ValueError(self.refuses)
        LLM.made.append({"model": model, "dtype": dtype, **kwargs})
        self._model, self._lora = model, bool(kwargs.get("enable_lora"))
        self._loops: dict[str, TransformersLoop] = {}
        config = load_model(model).model.config
        self.model_config = SimpleNamespace(max_model_len=config.max_position_embeddings)

    def generate(
        self,
        prompts: Sequence[TokensPrompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: LoRARequest | None = None,
    ) -> list[RequestOutput]:
        assert isinstance(sampling_params, list)
        assert len(sampling_params) == len(prompts)
        if lora_request is not None and not self._lora:
            raise ValueError("LoRA is not enabled")
        LLM.asked.append((sampling_params, lora_request))
        path = self._model if lora_request is None else lora_request.lora_path
        if path not in self._loops:
            self._loops[path] = TransformersLoop(load_model(path))
        return [
            self._output(self._loops[path], prompt["prompt_token_ids"], params)
            for prompt, params in zip(prompts, sampling_params, strict=True)
        ]

    def _output(self, loop: TransformersLoop, prompt: list[int], params: SamplingParams) -> RequestOutput:
        assert params.max_tokens is not None
        assert params.seed is not None
        decoding = (
            Decoding(params.n)
            if params.temperature == 0
            else Decoding(params.n, "sampling", params.temperature)
        )
        loop.ends = self.ends or [*(params.stop_token_ids or ())]
        (answers,) = loop.answers([Prompt(tuple(prompt), decoding, params.seed)], params.max_tokens)
        return RequestOutput(
            [
                CompletionOutput(
                    token_ids=[*one.ids, *([loop.ends[0]] if one.ended else [])],
                    # Without `logprobs` it counts none.
                    cumulative_logprob=None if params.logprobs is None else one.log_probability,
                    finish_reason="stop" if one.ended else "length",
                )
                for one in answers
            ]
        )


def install(
    monkeypatch: pytest.MonkeyPatch, *, ends: list[int] | None = None, refuses: str = ""
) -> type[LLM]:
    """Have `import vllm` find the double; `ends`: tokens that end answers, in place of the model's own."""
    for name, parts in {
        "vllm": (LLM, SamplingParams),
        "vllm.inputs": (TokensPrompt,),
        "vllm.lora": (),
        "vllm.lora.request": (LoRARequest,),
    }.items():
        module = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        for part in parts:
            setattr(module, part.__name__, part)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(LLM, "made", [])
    monkeypatch.setattr(LLM, "asked", [])
    monkeypatch.setattr(LLM, "ends", ends)
    monkeypatch.setattr(LLM, "refuses", refuses)
    return LLM
