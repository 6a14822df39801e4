"""Split Lean source into commands, without Lean's parser.

Lean reads a command until a token comes that only a command can begin with. So does this: core keywords
(`theorem`, `end`, …) are reserved and begin a command wherever no bracket is open; words that also occur inside
terms and tactics (`open`, `set_option`) or that a library reserves (`lemma`, `alias`) do so at the beginning of a
line that is indented no deeper than the command before. At column 0 open brackets are forgotten, so one that a
custom notation leaves open costs one command and not the file. A command that no one here knows (a library's
own) is recognised by its place at column 0 after an empty line, which is how people write them.

Owns the borders, prefixes (`open … in`, doc comments, attributes, modifiers) and the header. Names, statements
and scopes are read elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pipeline.lean.source.lexer import (
    CONTINUATIONS,
    CORE,
    DECLARATIONS,
    DOC_MARK,
    HAS_FIELDS,
    ID_FIRST,
    ID_REST,
    KEYWORDS,
    MODIFIERS,
    MODULE_DOC_MARK,
    TAKES_DOC,
    Lexed,
    Positions,
    alternatives,
)

# After these a term or tactic must follow, so `open … in` is part of it.
_EXPECTS_TERM = re.compile(r"(?::=|=>|↦|<\||\$|,|←|(?<![\w.])(?:by|do|then|else|from|fun|exact|at))\Z")
_BAR = re.compile(r"\|\Z")
_IN = re.compile(rf"(?<![{ID_REST}.])in\Z")


_END = rf"(?![{ID_REST}%])(?!\.[{ID_FIRST}])"
_START = re.compile(
    rf"(?<![{ID_REST}.`$])(?:{alternatives(KEYWORDS | MODIFIERS)}){_END}"
    rf"|@\[|[{DOC_MARK}{MODULE_DOC_MARK}]|#[a-z_][{ID_REST}]*|^[a-z_][{ID_REST}]*(?!\.[{ID_FIRST}])",
    re.MULTILINE,
)
_WORD = re.compile(rf"#?[{ID_FIRST}][{ID_REST}%]*(?!\.[{ID_FIRST}])")
_LONGEST_ATTRIBUTE = 20_000
_MOST_WASTED = 50 * _LONGEST_ATTRIBUTE
_SPACE = re.compile(r"\s*")
_BRACKET = re.compile(r"[()\[\]{}⟨⟩⦃⦄]")
CLOSERS = {")": "(", "]": "[", "}": "{", "⟩": "⟨", "⦄": "⦃"}
_IMPORT = re.compile(
    rf"\s*(?:(module|prelude)(?![{ID_REST}])"
    rf"|(?:public\s+|private\s+)?(?:meta\s+)?import\s+(?:all\s+|runtime\s+)?"
    rf"([{ID_FIRST}][{ID_REST}]*(?:\.[{ID_FIRST}][{ID_REST}]*)*))"
)


@dataclass(slots=True)
class RawCommand:
    """A command's borders as offsets in the text.

    `start` is where its doc comment or first `… in` begins, `own` its first attribute or modifier, `word` its
    keyword. `prefixes` are the keywords before an `in`.
    """

    start: int
    own: int
    word: int
    word_end: int
    keyword: str
    column: int
    modifiers: tuple[str, ...] = ()
    prefixes: list[str] = field(default_factory=list)
    end: int = 0
    doc_taken: bool = False

    @property
    def declares(self) -> bool:
        return self.keyword in DECLARATIONS


@dataclass(frozen=True, slots=True)
class Split:
    """A file in commands. `limit` is where Lean stops reading (`#exit`), else the end of the text.

    `own_kind`: it begins with `module` or `prelude`.
    """

    header_end: int
    own_kind: bool
    imports: tuple[str, ...]
    commands: tuple[RawCommand, ...]
    limit: int


def split(lexed: Lexed, positions: Positions) -> Split:
    """Find the header and the commands. Linear in the text."""
    at, imports, own_kind = 0, [], False
    while match := _IMPORT.match(lexed.bare, at):
        at = match.end()
        own_kind = own_kind or match.group(1) is not None
        if match.group(2):
            start, end = match.span(2)
            imports.append(lexed.code[start:end])
    header_end = _skip_space(lexed.bare, at)
    commands, limit = _Splitter(lexed, positions, header_end).run()
    return Split(header_end, own_kind, tuple(imports), tuple(commands), limit)


def _skip_space(bare: str, at: int) -> int:
    match = _SPACE.match(bare, at)
    return match.end() if match else at


class _Depth:
    """Open brackets since the current command began, counted only as far as someone asks."""

    def __init__(self, bare: str) -> None:
        self._bare = bare
        self._at = 0
        self._open: list[str] = []

    def restart(self, at: int) -> None:
        self._at = at
        self._open = []

    def before(self, at: int) -> int:
        for match in _BRACKET.finditer(self._bare, self._at, at):
            bracket = match.group()
            opener = CLOSERS.get(bracket)
            if opener is None:
                self._open.append(bracket)
            elif self._open and self._open[-1] == opener:
                self._open.pop()
            elif opener in self._open[-8:]:  # a stray opener inside; look no further back: stay linear
                while self._open.pop() != opener:
                    pass
        self._at = max(self._at, at)
        return len(self._open)


@dataclass(slots=True)
class _Prefix:
    """Doc comments, attributes and modifiers, and the keyword that they lead to."""

    own: int
    word: int
    word_end: int
    keyword: str
    modifiers: tuple[str, ...]
    decorated: bool


class _Splitter:
    def __init__(self, lexed: Lexed, positions: Positions, start: int) -> None:
        self.lexed = lexed
        self.bare = lexed.bare
        self.positions = positions
        self.start = start
        self.depth = _Depth(lexed.bare)
        self.commands: list[RawCommand] = []
        self.current: RawCommand | None = None
        self.wasted = 0  # characters read in vain behind a `@[` that does not close

    def run(self) -> tuple[list[RawCommand], int]:
        limit = len(self.bare)
        at = self.start
        while match := _START.search(self.bare, at):
            begin, at = match.span()
            mark = self.bare[begin]
            if mark in (DOC_MARK, MODULE_DOC_MARK) and begin not in self.lexed.docs:
                continue
            if mark == MODULE_DOC_MARK:
                at = self.lexed.docs[begin]
                self._close(begin)
                self.commands.append(RawCommand(begin, begin, begin, begin + 3, "/-!", 0, end=at))
                continue
            current = self.current
            if mark == DOC_MARK and current and current.keyword in TAKES_DOC and not current.doc_taken:
                current.doc_taken = True
                at = self.lexed.docs[begin]
                continue
            prefix, read_to = self._prefix(begin)
            at = max(at, read_to)
            if prefix is None:
                continue
            if not self._accepts(begin, prefix):
                continue
            if prefix.keyword == "#exit":
                limit = begin
                break
            self._open(begin, prefix)
            if prefix.keyword == "#doc":  # Verso: the rest of the file is prose with its own syntax
                self._close(len(self.bare))
                limit = begin
                break
        self._close(limit)
        return self.commands, limit

    def _prefix(self, at: int) -> tuple[_Prefix | None, int]:
        """Read doc comments, attributes and modifiers from `at`; also how far it is certain what they were."""
        bare, own = self.bare, -1
        modifiers: list[str] = []
        first = at
        while at < len(bare):
            if bare[at] == DOC_MARK and at in self.lexed.docs:
                at = _skip_space(bare, self.lexed.docs[at])
                continue
            if bare.startswith("@[", at):
                own = at if own < 0 else own
                end = self._attribute_end(at + 1)
                if end is None:
                    return None, at + 2
                at = _skip_space(bare, end)
                continue
            match = _WORD.match(bare, at)
            if match is None:
                return None, at
            word = match.group()
            if word not in MODIFIERS:
                own = at if own < 0 else own
                prefix = _Prefix(own, at, match.end(), word, tuple(modifiers), decorated=at != first)
                found = self._keyword(prefix)
                return found, found.word_end if found else match.end()
            own = at if own < 0 else own
            modifiers.append(word)
            at = match.end()
            if bare.startswith("[", at):  # scoped[Manifold] notation …
                end = self._attribute_end(at)
                if end is None:
                    return None, at
                at = end
            at = _skip_space(bare, at)
        return None, at

    def _attribute_end(self, at: int) -> int | None:
        """The offset after the bracket that closes the one at `at`."""
        depth = 0
        limit = min(len(self.bare), at + _LONGEST_ATTRIBUTE)
        if self.wasted > _MOST_WASTED:
            return None
        for match in _BRACKET.finditer(self.bare, at, limit):
            depth += -1 if match.group() in CLOSERS else 1
            if depth == 0:
                return match.end()
        self.wasted += limit - at
        return None

    def _keyword(self, prefix: _Prefix) -> _Prefix | None:
        """Two-word keywords, and words that only look like one."""
        word, rest = prefix.keyword, _skip_space(self.bare, prefix.word_end)
        follow = _WORD.match(self.bare, rest)
        follower = follow.group() if follow else ""
        second = {"class": ("inductive", "abbrev"), "deriving": ("instance",)}.get(word, ())
        if word == "deriving" and follower not in second:
            return None
        if follow and follower in second and word != "class":
            prefix.keyword = f"{word} {follower}"
            prefix.word_end = follow.end()
        elif follow and follower in second:
            prefix.keyword = "class inductive" if follower == "inductive" else "abbrev"
            prefix.word_end = follow.end()
        return prefix

    def _accepts(self, begin: int, prefix: _Prefix) -> bool:
        word = prefix.keyword.split(" ", 1)[0]
        column = self.positions.column(begin)
        first = self.positions.is_first(begin)
        current = self.current
        if word in CORE:
            return column == 0 or (
                self.depth.before(begin) == 0 and not self._is_argument(begin, first=first)
            )
        known = word in KEYWORDS or word.startswith("#")
        if known and current and not current.declares and self._after(_IN, begin, current):
            return self.depth.before(begin) == 0
        if not first:
            return False
        if word in ("open", "set_option") and current and self._after(_EXPECTS_TERM, begin, current):
            return False
        if known:
            if column == 0:
                return True
            inside = current is not None and current.declares and column > current.column
            return not inside and self.depth.before(begin) == 0
        if column or word in CONTINUATIONS:
            return False
        # A documented field of a structure may stand at column 0 too.
        fields = current is not None and current.keyword in HAS_FIELDS
        return (prefix.decorated and not fields) or self._after_empty_line(begin)

    def _is_argument(self, begin: int, *, first: bool) -> bool:
        """Return whether a reserved word is only mentioned: a constructor's name, or an argument of `#help`."""
        current = self.current
        if current is None:
            return False
        if current.keyword.startswith("#") and not first and not self._after(_IN, begin, current):
            return True
        return current.keyword in HAS_FIELDS and self._after(_BAR, begin, current)

    def _after(self, pattern: re.Pattern[str], at: int, current: RawCommand) -> bool:
        end = self.positions.previous(at, least=current.start)
        return pattern.search(self.bare, max(current.start, end - 8), end) is not None

    def _after_empty_line(self, at: int) -> bool:
        if self.current is None:
            return True  # nothing before that it could go on with
        end = self.positions.previous(at, least=self.current.start)
        return self.bare.count("\n", end, at) >= 2

    def _open(self, begin: int, prefix: _Prefix) -> None:
        current = self.current
        if current and not current.declares and self._after(_IN, begin, current):
            current.prefixes.append(current.keyword)
            current.keyword, current.modifiers = prefix.keyword, prefix.modifiers
            current.own, current.word, current.word_end = prefix.own, prefix.word, prefix.word_end
        else:
            self._close(begin)
            self.current = RawCommand(
                start=begin,
                own=prefix.own,
                word=prefix.word,
                word_end=prefix.word_end,
                keyword=prefix.keyword,
                column=self.positions.column(begin),
                modifiers=prefix.modifiers,
            )
        self.depth.restart(prefix.word_end)

    def _close(self, at: int) -> None:
        if self.current:
            self.current.end = self.positions.previous(at, least=self.current.word_end)
            if self.current.doc_taken and self.current.end == self.current.word_end:
                self.current.end = self._doc_end(self.current)
            self.commands.append(self.current)
            self.current = None

    def _doc_end(self, command: RawCommand) -> int:
        return self.lexed.docs.get(_skip_space(self.bare, command.word_end), command.end)
