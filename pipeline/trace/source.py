"""The part of a trace that comes from a file's text alone: premises, the borders of theorems, the places of names.

Positions are LeanDojo's, (line, column) from 1, the end after the last character. As there, a declaration begins at its
doc comment, and its text at its first attribute or modifier.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Protocol

from pipeline.lean.client.errors import ReplRefused
from pipeline.lean.client.messages import Constant
from pipeline.lean.source.declarations import name_parts
from pipeline.lean.source.lexer import ID_FIRST, ID_REST, Positions, lex
from pipeline.lean.source.scanner import Located, locate
from pipeline.trace.tree import CORE, Tree
from store.domain.keywords import THEOREM_KINDS, WITHOUT_CONSTANT, is_nameless
from store.domain.records import ConstantUse, Position, Premise, PremiseUse

Site = tuple[str, Position, Position]
"""A path, and a name's position in it."""

_DOJO_KINDS = {"lemma": "lemma", "alias": "stdtacticaliasalias"}


@dataclass(frozen=True)
class FileSource:
    """A file's declarations with their borders in `code`, the text with comments blanked."""

    path: str
    code: str
    positions: Positions
    declarations: tuple[Located, ...]
    docs: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, path: str, data: bytes) -> FileSource:
        found = locate(data)
        return cls(path, found.code, found.positions, found.declarations, found.docs)

    def position(self, at: int) -> Position:
        """Return a place in the text in LeanDojo's count."""
        return self.positions.line(at), self.positions.column(at) + 1

    def begin(self, item: Located) -> Position:
        """Return the start of a declaration: its doc comment, if it has one."""
        index = bisect_right(self.docs, item.start, key=lambda doc: doc[1]) - 1
        if index >= 0:
            start, end = self.docs[index]
            if not self.code[end : item.start].strip():
                return self.position(start)
        return self.position(item.start)

    def clean(self, start: int, end: int) -> str:
        """Return a piece of the text without comments and the lines that they leave empty."""
        lines = (line.rstrip() for line in self.code[start:end].splitlines())
        return "\n".join(line for line in lines if line)

    def statement(self, item: Located) -> str:
        """Return a theorem from its beginning to its proof, the `:=` with it."""
        assigned = ":=" if self.code.startswith(":=", item.stated) else ""
        text = self.clean(item.start, item.stated)
        return f"{text} {assigned}".rstrip()

    @cached_property
    def sites(self) -> dict[str, Site]:
        """Return the declaration of each name (`plain_name`); of declarations that share one, the first."""
        found: dict[str, Site] = {}
        for item in self.declarations:
            name = plain_name(item.record.name)
            if name not in found and not anonymous(item):
                start, end = self._name(item)
                found[name] = (self.path, self.position(start), self.position(end))
        return found

    def premises(self) -> tuple[Premise, ...]:
        """Return what proofs may use, in the order of the text; one without a name has None there."""
        return tuple(self._premises())

    def _premises(self) -> Iterator[Premise]:
        for item in self.declarations:
            kind = item.record.kind
            if kind in WITHOUT_CONSTANT:
                continue
            code = self.clean(item.start, item.stated if kind in THEOREM_KINDS else item.end)
            yield Premise(
                full_name=None if anonymous(item) else item.record.name,
                code=code.rstrip(),
                start=self.begin(item),
                end=self.position(item.end),
                kind=_DOJO_KINDS.get(kind, "commanddeclaration"),
            )

    def _name(self, item: Located) -> tuple[int, int]:
        """Return the range of the name in its declaration: as much of it as is written there."""
        parts = name_parts(item.record.name) or [item.record.name]
        limit = item.end if item.record.kind == "alias" else item.stated
        for first in range(len(parts)):
            written = ".".join(parts[first:])
            at = self.code.find(written, item.start, limit)
            while at >= 0:
                before, after = self.code[at - 1 : at], self.code[at + len(written) : at + len(written) + 1]
                rooted = self.code.endswith("_root_.", item.start, at)
                if (rooted or not _joins(before)) and not (after and (after.isalnum() or after in "_'!?")):
                    return at, at + len(written)
                at = self.code.find(written, at + 1, limit)
        return item.start, item.stated


def plain_name(name: str) -> str:
    """Return a name without its quotes: where they are needed, Lean and people see differently."""
    return name.replace("«", "").replace("»", "")


def anonymous(item: Located) -> bool:
    """Return whether a declaration has no name of its own."""
    return is_nameless(item.record.name, item.record.kind)


def owner_site(sites: dict[str, Site], name: str) -> Site | None:
    """Return where a constant is declared: its own name, or the declaration that made it (`And.casesOn`: `And`)."""
    parts = [plain_name(part) for part in name_parts(name)] or [name]
    for count in range(len(parts), 0, -1):
        site = sites.get(".".join(parts[:count]))
        if site is not None:
            return site
    return None


def _joins(char: str) -> bool:
    return bool(char) and (char.isalnum() or char in "_'!?.»")


# ---- placing a tactic that Lean printed
# Lean's records of tactics have no positions. They come in source order, an outer tactic before those inside it, so
# each is searched for from where the last one began, ignoring layout and comments. A tactic that ran several times
# (`t <;> s`, `all_goals`) is found once.


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
        """Return the first place from `at` on where the words are whole words; -1 for none."""
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
    """Return the place of each tactic in `code[start:end]` (comments blanked); None where it is not found."""
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


# ---- LeanDojo's marks: premises between `<a>` and `</a>`
# Lean names the constants that a step used, and not where in its text. A word matches such a constant where Lean's
# name resolution would take it: written in full, or under an open namespace. A hypothesis hides a constant of its
# name, and what follows its dot (`h.symm`) may be one that the step used.


_PART = rf"(?:«[^«»\n]*»|[{ID_FIRST}][{ID_REST}]*)"
_WORD = re.compile(rf"\.?{_PART}(?:\.{_PART})*")
_PARTS = re.compile(_PART)
_SCOPE = re.compile(r"^\s*(namespace|open)\b(.*)$", re.MULTILINE)
_NAMED = re.compile(rf"{_PART}(?:\.{_PART})*")


def open_namespaces(preamble: str, declaration: str) -> tuple[str, ...]:
    """Return the namespaces under which a name may be written short at a declaration, "" among them.

    `preamble` re-issues the scopes there (`SourceFile.preamble_at`), `declaration` is the full name.
    """
    current = ""
    opened: list[str] = []
    for keyword, rest in _SCOPE.findall(preamble):
        names = _NAMED.findall(rest.split("hiding")[0].split("renaming")[0].split("(")[0])
        if keyword == "namespace" and names:
            current = f"{current}.{names[0]}" if current else names[0]
        elif keyword == "open":
            for name in names:
                opened += [name, *(f"{outer}.{name}" for outer in _outer(current) if outer)]
    # A declaration's own name opens its namespaces for its proof.
    own = declaration.rpartition(".")[0]
    return tuple(dict.fromkeys([*_outer(own), *_outer(current), *opened]))


def annotate(
    text: str, *, uses: Iterable[ConstantUse], hidden: Collection[str], namespaces: Collection[str]
) -> tuple[str, tuple[PremiseUse, ...]]:
    """Return the marked text, and the premises in the order of the marks.

    Only constants with a known site are marked: a mark is a premise that a corpus can be asked for.
    """
    known = {use.full_name: use for use in uses if use.site is not None}
    if not known:
        return text, ()
    bare = lex(text).bare
    pieces: list[str] = []
    premises: list[PremiseUse] = []
    done = 0
    for start, end, name in _found(bare, text, known, hidden, namespaces):
        use = known[name]
        assert use.site is not None
        path, site_start, site_end = use.site
        pieces += [text[done:start], "<a>", text[start:end], "</a>"]
        premises.append(PremiseUse(name, path, site_start, site_end))
        done = end
    return "".join([*pieces, text[done:]]), tuple(premises)


def _found(
    bare: str,
    text: str,
    known: Mapping[str, ConstantUse],
    hidden: Collection[str],
    namespaces: Collection[str],
) -> Iterator[tuple[int, int, str]]:
    by_last: dict[str, list[str]] = {}
    for name in known:
        by_last.setdefault(_parts(name)[-1], []).append(name)
    for match in _WORD.finditer(bare):
        start, end = match.span()
        if start and (bare[start - 1].isalnum() or bare[start - 1] == "'"):
            continue  # the tail of a number or a character
        word = text[start:end]
        if word.startswith("."):
            # `.inl h`: the type says which one; only a single candidate is certain.
            yield from _single(by_last, _parts(word)[-1], start, end)
            continue
        parts = _parts(word)
        taken = 0
        if parts[0] not in hidden:
            for count in range(len(parts), 0, -1):
                constant = _resolved(".".join(parts[:count]), known, namespaces)
                if constant is not None:
                    taken = count
                    yield start, start + len(".".join(parts[:count])), constant
                    break
        if taken == len(parts) or (taken == 0 and parts[0] not in hidden):
            continue
        rest = max(taken, 1)
        at = start + len(".".join(parts[:rest])) + 1
        for part in parts[rest:]:
            yield from _single(by_last, part, at, at + len(part))
            at += len(part) + 1


def _single(
    by_last: Mapping[str, list[str]], part: str, start: int, end: int
) -> Iterator[tuple[int, int, str]]:
    names = by_last.get(part, [])
    if len(names) == 1:
        yield start, end, names[0]


def _resolved(word: str, known: Mapping[str, ConstantUse], namespaces: Collection[str]) -> str | None:
    word = word.removeprefix("_root_.")
    if word in known:
        return word
    return next((name for space in namespaces if space and (name := f"{space}.{word}") in known), None)


def _parts(name: str) -> list[str]:
    return _PARTS.findall(name) or [name]


def _outer(name: str) -> list[str]:
    """The namespace and those around it, the innermost first, "" last."""
    parts = _parts(name) if name else []
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]


# ---- where constants are defined
# What a library defines is looked up once; what the project defines is asked in each file, because two files that do
# not import each other may define one name.


_CORE_MODULES = frozenset({"Init", "Std", "Lean", "Lake"})


class Inspector(Protocol):
    """What describes a constant once a file was elaborated: a REPL, or an answer that has all of them."""

    async def env_inspect(
        self, name: str, *, value: bool | None = False, dependency: bool = False, source: bool = False
    ) -> Constant:
        """See `Repl.env_inspect`."""
        ...


class Sites:
    """The definition sites of one commit, shared by all of its files."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._by_file: dict[str, dict[str, Site]] = {}
        self._library: dict[str, Site | None] = {}

    async def uses(self, names: Iterable[str], *, own: FileSource, lean: Inspector) -> dict[str, ConstantUse]:
        """Return the constants with their sites, by name. `own` is the file that Lean has just elaborated."""
        return {name: ConstantUse(name, await self._site(name, own, lean)) for name in names}

    async def _site(self, name: str, own: FileSource, lean: Inspector) -> Site | None:
        here = own.sites.get(plain_name(name))
        if here is not None:
            return here
        if name in self._library:
            return self._library[name]
        try:
            found = await lean.env_inspect(name, source=True)
        except ReplRefused:
            return None  # a name that Lean shows and does not take back: private, or with macro scopes
        if found.module is None:
            return owner_site(own.sites, name)
        file = self._tree.find(found.module)
        if file is not None and file.problem is None:
            if file.path not in self._by_file:
                self._by_file[file.path] = FileSource.read(file.path, file.data()).sites
            site = owner_site(self._by_file[file.path], name)
            if file.path in self._tree.files:
                return site
        else:
            site = None
        if site is None and found.source_start is not None and found.source_end is not None:
            path = _path(found.module) if file is None else file.path
            if path is not None:
                start, end = found.source_start, found.source_end
                site = (path, (start.line, start.column + 1), (end.line, end.column + 1))
        self._library[name] = site
        return site


def _path(module: str) -> str | None:
    """Return LeanDojo's path for a module of Lean itself; the package of any other module is unknown."""
    parts = module.split(".")
    if parts[0] not in _CORE_MODULES:
        return None
    return str(PurePosixPath(CORE, *parts)) + ".lean"
