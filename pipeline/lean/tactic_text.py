"""Tactics as texts: a step of a proof, and the reader of tactics in a model's answers.

`read_tactic` serves the search, the reward and the provers. No answer of a model is an error: a text without a tactic
gets a flaw, and costs no request to Lean. A tactic here is not yet a good one; whether a proof may have it is for
`pipeline.lean.source.forbidden` and Lean to decide.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from pipeline.lean.source.lexer import lex

LONGEST = 4000
"""Characters of the longest text read as a tactic; a longer one is from a model that does not stop."""
Flaw = Literal["empty", "too_long", "characters", "unclosed"]
_FENCE = "```"
_THOUGHT = "</think>"
_TRY_THIS = re.compile(r"Try this:\s*(?:\[apply\]\s*)?(.+)", re.DOTALL)
_BY = re.compile(r"by(?=\s|\Z)")


@dataclass(frozen=True, slots=True)
class Step:
    """A possible step of a proof: `tactic` in the state `goal`, after the steps of `prefix` (one below the other)."""

    goal: str
    tactic: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's text, read. `tactic` is "" if and only if it has a `flaw`, explained by `why`."""

    tactic: str
    flaw: Flaw | None = None
    why: str = ""


def suggested(message: str) -> str:
    """Return the tactic suggested by a message of `exact?`, "" without one."""
    match = _TRY_THIS.search(message)
    return "" if match is None else match[1].strip()


def fences(text: str) -> list[tuple[str, str]]:
    """Return the texts between fences, each with its language ("" without one), in order; the last one may be open.
    Linear in the text, whatever a model writes."""
    result = []
    for part in text.split(_FENCE)[1::2]:
        language, newline, body = part.partition("\n")
        if newline:
            result.append(("".join(language.split()[:1]), body.rstrip(" \t").removesuffix("\n")))
        else:  # all on one line, it has no language
            result.append(("", part.strip()))
    return result


def read_tactic(text: str) -> Answer:
    """Return the tactic of a model's text: its several lines whole, without fences, comments and a leading `by`.

    Comments go because one on the last line would swallow the text behind the tactic in a proof. An unclosed comment
    would swallow everything, so it is refused, as is an unclosed string.
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
