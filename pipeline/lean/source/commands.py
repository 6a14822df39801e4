"""Split Lean source into commands, without Lean's parser.

Lean reads a command up to a token with which only a command can begin. So does this: core keywords (`theorem`, `end`,
…) are reserved and begin a command outside of brackets; words that also occur inside terms and tactics (`open`,
`set_option`) or are reserved by a library (`lemma`, `alias`) do so at the beginning of a line indented no deeper than
the command before; `lemma` with a name and a type does so outside of brackets. At column 0 open brackets are
forgotten, so one left open by a custom notation costs one command and not the file. An unknown command (a library's
own) is recognised by its place at column 0 after an empty line, the usual way to write one, or by the line of the file
that makes it. A command before another one on the same line (`#time theorem …`) holds that one.

All code behind the header is in some command: code without a known beginning is a command of its own, and so is text
that Lean does not read (`#exit`). In a Verso document each block of Lean is split by itself.

Owns the borders, prefixes (`open … in`, doc comments, attributes, modifiers) and the header. Names, statements and
scopes are read elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    LAKE,
    MODIFIERS,
    MODULE_DOC_MARK,
    RESERVED_SCOPES,
    STATED_BY_LIBRARIES,
    TAKES_DOC,
    Lexed,
    Positions,
    alternatives,
    lex,
)

# After these a term or tactic must follow, so `open … in` is part of it.
_EXPECTS_TERM = re.compile(r"(?::=|=>|↦|<\||\$|,|←|(?<![\w.])(?:by|do|then|else|from|fun|exact|at))\Z")
# After these a term goes on, so an unknown word is part of it.
_GOES_ON = re.compile(r"[=+\-*/<>≤≥≠→↔∧∨∣∘^∈∉⊆∪∩|:.·([{⟨]\Z")
_BAR = re.compile(r"\|\Z")
_IN = re.compile(rf"(?<![{ID_REST}.])in\Z")


_END = rf"(?![{ID_REST}%])(?!\.[{ID_FIRST}])"
_EMPTY_LINE = re.compile(r"\n[^\S\n]*\n")
# The text behind the keyword of a declaration: its name, and then binders, a type or a value.
_HEAD = re.compile(
    rf"[ \t]*(?:[{ID_FIRST}][{ID_REST}]*(?:\.[{ID_FIRST}][{ID_REST}]*)*)?(?:\.\{{|\s*(?::|[(\[{{⦃|]|where\b))"
)
_NAMED = re.compile(rf"[ \t]+[{ID_FIRST}][{ID_REST}]*(?:\.[{ID_FIRST}][{ID_REST}]*)*(?:\.\{{[^{{}}]*\}})?\s*")
_SCOPE_WORD = re.compile(rf"[ \t]+(?:{alternatives(RESERVED_SCOPES)})(?![{ID_REST}.])")
_BLANK = re.compile(rf"[\s{DOC_MARK}{MODULE_DOC_MARK}]*")
_START = re.compile(
    rf"(?<![{ID_REST}.`$])(?:{alternatives(KEYWORDS | MODIFIERS)}){_END}"
    rf"|@\[|[{DOC_MARK}{MODULE_DOC_MARK}]|#[a-z_][{ID_REST}]*|^[A-Za-z_][{ID_REST}]*(?!\.[{ID_FIRST}])",
    re.MULTILINE,
)
_WORD = re.compile(rf"#?[{ID_FIRST}][{ID_REST}%]*(?!\.[{ID_FIRST}])")
_THEN = re.compile(rf"(?<![{ID_REST}.])in\s+([{ID_FIRST}][{ID_REST}]*)(?![{ID_REST}.])")
# A command made by the file itself: `macro "claim" n:ident … : command`.
_OWN_COMMAND = re.compile(
    r'^[^"\n]*\b(?:macro|syntax|elab)\b[^"\n]{0,100}"\s*([A-Za-z_]\w*)\s*"[^=]{0,500}?:\s*command\b',
    re.MULTILINE,
)
_LONGEST_ATTRIBUTE = 20_000
_MOST_WASTED = 50 * _LONGEST_ATTRIBUTE
_SPACE = re.compile(r"\s*")
_BRACKET = re.compile(r"[()\[\]{}⟨⟩⦃⦄]")
_TAKES_ANOTHER = frozenset(
    {"open", "set_option", "omit", "include", "variable", "universe", "attribute", "#guard_msgs"}
)
"""Commands used before another one, with an `in`."""
_ONE_LINE = frozenset({"namespace", "section", "end", "mutual"})
CLOSERS = {")": "(", "]": "[", "}": "{", "⟩": "⟨", "⦄": "⦃"}
_IMPORT = re.compile(
    rf"\s*(?:(module|prelude)(?![{ID_REST}])"
    rf"|(?:public\s+|private\s+)?(?:meta\s+)?import\s+(?:all\s+|runtime\s+)?"
    rf"([{ID_FIRST}][{ID_REST}]*(?:\.[{ID_FIRST}][{ID_REST}]*)*))"
)
_IMPORT_LINE = re.compile(r"\bimport\b.*")
_LONGEST_HEADER = 200_000


@dataclass(slots=True)
class RawCommand:
    """A command's borders as offsets in the text.

    `start` is the beginning of its doc comment or first `… in`, `own` of its first attribute or modifier, `word` of its
    keyword. `prefixes` are the keywords before an `in`, `holder` that of the command around it: `#time`, or `#doc` in a
    Verso document. `understood`: its keyword is a known one.
    """

    start: int
    own: int
    word: int
    word_end: int
    keyword: str
    column: int
    modifiers: tuple[str, ...] = ()
    prefixes: list[str] = field(default_factory=list)
    holder: str = ""
    end: int = 0
    doc_taken: bool = False

    @property
    def declares(self) -> bool:
        return self.keyword in DECLARATIONS

    @property
    def understood(self) -> bool:
        known = self.keyword in KEYWORDS or self.keyword in LAKE
        return known or self.keyword.startswith(("#", "/")) or " " in self.keyword


@dataclass(frozen=True, slots=True)
class Split:
    """A file in commands. `own_kind`: it begins with `module` or `prelude`."""

    header_end: int
    own_kind: bool
    imports: tuple[str, ...]
    commands: tuple[RawCommand, ...]


def split(lexed: Lexed, positions: Positions) -> Split:
    """Find the header and the commands. Linear in the text."""
    at, own_kind, imports = _header(lexed)
    header_end = _skip_space(lexed.bare, at)
    commands = _Splitter(lexed, positions, header_end).run()
    return Split(header_end, own_kind, imports, tuple(commands))


def imports_of(text: str) -> tuple[str, ...]:
    """Return the modules imported by a file, without reading more of it."""
    ends = [line.end() for line in _IMPORT_LINE.finditer(text, 0, _LONGEST_HEADER)]
    return _header(lex(text[: ends[-1]]))[2] if ends else ()


def _header(lexed: Lexed) -> tuple[int, bool, tuple[str, ...]]:
    """Return the end of the imports, whether the file begins with `module` or `prelude`, and the imports."""
    at, imports, own_kind = 0, [], False
    while match := _IMPORT.match(lexed.bare, at):
        at = match.end()
        own_kind = own_kind or match.group(1) is not None
        if match.group(2):
            start, end = match.span(2)
            imports.append(lexed.code[start:end])
    return at, own_kind, tuple(imports)


def _skip_space(bare: str, at: int) -> int:
    match = _SPACE.match(bare, at)
    return match.end() if match else at


class _Depth:
    """Open brackets since the beginning of the current command, counted only on demand."""

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
    """Doc comments, attributes and modifiers, and the keyword after them."""

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
        self.limit = len(lexed.bare)
        self.own = frozenset(_OWN_COMMAND.findall(lexed.code)) if '"' in lexed.code else frozenset()
        self.wasted = 0  # characters read in vain behind an unclosed `@[`

    def run(self) -> list[RawCommand]:
        result: list[RawCommand] = []
        for number, (start, end) in enumerate(self.lexed.parts):
            self.commands, self.limit = [], end
            self._part(max(start, self.start))
            result += self._accounted(max(start, self.start), holder="#doc" if number else "")
            if result and result[-1].keyword == "#exit":
                break
        return result

    def _part(self, at: int) -> None:
        """Find the commands with a known beginning from `at` to the limit."""
        self.depth.restart(at)
        while match := _START.search(self.bare, at, self.limit):
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
            if prefix is None or not self._accepts(begin, prefix):
                continue
            self._open(begin, prefix)
            if prefix.keyword == "#exit":
                break  # Lean reads no further
        self._close(self.limit)

    def _accounted(self, at: int, *, holder: str) -> Iterator[RawCommand]:
        """Yield the commands, and the code before and between them as commands of its own."""
        for command in self.commands:
            yield from self._loose(at, command.start, holder)
            command.holder = command.holder or holder
            at = command.end
            yield command
        yield from self._loose(at, self.limit, holder)

    def _loose(self, at: int, end: int, holder: str) -> Iterator[RawCommand]:
        """Yield the code between two commands, without a known beginning, as one."""
        blank = _BLANK.match(self.bare, at, end)
        start = blank.end() if blank else at
        if start < end:
            word = _WORD.match(self.bare, start, end)
            word_end = word.end() if word else start + 1
            last = self.positions.previous(end, least=word_end)
            column = self.positions.column(start)
            keyword = word.group() if word else self.bare[start]
            yield RawCommand(start, start, start, word_end, keyword, column, holder=holder, end=last)

    def _prefix(self, at: int) -> tuple[_Prefix | None, int]:
        """Read doc comments, attributes and modifiers from `at`; also return the end of the text read for certain."""
        bare, own = self.bare, -1
        modifiers: list[str] = []
        first = at
        while at < len(bare):
            if bare[at] == DOC_MARK and at in self.lexed.docs:
                at = _skip_space(bare, self.lexed.docs[at])
                continue
            if bare.startswith("@[", at):
                own = at if own < 0 else own
                end = self._bracket_end(at + 1)
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
                result = self._keyword(prefix)
                return result, result.word_end if result else match.end()
            own = at if own < 0 else own
            modifiers.append(word)
            at = match.end()
            if bare.startswith("[", at):  # scoped[Manifold] notation …
                end = self._bracket_end(at)
                if end is None:
                    return None, at
                at = end
            at = _skip_space(bare, at)
        return None, at

    def _states(self, begin: int, prefix: _Prefix) -> bool:
        """Return whether a name, binders and a type follow, outside of brackets.

        After a hypothesis called `lemma` they do not.
        """
        outside = self.depth.before(begin) == 0
        name = _NAMED.match(self.bare, prefix.word_end, self.limit) if outside else None
        at: int | None = name.end() if name else None
        while at is not None and self.bare.startswith(("(", "[", "{", "⦃"), at):
            end = self._bracket_end(at)
            at = None if end is None else _skip_space(self.bare, end)
        return at is not None and self.bare.startswith(":", at) and not self.bare.startswith(":=", at)

    def _bracket_end(self, at: int) -> int | None:
        """Return the offset after the closing bracket of the one at `at`, or None."""
        depth = 0
        limit = min(len(self.bare), at + _LONGEST_ATTRIBUTE)
        if self.wasted > _MOST_WASTED:
            return None
        for match in _BRACKET.finditer(self.bare, at, limit):
            depth += -1 if match.group() in CLOSERS else 1
            if depth == 0:
                return match.end() if CLOSERS.get(match.group()) == self.bare[at] else None
        self.wasted += limit - at
        return None

    def _keyword(self, prefix: _Prefix) -> _Prefix | None:
        """Merge two-word keywords; return None for a `deriving` clause, which only looks like one."""
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
            return 0 in (column, self.positions.column(prefix.word)) or (
                self.depth.before(begin) == 0 and not self._is_argument(begin, prefix, first=first)
            )
        known = word in KEYWORDS or word.startswith("#")
        after_in = self._is_taken(begin)
        if known and after_in:
            return True
        stated = word in STATED_BY_LIBRARIES
        if not first and not (stated and self._states(begin, prefix)):
            return False
        if current and self._after(_EXPECTS_TERM, begin, current):
            waits = word in ("open", "set_option") or not known
            if waits or (column and stated):
                return False
        if known:
            if column == 0:
                return True
            if current and (current.declares or not current.understood) and column > current.column:
                # Reserved by a library, it begins a command at any column, as `theorem` does.
                return stated and current.keyword not in HAS_FIELDS and self._states(begin, prefix)
            return self.depth.before(begin) == 0
        if column or word in CONTINUATIONS or (current and self._after(_GOES_ON, begin, current)):
            return False
        # A documented field of a structure may stand at column 0 too.
        fields = current is not None and current.keyword in HAS_FIELDS
        return (
            (prefix.decorated and not fields)
            or after_in
            or word in self.own
            or self._after_empty_line(begin)
            or _SCOPE_WORD.match(self.bare, prefix.word_end, self.limit) is not None
        )

    def _is_taken(self, begin: int) -> bool:
        """Return whether `begin` is behind the `in` of the command before it.

        In brackets (`∀ᶠ x in l`), and inside a library's command, an `in` may be a term's.
        """
        current = self.current
        if current is None or current.declares or not self._after(_IN, begin, current):
            return False
        return (current.understood or self.positions.column(begin) == 0) and not self.depth.before(begin)

    def _is_argument(self, begin: int, prefix: _Prefix, *, first: bool) -> bool:
        """Return whether a reserved word is only mentioned.

        It is a constructor's name, an argument of `#help`, or the second word of a library's `snip end`.
        """
        current = self.current
        if current is None:
            return False
        if not first and not current.understood and prefix.keyword in RESERVED_SCOPES:
            return self._after_its_word(begin, current)
        if current.keyword.startswith("#") and not first and not self._after(_IN, begin, current):
            return not _HEAD.match(self.bare, prefix.word_end, self.limit)
        return current.keyword in HAS_FIELDS and self._after(_BAR, begin, current)

    def _after_its_word(self, at: int, command: RawCommand) -> bool:
        """Return whether only spaces separate a command's keyword from `at`, on the same line."""
        return not self.bare[command.word_end : at].strip(" \t")

    def _after(self, pattern: re.Pattern[str], at: int, current: RawCommand) -> bool:
        end = self.positions.previous(at, least=current.start)
        return pattern.search(self.bare, max(current.start, end - 8), end) is not None

    def _after_empty_line(self, at: int) -> bool:
        if self.current is None:
            return True  # no command to continue
        end = self.positions.previous(at, least=self.current.start)
        return _EMPTY_LINE.search(self.lexed.text, end, at) is not None

    def _open(self, begin: int, prefix: _Prefix) -> None:
        current = self.current
        if current and self._is_taken(begin):
            current.prefixes.append(current.keyword)
            current.keyword, current.modifiers = prefix.keyword, prefix.modifiers
            current.own, current.word, current.word_end = prefix.own, prefix.word, prefix.word_end
        else:
            holder = current.keyword if current and self._holds(current, begin) else ""
            self._close(begin)
            self.current = RawCommand(
                start=begin,
                own=prefix.own,
                word=prefix.word,
                word_end=prefix.word_end,
                keyword=prefix.keyword,
                column=self.positions.column(begin),
                modifiers=prefix.modifiers,
                holder=holder,
            )
        self.depth.restart(prefix.word_end)

    def _holds(self, current: RawCommand, begin: int) -> bool:
        """Return whether a command that shows something, or a library's, holds the command after it on its line."""
        if current.declares or not (current.keyword.startswith("#") or not current.understood):
            return False
        return self.positions.line(current.word) == self.positions.line(begin)

    def _close(self, at: int) -> None:
        if self.current:
            if self.current.keyword in _ONE_LINE:  # with a name on its line, or without one
                line = self.bare.find("\n", self.current.word_end, at)
                at = line if line >= 0 else at
            self.current.end = self.positions.previous(at, least=self.current.word_end)
            if self.current.keyword in _TAKES_ANOTHER:
                self._taken(self.current)
            if self.current.doc_taken and self.current.end == self.current.word_end:
                self.current.end = self._doc_end(self.current)
            self.commands.append(self.current)
            self.current = None

    def _taken(self, command: RawCommand) -> None:
        """Make a command the unknown one behind its `in`."""
        depth = _Depth(self.bare)
        depth.restart(command.word_end)
        result = _THEN.finditer(self.bare, command.word_end, command.end)
        taken = next((one for one in result if not depth.before(one.start())), None)
        if taken:
            command.prefixes.append(command.keyword)
            command.keyword = taken.group(1)
            command.own = command.word = taken.start(1)
            command.word_end = taken.end(1)

    def _doc_end(self, command: RawCommand) -> int:
        return self.lexed.docs.get(_skip_space(self.bare, command.word_end), command.end)
