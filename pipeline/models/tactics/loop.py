"""Runs a model in transformers, with its own `generate`: without a GPU, small models, encoder-decoders.

A prompt is read once, however many answers it gets. The likeliest answers are found for many prompts at once, samples
drawn for one prompt at a time: so they follow from the prompt, its seed and the settings.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, LogitsProcessorList

from pipeline.models.batching import by_length, goes_together, padded
from pipeline.models.tactics.models import TacticModel
from pipeline.models.tactics.requests import Completion, Prompt, likeliest_first

_SEEDS = 1 << 64
_MOST_SCORES = 1 << 29
"""Numbers of a beam search's batch: `generate` keeps those of every token at every step to add some of them up."""


class TransformersLoop:
    """Answers prompts with a loaded model, from one thread at a time.

    Attributes:
        positions: the most tokens of prompt and answer together.
        ends: the tokens that end an answer.
    """

    def __init__(self, model: TacticModel) -> None:
        """Args:
        model: from `models.load_model`.
        """
        # The adapter's layers are in the model itself, so PEFT's wrapper can go.
        self._model: Any = model.model.get_base_model() if isinstance(model.model, PeftModel) else model.model
        self._model.eval()
        # A model that reads images too has these numbers of its text one level down.
        text = self._model.config.get_text_config()
        limit = getattr(text, "max_position_embeddings", None)
        self.positions = int(limit) if limit else model.max_seq_len
        self._vocabulary = int(text.vocab_size)
        self._encodes = model.prompts.kind == "seq2seq"
        self._pad = int(model.tokenizer.pad_token_id)
        self.ends = ends_of(self._model, model.prompts.end)
        self._busy = threading.Lock()

    def answers(
        self, prompts: Sequence[Prompt], most: int, beginning: Sequence[int] = ()
    ) -> list[list[Completion]]:
        """Return each prompt's answers, the likeliest first, the unended last.

        Args:
            prompts: of one decoding.
            most: tokens of an answer, end mark included.
            beginning: tokens the model reads as its own text; no part of the answers.
        """
        decoding = prompts[0].decoding

        def fits(count: int, shortest: int, longest: int) -> bool:
            rows = count * decoding.candidates
            scores = rows * most * self._vocabulary
            alike = goes_together(rows, shortest + most, longest + most)
            return decoding.mode == "beams" and alike and scores <= _MOST_SCORES

        result: list[list[Completion]] = [[]] * len(prompts)
        for batch in by_length([len(prompt.ids) for prompt in prompts], fits):
            with self._busy, torch.inference_mode(), _asked_alone(self._model):
                answers = self._decoded([prompts[number] for number in batch], most, beginning)
            for number, answer in zip(batch, answers, strict=True):
                result[number] = answer
        return result

    def _decoded(
        self, prompts: Sequence[Prompt], most: int, beginning: Sequence[int]
    ) -> list[list[Completion]]:
        decoding, device = prompts[0].decoding, self._model.device
        candidates = decoding.candidates
        searches = decoding.mode == "beams" and candidates > 1
        given, begun = self._read([prompt.ids for prompt in prompts], beginning, candidates)
        own: dict[str, Any] = {}
        if searches:
            # Ranked by their log-probability, whatever their length.
            own = {"num_beams": candidates, "length_penalty": 0.0, "output_scores": True}
        elif decoding.mode == "sampling":
            own = {"do_sample": True, "temperature": decoding.temperature, "top_k": 0}
        request = GenerationConfig(
            max_new_tokens=most,
            eos_token_id=self.ends,
            pad_token_id=self._pad,
            decoder_start_token_id=getattr(self._model.config, "decoder_start_token_id", None),
            num_return_sequences=candidates,
            return_dict_in_generate=True,
            **own,
        )
        totals = _Totals(len(prompts) * candidates, self.ends, device)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(prompts[0].seed % _SEEDS)
            result = self._model.generate(
                **given,
                generation_config=request,
                logits_processor=LogitsProcessorList([] if searches else [totals]),
            )
        scores = result.sequences_scores if searches else totals.of(result.sequences)
        completions = []
        for row, total in zip(result.sequences[:, begun:].tolist(), scores.tolist(), strict=True):
            at = next((place for place, token in enumerate(row) if token in self.ends), None)
            completions.append(Completion(tuple(row[:at]), total, at is not None and not math.isnan(total)))
        return [
            likeliest_first(completions[first : first + candidates])
            for first in range(0, len(completions), candidates)
        ]

    def _read(
        self, prompts: Sequence[Sequence[int]], beginning: Sequence[int], candidates: int
    ) -> tuple[dict[str, Any], int]:
        """Return the input of `generate`, with prompts already read, and the number of tokens before an answer."""
        device = self._model.device
        if self._encodes:
            ids, mask = padded(prompts, self._pad, device)
            start = torch.tensor([[self._model.config.decoder_start_token_id, *beginning]], device=device)
            begun = start.expand(len(prompts), -1)
            return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": begun}, start.shape[1]
        # Padding is at the left: all rows end, and so continue, together.
        ids, mask = padded([[*prompt, *beginning] for prompt in prompts], self._pad, device, left=True)
        cache = DynamicCache(config=self._model.config)
        if candidates > 1 and ids.shape[1] > 1:
            self._model.base_model(
                input_ids=ids[:, :-1],
                attention_mask=mask[:, :-1],
                position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0)[:, :-1],
                past_key_values=cache,
                use_cache=True,
            )
            # As beams are chosen, which every kind of layer can do.
            cache.reorder_cache(torch.arange(len(prompts), device=device).repeat_interleave(candidates))
        return {"input_ids": ids, "attention_mask": mask, "past_key_values": cache}, ids.shape[1]


@contextmanager
def _asked_alone(model: Any) -> Iterator[None]:
    """Have a model generate by its request alone.

    Other settings of its `generation_config` (penalties, forbidden tokens) would change its log-probabilities.
    """
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own


class _Totals:
    """Adds up the log-probabilities of each row's tokens, where `generate` would keep those of the whole vocabulary."""

    def __init__(self, rows: int, ends: Sequence[int], device: torch.device) -> None:
        self._ends = torch.tensor(ends, device=device)
        self._ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self._totals = torch.zeros(rows, dtype=torch.float64, device=device)
        self._known: Tensor | None = None

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Note the scores of the next tokens, and return them for drawing. NaN stays in the sum, and marks the row."""
        self.of(ids)
        self._known = torch.log_softmax(scores, dim=-1)
        return scores.nan_to_num()

    def of(self, ids: Tensor) -> Tensor:
        """Return the rows' log-probabilities with their last token's."""
        if self._known is not None:
            chosen = ids[:, -1]
            gained = self._known.gather(1, chosen[:, None]).squeeze(1).double()
            self._totals += torch.where(self._ended, 0.0, gained)
            self._ended |= torch.isin(chosen, self._ends)
        return self._totals


def ends_of(model: Any, end: int) -> list[int]:
    """Return the tokens ending an answer: the trained one, and the model's own."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    others = named if isinstance(named, list) else [] if named is None else [named]
    return list(dict.fromkeys([end, *others]))
