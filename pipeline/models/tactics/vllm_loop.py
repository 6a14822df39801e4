"""Runs a causal model in vLLM on a GPU; vLLM is imported here and nowhere else (the extra `vllm`).

A prompt's beginning is read once for all prompts with it, and each request has its own seed, number of answers and LoRA
adapter: adapters of one base share one engine. Several "beams" are drawn: vLLM's own beam search asks the engine for a
token at a time and always goes on to the longest answer. With one GPU's sums an answer follows from prompt, seed and
settings only as far as rounding does not depend on the batch.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch

from pipeline.models.adapters import ADAPTER
from pipeline.models.tactics.models import UnloadedModel
from pipeline.models.tactics.requests import Completion, Prompt, likeliest_first
from store.text import first_line

_SHARE = 0.8
"""Of the GPU's memory: beside the generator there are a retriever and a progress model."""
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Valid values of vLLM's max_lora_rank."""
_SEEDS = 1 << 31
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Engine:
    llm: Any
    busy: threading.Lock = field(default_factory=threading.Lock)
    adapters: dict[str, int] = field(default_factory=dict)


_engines: WeakValueDictionary[tuple[str, str, int], _Engine] = WeakValueDictionary()
"""By base, type of the weights and rank of its adapters."""


class VllmLoop:
    """Answers prompts with a model in vLLM, as `TransformersLoop` does; from any thread."""

    def __init__(self, model: UnloadedModel, *, dtype: torch.dtype) -> None:
        """Args:
        model: its name, an adapter's folder for one, and its prompts.
        dtype: of the weights.
        """
        from vllm.lora.request import LoRARequest

        adapter = Path(model.name) if model.is_adapter else None
        self._engine = _engine(model.base, str(dtype).removeprefix("torch."), _rank(adapter))
        self._adapter = None
        if adapter is not None:
            path, known = str(adapter.resolve()), self._engine.adapters
            # The engine knows an adapter by its number.
            self._adapter = LoRARequest(path, known.setdefault(path, len(known) + 1), path)
        self.positions = int(self._engine.llm.model_config.max_model_len)
        self._end = model.prompts.end

    def answers(
        self, prompts: Sequence[Prompt], most: int, beginning: Sequence[int] = ()
    ) -> list[list[Completion]]:
        """Return each prompt's answers (see `TransformersLoop`); the engine makes its own batches."""
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        decoding = prompts[0].decoding
        alone = decoding.mode == "beams" and decoding.candidates == 1
        with self._engine.busy:
            result = self._engine.llm.generate(
                [TokensPrompt(prompt_token_ids=[*prompt.ids, *beginning]) for prompt in prompts],
                [
                    SamplingParams(
                        n=decoding.candidates,
                        seed=prompt.seed % _SEEDS,
                        temperature=0.0 if alone else decoding.temperature,
                        max_tokens=most,
                        stop_token_ids=[self._end],
                        logprobs=0,
                        detokenize=False,
                    )
                    for prompt in prompts
                ],
                use_tqdm=False,
                lora_request=self._adapter,
            )
        return [likeliest_first([self._completion(answer) for answer in one.outputs]) for one in result]

    def _completion(self, output: Any) -> Completion:
        ids, ended = tuple(output.token_ids), output.finish_reason == "stop"
        # The end mark is among the tokens, whichever of the model's it is.
        return Completion(ids[:-1] if ended else ids, float(output.cumulative_logprob), ended)


def vllm_loop(model: UnloadedModel, *, device: torch.device, dtype: torch.dtype) -> VllmLoop | None:
    """Return a model's loop in vLLM; None if transformers must run it.

    That is so without a GPU or vLLM, for a model that encodes its prompts, on another GPU than the first, and if vLLM
    refuses, which is logged.
    """
    if device.type != "cuda" or device.index or model.prompts.kind == "seq2seq" or find_spec("vllm") is None:
        return None
    try:
        return VllmLoop(model, dtype=dtype)
    # transformers may take whatever vLLM refuses: an architecture, a kind of adapter, too little memory.
    except Exception as error:  # noqa: BLE001
        _log.warning("vLLM does not run %s, so transformers does, slower: %s", model.name, first_line(error))
        return None


def _engine(base: str, dtype: str, rank: int) -> _Engine:
    from vllm import LLM

    result = _engines.get((base, dtype, rank))
    if result is None:
        adapters: dict[str, Any] = {"enable_lora": True, "max_lora_rank": rank} if rank else {}
        llm = LLM(
            base,
            dtype=dtype,
            seed=0,
            gpu_memory_utilization=_SHARE,
            enable_prefix_caching=True,
            **adapters,
        )
        result = _engines[base, dtype, rank] = _Engine(llm)
    return result


def _rank(adapter: Path | None) -> int:
    """Return vLLM's least rank for an adapter; 0 for none."""
    if adapter is None:
        return 0
    own = int(json.loads((adapter / ADAPTER).read_text(encoding="utf-8"))["r"])
    return min((rank for rank in _RANKS if rank >= own), default=own)
