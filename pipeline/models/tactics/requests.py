"""Requests to a tactic model and its answers: decoding, and suggestions.

No torch: an endpoint, and a model in another process, take the same requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic.dataclasses import dataclass as pydantic_dataclass

from pipeline.endpoint.errors import Usage
from pipeline.models.config import STRICT, Positive, PositiveNumber

Mode = Literal["beams", "sampling"]


@pydantic_dataclass(frozen=True, slots=True, config=STRICT)
class Decoding:
    """Settings of the search for answers. Checked when made.

    Attributes:
        candidates: answers wanted of each prompt.
        mode: "beams": the likeliest ones; "sampling": drawn, perhaps one several times.
        temperature: of sampling: probabilities to the power of one over it.
        max_tokens: of an answer, its end mark included; None: as in the model's training.
        prefix: the beginning of each answer. The model reads it as its own text; its tokens are among
            `max_tokens`, and no part of the log-probability.

    Raises:
        ValidationError: a value is out of range.
    """

    candidates: Positive = 8
    mode: Mode = "beams"
    temperature: PositiveNumber = 1.0
    max_tokens: Positive | None = None
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's tokens in want of answers; `seed` is of the draws."""

    ids: tuple[int, ...]
    decoding: Decoding = field(default_factory=Decoding)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer. `ids` have no end mark.

    `log_probability` is the model's own (natural logarithm), of the ids and the end mark if `ended`; NaN if the model's
    numbers were NaN.
    """

    ids: tuple[int, ...]
    log_probability: float
    ended: bool


def likeliest_first(answers: Sequence[Completion]) -> list[Completion]:
    """Return a prompt's answers, the likeliest first, the unended last."""
    return sorted(answers, key=lambda one: (not one.ended, -one.log_probability))


@dataclass(frozen=True, slots=True)
class Request:
    """A state in want of tactics; `premises` are code of retrieved ones, the nearest first."""

    state: str
    premises: tuple[str, ...] = ()
    decoding: Decoding = field(default_factory=Decoding)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A tactic; the log-probability (natural logarithm) is that of its tokens, the end mark among them."""

    tactic: str
    log_probability: float


@dataclass(frozen=True, slots=True)
class Suggestions:
    """A request's answer.

    Attributes:
        tactics: different ones, the likeliest first; none if no answer was a tactic.
        left_out: the numbers of unused candidates, by reason: "repeated"; "unended": truncated before its end mark, so
            that part of a tactic may be missing; "no_numbers": the model's logits were NaN; "marks": it holds a mark of
            the tokenizer without a text; "other_beginning": an endpoint's does not begin as requested; or a flaw
            (`pipeline.lean.tactic_text`).
        usage: the answer's, with the unused candidates.
        error: the reason for no answer at all; else "".
        reason: of an endpoint's error, its kind (`pipeline.endpoint`).
    """

    tactics: tuple[Suggestion, ...]
    left_out: Mapping[str, int]
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    error: str = ""
    reason: str = ""
