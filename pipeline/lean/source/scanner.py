"""Read Lean 4 source without Lean: declarations, statements, imports, and sorries with their exact bytes.

`scan_source` gives the log's record; `parse` adds the commands, for the prover and the gate; `read_file` adds hashes of
the proofs, to tell new from old ones, `read_source` both; `locate` gives the borders of statements, for the tracer.
None raises on any input: `error` names the unreadable part and the rest is still read. Bytes outside of UTF-8 count as
one column each and show as U+FFFD, and byte offsets are into the file as it is. All are linear in the size of the file.
Carriage returns and a byte order mark are white space and no error.

It is a reader of text: it knows nothing of macros' expansions, and takes the project's commands at face value (see
`commands`). The rest is left to the tracer, and Lean. All code of a file is in some declaration or command; unknown
commands are listed, with their places. A sorry in a command without a declaration is listed under that command:
`_macro`, `_Statement`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from pipeline.lean.source.commands import RawCommand, Split, split
from pipeline.lean.source.declarations import Head, Scopes, name_parts, read_command, read_head, scope_name
from pipeline.lean.source.lexer import (
    LEAVE_NOTHING,
    MAKES_TOKENS,
    NOTATIONS,
    STRING_FILLER,
    Lexed,
    Positions,
    decode,
    lex,
    printable,
)
from pipeline.lean.source.sorries import candidates, context_hash, read_sorries
from store.domain.identity import hash_of_statement, normalise, short_hash
from store.domain.keywords import nameless
from store.domain.records import Declaration, NotUnderstood, ReadFile, ScannedFile, Sorry

_SCOPE_KINDS = frozenset({"namespace", "section", "end", "mutual"})
_STATE_KINDS = frozenset({"open", "variable", "universe", "set_option", "include", "omit", "export"})
_KIND_OF = {"variables": "variable", "variable!": "variable", "universes": "universe"}
_OWN_KINDS = frozenset({*_SCOPE_KINDS, *_STATE_KINDS, "attribute", "notation", "macro", "syntax"})
_LOCAL = frozenset({"local", "scoped"})
_STRINGS = re.compile(f"{STRING_FILLER}+")
# White space of a string stands for itself while other white space is made one space; a line ends alike in every file.
_KEPT_SPACE = {ord(" "): "\ue000", ord("\n"): "\ue001", ord("\t"): "\ue002", ord("\r"): None}
_SPACE_AGAIN = {0xE000: " ", 0xE001: "\n", 0xE002: "\t"}


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the file. The range covers its doc comment and its `… in` prefixes.

    `kind` is "declaration", or the keyword of a command for scopes ("namespace", "section", "end", "open", "variable",
    "universe", "set_option", "include", "omit", "export", "attribute", …), else "other". A `mutual … end` block is one
    command of kind "declaration". `preamble` re-issues its effect on later commands, if it has one. `holder` is the
    keyword of the command around this one: `#time`, or `#doc` for a block of a Verso document.
    """

    kind: str
    byte_start: int
    byte_end: int
    keyword: str
    text: str
    preamble: str = ""
    holder: str = ""
    closes: int = 0
    opens: int = 0


@dataclass(frozen=True)
class SourceFile:
    """A file in commands. `header_end` is the first possible byte of a command.

    `own_header` is the header of a file with `module` or `prelude` at its beginning, without its comments; "" for
    others, whose imports say everything.
    """

    text: str
    header_end: int
    own_header: str
    imports: tuple[str, ...]
    commands: tuple[Command, ...]
    scanned: ScannedFile

    def command_at(self, byte: int) -> Command | None:
        """Return the command with this byte; None between commands."""
        return next((one for one in self.commands if one.byte_start <= byte < one.byte_end), None)

    def declarations_in(self, command: Command) -> int:
        """Return the number of declarations in a command; several share a `mutual` block."""
        return sum(
            command.byte_start <= one.byte_start < command.byte_end for one in self.scanned.declarations
        )

    def preamble_at(self, byte: int) -> str:
        """Re-issue the scopes and settings in force at a byte, in their order, one command a line.

        These are open namespaces and sections, and inside them `open`, `export`, `variable`, `universe`, `set_option`,
        `include`, `omit`, and `local` or `scoped` attributes, notations and macros. Definitions before the byte
        are left to the compiled module, and an `open … in` to the command at the byte.
        """
        active: Sequence[str] = ()
        for command, lines in self.in_force():
            active = lines
            if command.byte_end > byte:
                break
        return "\n".join(active)

    def in_force(self) -> Iterator[tuple[Command, Sequence[str]]]:
        """Yield each command with lines to re-issue the scopes and settings before it (see `preamble_at`).

        It is one list, which grows and shrinks on the way.
        """
        active: list[str] = []
        scopes: list[int] = []  # the position in `active` of each open scope
        for command in self.commands:
            yield command, active
            if command.closes:
                del active[scopes[-command.closes] :]
                del scopes[-command.closes :]
            elif command.opens:
                for line in command.preamble.splitlines():  # one for each scope
                    scopes.append(len(active))
                    active.append(line)
            elif command.preamble:
                active.append(command.preamble)

    @cached_property
    def declarations(self) -> dict[str, Declaration]:
        """Declarations by name; the first of each."""
        return {item.name: item for item in reversed(self.scanned.declarations)}


class Located(NamedTuple):
    """A declaration with its borders in the text: offsets in code points. Its statement ends at `stated`."""

    start: int
    stated: int
    end: int
    record: Declaration


@dataclass(frozen=True, slots=True)
class LocatedFile:
    """A file in code points: `code` is its text with comments blanked, at the same offsets. `docs` are the borders of
    the doc comments, in their order."""

    code: str
    positions: Positions
    declarations: tuple[Located, ...]
    docs: tuple[tuple[int, int], ...]


def scan_source(data: bytes, *, path: str) -> ScannedFile:
    """Read one file's declarations and sorries. Never raises."""
    return _Reader(data).scan(path)


def read_file(data: bytes, *, path: str) -> ReadFile:
    """Read one file as `scan_source` does, and hash each declaration's proof or value. Never raises."""
    return _Reader(data).read(path)


def read_source(data: bytes, *, path: str) -> tuple[ReadFile, SourceFile]:
    """Read one file as `read_file` and `parse` do, at once. Never raises."""
    reader = _Reader(data)
    read = reader.read(path)
    return read, reader.source(read.scan)


def parse(data: bytes, *, path: str = "") -> SourceFile:
    """Read one file with its commands. Never raises."""
    reader = _Reader(data)
    return reader.source(reader.scan(path))


def locate(data: bytes) -> LocatedFile:
    """Read the borders of one file's declarations and their statements. Never raises."""
    reader = _Reader(data)
    result = [item for item in reader._declarations() if item.declares]
    declarations = tuple(Located(item.start, item.stated, item.end, item.record) for item in result)
    docs = (
        (start, end) for start, end in reader.lexed.docs.items() if reader.lexed.text.startswith("/--", start)
    )
    return LocatedFile(printable(reader.lexed.code), reader.positions, declarations, tuple(sorted(docs)))


_MARK = re.compile(
    r"(?:@\[|,)\s*(?:(?:local|scoped)\s+)?(?:\w+\.)*(?:exercise|challenge)(?![\w.'!?])", re.IGNORECASE
)
"""A project's attribute for sorries left to people: `@[exercise]`, `@[simp, Book.exercise 3]`."""


_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PARSER = re.compile(r"(?:leading|trailing)_parser")
_EATS = re.compile(r'.(?:--|/-|")', re.DOTALL)


def _eating_tokens(lexed: Lexed, commands: Split) -> tuple[str, ...]:
    """Return the tokens of a file's notations with a comment's or string's opening in them, behind their beginning.

    At the beginning of a token Lean looks for comments and strings first.
    """
    result: dict[str, None] = {}
    programs = "ing_parser" in lexed.bare
    for command in commands.commands:
        notation = command.keyword in MAKES_TOKENS
        if notation or (programs and _PARSER.search(lexed.bare, command.word_end, command.end)):
            end = lexed.bare.find("=>", command.word_end, command.end) if notation else -1
            for string in _STRING.finditer(lexed.code, command.word_end, end if end >= 0 else command.end):
                token = string.group(1).strip().replace('\\"', '"').replace("\\\\", "\\")
                if _EATS.search(token):
                    result[token] = None
    return tuple(result)


@dataclass(slots=True)
class _DeclarationSpan:
    """A declaration's borders in the text and the end of its statement, beside its record.

    Without `declares` it is a command listed for its sorries.
    """

    start: int
    stated: int
    end: int
    record: Declaration
    marked: bool
    declares: bool


class _Reader:
    def __init__(self, data: bytes) -> None:
        text, problem = decode(data)
        self.problems = [problem] if problem else []
        self._split(lex(text))
        tokens = _eating_tokens(self.lexed, self.split)
        if tokens:
            # Here they are read right; a file that imports this one may be read wrong.
            self._split(lex(text, tokens=tokens))
            named = ", ".join(map(repr, tokens))
            self.problems.append(f"a token that holds what opens a comment or a string: {printable(named)}")
        self.candidates = candidates(self.lexed)
        # The number of scopes closed or opened by each such command. The position of a block's command for `mutual`.
        # The commands with declarations.
        self.closed: dict[int, int] = {}
        self.opened: dict[int, int] = {}
        self.mutual_ends: dict[int, int] = {}
        self.declaring: set[int] = set()

    def _split(self, lexed: Lexed) -> None:
        self.lexed = lexed
        self.positions = Positions(lexed.text, lexed.bare)
        self.split: Split = split(lexed, self.positions)

    def scan(self, path: str) -> ScannedFile:
        return self._scanned(path, self._declarations())

    @property
    def own_header(self) -> str:
        code = printable(self.lexed.code[: self.split.header_end])
        lines = [line.strip() for line in code.splitlines() if line.strip()]
        return "\n".join(lines) + "\n" if self.split.own_kind else ""

    def read(self, path: str) -> ReadFile:
        result = self._declarations()
        hashes = (short_hash("proof", self._plain(item.stated, item.end)) for item in result)
        words = self.lexed.text.lower().count("exercise")
        marked = dict.fromkeys(item.record.name for item in result if item.marked)
        return ReadFile(self._scanned(path, result), tuple(hashes), words, tuple(marked))

    def _plain(self, start: int, end: int) -> str:
        """Return code on one line, with each white space outside strings as one space."""
        code = self.lexed.code[start:end]
        if '"' in code:
            pieces: list[str] = []
            at = 0
            for string in _STRINGS.finditer(self.lexed.bare, start, end):
                first, last = string.start() - start, string.end() - start
                pieces += (code[at:first], code[first:last].translate(_KEPT_SPACE))
                at = last
            return printable(normalise("".join([*pieces, code[at:]])).translate(_SPACE_AGAIN))
        return printable(normalise(code))

    def _scanned(self, path: str, found: list[_DeclarationSpan]) -> ScannedFile:
        problems = [*self.problems]
        nul = self.lexed.text.find("\0")
        if nul >= 0:
            problems.append(f"a NUL at byte {self.positions.byte(nul)}")
        return ScannedFile(
            path=path,
            error="; ".join([*problems, *self.lexed.errors]) or None,
            imports=tuple(printable(name) for name in self.split.imports),
            declarations=tuple(item.record for item in found),
            sorries=tuple(self._sorries(found)),
            not_understood=tuple(self._not_understood()),
        )

    def _not_understood(self) -> Iterator[NotUnderstood]:
        """Yield the unknown commands. Call after `_declarations`, which finds the commands with declarations."""
        for number, command in enumerate(self.split.commands):
            if not command.understood and number not in self.declaring:
                place = self.positions
                yield NotUnderstood(
                    word=printable(command.keyword),
                    line=place.line(command.start),
                    column=place.column(command.start),
                    byte_start=place.byte(command.start),
                    byte_end=place.byte(command.end),
                )

    def _declarations(self) -> list[_DeclarationSpan]:
        result: list[_DeclarationSpan] = []
        scopes = Scopes()
        for number, command in enumerate(self.split.commands):
            if command.prefixes:
                before = replace(
                    command,
                    own=command.start,
                    word_end=command.start,
                    end=command.own,
                    keyword=command.prefixes[0],
                )
                result += self._holding(before, scopes)
            head = None
            match command.keyword:
                case "namespace" | "section":
                    opened = len(scopes.open)
                    scopes.enter(command.keyword, scope_name(self.lexed, command), number)
                    self.opened[number] = len(scopes.open) - opened
                case "mutual":
                    scopes.enter("mutual", None, number)
                case "end":
                    closed = scopes.leave(scope_name(self.lexed, command))
                    if closed and closed[-1].kind == "mutual":
                        self.mutual_ends[closed[-1].command] = number
                    else:
                        self.closed[number] = len(closed)
                case _:
                    head = read_head(self.lexed, self.positions, command)
            if head is None:
                result += self._holding(command, scopes)
            else:
                self.declaring.add(number)
                result += self._spans(command, head, scopes, declares=True)
        return result

    def _holding(self, command: RawCommand, scopes: Scopes) -> list[_DeclarationSpan]:
        """Return the place of the sorries of a command without a declaration, if Lean would elaborate one there."""
        first, last = (bisect_left(self.candidates, at) for at in (command.own, command.end))
        inside = self.candidates[first:last]
        if not inside or command.keyword in LEAVE_NOTHING or command.keyword in NOTATIONS:
            return []
        if not any(read_sorries(self.lexed, self.positions, command.own, command.end, inside)):
            return []
        head = read_command(self.lexed, self.positions, command)
        return self._spans(command, head, scopes, declares=False)

    def _spans(
        self, command: RawCommand, head: Head, scopes: Scopes, *, declares: bool
    ) -> list[_DeclarationSpan]:
        start, end = command.own, command.end
        statement = self._plain(head.start, head.end)
        text_hash = short_hash("text", self._plain(start, end))
        places = self.positions
        marked = _MARK.search(self.lexed.bare, start, command.word) is not None
        return [
            _DeclarationSpan(
                start,
                head.end,
                end,
                Declaration(
                    name=printable(scopes.qualify(name or nameless(head.kind))),
                    kind=printable(head.kind),
                    line=places.line(start),
                    column=places.column(start),
                    end_line=places.line(end),
                    end_column=places.column(end),
                    byte_start=places.byte(start),
                    byte_end=places.byte(end),
                    statement=statement,
                    statement_hash=hash_of_statement(statement),
                    text_hash=text_hash,
                ),
                marked,
                declares,
            )
            for name in head.names
        ]

    def _sorries(self, found: list[_DeclarationSpan]) -> list[Sorry]:
        candidates = self.candidates
        sorries: list[Sorry] = []
        for index, item in enumerate(found):
            first, last = bisect_left(candidates, item.start), bisect_left(candidates, item.end)
            if first == last or (index and found[index - 1].start == item.start):
                continue
            inside = read_sorries(self.lexed, self.positions, item.start, item.end, candidates[first:last])
            for ordinal, (at, word, mode) in enumerate(inside):
                byte = self.positions.byte(at)
                sorries.append(
                    Sorry(
                        declaration=item.record.name,
                        index=index,
                        ordinal=ordinal,
                        token=word,
                        mode=mode,
                        line=self.positions.line(at),
                        column=self.positions.column(at),
                        byte_start=byte,
                        byte_end=byte + len(word),
                        context_hash=context_hash(self.lexed, item.start, item.end, at, len(word)),
                    )
                )
        return sorries

    def source(self, scanned: ScannedFile) -> SourceFile:
        return SourceFile(
            text=printable(self.lexed.text),
            header_end=self.positions.byte(self.split.header_end),
            own_header=self.own_header,
            imports=scanned.imports,
            commands=self.commands(),
            scanned=scanned,
        )

    def commands(self) -> tuple[Command, ...]:
        """Call after `scan`, which finds the scopes."""
        commands = []
        raw = self.split.commands
        number = 0
        while number < len(raw):
            command = raw[number]
            last = self.mutual_ends.get(number, number)
            commands.append(self._command(number, command, raw[last].end))
            number = last + 1
        return tuple(commands)

    def _command(self, number: int, command: RawCommand, end: int) -> Command:
        keyword = _KIND_OF.get(command.keyword, command.keyword)
        if keyword == "mutual" or number in self.declaring:
            kind = "declaration"
        else:
            kind = keyword if keyword in _OWN_KINDS else "other"
        return Command(
            kind=kind,
            byte_start=self.positions.byte(command.start),
            byte_end=self.positions.byte(end),
            keyword=command.keyword,
            text=printable(self.lexed.text[command.start : end]),
            preamble=self._preamble(command, kind, opens=self.opened.get(number, 0)),
            holder=command.holder,
            closes=self.closed.get(number, 0),
            opens=self.opened.get(number, 0),
        )

    def _preamble(self, command: RawCommand, kind: str, *, opens: int) -> str:
        if kind == "declaration":
            return ""
        code = normalise(self.lexed.code[command.start : command.end])
        name = scope_name(self.lexed, command) if opens > 1 else None
        if name:  # `namespace A.B` as two, since `end B` may close only the inner one
            before = code.removesuffix(name)
            return printable("\n".join(f"{before}{part}" for part in name_parts(name)))
        local_attribute = kind == "attribute" and ("[local " in code or "[scoped " in code)
        local = not _LOCAL.isdisjoint(command.modifiers)
        if kind in ("namespace", "section") or kind in _STATE_KINDS or local_attribute or local:
            return printable(code)
        return ""
