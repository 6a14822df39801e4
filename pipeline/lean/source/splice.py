"""Cut a declaration out of its file, and put a proof in the place of its sorry: only the sorry's bytes change.

The form of a proof depends on the text around the sorry. The first text offered is the most readable, the last the
most robust; the caller elaborates them in turn. Nothing here asks Lean or touches a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.lean.source.lexer import Token, tokens_of
from pipeline.lean.source.scanner import Command, SourceFile, scan_source
from store.domain.keywords import INSTANCE_KINDS, PROVABLE_KINDS, WITHOUT_CONSTANT
from store.domain.records import Sorry

# ---- scripts
# Each step acts on the first goal. If the goals after each step fit a tree, the block shows it with `·`. A tactic of
# several lines keeps its relative layout.


@dataclass(frozen=True, slots=True)
class Step:
    """One tactic and the number of open goals before and after it."""

    tactic: str
    goals_before: int
    goals_after: int


@dataclass(frozen=True, slots=True)
class Script:
    """A tactic proof of one goal."""

    steps: tuple[Step, ...]

    @property
    def tactics(self) -> tuple[str, ...]:
        return tuple(step.tactic for step in self.steps)

    def block(self) -> tuple[str, ...]:
        """Return the lines of a tactic block, the first at column 0."""
        lines, used = _branch(self.steps, 0)
        if lines is None or used != len(self.steps):
            # A step closed another goal on the way (a shared unknown): no tree, so every step on its own line.
            return tuple(line for tactic in self.tactics for line in tactic.split("\n"))
        return tuple(lines)

    def inline(self) -> str:
        """Return the tactics on one line, or one below the other if one of them has several lines.

        Needs parentheses among other tactics.
        """
        if any("\n" in tactic for tactic in self.tactics):
            # Behind a `;` its lines would not stand below its own first one.
            return "\n".join(self.block())
        return "; ".join(self.tactics)


def _branch(steps: Sequence[Step], at: int) -> tuple[list[str] | None, int]:
    """Return the lines to close the first goal from step `at` on, and the index of the step after them."""
    lines: list[str] = []
    while at < len(steps):
        step = steps[at]
        left = step.goals_after - step.goals_before + 1
        at += 1
        lines += step.tactic.split("\n")
        if left < 0:
            return None, at
        if left == 0:
            return lines, at
        if left == 1:
            continue
        for _ in range(left):
            inner, at = _branch(steps, at)
            if inner is None:
                return None, at
            lines += [f"· {inner[0]}", *(f"  {line}" for line in inner[1:])]
        return lines, at
    return None, at


# After these a tactic block may begin at the column of the next token.
_BLOCK_STARTERS = frozenset({"by", "·", ".", "=>"})
# Beside these a block of lines would be torn apart.
_COMBINATORS = frozenset(
    {"<;>", ";", "|", "<|>", "(", ")", "{", "}", "[", "]", "⟨", "⟩", ",", "at", "using", "with"}
)
_SHORT = 60
# A line with one of these at its beginning carries its own block: `by` may go on below it.
_LINE_STARTERS = frozenset(
    {
        "have",
        "show",
        "suffices",
        "obtain",
        "let",
        "private",
        "protected",
        *PROVABLE_KINDS,
        *INSTANCE_KINDS,
    }
)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Bytes `byte_start`..`byte_end` become `text`.

    A text for several sorries has a part for each, with the file's text between them: `parts` are their lengths in
    characters, in the file's order. Empty for one sorry.
    """

    byte_start: int
    byte_end: int
    text: str
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Declaration:
    """A command with sorries, cut out of its file. Each sorry's `ordinal` is that in the command."""

    data: bytes
    byte_start: int
    byte_end: int
    preamble: str
    tokens: tuple[Token, ...]
    sorries: tuple[Sorry, ...]

    @classmethod
    def cut(cls, data: bytes, source: SourceFile, command: Command) -> Declaration:
        """Cut a command out of its file."""
        start, end = command.byte_start, command.byte_end
        sorries = [one for one in source.scanned.sorries if start <= one.byte_start < end]
        if len({one.index for one in sorries}) > 1:
            # In a `mutual` block each declaration counts its own.
            sorries = [replace(one, ordinal=number) for number, one in enumerate(sorries)]
        return cls(
            data=data,
            byte_start=start,
            byte_end=end,
            preamble=source.preamble_at(start),
            tokens=tokens_of(data, start, end),
            sorries=tuple(sorries),
        )

    @property
    def name(self) -> str:
        """Its full name in `framed_for_distil`."""
        declaration = self.sorries[0].declaration
        return declaration if self._example is None else f"everlean_example_{self.byte_start}"

    @property
    def text(self) -> str:
        """The declaration's own text, with its sorries."""
        return self.data[self.byte_start : self.byte_end].decode()

    @property
    def context(self) -> str:
        """The file's text before it."""
        return self.data[: self.byte_start].decode("utf-8", "replace")

    def framed(self, data: bytes | None = None) -> str:
        """Return the declaration as a text that elaborates by itself; `data` is a patched version of the file."""
        patched = self.data if data is None else data
        end = self.byte_end + len(patched) - len(self.data)
        return self._frame(patched[self.byte_start : end].decode())

    def framed_for_distil(self) -> str:
        """Return the framed text with `example` made a theorem: an example leaves no constant to look at."""
        text = self.data[self.byte_start : self.byte_end]
        if self._example is not None:
            at = self._example.byte_start - self.byte_start
            text = text[:at] + f"theorem {self.name}".encode() + text[at + len(self._example.text.encode()) :]
        return self._frame(text.decode())

    @property
    def ordinals(self) -> list[tuple[int, ...]]:
        """The ordinals of each declaration's sorries: in a `mutual` block each declaration has its own proof."""
        return [
            tuple(one.ordinal for one in group)
            for _, group in itertools.groupby(self.sorries, key=lambda one: one.index)
        ]

    @property
    def may_be_data(self) -> bool:
        """Whether a sorry may stand for data, which no search may invent."""
        return all(token.text not in PROVABLE_KINDS for token in self.tokens)

    @property
    def _example(self) -> Token | None:
        """The keyword of an example; None for a named declaration."""
        head = next((token for token in self.tokens if token.text in PROVABLE_KINDS), None)
        return head if head is not None and head.text in WITHOUT_CONSTANT else None

    @property
    def _before(self) -> str:
        return self.preamble if not self.preamble or self.preamble.endswith("\n") else self.preamble + "\n"

    def beside(self, text: str) -> str:
        """Return another text as it would elaborate in the declaration's place."""
        return f"{self._before}{text}"

    def _frame(self, text: str) -> str:
        # The first line keeps its column, or the layout of a block that begins on it would change.
        line_start = self.data.rfind(b"\n", 0, self.byte_start) + 1
        column = len(self.data[line_start : self.byte_start].decode())
        return f"{self._before}{' ' * column}{text}\n"


MOST_TOGETHER = 100
MOST_TOGETHER_BYTES = 8 * 1024 * 1024
"""Each sorry filled by a submitted text is recorded with the whole text: a limit for these records together."""


class JoinError(ValueError):
    """The proofs make no text to judge. `reason` is a stable word."""

    def __init__(self, reason: str, message: str, *, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.reason = reason
        self.message = message
        self.remedy = remedy


def splice(data: bytes, replacement: Replacement) -> bytes:
    """Return the file with the replacement in place; every other byte stays."""
    return data[: replacement.byte_start] + replacement.text.encode() + data[replacement.byte_end :]


def join(data: bytes, parts: Sequence[Replacement]) -> Replacement:
    """Make one replacement of several, with the file's text between them."""
    ordered = sorted(parts, key=lambda part: part.byte_start)
    text = ordered[0].text
    for before, after in itertools.pairwise(ordered):
        if after.byte_start < before.byte_end:
            raise JoinError(
                "filled_twice",
                f"two replacements overlap at byte {after.byte_start}",
                remedy="give each sorry once",
            )
        text += data[before.byte_end : after.byte_start].decode() + after.text
    lengths = tuple(len(part.text) for part in ordered) if len(ordered) > 1 else ()
    return Replacement(ordered[0].byte_start, ordered[-1].byte_end, text, lengths)


def join_submitted(data: bytes, parts: Sequence[Replacement]) -> Replacement:
    """Join proofs submitted together, as `join` does.

    Raises:
        JoinError: a sorry is filled twice, or the records would be too many or too large.
    """
    remedy = "prove parts of the declaration as lemmas, and submit these first"
    if len(parts) > MOST_TOGETHER:
        message = f"{len(parts)} sorries are filled together, and {MOST_TOGETHER} may be"
        raise JoinError("too_many_sorries", message, remedy=remedy)
    text = join(data, parts)
    size = len(parts) * len(text.text.encode())
    if len(parts) > 1 and size > MOST_TOGETHER_BYTES:
        message = f"{len(parts)} sorries with a text of {size // len(parts)} bytes for each"
        raise JoinError(
            "too_large_together",
            f"{message} are {size} bytes, and {MOST_TOGETHER_BYTES} may be",
            remedy=remedy,
        )
    return text


def placements(declaration: Declaration, sorry: Sorry, script: Script) -> tuple[Replacement, ...]:
    """Return the texts that may replace one of a declaration's sorries by a proof, most readable first."""
    place = _SorryContext.of(declaration, sorry)
    inline = script.inline()
    texts: list[str] = []

    def behind(before: str) -> str:
        return before + inline.replace("\n", place.newline + " " * (place.column + len(before)))

    if sorry.mode == "tactic":
        # `by a; b` reads better than lines far to the right, if it is short and does not branch.
        on_a_starter_s_line = place.takes_a_block and place.before in ("by", "=>") and place.line_tokens
        if on_a_starter_s_line and len(inline) <= _SHORT and script.block() == script.tactics:
            texts.append(inline)
        if place.takes_a_block:
            texts.append((place.newline + " " * place.column).join(script.block()))
        if len(script.steps) == 1:
            texts.append(behind(""))
        texts.append(f"{behind('(')})")
    else:
        indent = _indent_of_block(declaration, place)
        if indent is not None:
            if len(script.steps) == 1:
                texts.append(behind("by "))
            separator = place.newline + " " * indent
            texts.append("by" + "".join(separator + line for line in script.block()))
        texts.append(f"{behind('(by ')})")
    return tuple(Replacement(sorry.byte_start, sorry.byte_end, text) for text in dict.fromkeys(texts))


def text_placements(
    declaration: Declaration, sorry: Sorry, lines: Sequence[str], *, tactics: bool
) -> tuple[Replacement, ...]:
    """Return texts like `placements`, for a person's proof, whose lines keep their layout.

    Args:
        declaration, sorry: as there.
        lines: of a tactic block, or of a term; the first begins at column 0.
        tactics: which of the two.
    """
    data, place = declaration.data, _SorryContext.of(declaration, sorry)
    texts: list[str] = []

    def at(column: int, block: Sequence[str]) -> str:
        return (place.newline + " " * column).join(block)

    if sorry.mode == "tactic":
        block = lines if tactics else [f"exact {lines[0]}", *lines[1:]]
        if place.takes_a_block:
            texts.append(at(place.column, block))
        texts.append(f"({at(place.column + 1, block)})")
    elif tactics:
        indent = _indent_of_block(declaration, place)
        if indent is not None:
            if len(lines) == 1:
                texts.append(f"by {lines[0]}")
            texts.append(at(indent, ["by", *lines]))
        texts.append(f"({at(place.column + 2, ['by', *lines])})")
    else:
        if place.before == ":=" and not place.after:
            own = place.column if not place.line_tokens else _column(data, declaration.byte_start)
            texts.append(at(own, lines))
        texts.append(f"({at(place.column + 1, lines)})")
    return tuple(Replacement(sorry.byte_start, sorry.byte_end, text) for text in dict.fromkeys(texts))


@dataclass(frozen=True, slots=True)
class _SorryContext:
    """The surroundings of the sorry."""

    before: str
    after: str
    column: int
    line_tokens: tuple[Token, ...]
    """Tokens on the sorry's line before it."""
    last_on_line: bool
    newline: str

    @classmethod
    def of(cls, declaration: Declaration, sorry: Sorry) -> _SorryContext:
        data, tokens = declaration.data, declaration.tokens
        line_start = data.rfind(b"\n", 0, sorry.byte_start) + 1
        earlier = [token for token in tokens if token.byte_end <= sorry.byte_start]
        later = [token for token in tokens if token.byte_start >= sorry.byte_end]
        return cls(
            before=earlier[-1].text if earlier else "",
            after=later[0].text if later else "",
            column=len(data[line_start : sorry.byte_start].decode()),
            line_tokens=tuple(token for token in earlier if token.byte_start >= line_start),
            last_on_line=not later or b"\n" in data[sorry.byte_end : later[0].byte_start],
            newline="\r\n" if b"\r\n" in data else "\n",
        )

    @property
    def takes_a_block(self) -> bool:
        """Return whether lines at the sorry's column form the tactic block around the sorry."""
        if not self.last_on_line or self.after in ("<;>", ";", "<|>"):
            return False
        if not self.line_tokens:
            return self.before not in _COMBINATORS
        return self.before in _BLOCK_STARTERS


def _indent_of_block(declaration: Declaration, place: _SorryContext) -> int | None:
    """Return the column for the lines of a `by` in the place of a term, or None if only one line is safe."""
    if not place.last_on_line or place.before != ":=":
        return None
    if not place.after:
        # The whole value of the declaration: indented from the declaration, not from the end of its statement.
        return _column(declaration.data, declaration.byte_start) + 2
    if not place.line_tokens:
        return None
    starts = [token for token in place.line_tokens if token.text not in ("·", ".")]
    simple = not any(token.text in ("by", "=>", "<;>", ";", "(", "⟨", "|") for token in starts[1:])
    if not starts or starts[0].text not in _LINE_STARTERS or not simple:
        return None
    if not declaration.byte_start <= starts[0].byte_start < declaration.byte_end:
        return None
    return _column(declaration.data, starts[0].byte_start) + 2


def _column(data: bytes, offset: int) -> int:
    return len(data[data.rfind(b"\n", 0, offset) + 1 : offset].decode())


def text_hash_with(data: bytes, path: str, change: Replacement) -> str:
    """Return the scanner's hash of the declaration with the proof in it; "" if it is no declaration any more."""
    declarations = scan_source(splice(data, change), path=path).declarations
    inside = [one for one in declarations if one.byte_start <= change.byte_start < one.byte_end]
    return max(inside, key=lambda one: one.byte_start).text_hash if inside else ""
