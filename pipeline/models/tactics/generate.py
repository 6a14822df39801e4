"""Generate the next tactics for many states at once with a tactic model, each with its log-probability.

Requests with the same settings go to the model together, in batches of prompts of like length that keep within a budget
of tokens. An answer that is no tactic is counted and left out (`tactic_text.read_tactic`); a failure on one request is
reported in its answer, and the others are answered.

A prompt is read once, however many answers it gets. Its answers follow from the prompt, its seed and the settings, up
to the rounding of sums, not from the rest of the batch. A row that has ended leaves the batch.
transformers' own `generate` keeps every step's logits for the log-probability, samples all rows from one stream of
random numbers, and reads a prompt once for each answer; this is why it is not used here.
"""

from __future__ import annotations

import gc
import inspect
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from pipeline.lean.tactic_text import read_tactic
from pipeline.models.batching import by_length, padded
from pipeline.models.libraries import device_of, inference_dtype
from pipeline.models.tactics.models import TacticModel, load_model
from pipeline.models.tactics.requests import Decoding, Request, Suggestion, Suggestions
from pipeline.models.text import without_marks
from store.text import first_line


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer. `ids` have no end mark; `log_probability` is the model's own (natural logarithm), of the ids and the
    end mark if `ended`. NaN where the model's numbers were none."""

    ids: tuple[int, ...]
    log_probability: float
    ended: bool


class DecodingRows(Protocol):
    """Rows of a batch that a model has read some tokens of."""

    def begin(self) -> Tensor:
        """Read the prompts; return the logits of the first token, shape (prompts, vocabulary)."""

    def select(self, rows: Tensor) -> None:
        """Continue with these rows, by number and in this order; a row may occur several times or not at all."""

    def step(self, tokens: Tensor) -> Tensor:
        """Read a token in each row, shape (rows,); return the logits of the next, shape (rows, vocabulary)."""


class CausalRows:
    """Rows of a causal model."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], pad: int) -> None:
        self._model = model
        # Padding is at the left: all rows end, and so continue, together.
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
    rows: DecodingRows, decoding: Decoding, *, seeds: Sequence[int], ends: Sequence[int], most: int
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
    rows: DecodingRows,
    logits: Tensor,
    decoding: Decoding,
    *,
    seeds: Sequence[int],
    ends: Sequence[int],
    most: int,
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
        # NaN stays NaN in the sum, which marks the row.
        total[alive] += logp.gather(1, chosen[:, None]).squeeze(1).double()
        ends_here = torch.isin(chosen, end_ids)
        ended[alive] = ends_here
        ids[alive, number] = torch.where(ends_here, -1, chosen)
        going = (~ends_here & ~total[alive].isnan()).nonzero().squeeze(1)
        if not len(going) or number + 1 == most:
            break
        if len(going) < len(alive):
            rows.select(going)
            alive, chosen = alive[going], chosen[going]
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
    rows: DecodingRows, logits: Tensor, decoding: Decoding, *, ends: Sequence[int], most: int
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
    # So many that enough of them continue, even if the best all end.
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


UNENDED = "unended"
"""Reason for leaving out an answer: it was truncated before its end mark, so part of a tactic may be missing."""
NO_NUMBERS = "no_numbers"
"""Reason for leaving out an answer: the model's logits were NaN."""
MARKS = "marks"
"""Reason for leaving out an answer: it holds a mark of the tokenizer that has no text."""
_log = logging.getLogger(__name__)
_SEEDS = 1 << 64


@dataclass(slots=True)
class GeneratorCounts:
    """Counts of a generator: requests answered, batches, rows in them and how many would have fitted, tokens of
    prompts, those with padding, tokens written, seconds in the model."""

    requests: int = 0
    batches: int = 0
    rows: int = 0
    room: int = 0
    prompt_tokens: int = 0
    padded_tokens: int = 0
    written_tokens: int = 0
    seconds: float = 0.0

    @property
    def fill(self) -> float:
        """The share of the batches' rows that were in use, 0..1."""
        return self.rows / self.room if self.room else 0.0


class Generator:
    """Queries one model, from one thread at a time; `service.GenerationService` shares it between searches."""

    def __init__(self, model: TacticModel, *, max_rows: int = 64, max_tokens: int = 1 << 16) -> None:
        """Args:
        model: as `models.load_model` gives it.
        max_rows: answers in a batch.
        max_tokens: of a batch's answers with their prompts and padding; a request that has more is a batch alone.
        """
        self.prompts = model.prompts
        self.lengths = model.lengths
        self.max_rows = max_rows
        self.max_tokens = max_tokens
        self.counts = GeneratorCounts()
        self._busy = threading.Lock()
        self._tokenizer = model.tokenizer
        # The adapter's layers are in the model itself, so PEFT's wrapper can go.
        self._model = model.model.get_base_model() if isinstance(model.model, PeftModel) else model.model
        self._model.eval()
        self._pad = int(model.tokenizer.pad_token_id)
        generation = getattr(self._model, "generation_config", None)
        self._ends = ends_of(getattr(generation, "eos_token_id", None), self.prompts.end)
        self._marks = marks_of(model.tokenizer)
        # A waiting request is measured for each batch until it is in one.
        self._ids = lru_cache(maxsize=1024)(self._tokenized)

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        max_rows: int = 64,
        max_tokens: int = 1 << 16,
        repository: str | None = None,
    ) -> Generator:
        """Load a model and return its generator.

        Args:
            model: a folder or hub name.
            device: where to compute; "auto" is a GPU where there is one.
            dtype: of the weights; None: bfloat16 on what has it in hardware, else float32.
            max_rows, max_tokens: see the constructor.
            repository: the key of the one whose goals it is asked, for a checkpoint with an adapter for each.

        Raises:
            ModelError: it cannot be used.
            ConfigError: there is no such device.
        """
        where = device_of(str(device))
        loaded = load_model(model, device=where, dtype=dtype or inference_dtype(where), repository=repository)
        return cls(loaded, max_rows=max_rows, max_tokens=max_tokens)

    @property
    def positions(self) -> int:
        """The most tokens of prompt and answer together: the model's own limit, else that of its training."""
        limit = getattr(self._model.config, "max_position_embeddings", None)
        return int(limit) if limit else self.lengths.prompt + self.lengths.answer

    def together(self, requests: Sequence[Request]) -> list[int]:
        """Return the numbers of the requests that make the first one's batch (`service.SuggestionModel`)."""
        decoding = requests[0].decoding
        same = [number for number, request in enumerate(requests) if request.decoding == decoding]
        lengths = [len(self._ids(requests[number].state, requests[number].premises)) for number in same]
        batches = self._batches(lengths, decoding.candidates, self._most(decoding))
        return [same[place] for place in sorted(next(batch for batch in batches if 0 in batch))]

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        """Return tactics for each request, in the requests' order."""
        ids = [self._ids(request.state, request.premises) for request in requests]
        found: list[Suggestions | None] = [None] * len(requests)
        groups: dict[Decoding, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(request.decoding, []).append(number)
        for decoding, members in groups.items():
            answers = self.complete(
                [ids[number] for number in members],
                decoding,
                seeds=[requests[number].seed for number in members],
            )
            for number, answer in zip(members, answers, strict=True):
                found[number] = self._read(answer, len(ids[number]))
        return [suggestions for suggestions in found if suggestions is not None]

    def complete(
        self, prompts: Sequence[Sequence[int]], decoding: Decoding, *, seeds: Sequence[int]
    ) -> list[list[Completion] | str]:
        """Return the answers to prompts given as tokens, the best first; a text is the reason for none."""
        found: list[list[Completion] | str] = [""] * len(prompts)
        most = self._most(decoding)
        for batch in self._batches([len(prompt) for prompt in prompts], decoding.candidates, most):
            with self._busy:
                answers = self._answered(
                    [prompts[number] for number in batch], decoding, [seeds[number] for number in batch], most
                )
            for number, answer in zip(batch, answers, strict=True):
                found[number] = answer
        return found

    def text(self, completion: Completion) -> str:
        """Return an answer's text."""
        return str(self._tokenizer.decode(list(completion.ids)))

    def _tokenized(self, state: str, premises: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.prompts.ids(state, premises))

    def _most(self, decoding: Decoding) -> int:
        return self.lengths.answer if decoding.max_tokens is None else decoding.max_tokens

    def _batches(self, lengths: Sequence[int], wanted: int, most: int) -> Iterator[list[int]]:
        """Return the numbers of prompts that go together: of like length, within the budget."""

        def fits(prompts: int, shortest: int, longest: int) -> bool:
            rows = prompts * wanted
            # More padding than text costs more than another batch.
            alike = longest <= 2 * shortest + 64
            return alike and rows <= self.max_rows and rows * (longest + most) <= self.max_tokens

        # A prompt that does not fit fails at once, not after all the others.
        return by_length(lengths, fits, longest_first=True)

    def _answered(
        self, prompts: Sequence[Sequence[int]], decoding: Decoding, seeds: Sequence[int], most: int
    ) -> list[list[Completion] | str]:
        started = time.monotonic()
        try:
            answers = decode(
                self._rows(prompts),
                decoding,
                seeds=[seed % _SEEDS for seed in seeds],
                ends=self._ends,
                most=most,
            )
        except torch.OutOfMemoryError as error:
            too_much = first_line(error)
        else:
            self._count(prompts, answers, decoding, most, time.monotonic() - started)
            return [*answers]
        # Outside of the handler, so that the error no longer holds the batch's memory.
        gc.collect()
        torch.cuda.empty_cache()
        if len(prompts) == 1:
            reason = f"the device's memory is too small for {decoding.candidates} answers to {len(prompts[0])} tokens"
            _log.warning("%s (%s)", reason, too_much)
            return [reason]
        _log.info("a batch of %d prompts does not fit into the device's memory; it is halved", len(prompts))
        half = len(prompts) // 2
        return [
            *self._answered(prompts[:half], decoding, seeds[:half], most),
            *self._answered(prompts[half:], decoding, seeds[half:], most),
        ]

    def _rows(self, prompts: Sequence[Sequence[int]]) -> DecodingRows:
        kind = EncodedRows if self.prompts.kind == "seq2seq" else CausalRows
        return kind(self._model, prompts, self._pad)

    def _count(
        self,
        prompts: Sequence[Sequence[int]],
        answers: Sequence[Sequence[Completion]],
        decoding: Decoding,
        most: int,
        seconds: float,
    ) -> None:
        counts, longest = self.counts, max(map(len, prompts))
        fits = min(
            self.max_rows // decoding.candidates, self.max_tokens // (decoding.candidates * (longest + most))
        )
        counts.requests += len(prompts)
        counts.batches += 1
        counts.rows += len(prompts) * decoding.candidates
        counts.room += max(fits, len(prompts)) * decoding.candidates
        counts.prompt_tokens += sum(map(len, prompts))
        counts.padded_tokens += len(prompts) * longest
        counts.written_tokens += sum(map(written, answers))
        counts.seconds += seconds

    def _read(self, answer: list[Completion] | str, prompt_tokens: int) -> Suggestions:
        if isinstance(answer, str):
            return Suggestions((), {}, answer)
        found = read_answers(answer, text=self.text, marks=self._marks)
        return replace(found, prompt_tokens=prompt_tokens, written_tokens=written(answer))


def read_answers(
    answers: Sequence[Completion], *, text: Callable[[Completion], str], marks: frozenset[int]
) -> Suggestions:
    """Return the tactics in a model's answers to one request.

    Args:
        answers: the model's.
        text: returns the text of an answer.
        marks: ids of tokens that have no text (`marks_of`).
    """
    tactics: dict[str, Suggestion] = {}
    left_out: Counter[str] = Counter()
    for completion in answers:
        if math.isnan(completion.log_probability):
            left_out[NO_NUMBERS] += 1
            continue
        if not completion.ended:
            left_out[UNENDED] += 1
            continue
        if not marks.isdisjoint(completion.ids):
            left_out[MARKS] += 1
            continue
        # ReProver's generator marks the premises that it names.
        answer = read_tactic(without_marks(text(completion)))
        if answer.flaw is not None:
            left_out[answer.flaw] += 1
            continue
        one = Suggestion(answer.tactic, completion.log_probability, len(completion.ids) + 1)
        if answer.tactic in tactics:
            left_out["repeated"] += 1
        if answer.tactic not in tactics or one.log_probability > tactics[answer.tactic].log_probability:
            tactics[answer.tactic] = one
    ordered = sorted(tactics.values(), key=lambda one: -one.log_probability)
    return Suggestions(tuple(ordered), dict(left_out))


def written(answers: Sequence[Completion]) -> int:
    """Return the tokens of a model's answers, their end marks among them."""
    return sum(len(one.ids) + one.ended for one in answers)


def marks_of(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the ids of a tokenizer's marks, which have no text."""
    added = tokenizer.added_tokens_decoder
    special = (number for number, token in added.items() if token.special)
    return frozenset((*tokenizer.all_special_ids, *special))


def ends_of(named: object, end: int) -> list[int]:
    """Return the tokens that end an answer: the one that is trained, and those that the model itself names."""
    others = named if isinstance(named, list) else [] if named is None else [named]
    return list(dict.fromkeys([end, *others]))
