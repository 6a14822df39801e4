"""Decode for many prompts at once: beams, or samples, each with its log-probability and up to its end mark.

Prompts are read once, however many answers are wanted of each. What a prompt is answered follows from the prompt, its
seed and the settings, up to the rounding of sums: not from what else is in the batch. Whoever has ended leaves it.
transformers' own `generate` keeps every step's logits to tell a log-probability, samples all rows from one stream of
random numbers, and reads a prompt once for each answer; this is why it is not used here.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from pipeline.tactics.requests import Decoding


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer. `ids` have no end mark; `log_probability` is the model's own (natural logarithm), of the ids and the
    end mark if `ended`. NaN where the model's numbers were none."""

    ids: tuple[int, ...]
    log_probability: float
    ended: bool


class Rows(Protocol):
    """Rows of a batch that a model has read some tokens of."""

    def begin(self) -> Tensor:
        """Read the prompts; return the logits of the first token, shape (prompts, vocabulary)."""

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, by number and in this order; one may be wanted several times or not at all."""

    def step(self, tokens: Tensor) -> Tensor:
        """Read a token in each row, shape (rows,); return the logits of the next, shape (rows, vocabulary)."""


class CausalRows:
    """Rows of a causal model."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], pad: int) -> None:
        self._model = model
        # Padding stands at the left: all rows end, and so go on, together.
        self._ids, self._mask = padded(prompts, pad, model.device, left=True)
        self._positions = (self._mask.cumsum(dim=1) - 1).clamp(min=0)
        self._cache: Any = None
        # Logits of the whole prompt would be gigabytes.
        lean = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._only_last = {"logits_to_keep": 1} if lean else {}

    def begin(self) -> Tensor:
        return self._read(self._ids, self._positions)

    def select(self, rows: Tensor) -> None:
        self._cache.reorder_cache(rows)
        self._mask, self._positions = self._mask[rows], self._positions[rows]

    def step(self, tokens: Tensor) -> Tensor:
        self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)
        return self._read(tokens[:, None], self._positions[:, -1:] + 1)

    def _read(self, ids: Tensor, positions: Tensor) -> Tensor:
        self._positions = positions
        read = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            **self._only_last,
        )
        self._cache = read.past_key_values
        logits: Tensor = read.logits[:, -1]
        return logits


class EncodedRows:
    """Rows of an encoder-decoder; its prompts are read by the encoder."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], pad: int) -> None:
        self._model = model
        self._ids, self._mask = padded(prompts, pad, model.device, left=False)
        self._encoded: Any = None
        self._cache: Any = None

    def begin(self) -> Tensor:
        self._encoded = self._model.get_encoder()(input_ids=self._ids, attention_mask=self._mask)
        start = self._model.config.decoder_start_token_id
        return self.step(torch.full_like(self._ids[:, 0], start))

    def select(self, rows: Tensor) -> None:
        self._cache.reorder_cache(rows)
        self._mask = self._mask[rows]
        self._encoded.last_hidden_state = self._encoded.last_hidden_state[rows]

    def step(self, tokens: Tensor) -> Tensor:
        read = self._model(
            encoder_outputs=self._encoded,
            attention_mask=self._mask,
            decoder_input_ids=tokens[:, None],
            past_key_values=self._cache,
            use_cache=True,
        )
        self._cache = read.past_key_values
        logits: Tensor = read.logits[:, -1]
        return logits


def decode(
    rows: Rows, decoding: Decoding, *, seeds: Sequence[int], ends: Sequence[int], most: int
) -> list[list[Completion]]:
    """Return each prompt's answers, the best first; those without an end after the others.

    Args:
        rows: the prompts.
        decoding: how.
        seeds: of each prompt, for sampling.
        ends: ids of tokens that end an answer.
        most: tokens of an answer, end mark included.
    """
    with torch.inference_mode():
        logits = rows.begin()
        if decoding.mode == "sampling":
            found = _sampled(rows, logits, decoding, seeds=seeds, ends=ends, most=most)
        else:
            found = _beams(rows, logits, decoding, ends=ends, most=most)
    return found


def _sampled(
    rows: Rows, logits: Tensor, decoding: Decoding, *, seeds: Sequence[int], ends: Sequence[int], most: int
) -> list[list[Completion]]:
    wanted = decoding.candidates
    device = logits.device
    draws = torch.from_numpy(
        np.stack([_stream(seed, number).random(most) for seed in seeds for number in range(wanted)])
    ).to(device)
    end_ids = torch.tensor(list(ends), device=device)
    copies = torch.arange(len(seeds), device=device).repeat_interleave(wanted)
    rows.select(copies)
    logits = logits[copies]
    ids = torch.full((len(copies), most), -1, device=device)
    total = torch.zeros(len(copies), dtype=torch.float64, device=device)
    ended = torch.zeros(len(copies), dtype=torch.bool, device=device)
    alive = torch.arange(len(copies), device=device)
    for number in range(most):
        logp = torch.log_softmax(logits.float(), dim=-1)
        chosen = _drawn(logp, draws[alive, number], decoding)
        # NaN stays NaN in the sum: a row whose numbers are none says so.
        total[alive] += logp.gather(1, chosen[:, None]).squeeze(1).double()
        ends_here = torch.isin(chosen, end_ids)
        ended[alive] = ends_here
        ids[alive, number] = torch.where(ends_here, -1, chosen)
        go_on = (~ends_here & ~total[alive].isnan()).nonzero().squeeze(1)
        if not len(go_on) or number + 1 == most:
            break
        if len(go_on) < len(alive):
            rows.select(go_on)
            alive, chosen = alive[go_on], chosen[go_on]
        logits = rows.step(chosen)
    answers = [
        Completion(tuple(token for token in row if token >= 0), value, end)
        for row, value, end in zip(ids.tolist(), total.tolist(), ended.tolist(), strict=True)
    ]
    return [_in_order(answers[first : first + wanted]) for first in range(0, len(answers), wanted)]


def _stream(seed: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, number])


def _drawn(logp: Tensor, draws: Tensor, decoding: Decoding) -> Tensor:
    """Return a token for each row: where a number from 0 to 1 falls among the probabilities. Shape (rows,)."""
    probabilities = torch.softmax(logp / decoding.temperature, dim=-1).double()
    order = None
    if decoding.top_p < 1:
        probabilities, order = probabilities.sort(dim=-1, descending=True, stable=True)
        before = probabilities.cumsum(dim=-1) - probabilities
        probabilities = probabilities.masked_fill(before >= decoding.top_p, 0.0)
    upto = probabilities.nan_to_num().cumsum(dim=-1)
    places = torch.searchsorted(upto, (draws * upto[:, -1])[:, None], right=True)
    # The last that may be drawn, should rounding lead beyond it.
    places = torch.minimum(places, (upto < upto[:, -1:]).sum(dim=-1, keepdim=True))
    return (places if order is None else order.gather(1, places)).squeeze(1)


@dataclass(slots=True)
class _Search:
    """A prompt's beam search: which prompt it is, and the answers that have ended, as (rank, completion)."""

    prompt: int
    ended: list[tuple[float, Completion]]
    running: list[Completion]


def _beams(
    rows: Rows, logits: Tensor, decoding: Decoding, *, ends: Sequence[int], most: int
) -> list[list[Completion]]:
    wanted, vocabulary = decoding.candidates, logits.shape[-1]
    device = logits.device
    searches = [_Search(prompt, [], []) for prompt in range(len(logits))]
    copies = torch.arange(len(searches), device=device).repeat_interleave(wanted)
    rows.select(copies)
    logits = logits[copies]
    # At first all beams of a prompt are the same: one of them counts.
    scores = torch.full((len(searches), wanted), -math.inf, dtype=torch.float64, device=device)
    scores[:, 0] = 0.0
    ids = torch.empty((len(copies), 0), dtype=torch.int64, device=device)
    alive = list(searches)
    # So many that enough of them go on, even if the best all end.
    considered = min(wanted * (1 + len(ends)), wanted * vocabulary)
    for number in range(1, most + 1):
        logp = torch.log_softmax(logits.float(), dim=-1).double().view(len(alive), wanted, vocabulary)
        broken = logp.isnan().flatten(1).any(dim=1).tolist()
        every = (scores[:, :, None] + logp).view(len(alive), -1)
        every = every.masked_fill(every.isnan(), -math.inf)
        values, places = every.topk(considered, dim=1)
        beams, tokens = places // vocabulary, places % vocabulary
        next_rows: list[int] = []
        next_tokens: list[int] = []
        next_scores: list[list[float]] = []
        still: list[_Search] = []
        for at, search in enumerate(alive):
            if broken[at]:
                search.running = [Completion((), math.nan, False)] * wanted
                continue
            going: list[tuple[float, int, int]] = []
            for rank, (value, beam, token) in enumerate(
                zip(values[at].tolist(), beams[at].tolist(), tokens[at].tolist(), strict=True)
            ):
                row = at * wanted + beam
                if value == -math.inf:
                    break
                if token not in ends:
                    going.append((value, row, token))
                elif rank < wanted:
                    done = Completion(tuple(ids[row].tolist()), value, True)
                    search.ended.append((value / number**decoding.length_penalty, done))
            going = going[:wanted]
            search.ended = sorted(search.ended, key=lambda pair: -pair[0])[:wanted]
            best = max((value / number**decoding.length_penalty for value, _, _ in going), default=-math.inf)
            if not going or (len(search.ended) == wanted and best <= search.ended[-1][0]):
                continue
            if number == most:
                search.running = [
                    Completion((*ids[row].tolist(), token), value, False) for value, row, token in going
                ]
                continue
            missing = wanted - len(going)
            next_rows += [row for _, row, _ in going] + [going[-1][1]] * missing
            next_tokens += [token for _, _, token in going] + [going[-1][2]] * missing
            next_scores.append([value for value, _, _ in going] + [-math.inf] * missing)
            still.append(search)
        alive = still
        if not alive:
            break
        chosen = torch.tensor(next_rows, device=device)
        token_ids = torch.tensor(next_tokens, device=device)
        scores = torch.tensor(next_scores, dtype=torch.float64, device=device)
        ids = torch.cat([ids[chosen], token_ids[:, None]], dim=1)
        rows.select(chosen)
        logits = rows.step(token_ids)
    return [
        [*(done for _, done in search.ended), *search.running[: wanted - len(search.ended)]]
        for search in searches
    ]


def _in_order(answers: list[Completion]) -> list[Completion]:
    return sorted(answers, key=lambda answer: (not answer.ended, -answer.log_probability))


def padded(
    prompts: Sequence[Sequence[int]], pad: int, device: torch.device, *, left: bool
) -> tuple[Tensor, Tensor]:
    """Return prompts as ids and mask: int64, shape (prompts, longest)."""
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), pad, dtype=torch.int64)
    mask = torch.zeros((len(prompts), longest), dtype=torch.int64)
    for number, prompt in enumerate(prompts):
        part = slice(longest - len(prompt), longest) if left else slice(0, len(prompt))
        ids[number, part] = torch.tensor(prompt, dtype=torch.int64)
        mask[number, part] = 1
    return ids.to(device), mask.to(device)
