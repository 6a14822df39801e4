"""Put a found proof where a sorry stands, as text: only the sorry's own bytes change.

How it is written depends on what stands around the sorry. The first text offered is the most readable one, the
last one the most robust; the caller elaborates them in turn. Never looks at what Lean thinks; never touches a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.prove.script import Script
from store.scanned import SorryMode

# After these a tactic block may begin at the column of the next token.
_BLOCK_STARTERS = frozenset({"by", "·", ".", "=>"})
# Beside these a block of lines would be torn apart.
_COMBINATORS = frozenset(
    {"<;>", ";", "|", "<|>", "(", ")", "{", "}", "[", "]", "⟨", "⟩", ",", "at", "using", "with"}
)
_SHORT = 60
# A line that begins with one of these carries its own block: `by` may go on below it.
_LINE_STARTERS = frozenset(
    {
        "have",
        "show",
        "suffices",
        "obtain",
        "let",
        "theorem",
        "lemma",
        "example",
        "private",
        "protected",
        "instance",
    }
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the source that is neither white space nor a comment, by byte offsets."""

    text: str
    byte_start: int
    byte_end: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """Bytes `byte_start`..`byte_end` become `text`."""

    byte_start: int
    byte_end: int
    text: str


def splice(data: bytes, replacement: Replacement) -> bytes:
    """Return the file with the replacement in place; every other byte is as it was."""
    return data[: replacement.byte_start] + replacement.text.encode() + data[replacement.byte_end :]


def join(data: bytes, parts: Sequence[Replacement]) -> Replacement:
    """Make one replacement of several, with the text between them as it stands in the file."""
    ordered = sorted(parts, key=lambda part: part.byte_start)
    text = ordered[0].text
    for before, after in itertools.pairwise(ordered):
        if after.byte_start < before.byte_end:
            raise ValueError(f"replacements overlap at byte {after.byte_start}; give each sorry once")
        text += data[before.byte_end : after.byte_start].decode() + after.text
    return Replacement(ordered[0].byte_start, ordered[-1].byte_end, text)


def placements(
    data: bytes,
    tokens: Sequence[Token],
    script: Script,
    *,
    byte_start: int,
    byte_end: int,
    mode: SorryMode,
    declaration_start: int,
    declaration_end: int,
) -> tuple[Replacement, ...]:
    """Return the texts that may stand for the sorry at these bytes, most readable first.

    Args:
        data: the whole file.
        tokens: those of the declaration, in order; the sorry is one of them.
        script: the proof.
        byte_start, byte_end: the sorry.
        mode: whether a tactic or a term is expected there.
        declaration_start, declaration_end: the declaration's own bytes.
    """
    place = _Place.of(data, tokens, byte_start, byte_end)
    newline = "\r\n" if _ends_with_crlf(data, byte_start) else "\n"
    inline = script.inline()
    texts: list[str] = []

    def behind(before: str) -> str:
        return before + inline.replace("\n", newline + " " * (place.column + len(before)))

    if mode == "tactic":
        # `by a; b` reads better than lines far to the right, as long as it is short and does not branch.
        on_a_starter_s_line = place.takes_a_block and place.before in ("by", "=>") and place.line_tokens
        if on_a_starter_s_line and len(inline) <= _SHORT and script.block() == script.tactics:
            texts.append(inline)
        if place.takes_a_block:
            texts.append((newline + " " * place.column).join(script.block()))
        if len(script.steps) == 1:
            texts.append(behind(""))
        texts.append(f"{behind('(')})")
    else:
        indent = _indent_of_block(data, place, declaration_start, declaration_end)
        if indent is not None:
            if len(script.steps) == 1:
                texts.append(behind("by "))
            separator = newline + " " * indent
            texts.append("by" + "".join(separator + line for line in script.block()))
        texts.append(f"{behind('(by ')})")
    return tuple(Replacement(byte_start, byte_end, text) for text in dict.fromkeys(texts))


def text_placements(
    data: bytes,
    tokens: Sequence[Token],
    lines: Sequence[str],
    *,
    tactics: bool,
    byte_start: int,
    byte_end: int,
    mode: SorryMode,
    declaration_start: int,
    declaration_end: int,
) -> tuple[Replacement, ...]:
    """As `placements`, for a proof that somebody wrote, whose lines keep their layout.

    Args:
        data, tokens: as there.
        lines: of a tactic block, or of a term; the first begins at column 0.
        tactics: which of the two.
        byte_start, byte_end, mode, declaration_start, declaration_end: as there.
    """
    place = _Place.of(data, tokens, byte_start, byte_end)
    newline = "\r\n" if _ends_with_crlf(data, byte_start) else "\n"
    texts: list[str] = []

    def at(column: int, block: Sequence[str]) -> str:
        return (newline + " " * column).join(block)

    if mode == "tactic":
        block = lines if tactics else [f"exact {lines[0]}", *lines[1:]]
        if place.takes_a_block:
            texts.append(at(place.column, block))
        texts.append(f"({at(place.column + 1, block)})")
    elif tactics:
        indent = _indent_of_block(data, place, declaration_start, declaration_end)
        if indent is not None:
            if len(lines) == 1:
                texts.append(f"by {lines[0]}")
            texts.append(at(indent, ["by", *lines]))
        texts.append(f"({at(place.column + 2, ['by', *lines])})")
    else:
        if place.before == ":=" and not place.after:
            texts.append(
                at(place.column if not place.line_tokens else _column(data, declaration_start), lines)
            )
        texts.append(f"({at(place.column + 1, lines)})")
    return tuple(Replacement(byte_start, byte_end, text) for text in dict.fromkeys(texts))


@dataclass(frozen=True, slots=True)
class _Place:
    """What stands around the sorry."""

    before: str
    after: str
    column: int
    line_tokens: tuple[Token, ...]
    """Tokens on the sorry's line before it."""
    last_on_line: bool

    @classmethod
    def of(cls, data: bytes, tokens: Sequence[Token], byte_start: int, byte_end: int) -> _Place:
        line_start = data.rfind(b"\n", 0, byte_start) + 1
        line_end = data.find(b"\n", byte_end)
        line_end = len(data) if line_end < 0 else line_end
        earlier = [token for token in tokens if token.byte_end <= byte_start]
        later = [token for token in tokens if token.byte_start >= byte_end]
        return cls(
            before=earlier[-1].text if earlier else "",
            after=later[0].text if later else "",
            column=len(data[line_start:byte_start].decode()),
            line_tokens=tuple(token for token in earlier if token.byte_start >= line_start),
            last_on_line=not later or later[0].byte_start >= line_end,
        )

    @property
    def takes_a_block(self) -> bool:
        """Say whether lines at the sorry's column form the tactic block that the sorry is in."""
        if not self.last_on_line or self.after in ("<;>", ";", "<|>"):
            return False
        if not self.line_tokens:
            return self.before not in _COMBINATORS
        return self.before in _BLOCK_STARTERS


def _indent_of_block(data: bytes, place: _Place, declaration_start: int, declaration_end: int) -> int | None:
    """Return the column for the lines of a `by` in the place of a term, or None where only one line is safe."""
    if not place.last_on_line or place.before != ":=":
        return None
    if not place.after:
        # The whole value of the declaration: indented from the declaration, not from where its statement ends.
        return _column(data, declaration_start) + 2
    if not place.line_tokens:
        return None
    starts = [token for token in place.line_tokens if token.text not in ("·", ".")]
    simple = not any(token.text in ("by", "=>", "<;>", ";", "(", "⟨", "|") for token in starts[1:])
    if not starts or starts[0].text not in _LINE_STARTERS or not simple:
        return None
    if not declaration_start <= starts[0].byte_start < declaration_end:
        return None
    return _column(data, starts[0].byte_start) + 2


def _column(data: bytes, offset: int) -> int:
    return len(data[data.rfind(b"\n", 0, offset) + 1 : offset].decode())


def _ends_with_crlf(data: bytes, offset: int) -> bool:
    end = data.find(b"\n", offset)
    if end < 0:
        end = data.rfind(b"\n", 0, offset)
    return end > 0 and data[end - 1 : end] == b"\r"
