"""Runs a model in transformers, with its own `generate`: without a GPU, small models, encoder-decoders.

An answer follows from the prompt, its seed and the settings, up to the rounding of sums, not from the rest of the
batch: each row draws from numbers of its own. A prompt is read once, however many answers it gets.
"""

from __future__ import annotations

import gc
import logging
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, LogitsProcessorList

from pipeline.models.batching import by_length, padded
from pipeline.models.errors import LearningError
from pipeline.models.tactics.models import TacticModel
from pipeline.models.tactics.requests import Completion, Decoding, Prompt, likeliest_first
from store.text import first_line

_SEEDS = 1 << 64
_MOST_SCORES = 1 << 29
"""Numbers of a beam search's batch: `generate` keeps those of every token at every step to add some of them up."""
_log = logging.getLogger(__name__)


class OutOfMemoryError(LearningError):
    """The device's memory is too small for one prompt's answers."""

    reason = "out_of_memory"


class TransformersLoop:
    """Answers prompts with a loaded model, from one thread at a time.

    Attributes:
        positions: the most tokens of prompt and answer together.
        ends: the tokens that end an answer.
    """

    def __init__(self, model: TacticModel, *, max_rows: int = 64, max_tokens: int = 1 << 16) -> None:
        """Args:
        model: from `models.load_model`.
        max_rows: answers in a batch.
        max_tokens: of a batch's answers with their prompts and padding; a larger request is a batch alone.
        """
        # The adapter's layers are in the model itself, so PEFT's wrapper can go.
        self._model: Any = model.model.get_base_model() if isinstance(model.model, PeftModel) else model.model
        self._model.eval()
        limit = getattr(self._model.config, "max_position_embeddings", None)
        self.positions = int(limit) if limit else model.lengths.prompt + model.lengths.answer
        self._encodes = model.prompts.kind == "seq2seq"
        self._pad = int(model.tokenizer.pad_token_id)
        self.ends = ends_of(self._model, model.prompts.end)
        self._max_rows = max_rows
        self._max_tokens = max_tokens
        self._busy = threading.Lock()

    def answers(
        self, prompts: Sequence[Prompt], most: int, beginning: Sequence[int] = ()
    ) -> list[list[Completion]]:
        """Return each prompt's answers, the likeliest first, the unended last.

        Args:
            prompts: of one decoding.
            most: tokens of an answer, end mark included.
            beginning: tokens the model reads as its own text; no part of the answers.

        Raises:
            OutOfMemoryError: the device's memory is too small for a prompt alone.
        """
        decoding = prompts[0].decoding

        def fits(count: int, shortest: int, longest: int) -> bool:
            rows = count * decoding.candidates
            # More padding than text costs more than another batch.
            alike = longest <= 2 * shortest + 64
            kept = rows * most * self._model.config.vocab_size if _searches(decoding) else 0
            return (
                alike
                and kept <= _MOST_SCORES
                and rows <= self._max_rows
                and rows * (longest + most) <= self._max_tokens
            )

        result: list[list[Completion]] = [[]] * len(prompts)
        # An oversized prompt fails at once, not after all the others.
        waiting = [*by_length([len(prompt.ids) for prompt in prompts], fits, longest_first=True)]
        while waiting:
            batch = waiting.pop(0)
            too_much = ""
            try:
                with self._busy, torch.inference_mode():
                    answers = self._decoded([prompts[number] for number in batch], most, beginning)
            except torch.OutOfMemoryError as error:
                too_much = first_line(error)
            if not too_much:
                for number, answer in zip(batch, answers, strict=True):
                    result[number] = answer
                continue
            # Outside of the handler, so that the error no longer holds the batch's memory.
            gc.collect()
            torch.cuda.empty_cache()
            if len(batch) == 1:
                raise OutOfMemoryError(
                    f"the device's memory is too small for {decoding.candidates} answers to "
                    f"{len(prompts[batch[0]].ids)} tokens ({too_much})"
                )
            _log.info("a batch of %d prompts does not fit into the device's memory; it is halved", len(batch))
            half = len(batch) // 2
            waiting[:0] = batch[:half], batch[half:]
        return result

    def _decoded(
        self, prompts: Sequence[Prompt], most: int, beginning: Sequence[int]
    ) -> list[list[Completion]]:
        decoding = prompts[0].decoding
        candidates = decoding.candidates
        searches = _searches(decoding)
        # A beam search multiplies its rows by itself.
        given = self._read(
            [prompt.ids for prompt in prompts], beginning, candidates, copies=1 if searches else candidates
        )
        begun = given.pop("begun")
        draws = _Draws(prompts, most, self.ends, self._model.device)
        request = GenerationConfig(
            max_new_tokens=most,
            do_sample=False,
            eos_token_id=self.ends,
            pad_token_id=self._pad,
            decoder_start_token_id=getattr(self._model.config, "decoder_start_token_id", None),
            num_beams=candidates if searches else 1,
            num_return_sequences=candidates if searches else 1,
            # Ranked by their log-probability, whatever their length.
            length_penalty=0.0,
            return_dict_in_generate=True,
            output_scores=searches,
        )
        with _asked_alone(self._model):
            result = self._model.generate(
                **given,
                generation_config=request,
                logits_processor=LogitsProcessorList([] if searches else [draws]),
            )
        totals = result.sequences_scores if searches else draws.totals
        completions = []
        for row, total in zip(result.sequences[:, begun:].tolist(), totals.tolist(), strict=True):
            at = next((place for place, token in enumerate(row) if token in self.ends), None)
            completions.append(Completion(tuple(row[:at]), total, at is not None and not math.isnan(total)))
        return [
            likeliest_first(completions[first : first + candidates])
            for first in range(0, len(completions), candidates)
        ]

    def _read(
        self, prompts: Sequence[Sequence[int]], beginning: Sequence[int], wanted: int, *, copies: int
    ) -> dict[str, Any]:
        """Return the input of `generate`, with copies of each prompt, read once.

        "begun" is the number of a row's tokens before its answer.
        """
        if self._encodes:
            ids, mask = padded(prompts, self._pad, self._model.device)
            encoded = self._model.get_encoder()(input_ids=ids, attention_mask=mask)
            encoded.last_hidden_state = encoded.last_hidden_state.repeat_interleave(copies, dim=0)
            start = [self._model.config.decoder_start_token_id, *beginning]
            begun = torch.tensor([start], device=self._model.device).expand(len(prompts) * copies, -1)
            options = {"encoder_outputs": encoded, "decoder_input_ids": begun}
            return {**options, "attention_mask": mask.repeat_interleave(copies, dim=0), "begun": len(start)}
        # Padding is at the left: all rows end, and so continue, together.
        ids, mask = padded(
            [[*prompt, *beginning] for prompt in prompts], self._pad, self._model.device, left=True
        )
        cache = DynamicCache(config=self._model.config)
        if wanted > 1 and ids.shape[1] > 1:
            self._model.base_model(
                input_ids=ids[:, :-1],
                attention_mask=mask[:, :-1],
                position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0)[:, :-1],
                past_key_values=cache,
                use_cache=True,
            )
            cache.batch_repeat_interleave(wanted)
        ids, mask = ids.repeat_interleave(copies, dim=0), mask.repeat_interleave(copies, dim=0)
        return {"input_ids": ids, "attention_mask": mask, "past_key_values": cache, "begun": ids.shape[1]}


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


class _Draws:
    """Draws each row's next token from its own numbers, or takes the likeliest, and adds up the log-probabilities.

    Its result leaves `generate` one token to take. `totals` are those of the rows.
    """

    def __init__(
        self, prompts: Sequence[Prompt], most: int, ends: Sequence[int], device: torch.device
    ) -> None:
        decoding = prompts[0].decoding
        streams = [
            (prompt.seed % _SEEDS, number) for prompt in prompts for number in range(decoding.candidates)
        ]
        self._draws: Tensor | None = None
        if decoding.mode == "sampling":
            drawn = np.stack([np.random.default_rng(stream).random(most) for stream in streams])
            self._draws = torch.from_numpy(drawn).to(device)
        self._temperature = decoding.temperature
        self._ends = torch.tensor(list(ends), device=device)
        self.totals = torch.zeros(len(streams), dtype=torch.float64, device=device)
        self._ended = torch.zeros(len(streams), dtype=torch.bool, device=device)
        self._at = 0

    def __call__(self, _ids: Tensor, scores: Tensor) -> Tensor:
        logp = torch.log_softmax(scores.float(), dim=-1)
        chosen = logp.nan_to_num(-math.inf).argmax(dim=-1) if self._draws is None else self._drawn(logp)
        gained = logp.gather(1, chosen[:, None]).squeeze(1).double()
        # NaN stays NaN in the sum, and marks the row.
        self.totals += torch.where(self._ended, 0.0, gained)
        chosen = torch.where(gained.isnan(), self._ends[0], chosen)
        self._ended |= torch.isin(chosen, self._ends)
        self._at += 1
        return torch.full_like(scores, -math.inf).scatter_(1, chosen[:, None], 0.0)

    def _drawn(self, logp: Tensor) -> Tensor:
        """Return a token for each row: the place of a number from 0 to 1 among the probabilities. Shape (rows,)."""
        assert self._draws is not None
        upto = torch.softmax(logp / self._temperature, dim=-1).double().nan_to_num().cumsum(dim=-1)
        draws = self._draws[:, self._at]
        places = torch.searchsorted(upto, (draws * upto[:, -1])[:, None], right=True)
        # The last possible one, should rounding lead beyond it.
        return torch.minimum(places, (upto < upto[:, -1:]).sum(dim=-1, keepdim=True)).squeeze(1)


def _searches(decoding: Decoding) -> bool:
    return decoding.mode == "beams" and decoding.candidates > 1


def ends_of(model: Any, end: int) -> list[int]:
    """Return the tokens ending an answer: the trained one, and the model's own."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    others = named if isinstance(named, list) else [] if named is None else [named]
    return list(dict.fromkeys([end, *others]))
