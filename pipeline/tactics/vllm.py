"""vLLM as the generator, where it is installed and asked for: it batches by itself, on one GPU or several.

    async with GenerationService(VLLMGenerator("folder")) as service: ...

It is not among our requirements: `pip install vllm` brings a PyTorch of its own choice, so it belongs into an
environment of its own. Prompts are tokens made by the same builder as everywhere (`prompt.Prompts`), and what comes
back is read as tokens, so that nothing depends on vLLM's own templates.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.tactics.decoding import Completion
from pipeline.tactics.errors import ModelError, SettingsError
from pipeline.tactics.generate import ends_of, marks_of, read_answers, written
from pipeline.tactics.models import read_model
from pipeline.tactics.requests import Decoding, Request, Suggestions

_SEEDS = 1 << 63  # it takes signed ones


class VLLMGenerator:
    """Asks one model through vLLM (`service.Suggesting`). One thread at a time.

    Log-probabilities are the model's own where vLLM's `logprobs_mode` is its default, "raw_logprobs".
    """

    def __init__(self, model: str | Path, **engine: Any) -> None:
        """Start vLLM's engine.

        Args:
            model: a folder or hub name of a causal model, or the folder of a LoRA adapter on one.
            engine: more arguments of `vllm.LLM` (gpu_memory_utilization, tensor_parallel_size, dtype, …).

        Raises:
            ModelError: vLLM is not installed or cannot be loaded; or the model cannot be used, or is an
                encoder-decoder, which vLLM does not serve.
        """
        self._vllm = _vllm()
        read = read_model(model)
        if read.config.is_encoder_decoder:
            raise ModelError(f"{model} is an encoder-decoder, which vLLM does not serve. Ask it without vLLM")
        self.prompts = read.prompts
        self.lengths = read.lengths
        self._tokenizer = read.tokenizer
        self._marks = marks_of(read.tokenizer)
        self._ends = ends_of(_named_ends(read.base), read.prompts.end)
        self._adapter: Any = None
        settings: dict[str, Any] = {"max_model_len": read.lengths.prompt + read.lengths.answer}
        if read.is_adapter_of(model):
            self._adapter = importlib.import_module("vllm.lora.request").LoRARequest(
                "adapter", 1, str(Path(model).absolute())
            )
            settings |= {"enable_lora": True, "max_lora_rank": _rank(Path(model))}
        self._engine = self._vllm.LLM(model=read.base, **{**settings, **engine})

    def together(self, requests: Sequence[Request]) -> range:
        """Return all of them: vLLM makes its batches by itself."""
        return range(len(requests))

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        """Return tactics for each request, in the requests' order.

        Raises:
            SettingsError: beams are asked for.
        """
        if not requests:
            return []
        sampling = [self._sampling(request.decoding, request.seed) for request in requests]
        prompts = [
            {"prompt_token_ids": self.prompts.ids(request.state, request.premises)} for request in requests
        ]
        answers = self._engine.generate(prompts, sampling, use_tqdm=False, lora_request=self._adapter)
        return [
            self._suggestions(prompt["prompt_token_ids"], [self._read(one) for one in answer.outputs])
            for prompt, answer in zip(prompts, answers, strict=True)
        ]

    def text(self, completion: Completion) -> str:
        """Return what an answer says."""
        return str(self._tokenizer.decode(list(completion.ids)))

    def _suggestions(self, prompt: Sequence[int], answers: Sequence[Completion]) -> Suggestions:
        found = read_answers(answers, text=self.text, marks=self._marks)
        return replace(found, prompt_tokens=len(prompt), written_tokens=written(answers))

    def _sampling(self, decoding: Decoding, seed: int) -> Any:
        if decoding.mode != "sampling":
            raise SettingsError(
                "vLLM draws samples, and beams are asked for. Set the decoding to sampling, or ask without vLLM"
            )
        return self._vllm.SamplingParams(
            n=decoding.candidates,
            temperature=decoding.temperature,
            top_p=decoding.top_p,
            max_tokens=self.lengths.answer if decoding.max_tokens is None else decoding.max_tokens,
            stop_token_ids=self._ends,
            seed=seed % _SEEDS,
            # Without one no log-probability is summed up; the chosen token's comes along with any number.
            logprobs=0,
            detokenize=False,
        )

    def _read(self, output: Any) -> Completion:
        ids = [int(token) for token in output.token_ids]
        ended = output.finish_reason == "stop"
        # The end mark is among the tokens.
        if ended and ids and ids[-1] in self._ends:
            ids.pop()
        summed = output.cumulative_logprob
        return Completion(tuple(ids), math.nan if summed is None else float(summed), ended)


def _vllm() -> Any:
    try:
        return importlib.import_module("vllm")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "vllm"
        said = "is not installed" if missing else f"cannot be loaded ({error})"
        raise ModelError(
            f"vLLM {said}. Install it into an environment of its own with `pip install vllm`, or ask the model without "
            "it"
        ) from error


def _named_ends(base: str) -> object:
    """Return the end marks that a model names for generation itself: one, several, or None."""
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(base).eos_token_id
    except (OSError, ValueError):
        return None


def _rank(adapter: Path) -> int:
    """Return a rank that vLLM takes and the adapter fits in."""
    from peft import PeftConfig

    rank = int(getattr(PeftConfig.from_pretrained(str(adapter)), "r", 0) or 0)
    return next((taken for taken in (8, 16, 32, 64, 128, 256) if rank <= taken), rank)
