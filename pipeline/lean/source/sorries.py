"""Find each `sorry`, `admit` and `stop` that Lean would elaborate, as a tactic or as a term.

A word counts when it is exactly that word: no part of a longer or dotted name, no quoted name, not in a comment or
string. Not counted, because nothing there is elaborated as a proof: syntax quotations (`` `(tactic| sorry) ``, except
inside `$(…)`), notations, and commands without a lasting effect (`#check sorry`). `admit` and `stop` are no reserved
words in Lean, so they count only in a tactic's place.

Layout decides between tactic and term: a `by` block is the column of its first tactic, and a word is a tactic where one
begins in the innermost block. It is a reading of the text and not Lean's parser: a library's tactic with a shape of its
own can make it say "term".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import cast

from pipeline.lean.source.commands import CLOSERS
from pipeline.lean.source.lexer import ID_FIRST, ID_REST, Lexed, Positions, words
from store.domain.identity import short_hash
from store.domain.records import SorryMode, SorryToken

# The words come first so that the search looks for two letters only; the text before is looked at afterwards.
_SORRY = re.compile(rf"(?:sorry|admit|stop)(?![{ID_REST}])(?!\.[{ID_FIRST}])")
_MAY_STAND_BEFORE = re.compile(rf"(?:\A|[^{ID_REST}.`]|\.\.)\Z")
_TOKEN = re.compile(
    rf"[{ID_FIRST}][{ID_REST}]*(?:\.[{ID_FIRST}][{ID_REST}]*)*|[0-9]+|:=|=>|<;>|[^\s{ID_FIRST}0-9]"
)
_CONTEXT_TOKEN = re.compile(rf"[{ID_FIRST}0-9][{ID_REST}]*|[^\s{ID_FIRST}0-9]")
_CONTEXT_CHARACTERS = 240
_UNSET = -1

_OPENERS = frozenset("([{⟨⦃")
_BLOCK_WORDS = frozenset({"by", "decreasing_by"})
_COMBINATORS = words("try all_goals any_goals repeat repeat' repeat1 focus fail_if_success iterate stop")
_ALTERNATIVE_HEADS = words("match induction cases case case' next on_goal rename_i")
_PATTERN_HEADS = words("rcases obtain rintro rcases' cases'")
_TERM_LETS = words("let have letI haveI")
# A line after one of these continues it.
_UNFINISHED = words(", := ← ( [ { ⟨ : = + - * / < > ≤ ≥ ≠ → ↔ ∧ ∨ ∣ ∘ $ & ^ ∈ ∉ ⊆ ∪ ∩ |")
_NEAR = 64  # the levels searched for a block; keeps absurd nesting linear


def candidates(lexed: Lexed) -> list[int]:
    """Return the offsets of every possible sorry, in order."""
    bare = lexed.bare
    starts = (match.start() for match in _SORRY.finditer(bare))
    return [at for at in starts if _MAY_STAND_BEFORE.search(bare[max(0, at - 2) : at])]


@dataclass(slots=True)
class _Frame:
    """A region of the text: a block of tactics with its column, or a bracket around anything."""

    tactic: bool
    bracket: bool
    quoted: bool
    column: int = _UNSET
    head: str = ""
    functions: int = 0
    lets: int = 0
    term_match: bool = False


class _Layout:
    """Walks the tokens of one declaration and knows at each whether a tactic is expected."""

    def __init__(self, bare: str, positions: Positions) -> None:
        self.bare = bare
        self.positions = positions
        self.frames = [_Frame(tactic=False, bracket=False, quoted=False)]
        self.brackets = 0
        self.expected = False
        self.previous = ""

    def step(self, word: str, at: int) -> bool:
        """Read the next word; return True if a tactic begins at it."""
        starts = self._starts_tactic(word, at)
        top = self.frames[-1]
        if starts:
            top.head, top.functions, top.lets, top.term_match = word, 0, 0, False
        previous, self.previous, self.expected = self.previous, word, False
        if word in _OPENERS:
            before = self.bare[at - 1] if at else ""
            quoted = before == "`" or (top.quoted and before != "$")
            tactic = starts and (word in "({" or previous == "<;>")
            self.frames.append(_Frame(tactic=tactic, bracket=True, quoted=quoted))
            self.brackets += 1
        elif word in CLOSERS:
            self._close_bracket()
        elif word in _BLOCK_WORDS or (starts and word in "·."):
            self._block()
        elif top.tactic:
            self._inside(top, word, starts=starts)
        return starts

    @property
    def quoted(self) -> bool:
        return self.frames[-1].quoted

    def _starts_tactic(self, word: str, at: int) -> bool:
        first = self.positions.is_first(at)
        column = self.positions.column(at)
        if first:
            while self._is_block(self.frames[-1]) and column < self.frames[-1].column:
                self.frames.pop()
        top = self.frames[-1]
        if not top.tactic or word in CLOSERS:
            return False
        if top.column == _UNSET:
            top.column = column
            return True
        if word == "|":
            return False
        return self.expected or (first and column == top.column and self.previous not in _UNFINISHED)

    @staticmethod
    def _is_block(frame: _Frame) -> bool:
        return frame.tactic and not frame.bracket

    def _block(self) -> None:
        self.frames.append(_Frame(tactic=True, bracket=False, quoted=self.quoted))

    def _close_bracket(self) -> None:
        if self.brackets:
            while not self.frames.pop().bracket:
                pass
            self.brackets -= 1

    def _inside(self, top: _Frame, word: str, *, starts: bool) -> None:
        """Note the effect of a word inside a block of tactics on the next one."""
        match word:
            case ";" | "<;>":
                self.expected = not top.lets
                top.lets = max(0, top.lets - 1)
            case "fun" | "λ":
                top.functions += 1
            case "match" if not starts:
                top.term_match = True
            case "=>" | "↦":
                if top.functions:
                    top.functions -= 1
                elif top.head in _ALTERNATIVE_HEADS and not top.term_match:
                    self._block()
            case "|":
                self._alternative(top)
            case "then" | "else":
                owner = self._nearest(frozenset({"if"}))
                if owner:
                    self._block()
            case "in":
                self.expected = top.head in ("open", "set_option")
            case _ if starts and word in _COMBINATORS:
                self.expected = True
            case _ if top.head == "iterate" and word.isdigit():
                self.expected = True
            case _ if word in _TERM_LETS and not starts:
                top.lets += 1
            case _:
                pass

    def _alternative(self, top: _Frame) -> None:
        if top.functions:
            top.functions, top.term_match = 0, True
            return
        if top.head in _PATTERN_HEADS:
            return
        owner = self._nearest(_ALTERNATIVE_HEADS | {"first"})
        if owner and owner.head == "first":
            self._block()

    def _nearest(self, heads: Collection[str]) -> _Frame | None:
        """Return the innermost block whose current tactic is one of these; close the blocks inside it."""
        for back in range(1, min(len(self.frames), _NEAR) + 1):
            frame = self.frames[-back]
            if frame.tactic and frame.head in heads:
                del self.frames[len(self.frames) - back + 1 :]
                return frame
            if frame.bracket or not frame.tactic:
                return None
        return None


def read_sorries(
    lexed: Lexed, positions: Positions, start: int, end: int, wanted: list[int]
) -> Iterator[tuple[int, SorryToken, SorryMode]]:
    """Yield the sorries among the offsets `wanted` of the declaration `start`..`end`: offset, word, mode."""
    layout = _Layout(lexed.bare, positions)
    remaining = set(wanted)
    last = wanted[-1]
    for match in _TOKEN.finditer(lexed.bare, start, end):
        at = match.start()
        word = match.group()
        starts = layout.step(word, at)
        if at in remaining and not layout.quoted and (word == "sorry" or starts):
            yield at, cast(SorryToken, word), "tactic" if starts else "term"
        if at >= last:
            return


def context_hash(lexed: Lexed, start: int, end: int, at: int, size: int) -> str:
    """Return four hashes of 4 digits: the 3 and 8 tokens before the sorry, the 3 and 8 after it, inside `start`..`end`.

    In parts, so that after an edit on one side of a sorry the other side still identifies it.
    """
    before = _CONTEXT_TOKEN.findall(lexed.code, max(start, at - _CONTEXT_CHARACTERS), at)
    after = _CONTEXT_TOKEN.findall(lexed.code, at + size, min(end, at + size + _CONTEXT_CHARACTERS))
    windows = (before[-3:], before[-8:], after[:3], after[:8])
    return "".join(
        short_hash("context", " ".join(window).encode("utf-8", "replace").decode("utf-8"))[:4]
        for window in windows
    )
