"""A causal model of the 0.5B class on a GPU: writing tactics in batches and one by one, searching, fine-tuning.

Weights are random, so nothing is fetched and nothing is proved: what a token costs does not depend on what is in them.
Answers are random text of full length, which is the most that a search can ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from benchmarks.prove_family import shapes, steps_of
from benchmarks.prove_search import prove
from benchmarks.store_bench import Row
from pipeline.jobs.specs import Budget
from pipeline.models.tactics.generate import Generator, GeneratorCounts
from pipeline.models.tactics.requests import Decoding, Request
from pipeline.models.tactics.rows import Rows
from pipeline.models.tactics.training import SFTTrainer

QWEN_HALF_BILLION: dict[str, Any] = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
}
"""The shape of Qwen/Qwen2.5-0.5B, as its config.json has it."""


@dataclass(frozen=True, slots=True)
class GpuSizes:
    """How much of everything."""

    shape: Mapping[str, Any] = field(default_factory=lambda: QWEN_HALF_BILLION)
    requests: int = 128
    candidates: int = 8
    tokens: int = 48
    theorems: int = 64
    examples: int = 512
    batch_size: int = 16


def measure_gpu(folder: Path, sizes: GpuSizes, *, device: str | None = None) -> Iterator[Row]:
    """Measure on `device`; without a GPU report each figure as missing."""
    name = "0.5B model"
    figures = {
        f"{name} in bfloat16, tactics in batches": "tokens/s",
        f"{name} in bfloat16, one state after the other": "tokens/s",
        f"{name} in bfloat16, in batches to one after the other": "x",
        f"{name}, search of two states a theorem, in batches": "theorems/min",
        f"{name}, search of two states a theorem, one after the other": "theorems/min",
        f"{name}, search, in batches to one after the other": "x",
        f"{name} fine-tuned, every weight": "tokens/s",
        f"{name} fine-tuned, every weight: peak memory": "GiB",
        f"{name} fine-tuned, LoRA": "tokens/s",
        f"{name} fine-tuned, LoRA: peak memory": "GiB",
    }
    found = device or ("cuda" if torch.cuda.is_available() else None)
    if found is None:
        for what, unit in figures.items():
            yield Row("gpu", what, None, unit, note="there is no GPU here: not measured")
        return
    folder.mkdir(parents=True, exist_ok=True)
    model = _random_model(folder / "model", sizes.shape)
    rows = asyncio.run(steps_of(shapes(1, 4, 48), folder))
    values = [*_writing(model, rows, sizes, found), *_searching(model, folder, sizes, found)]
    values += _tuning(model, rows, folder, sizes, found)
    for (what, unit), value in zip(figures.items(), values, strict=True):
        yield Row("gpu", what, value, unit)


def _writing(model: Path, rows: Rows, sizes: GpuSizes, device: str) -> list[float]:
    """Return tokens written a second in batches and one state after the other, and their ratio."""
    generator = Generator.load(model, device=device, dtype=torch.bfloat16, max_rows=sizes.requests)
    decoding = Decoding(candidates=sizes.candidates, mode="sampling", max_tokens=sizes.tokens)
    states = [rows.rows[at % len(rows.rows)].state for at in range(sizes.requests)]
    requests = [Request(state, decoding=decoding, seed=at) for at, state in enumerate(states)]
    generator.suggest(requests[:2])
    rates = []
    for at_once in (len(requests), 1):
        # One after the other is slow: a part of them tells as much.
        chosen = requests if at_once > 1 else requests[: max(4, len(requests) // 8)]
        generator.counts = GeneratorCounts()
        began = time.monotonic()
        for start in range(0, len(chosen), at_once):
            generator.suggest(chosen[start : start + at_once])
        rates.append(generator.counts.written_tokens / (time.monotonic() - began))
    return [*rates, rates[0] / rates[1]]


def _searching(model: Path, folder: Path, sizes: GpuSizes, device: str) -> list[float]:
    """Return theorems a minute with many searches at once and one at a time, and their ratio."""
    generator = Generator.load(model, device=device, dtype=torch.bfloat16, max_rows=sizes.requests)
    rates = []
    for together in (sizes.theorems, 1):
        given = shapes(2, 4, sizes.theorems if together > 1 else max(4, sizes.theorems // 8))
        found = asyncio.run(
            prove(
                given,
                generator,
                folder,
                processes=4,
                together=together,
                budget=Budget(nodes=2, seconds=600, tactic_timeout_s=10),
                candidates=sizes.candidates,
                seed=1,
            )
        )
        rates.append(found.per_minute)
    return [*rates, rates[0] / rates[1]]


def _tuning(model: Path, rows: Rows, folder: Path, sizes: GpuSizes, device: str) -> list[float]:
    """Return tokens learned from a second and the peak of memory in GiB: of every weight, and of LoRA."""
    few = Rows(tuple(rows.rows[at % len(rows.rows)] for at in range(sizes.examples)), rows.proofs, {})
    values = []
    for lora in (None, LoraConfig(task_type="CAUSAL_LM", r=16, target_modules="all-linear")):
        trainer = SFTTrainer(
            model,
            output_dir=folder / ("lora" if lora else "whole"),
            batch_size=sizes.batch_size,
            lora_config=lora,
            device="cuda" if device.startswith("cuda") else "cpu",
            say=lambda _line: None,
        )
        prompts = trainer.loaded().prompts
        tokens = sum(len(prompts.ids(row.state)) + len(prompts.answer_ids(row.tactic)) for row in few.rows)
        if device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        began = time.monotonic()
        trainer.fit(few)
        values.append(tokens / (time.monotonic() - began))
        values.append(torch.cuda.max_memory_allocated() / 2**30 if device.startswith("cuda") else 0.0)
        del trainer
    return values


def _random_model(folder: Path, shape: Mapping[str, Any]) -> Path:
    """Write a model of a shape; its tokenizer reads bytes and has as many tokens as the model."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    marks = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
    others = [f"word{number}" for number in range(shape["vocab_size"] - len(alphabet) - len(marks))]
    vocabulary = {token: number for number, token in enumerate([*alphabet, *others])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, padding_side="left", clean_up_tokenization_spaces=False, **marks
    )
    config = Qwen2Config(
        **shape,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
        pad_token_id=fast.pad_token_id,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        written = Qwen2ForCausalLM(config)
    written.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
