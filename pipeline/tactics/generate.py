"""Ask a tactic model: the next tactics for many states at once, each with its log-probability.

Requests with the same settings go to the model together, in batches of prompts of like length that keep within a budget
of tokens. What is no tactic is counted and left out (`answer.read_tactic`); what fails on one request is said in its
answer, and the others go on.
"""

from __future__ import annotations

import gc
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import cast, get_args

import torch
from peft import PeftModel
from transformers import PreTrainedTokenizerBase

from pipeline.tactics.answer import read_tactic
from pipeline.tactics.decoding import CausalRows, Completion, EncodedRows, Rows, decode
from pipeline.tactics.models import Device, TacticModel, load_model
from pipeline.tactics.prompt import without_marks
from pipeline.tactics.requests import Decoding, Request, Suggestion, Suggestions
from pipeline.tactics.settings import computes_in_bfloat16, device_of

UNENDED = "unended"
"""Why an answer was left out: it was cut off before its end mark, so that a part of a tactic may be missing."""
NO_NUMBERS = "no_numbers"
"""Why an answer was left out: the model's logits were no numbers."""

MARKS = "marks"
"""Why an answer was left out: it holds a mark of the tokenizer's that stands for no text."""

_log = logging.getLogger(__name__)

_SEEDS = 1 << 64


@dataclass(slots=True)
class Counts:
    """What a generator has done: requests answered, batches, rows in them and how many would have fitted, tokens of
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
    """Asks one model, for one thread after the other; `service.GenerationService` is its face for many searches."""

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
        self.counts = Counts()
        self._busy = threading.Lock()
        self._tokenizer = model.tokenizer
        # The adapter's layers are in the model: PEFT's wrapper only stands between.
        self._model = model.model.get_base_model() if isinstance(model.model, PeftModel) else model.model
        self._model.eval()
        self._pad = int(model.tokenizer.pad_token_id)
        generation = getattr(self._model, "generation_config", None)
        self._ends = ends_of(getattr(generation, "eos_token_id", None), self.prompts.end)
        self._marks = marks_of(model.tokenizer)
        # A request that waits is looked at for each batch until it is in one.
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
    ) -> Generator:
        """Load a model and return its generator.

        Args:
            model: a folder or hub name.
            device: where to compute; "auto" is a GPU where there is one.
            dtype: of the weights; None: bfloat16 on what has it in hardware, else float32.
            max_rows, max_tokens: see the constructor.

        Raises:
            ModelError: it cannot be used.
            SettingsError: there is no such device.
        """
        named = device in get_args(Device)
        where = device_of(cast(Device, device)) if named else torch.device(device)
        if dtype is None:
            dtype = torch.bfloat16 if computes_in_bfloat16(where) else torch.float32
        loaded = load_model(model, device=where, dtype=dtype)
        return cls(loaded, max_rows=max_rows, max_tokens=max_tokens)

    @property
    def positions(self) -> int:
        """How many tokens prompt and answer may have together: what the model says, else as it was trained."""
        said = getattr(self._model.config, "max_position_embeddings", None)
        return int(said) if said else self.lengths.prompt + self.lengths.answer

    def together(self, requests: Sequence[Request]) -> list[int]:
        """Return which of the requests make the batch that the first is in, by number (`service.Suggesting`)."""
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
        """Return the answers to prompts given as tokens, the best first; a text says why there are none."""
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
        """Return what an answer says."""
        return str(self._tokenizer.decode(list(completion.ids)))

    def _tokenized(self, state: str, premises: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.prompts.ids(state, premises))

    def _most(self, decoding: Decoding) -> int:
        return self.lengths.answer if decoding.max_tokens is None else decoding.max_tokens

    def _batches(self, lengths: Sequence[int], wanted: int, most: int) -> Iterator[list[int]]:
        """Yield the numbers of prompts that go together: of like length, within the budget."""
        batch: list[int] = []
        # From the longest: what does not fit fails at once, and not when the rest is done.
        for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
            rows = (len(batch) + 1) * wanted
            longest = lengths[batch[0]] if batch else lengths[number]
            full = rows > self.max_rows or rows * (longest + most) > self.max_tokens
            # More padding than text costs more than another batch.
            if batch and (full or longest > 2 * lengths[number] + 64):
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

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
            too_much = str(error).splitlines()[0]
        else:
            self._count(prompts, answers, decoding, most, time.monotonic() - started)
            return [*answers]
        # Out of the handler: what the error holds of the batch is free now.
        gc.collect()
        torch.cuda.empty_cache()
        if len(prompts) == 1:
            said = f"the device's memory is too small for {decoding.candidates} answers to {len(prompts[0])} tokens"
            _log.warning("%s (%s)", said, too_much)
            return [said]
        _log.info("a batch of %d prompts does not fit into the device's memory; it is halved", len(prompts))
        half = len(prompts) // 2
        return [
            *self._answered(prompts[:half], decoding, seeds[:half], most),
            *self._answered(prompts[half:], decoding, seeds[half:], most),
        ]

    def _rows(self, prompts: Sequence[Sequence[int]]) -> Rows:
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
    """Return what a model's answers to one request say.

    Args:
        answers: the model's.
        text: what one of them says.
        marks: ids of tokens that stand for no text (`marks_of`).
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
        said = read_tactic(without_marks(text(completion)))
        if said.flaw is not None:
            left_out[said.flaw] += 1
            continue
        one = Suggestion(said.tactic, completion.log_probability, len(completion.ids) + 1)
        if said.tactic in tactics:
            left_out["repeated"] += 1
        if said.tactic not in tactics or one.log_probability > tactics[said.tactic].log_probability:
            tactics[said.tactic] = one
    ordered = sorted(tactics.values(), key=lambda one: -one.log_probability)
    return Suggestions(tuple(ordered), dict(left_out))


def written(answers: Sequence[Completion]) -> int:
    """Return the tokens of a model's answers, their end marks among them."""
    return sum(len(one.ids) + one.ended for one in answers)


def marks_of(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the ids of a tokenizer's marks, which stand for no text."""
    added = tokenizer.added_tokens_decoder
    special = (number for number, token in added.items() if token.special)
    return frozenset((*tokenizer.all_special_ids, *special))


def ends_of(named: object, end: int) -> list[int]:
    """Return the tokens that end an answer: the one that is trained, and those that the model itself names."""
    others = named if isinstance(named, list) else [] if named is None else [named]
    return list(dict.fromkeys([end, *others]))
