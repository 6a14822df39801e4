"""Generate the next tactics for many states at once with a tactic model, each with its log-probability.

Requests with the same settings go to the model together. An answer that is no tactic is counted and left out
(`tactic_text.read_tactic`). The model itself runs in a loop: transformers' (`loop`), or vLLM's on a GPU (`vllm_loop`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from pipeline.lean.tactic_text import read_tactic
from pipeline.models.errors import LearningError
from pipeline.models.tactics.loop import TransformersLoop
from pipeline.models.tactics.models import TacticModel, UnloadedModel
from pipeline.models.tactics.requests import (
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

    def answers(
        self,
        prompts: Sequence[Sequence[int]],
        decoding: Decoding,
        seeds: Sequence[int],
        *,
        most: int,
        beginning: Sequence[int] = (),
    ) -> list[list[Completion]]:
        """Return each prompt's answers, the likeliest first, the unended last.

        Args:
            prompts: as tokens.
            decoding: the number of answers, and their temperature.
            seeds: of each prompt's draws.
            most: tokens of an answer, end mark included.
            beginning: tokens the model reads as its own text; no part of the answers.
        """


class Generator:
    """Queries one model; `service.Batching` shares it between searches.

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
        self._loop = loop
        self._tokenizer = model.tokenizer
        self._marks = marks_of(model.tokenizer)

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        """Return tactics for each request, in the requests' order.

        Raises:
            PrefixTooLongError: a prefix leaves no room for the rest.
            OutOfMemoryError: a request is too large.
        """
        ids = [self.prompts.ids(request.state, request.premises) for request in requests]
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
                result[number] = self._suggestions(answer, decoding.prefix, len(ids[number]))
        return [result[number] for number in range(len(requests))]

    def complete(
        self, prompts: Sequence[Sequence[int]], decoding: Decoding, *, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """Return the answers to prompts given as tokens, the best first; errors as `suggest`'s."""
        beginning = self._beginning(decoding.prefix)
        whole = self.lengths.answer if decoding.max_tokens is None else decoding.max_tokens
        if len(beginning) >= whole:
            raise PrefixTooLongError(
                f"the prefix has {len(beginning)} tokens, and an answer of this model has {whole} at most"
            )
        most = whole - len(beginning)
        return self._loop.answers(prompts, decoding, seeds, most=most, beginning=beginning)

    def text(self, completion: Completion) -> str:
        """Return an answer's text, without its prefix."""
        return str(self._tokenizer.decode(list(completion.ids)))

    def _beginning(self, prefix: str) -> tuple[int, ...]:
        return tuple(self.prompts.answer_ids(prefix)[:-1]) if prefix else ()

    def _suggestions(self, answers: Sequence[Completion], prefix: str, prompt_tokens: int) -> Suggestions:
        beginning = self._beginning(prefix)

        def text(completion: Completion) -> str:
            return self.text(replace(completion, ids=(*beginning, *completion.ids)))

        result = read_answers(answers, text=text, marks=self._marks)
        if prefix:
            result = beginning_with(prefix, result)
        return replace(result, prompt_tokens=prompt_tokens, written_tokens=written(answers))


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
