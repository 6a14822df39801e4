"""Tokens and syntax trees of the simulator's part of Lean's language.

Offsets are in code points of the parsed text. A tree node is one generic `Stx`, so that the parser stays small;
its `kind` says what the fields mean, as listed beside the parser's functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pipeline.lean.simulator.terms import Info

TokenKind = Literal["ident", "number", "symbol", "keyword", "string", "doc", "broken", "end"]


def words(text: str) -> list[str]:
    """Split a table of words; long lists of quoted words are hard to read."""
    return text.split()


class ParseError(Exception):
    """The text is not in the simulator's part of the language; `offset` is where that showed."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class Token(NamedTuple):
    """One token. `first`: it is the first on its line; `glued`: nothing stands between it and the one before.

    Kind "broken" is what Lean has no token for; its text says why.
    """

    kind: TokenKind
    text: str
    start: int
    end: int
    column: int
    first: bool
    glued: bool


@dataclass(frozen=True, slots=True)
class Stx:
    """A node of the syntax tree: a term, a pattern, a tactic or a block of tactics.

    Kind "made" is a tactic that another one runs and nobody wrote; it leaves no record.
    """

    kind: str
    start: int
    end: int
    text: str = ""
    args: tuple[Stx, ...] = ()
    binders: tuple[Binder, ...] = ()


class Binder(NamedTuple):
    """Names (or patterns) with one type; `type` is None when it is to be inferred."""

    names: tuple[Stx, ...]
    type: Stx | None
    info: Info = "explicit"


COMMANDS = frozenset(
    words(
        "theorem lemma def abbrev example instance axiom opaque inductive structure class namespace section end"
        " variable universe open export set_option attribute import private protected noncomputable unsafe partial"
        " mutual macro syntax notation infix infixl infixr prefix postfix elab macro_rules elab_rules initialize"
        " deriving local scoped public meta"
    )
)
KEYWORDS = COMMANDS | frozenset(
    words(
        "fun λ by from have show with at let in do match if then else forall Type Prop Sort sorry nomatch suffices"
        " calc where using"
    )
)
_SYMBOLS = sorted(
    words(
        ":= => → -> ↔ <-> ∧ /\\ ∨ \\/ ¬ ≠ != ≤ <= ≥ >= <;> <|> <| |> $ ⟨ ⟩ ⊢ · ∀ ∃ λ × ▸ ← <- @[ @ ( ) [ ] { } ⦃ ⦄"
        " , ; : | .. . = < > + - * / % ^ _ ? ! & # ∈ ∘ ∣ ‹ › ` ~ ↦ ∪ ∩ ⊆ ∑ ∏ ∅ ⁻¹"
    ),
    key=len,
    reverse=True,
)
_SYMBOLS_FROM = {
    first: tuple(symbol for symbol in _SYMBOLS if symbol[0] == first) for first in {s[0] for s in _SYMBOLS}
}
_DIGITS = re.compile("[0-9]*")
_PLAIN = re.compile(r"[A-Za-z0-9_'!?₀-₉]*")
"""What goes on most names: where it ends, `_continues` says whether that was the end."""


def _starts_identifier(char: str) -> bool:
    return (char.isalpha() and char not in "λΠΣ") or char in "_«"


def _continues(char: str) -> bool:
    return _starts_identifier(char) or char.isdigit() or char in "'!?" or "₀" <= char <= "₉"


def tokenize(text: str) -> tuple[Token, ...]:
    """Split a text into tokens, the last of kind "end".

    Raises:
        ParseError: an unclosed comment, string or «name», or a character that Lean has no token for.
    """
    tokens = all_tokens(text)
    broken = next((token for token in tokens if token.kind == "broken"), None)
    if broken is not None:
        raise ParseError(broken.text, broken.start)
    return tokens


def all_tokens(text: str) -> tuple[Token, ...]:
    """Split a text into tokens, the last of kind "end", broken ones among them: what is around them still counts."""
    tokens: list[Token] = []
    at = line_start = 0
    first = True
    previous_end = -1
    length = len(text)
    while at < length:
        char = text[at]
        if char in " \t\r":
            at += 1
            continue
        if char == "\n":
            at, first = at + 1, True
            line_start = at
            continue
        if text.startswith("--", at):
            newline = text.find("\n", at)
            at = length if newline < 0 else newline
            continue
        new_line_start = line_start
        try:
            if text.startswith("/-", at):
                is_doc = text.startswith(("/--", "/-!"), at)
                end, new_line_start = _skip_comment(text, at, line_start)
                if not is_doc:
                    at, line_start = end, new_line_start
                    continue
                kind: TokenKind = "doc"
            else:
                kind, end = _token(text, at)
            shown = text[at:end]
        except ParseError as error:
            # What is not closed reaches to the end; a strange character is only itself.
            kind, end = "broken", length if error.message.startswith("unterminated") else at + 1
            shown = error.message
        glued = previous_end == at and bool(tokens)
        tokens.append(Token(kind, shown, at, end, at - line_start, first, glued))
        at = previous_end = end
        line_start, first = new_line_start, False
    tokens.append(Token("end", "", length, length, 0, first=True, glued=False))
    return tuple(tokens)


def _skip_comment(text: str, at: int, line_start: int) -> tuple[int, int]:
    start, depth = at, 0
    while True:
        opening, closing = text.find("/-", at), text.find("-/", at)
        if closing < 0:
            raise ParseError("unterminated comment", start)
        if 0 <= opening < closing:
            depth, at = depth + 1, opening + 2
        else:
            depth, at = depth - 1, closing + 2
            if depth == 0:
                newline = text.rfind("\n", start, at)
                return at, line_start if newline < 0 else newline + 1


def _token(text: str, at: int) -> tuple[TokenKind, int]:
    char = text[at]
    if char.isdigit() and char.isascii():
        return "number", _end_of(_DIGITS, text, at)
    if char == '"':
        end = at + 1
        while end < len(text) and text[end] != '"':
            end += 2 if text[end] == "\\" else 1
        if end >= len(text):
            raise ParseError("unterminated string literal", at)
        return "string", end + 1
    if char == "#" and at + 1 < len(text) and text[at + 1].isalpha():
        end = at + 1
        while end < len(text) and (text[end].isalnum() or text[end] == "_"):
            end += 1
        return "keyword", end
    if _starts_identifier(char) and not (
        char == "_" and (at + 1 == len(text) or not _continues(text[at + 1]))
    ):
        end = _identifier(text, at)
        return ("keyword" if text[at:end] in KEYWORDS else "ident"), end
    for symbol in _SYMBOLS_FROM.get(char, ()):
        if text.startswith(symbol, at):
            return "symbol", at + len(symbol)
    raise ParseError(f"unexpected token '{char}'", at)


def _end_of(run: re.Pattern[str], text: str, at: int) -> int:
    """Return where a run that may be empty ends."""
    found = run.match(text, at)
    return found.end() if found else at


def _identifier(text: str, at: int) -> int:
    while True:
        if text[at] == "«":
            closing = text.find("»", at)
            if closing < 0:
                raise ParseError("unterminated identifier escape", at)
            at = closing + 1
        else:
            at = _end_of(_PLAIN, text, at)
            while at < len(text) and text[at] != "«" and _continues(text[at]):
                at = _end_of(_PLAIN, text, at + 1)
        if at + 1 < len(text) and text[at] == "." and _starts_identifier(text[at + 1]):
            at += 1
        else:
            return at


def plain_name(text: str) -> str:
    """Drop the «» quotes that a name does not need; two spellings of one name become one."""
    if "«" not in text:
        return text
    parts: list[str] = []
    rest = text
    while rest:
        if rest.startswith("«"):
            part, _, rest = rest[1:].partition("»")
            plain = part and _starts_identifier(part[0]) and all(_continues(char) for char in part)
            parts.append(part if plain else f"«{part}»")
            rest = rest.removeprefix(".")
        else:
            part, _, rest = rest.partition(".")
            parts.append(part)
    return ".".join(parts)


def is_name(text: str) -> bool:
    """Say whether Lean reads a text as a name: identifiers, «quoted» parts and numbers, joined by dots."""
    rest = text
    while rest:
        if rest[0].isdigit() and rest[0].isascii():
            end = len(rest) - len(rest.lstrip("0123456789"))
        elif _starts_identifier(rest[0]):
            closed = rest[0] != "«" or (rest.find("»") > 1)
            end = _part_end(rest) if closed else 0
        else:
            end = 0
        if not end:
            return False
        if end == len(rest):
            return True
        if rest[end] != ".":
            return False
        rest = rest[end + 1 :]
    return False


def _part_end(text: str) -> int:
    if text[0] == "«":
        return text.find("»") + 1
    end = 1
    while end < len(text) and text[end] != "«" and _continues(text[end]):
        end += 1
    return end
