"""The part of a trace that comes from a file's text alone: premises, and the borders of theorems.

Positions are LeanDojo's, (line, column) from 1, the end after the last character. As there, a declaration begins at its
doc comment, and its text at its first attribute or modifier.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.lean.source.lexer import Positions
from pipeline.lean.source.scanner import Located, locate
from store.domain.keywords import THEOREM_KINDS, WITHOUT_CONSTANT, is_nameless
from store.domain.records import Position, Premise

_LONGEST_PROOF = 2000
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
        result = locate(data)
        return cls(path, result.code, result.positions, result.declarations, result.docs)

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
        """Return a piece of the text without comments and the lines emptied by them."""
        return "\n".join(_lines(self.code[start:end]))

    def step(self, start: int, end: int, marks: Sequence[tuple[int, int]] = ()) -> str:
        """Return a tactic's text, clean and without its first line's indentation.

        Each piece in `marks`, in order, is put between `<a>` and `</a>`.
        """
        text = self.code[start:end]
        for first, last in reversed(marks):
            first, last = first - start, last - start
            text = f"{text[:first]}<a>{text[first:last]}</a>{text[last:]}"
        column = self.positions.column(start)
        first_line, *rest = _lines(text)
        return "\n".join([first_line, *(_dedent(line, column) for line in rest)])

    def declaration_at(self, byte: int) -> str:
        """Return the name of the declaration around a byte of the file, "" without one."""
        records = (item.record for item in self.declarations)
        return next((one.name for one in records if one.byte_start <= byte < one.byte_end), "")

    def statement(self, item: Located) -> str:
        """Return a theorem from its beginning to its proof, the `:=` with it."""
        assigned = ":=" if self.code.startswith(":=", item.stated) else ""
        text = self.clean(item.start, item.stated)
        return f"{text} {assigned}".rstrip()

    def proof(self, item: Located) -> str:
        """Return the text after a theorem's `:=`, without comments; "" if it has none or a long one."""
        text = self.clean(item.stated, item.end).removeprefix(":=").strip()
        return text if self.code.startswith(":=", item.stated) and len(text) <= _LONGEST_PROOF else ""

    def premises(self) -> tuple[Premise, ...]:
        """Return the premises of the file, in the order of the text; a nameless one is None."""
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


def plain_name(name: str) -> str:
    """Return a name without its quotes: where they are needed, Lean and people see differently."""
    return name.replace("«", "").replace("»", "")


def anonymous(item: Located) -> bool:
    """Return whether a declaration has no name of its own."""
    return is_nameless(item.record.name, item.record.kind)


def _lines(text: str) -> Iterator[str]:
    lines = (line.rstrip() for line in text.splitlines())
    return (line for line in lines if line)


def _dedent(line: str, column: int) -> str:
    indent = len(line) - len(line.lstrip(" "))
    return line[min(indent, column) :]
