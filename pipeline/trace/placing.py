"""Where a tactic that Lean printed anew stands in the source: a search that ignores layout and comments.

Lean's records of tactics have no positions. They come in the order of the source, an outer tactic before those in it,
so each is looked for from where the last one began. A tactic that ran several times (`t <;> s`, `all_goals`) is
found where it stands once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.lean.source.lexer import lex

# Spellings of one token; Lean prints the first, people write both.
_SPELLINGS = (("↦", "=>"), ("λ", "fun"))


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the text, in code points."""

    start: int
    end: int

    def holds(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


class Squeezed:
    """A text without white space, but for one blank between two words; `offsets` leads back to the text."""

    def __init__(self, code: str, start: int, end: int) -> None:
        chars: list[str] = []
        offsets: list[int] = []
        gap = False
        for at in range(start, end):
            char = code[at]
            if char.isspace():
                gap = True
                continue
            spelt = next((to for written, to in _SPELLINGS if written == char), char)
            if gap and chars and _in_word(chars[-1]) and _in_word(spelt[0]):
                chars.append(" ")
                offsets.append(at)
            gap = False
            for letter in spelt:
                chars.append(letter)
                offsets.append(at)
        self.text = "".join(chars)
        self.offsets = offsets

    def find(self, words: str, at: int) -> int:
        """Return the first place from `at` on where the words stand by themselves; -1 for none."""
        found = self.text.find(words, at)
        while found >= 0 and not self._alone(found, found + len(words)):
            found = self.text.find(words, found + 1)
        return found

    def find_last(self, words: str, before: int) -> int:
        """Return the last such place that begins before `before`; -1 for none."""
        found = self.text.rfind(words, 0, max(0, before + len(words) - 1))
        while found >= 0 and not self._alone(found, found + len(words)):
            found = self.text.rfind(words, 0, found + len(words) - 1)
        return found

    def span(self, at: int, length: int) -> Span:
        return Span(self.offsets[at], self.offsets[at + length - 1] + 1)

    def _alone(self, start: int, end: int) -> bool:
        text = self.text
        joined_before = start > 0 and _in_word(text[start - 1]) and _in_word(text[start])
        joined_after = end < len(text) and _in_word(text[end - 1]) and _in_word(text[end])
        return not joined_before and not joined_after


def place(tactics: Sequence[str], *, code: str, start: int, end: int) -> list[Span | None]:
    """Return where each tactic stands in `code[start:end]` (comments blanked); None where it is not found."""
    where = Squeezed(code, start, end)
    spans: list[Span | None] = []
    cursor, last = 0, ""
    for tactic in tactics:
        plain = lex(tactic).code
        words = Squeezed(plain, 0, len(plain)).text
        if not words:
            spans.append(None)
            continue
        at = where.find(words, cursor + (words == last))
        if at < 0:
            at = where.find_last(words, cursor + 1)
        else:
            cursor, last = at, words
        spans.append(where.span(at, len(words)) if at >= 0 else None)
    return spans


def _in_word(char: str) -> bool:
    return char.isalnum() or char in "_'!?«»✝"
