"""Read the name and the statement of a declaration from its command.

Owns names (namespaces, `_root_`, `alias ⟨a, b⟩`, anonymous ones), scopes, and the border between a statement and its
proof or value. A statement ends at the declaration's own `:=`, `where` or `|`: not a binder's (`(h : p := by simp)`),
nor that of a `let … := …`, `match` or `fun₀ | …` inside the statement, nor an absolute value `|x|` or a library's
`|==>`. If a bar might be either, the longer statement is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pipeline.lean.source.commands import CLOSERS, RawCommand
from pipeline.lean.source.lexer import (
    HAS_FIELDS,
    ID_FIRST,
    ID_REST,
    LIBRARY_DECLARATIONS,
    OTHERS,
    Lexed,
    Positions,
)
from store.domain.keywords import DECLARATION_KEYWORDS, WITHOUT_CONSTANT

_PART = rf"(?:«[^«»\n]*»|[{ID_FIRST}][{ID_REST}]*)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")
_PARTS = re.compile(_PART)
_ANY_PARTS = re.compile(r"«[^«»\n]*»|[^.«»\n]+")
_BLANK = re.compile(r"\s*")
_SPACES = re.compile(r"[ \t]*")
_UNIVERSES = re.compile(r"\.\{[^{}]*\}")
_HEAD = re.compile(
    rf"[(\[{{⟨⦃)\]}}⟩⦄]|:=|=>|←|\||(?<![{ID_REST}.`])"
    rf"(?:where|let|letI|let_fun|have|haveI|match|fun|deriving|extends)(?![{ID_REST}])|fun₀|λ"
)
# Bars inside a library's token: `|==>`, `|={E}=>`, `▷=>`.
_LONGER_BAR = re.compile(r"\|[^\s\w(\[{⟨«\"'.\-#@`‹]")
_LONGER_ARROW = frozenset("=}▷◇|-~<>*+")
_OPENS_MATCH = re.compile(r"\s*\|")
_RESERVED = frozenset(one.word for one in DECLARATION_KEYWORDS if one.reserved)
_ALTERNATIVES_ONLY = HAS_FIELDS - {"structure", "class"}
_OPENERS = frozenset(CLOSERS.values())
# Words of a library that declare only before a name and a type or value.
_CONDITIONAL = frozenset({"initialize", "builtin_initialize"})


@dataclass(frozen=True, slots=True)
class Head:
    """Names as written (None for an anonymous one) and the borders of the statement."""

    names: tuple[str | None, ...]
    kind: str
    start: int
    end: int


def read_head(lexed: Lexed, positions: Positions, command: RawCommand) -> Head | None:
    """Read a declaration's head; None for a command without a declaration."""
    keyword = command.keyword
    if keyword.startswith(("#", "/")) or keyword in OTHERS:
        return None
    reserved = keyword in _RESERVED
    at = _skip(lexed.bare, command.word_end)
    if keyword == "alias":
        return _alias(lexed, command, at)
    if keyword == "deriving instance":
        return Head((None,), keyword, at, command.end)
    if keyword == "instance":
        at = _skip_priority(lexed.bare, at, command.end)
    names: tuple[str | None, ...] = (None,)
    match = _NAME.match(lexed.code, at, command.end) if keyword not in WITHOUT_CONSTANT else None
    if match and lexed.bare[at] not in "\x01\x02":
        names, at = (match.group(),), match.end()
        universes = _UNIVERSES.match(lexed.bare, at, command.end)
        at = universes.end() if universes else at
    elif not reserved:
        return None
    end, closed = _statement_end(lexed.bare, positions, at, command.end, keyword)
    if keyword in _CONDITIONAL and not lexed.bare.startswith(":", _skip(lexed.bare, at)):
        return None
    if not reserved and keyword not in LIBRARY_DECLARATIONS and not (closed and _typed(lexed.bare, at, end)):
        return None
    return Head(names, keyword, at, end)


def read_command(lexed: Lexed, positions: Positions, command: RawCommand) -> Head:
    """Read the head of a command without a declaration: its statement, or its text up to its effect."""
    at = _skip(lexed.bare, command.word_end)
    end, closed = _statement_end(lexed.bare, positions, at, command.end, command.keyword)
    if not closed:
        result = lexed.bare.find("=>", at, command.end)
        line = lexed.bare.find("\n", at, command.end)
        end = next((item for item in (result, line) if item >= 0), command.end)
    return Head((None,), command.keyword, at, max(at, end))


def _skip(bare: str, at: int) -> int:
    match = _BLANK.match(bare, at)
    return match.end() if match else at


def _typed(bare: str, start: int, end: int) -> bool:
    """Return whether an unknown command reads like `word name binders : type` at this place."""
    at = _skip(bare, start)
    return at < end and bare[at] in "([{⦃:"


def _skip_priority(bare: str, at: int, limit: int) -> int:
    if bare.startswith("(", at) and bare.startswith("priority", _skip(bare, at + 1)):
        close = bare.find(")", at, limit)
        return _skip(bare, close + 1) if close >= 0 else at
    return at


def _alias(lexed: Lexed, command: RawCommand, at: int) -> Head | None:
    assigned = lexed.bare.find(":=", at, command.end)
    if assigned < 0:
        return None
    names = tuple(name for name in _NAME.findall(lexed.code, at, assigned) if name != "_")
    return Head(names, "alias", assigned + 2, command.end) if names else None


def _statement_end(bare: str, positions: Positions, start: int, limit: int, kind: str) -> tuple[int, bool]:
    """Return the end of the statement, and whether a proof, value or body begins there."""
    reader = _StatementReader(bare, positions, kind)
    depth = 0
    for match in _HEAD.finditer(bare, start, limit):
        word = match.group()
        if word in _OPENERS:
            depth += 1
        elif word in CLOSERS:
            depth = max(0, depth - 1)
        elif not depth:
            end = reader.step(word, match.start())
            if end is not None:
                return end, True
    return (reader.doubtful, True) if reader.doubtful >= 0 else (limit, False)


class _StatementReader:
    """Takes the words of a statement outside brackets until one ends it.

    Attributes:
        doubtful: the beginning of the first alternative, if nothing else ends the statement; -1: there is none.
    """

    def __init__(self, bare: str, positions: Positions, kind: str) -> None:
        self.bare = bare
        self.positions = positions
        self.kind = kind
        self.lets = 0  # `let`s whose `:=` is still to come
        self.matches = False
        self.bar = -1  # the possible first alternative; certain only when a `=>` follows
        self.bar_is_strong = False
        self.waits = False  # a bar at the beginning of a line, without white space behind it
        self.doubtful = -1

    def step(self, word: str, at: int) -> int | None:
        """Return the end of the statement, if this word decides it."""
        match word:
            case ":=" if not self.lets:
                return at
            case ":=" | "←":
                self.lets = max(0, self.lets - 1)
            case "where":
                return at
            case "deriving" if self.kind in HAS_FIELDS:
                return at
            case "|" if self.kind in _ALTERNATIVES_ONLY:
                return at
            case "|":
                self._bar(at)
            case "match" | "fun₀":
                self.matches = True
            case "fun" | "λ" if _OPENS_MATCH.match(self.bare, at + len(word)):
                self.matches = True
            case "fun" | "λ" if not self.bar_is_strong:
                self.bar, self.waits = -1, False  # the `=>` to come is the function's
            case "=>" if self.bar >= 0 and self.bare[at - 1] not in _LONGER_ARROW:
                if self.bar_is_strong or self.waits:
                    return self.bar
                self.doubtful = self.bar if self.doubtful < 0 else self.doubtful
            case "let" | "letI" | "let_fun" | "have" | "haveI" if self.kind not in HAS_FIELDS:
                self.lets += 1
            case _:
                pass
        return None

    def _bar(self, at: int) -> None:
        """Note a bar: an alternative begins a line or stands between white space, else it is half an absolute value."""
        if self.matches or _LONGER_BAR.match(self.bare, at):
            return
        first, spaced = self.positions.is_first(at), self.bare[at + 1 : at + 2].isspace()
        strong = spaced and (first or self.bare[at - 1 : at].isspace())
        if self.waits and not strong:
            self.bar, self.waits = -1, False  # the other half of the line's first bar
        elif self.bar < 0 or (strong and not self.bar_is_strong):
            self.bar, self.bar_is_strong, self.waits = at, strong, first and not strong


@dataclass(slots=True)
class Scope:
    """One open `namespace`, `section` or `mutual`; a dotted one opens a scope for each part."""

    kind: str
    name: str | None
    command: int


@dataclass(slots=True)
class Scopes:
    """The open scopes on a walk through the commands in order."""

    open: list[Scope] = field(default_factory=list)
    _namespaces: list[str] = field(default_factory=list)

    def enter(self, kind: str, name: str | None, command: int) -> None:
        for part in name_parts(name) if name else [None]:
            self.open.append(Scope(kind, part, command))
            if kind == "namespace" and part:
                self._namespaces.append(part)

    def leave(self, name: str | None) -> list[Scope]:
        """Close the scopes of `end name`; an `end` that fits nothing closes nothing."""
        parts = name_parts(name) if name else []
        count = len(parts) or 1
        if len(self.open) < count:
            return []
        if parts and [scope.name for scope in self.open[-count:]] != parts:
            return []
        closed = self.open[-count:]
        del self.open[-count:]
        named = sum(scope.kind == "namespace" and bool(scope.name) for scope in closed)
        del self._namespaces[len(self._namespaces) - named :]
        return closed

    def qualify(self, name: str) -> str:
        """Return the full name of a declaration called `name` here."""
        if name.startswith("_root_."):
            return name.removeprefix("_root_.")
        return ".".join([*self._namespaces, name])


def name_parts(name: str) -> list[str]:
    """Return the parts of a dotted name; a dot inside `«»` parts nothing."""
    return _PARTS.findall(name)


def written_name(name: str) -> str | None:
    """Return a constant's name as source writes it, with `«»` where needed.

    None for names outside the reach of source: private and macro-scoped names, and Lean's own, with a part that begins
    with `_` or is a number.
    """
    parts = _ANY_PARTS.findall(name)
    if not parts or ".".join(parts) != name or "✝" in name:
        return None
    if any(part.startswith("_") or part.isdecimal() for part in parts):
        return None
    return ".".join(part if _PARTS.fullmatch(part) else f"«{part}»" for part in parts)


def scope_name(lexed: Lexed, command: RawCommand) -> str | None:
    """Return the name after `namespace`, `section` or `end`, on the same line."""
    spaces = _SPACES.match(lexed.bare, command.word_end)
    at = spaces.end() if spaces else command.word_end
    match = _NAME.match(lexed.code, at, max(command.end, at))
    return match.group() if match else None
