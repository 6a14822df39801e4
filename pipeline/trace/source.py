"""What a trace takes from a file's text alone: premises, theorems' borders, and where each name stands.

Positions are LeanDojo's, (line, column) from 1, the end after the last character. As there, a declaration begins at its
doc comment, and its text at its first attribute or modifier.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pipeline.lean.source.declarations import name_parts
from pipeline.lean.source.lexer import Positions
from pipeline.lean.source.scanner import Located, locate
from store.scanned import THEOREM_KINDS
from store.traced import Position, Premise

Site = tuple[str, Position, Position]
"""A path, and where a name stands in it."""

_DOJO_KINDS = {"lemma": "lemma", "alias": "stdtacticaliasalias"}
_NAMELESS = ("_example", "_instance", "_deriving_instance")


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
        """Where a place in the text is, in LeanDojo's count."""
        return self.positions.line(at), self.positions.column(at) + 1

    def begin(self, item: Located) -> Position:
        """Where a declaration begins: at its doc comment, if it has one."""
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
        """Where each name (`plain_name`) is declared; of declarations that share one, the first."""
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
            if kind == "example":
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
        """Where the name stands in its declaration: as much of it as is written there."""
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
    """Say whether a declaration has no name of its own."""
    return (name_parts(item.record.name) or [item.record.name])[-1] in _NAMELESS


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
