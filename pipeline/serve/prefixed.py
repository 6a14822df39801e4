"""A generator whose answers begin with a given text, as LeanCopilot's `suggest_tactics "rw"` wants them.

The model reads the beginning after the prompt, as if it had written that itself, and goes on: whatever it answers
begins so. The beginning is tokenized by itself, which makes no difference to models that read bytes. Probabilities are
those of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline.serve.problems import Problem
from pipeline.tactics.answer import read_tactic
from pipeline.tactics.decoding import Completion, Rows
from pipeline.tactics.generate import Generator
from pipeline.tactics.requests import Request, Suggestions

OTHER_BEGINNING = "other_beginning"
"""Why an answer was left out: it does not begin as was asked."""


@dataclass(frozen=True, slots=True)
class BegunRequest(Request):
    """A state for which tactics are wanted that begin with `prefix`; "" for any."""

    prefix: str = ""


class BegunRows:
    """Rows that have read a beginning after their prompts (`decoding.Rows`)."""

    def __init__(self, rows: Rows, beginning: Sequence[int]) -> None:
        self._rows = rows
        self._beginning = beginning

    def begin(self) -> Tensor:
        logits = self._rows.begin()
        for token in self._beginning:
            logits = self._rows.step(torch.full((len(logits),), token, device=logits.device))
        return logits

    def select(self, rows: Tensor) -> None:
        self._rows.select(rows)

    def step(self, tokens: Tensor) -> Tensor:
        return self._rows.step(tokens)


class PrefixedGenerator(Generator):
    """A generator that also takes `BegunRequest`s. For one thread at a time."""

    _beginning: tuple[int, ...] = ()

    def together(self, requests: Sequence[Request]) -> list[int]:
        """Return which of the requests make the batch that the first is in: those with the same beginning."""
        same = [number for number, one in enumerate(requests) if _prefix(one) == _prefix(requests[0])]
        return [same[place] for place in super().together([requests[number] for number in same])]

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        """Return tactics for each request, in the requests' order.

        Raises:
            Problem: 409, a beginning leaves no room for what is to follow it.
        """
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(_prefix(request), []).append(number)
        found: dict[int, Suggestions] = {}
        for prefix, members in groups.items():
            asked = [requests[number] for number in members]
            answers = self._going_on(prefix, asked) if prefix else super().suggest(asked)
            found |= zip(members, answers, strict=True)
        return [found[number] for number in range(len(requests))]

    def text(self, completion: Completion) -> str:
        """Return what an answer says, its beginning with it."""
        return super().text(replace(completion, ids=(*self._beginning, *completion.ids)))

    def _rows(self, prompts: Sequence[Sequence[int]]) -> Rows:
        rows = super()._rows(prompts)
        return BegunRows(rows, self._beginning) if self._beginning else rows

    def _going_on(self, prefix: str, requests: Sequence[Request]) -> list[Suggestions]:
        """Answer requests with one beginning, whose tokens are taken from the answers' length."""
        beginning = tuple(self.prompts.answer_ids(prefix)[:-1])
        asked = []
        for request in requests:
            most = self._most(request.decoding)
            left = most - len(beginning)
            if left < 1:
                raise Problem(
                    409,
                    "prefix_too_long",
                    f"the prefix has {len(beginning)} tokens, and an answer of this model has {most} at most",
                    "send a shorter prefix",
                )
            asked.append(replace(request, decoding=replace(request.decoding, max_tokens=left)))
        self._beginning = beginning
        try:
            answers = super().suggest(asked)
        finally:
            self._beginning = ()
        return [beginning_with(prefix, answer) for answer in answers]


def beginning_with(prefix: str, found: Suggestions) -> Suggestions:
    """Return the suggestions that begin with a prefix, as tactics are read: without white space or `by` before it."""
    wanted = read_tactic(prefix).tactic or prefix.strip()
    kept = tuple(one for one in found.tactics if one.tactic.startswith(wanted))
    if len(kept) == len(found.tactics):
        return found
    left_out = {**found.left_out, OTHER_BEGINNING: len(found.tactics) - len(kept)}
    return replace(found, tactics=kept, left_out=left_out)


def _prefix(request: Request) -> str:
    return request.prefix if isinstance(request, BegunRequest) else ""
