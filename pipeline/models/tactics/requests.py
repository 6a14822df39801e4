"""Requests to a tactic model and its answers: decoding, suggestions, and the reader of tactics in a model's text.

`read_tactic` serves the search, the reward and the provers. Nothing that a model writes is an error: a text that is no
tactic gets a flaw, and costs no request to Lean. A tactic here is not yet a good one; whether a proof may have it
is `pipeline.lean.source.forbidden`'s and Lean's to decide. No torch: an endpoint, and a model that another process has
loaded, take the same requests.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.lean.source.lexer import lex
from pipeline.models.errors import ConfigError

Mode = Literal["beams", "sampling"]


@dataclass(frozen=True, slots=True)
class Decoding:
    """Settings of the search for answers. Checked when made.

    Attributes:
        candidates: answers wanted of each prompt.
        mode: "beams": the most likely ones that beam search finds; "sampling": drawn, perhaps one several times.
        temperature: of sampling: probabilities to the power of one over it.
        top_p: of sampling: from the most likely tokens that have this share of the probability together.
        length_penalty: of beams: they are ranked by log-probability over length to this power. 0 is ReProver's.
        max_tokens: of an answer, its end mark included; None: as many as the model was trained with.

    Raises:
        ConfigError: a value is out of range.
    """

    candidates: int = 8
    mode: Mode = "beams"
    temperature: float = 1.0
    top_p: float = 1.0
    length_penalty: float = 0.0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, fits, takes in (
            ("candidates", self.candidates >= 1, "a number from 1"),
            ("mode", self.mode in ("beams", "sampling"), "beams or sampling"),
            (
                "temperature",
                0 < self.temperature < math.inf,
                "a number above 0 (for the likeliest, one beam)",
            ),
            ("top_p", 0 < self.top_p <= 1, "a number above 0, up to 1"),
            ("length_penalty", math.isfinite(self.length_penalty), "a finite number"),
            ("max_tokens", self.max_tokens is None or self.max_tokens >= 1, "a number from 1"),
        ):
            if not fits:
                raise ConfigError(f"{name} is {getattr(self, name)!r}: it takes {takes}")


@dataclass(frozen=True, slots=True)
class Request:
    """A state for which tactics are wanted; `premises` are code of retrieved ones, the nearest first."""

    state: str
    premises: tuple[str, ...] = ()
    decoding: Decoding = field(default_factory=Decoding)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A tactic; the log-probability (natural logarithm) is that of its `tokens`, the end mark among them."""

    tactic: str
    log_probability: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Suggestions:
    """A request's answer.

    Attributes:
        tactics: different ones, the likeliest first; none if no answer was a tactic.
        left_out: the numbers of candidates that are left out, by reason: "repeated", a reason of
            `pipeline.models.tactics.generate` (UNENDED, NO_NUMBERS, MARKS), or a flaw of `answer.read_tactic`.
        error: the reason for no answer at all; else "".
        prompt_tokens, written_tokens: what the answer took, the candidates that were left out counted.
        usd: the cost; None where it is unknown.
        reason: of an endpoint's error, its kind (`pipeline.endpoint`).
    """

    tactics: tuple[Suggestion, ...]
    left_out: Mapping[str, int]
    error: str = ""
    prompt_tokens: int = 0
    written_tokens: int = 0
    usd: float | None = None
    reason: str = ""


LONGEST = 4000
"""Characters of the longest text that is read as a tactic; a longer one is from a model that does not stop."""
Flaw = Literal["empty", "too_long", "characters", "unclosed"]
_FENCE = "```"
_THOUGHT = "</think>"
_BY = re.compile(r"by(?=\s|\Z)")


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's text, read. `tactic` is "" if and only if it has a `flaw`, which `why` explains."""

    tactic: str
    flaw: Flaw | None = None
    why: str = ""


def text_of(completion: Any) -> str:
    """Return a completion's text: it may be a string, or a chat's list of messages, the last of which counts.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, list) and all(isinstance(message, dict) for message in completion):
        content = completion[-1].get("content") if completion else ""
        if content is None:
            return ""
        if isinstance(content, str):
            return content
        if isinstance(content, list):
            return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    raise TypeError(f"a completion is a string or a list of messages, not {type(completion).__name__}")


def fences(text: str) -> list[tuple[str, str]]:
    """Return what a text has between fences, each with its language ("" without one), in order; the last one may be
    open. Linear in the text, whatever a model writes."""
    found = []
    for part in text.split(_FENCE)[1::2]:
        language, newline, body = part.partition("\n")
        if newline:
            found.append(("".join(language.split()[:1]), body.rstrip(" \t").removesuffix("\n")))
        else:  # all on one line, it has no language
            found.append(("", part.strip()))
    return found


def read_tactic(text: str) -> Answer:
    """Return the tactic of a model's text: its several lines whole, without fences, comments and a leading `by`.

    Comments go because the last line's would swallow the text behind it once the tactic is part of a proof, and
    because one that never closes would swallow everything: that is refused, as is a string that never closes.
    """
    text = text.rpartition(_THOUGHT)[2]
    if fenced := fences(text):
        text = fenced[0][1]
    text = text.replace("\r\n", "\n").replace("\t", "  ")
    if not text.strip():
        return Answer("", "empty", "the model said nothing")
    if len(text) > LONGEST:
        return Answer("", "too_long", f"{len(text)} characters, and no tactic has more than {LONGEST}")
    strange = next((character for character in text if _strange(character)), None)
    if strange is not None:
        return Answer("", "characters", f"the character U+{ord(strange):04X}, which no tactic has")
    lexed = lex(text)
    if lexed.errors:
        return Answer("", "unclosed", lexed.errors[0])
    tactic = _laid_out(lexed.code)
    if begins := _BY.match(tactic):
        tactic = _laid_out(tactic[begins.end() :])
    return Answer(tactic) if tactic else Answer("", "empty", "the model said nothing but comments")


def _strange(character: str) -> bool:
    """Return whether a character is in no Lean text: control, half of a pair, not assigned, or undecodable."""
    return character == "\ufffd" or (
        character != "\n" and unicodedata.category(character) in ("Cc", "Cs", "Cn", "Co", "Cf")
    )


def _laid_out(code: str) -> str:
    """Return lines without empty ones, moved to the left together; the first may have lost its indentation."""
    lines = [line.rstrip() for line in code.split("\n") if line.strip()]
    if not lines:
        return ""
    first = len(lines[0]) - len(lines[0].lstrip())
    rest = [len(line) - len(line.lstrip()) for line in lines[1:]]
    shift = min([first, *rest])
    return "\n".join([lines[0].strip(), *(line[shift:] for line in lines[1:])])
