"""Generate the next tactics for many states at once with a tactic model, each with its log-probability.

Requests with the same settings go to the model together. An answer that is no tactic is counted and left out
(`tactic_text.read_tactic`); a failure on one request is reported in its answer, and the others are answered. The model
itself runs in a loop: transformers' (`loop`), or vLLM's on a GPU (`vllm_loop`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from pipeline.lean.tactic_text import read_tactic
from pipeline.models.errors import LearningError
from pipeline.models.tactics.loop import TransformersLoop
from pipeline.models.tactics.models import TacticModel, UnloadedModel
from pipeline.models.tactics.requests import (
    Batch,
    Completion,
    Decoding,
    Request,
    Suggestion,
    Suggestions,
    beginning_with,
)
from pipeline.models.text import without_marks

UNENDED = "unended"
"""Reason for leaving out an answer: it was truncated before its end mark, so part of a tactic may be missing."""
NO_NUMBERS = "no_numbers"
"""Reason for leaving out an answer: the model's logits were NaN."""
MARKS = "marks"
"""Reason for leaving out an answer: it holds a mark of the tokenizer without a text."""


class PrefixTooLongError(LearningError):
    """An answer's prefix leaves no room for the rest of it."""

    reason = "prefix_too_long"


class Loop(Protocol):
    """A runner of a model, for any thread.

    Attributes:
        positions: the most tokens of prompt and answer together.
    """

    positions: int

    def batches(self, lengths: Sequence[int], wanted: int, most: int) -> Iterator[list[int]]:
        """Return the numbers of prompts, by their lengths, to run together for `wanted` answers of `most` tokens."""

    def answers(self, batch: Batch) -> list[list[Completion] | str]:
        """Return each prompt's answers, the likeliest first, the unended last; a text is the reason for none."""


@dataclass(slots=True)
class GeneratorCounts:
    """Counts of a generator: requests answered, batches, tokens written."""

    requests: int = 0
    batches: int = 0
    written_tokens: int = 0


class Generator:
    """Queries one model; `service.GenerationService` shares it between searches.

    Attributes:
        positions: the most tokens of prompt and answer together.
    """

    def __init__(self, model: TacticModel | UnloadedModel, loop: Loop | None = None) -> None:
        """Args:
        model: with its weights, if transformers runs it.
        loop: runs it; None: transformers does.
        """
        if loop is None:
            assert isinstance(model, TacticModel)
            loop = TransformersLoop(model)
        self.prompts = model.prompts
        self.lengths = model.lengths
        self.positions = loop.positions
        self.counts = GeneratorCounts()
        self._loop = loop
        self._tokenizer = model.tokenizer
        self._marks = marks_of(model.tokenizer)
        # A waiting request is measured for each batch until it is in one.
        self._ids = lru_cache(maxsize=1024)(self._tokenized)

    def together(self, requests: Sequence[Request]) -> list[int]:
        """Return the numbers of the requests in the first one's batch (`service.SuggestionModel`)."""
        decoding = requests[0].decoding
        same = [number for number, request in enumerate(requests) if request.decoding == decoding]
        lengths = [len(self._ids(requests[number].state, requests[number].premises)) for number in same]
        batches = self._loop.batches(lengths, decoding.candidates, self._most(decoding))
        return [same[place] for place in sorted(next(batch for batch in batches if 0 in batch))]

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        """Return tactics for each request, in the requests' order.

        Raises:
            PrefixTooLongError: a prefix leaves no room for the rest.
        """
        ids = [self._ids(request.state, request.premises) for request in requests]
        result: dict[int, Suggestions] = {}
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
                result[number] = self._read(answer, decoding.prefix, len(ids[number]))
        return [result[number] for number in range(len(requests))]

    def complete(
        self, prompts: Sequence[Sequence[int]], decoding: Decoding, *, seeds: Sequence[int]
    ) -> list[list[Completion] | str]:
        """Return the answers to prompts given as tokens, the best first; a text is the reason for none.

        Raises:
            PrefixTooLongError: the prefix leaves no room for the rest.
        """
        result: list[list[Completion] | str] = [""] * len(prompts)
        beginning, whole = self._beginning(decoding.prefix), self._most(decoding)
        most = whole - len(beginning)
        if most < 1:
            raise PrefixTooLongError(
                f"the prefix has {len(beginning)} tokens, and an answer of this model has {whole} at most"
            )
        for numbers in self._loop.batches([len(prompt) for prompt in prompts], decoding.candidates, whole):
            own, seeded = [prompts[number] for number in numbers], [seeds[number] for number in numbers]
            answers = self._loop.answers(Batch(own, decoding, seeded, most, beginning))
            self.counts.requests += len(numbers)
            self.counts.batches += 1
            self.counts.written_tokens += sum(written(one) for one in answers if not isinstance(one, str))
            for number, answer in zip(numbers, answers, strict=True):
                result[number] = answer
        return result

    def text(self, completion: Completion) -> str:
        """Return an answer's text, without its prefix."""
        return str(self._tokenizer.decode(list(completion.ids)))

    def _tokenized(self, state: str, premises: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.prompts.ids(state, premises))

    def _most(self, decoding: Decoding) -> int:
        return self.lengths.answer if decoding.max_tokens is None else decoding.max_tokens

    def _beginning(self, prefix: str) -> tuple[int, ...]:
        return tuple(self.prompts.answer_ids(prefix)[:-1]) if prefix else ()

    def _read(self, answer: list[Completion] | str, prefix: str, prompt_tokens: int) -> Suggestions:
        if isinstance(answer, str):
            return Suggestions((), {}, answer)
        beginning = self._beginning(prefix)

        def text(completion: Completion) -> str:
            return self.text(replace(completion, ids=(*beginning, *completion.ids)))

        result = read_answers(answer, text=text, marks=self._marks)
        if prefix:
            result = beginning_with(prefix, result)
        return replace(result, prompt_tokens=prompt_tokens, written_tokens=written(answer))


def read_answers(
    answers: Sequence[Completion], *, text: Callable[[Completion], str], marks: frozenset[int]
) -> Suggestions:
    """Return the tactics in a model's answers to one request.

    Args:
        answers: the model's.
        text: returns the text of an answer.
        marks: ids of tokens without a text (`marks_of`).
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
        # ReProver's generator marks its premises.
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
