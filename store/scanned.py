"""What the scanner reads out of one Lean file: the record that the log keeps and that people see.

Lines count from 1, columns from 0 in code points (Lean's convention); byte offsets are into the file's UTF-8
bytes as committed, half open. `as_json` is the shape of `unsorry scan --json` plus the hashes that identity
needs; `from_json` is its inverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, NamedTuple

SorryToken = Literal["sorry", "admit"]
SorryMode = Literal["term", "tactic"]
THEOREM_KINDS = ("theorem", "lemma")
"""The kinds of declarations that are theorems to people."""
PROVABLE_KINDS = frozenset({"theorem", "lemma", "example"})
"""The kinds in which what takes a sorry's place is a proof, and no data."""


class Declaration(NamedTuple):
    """One top-level declaration: a tuple, since a rebuild reads more of them than of anything else.

    `name` is fully qualified; anonymous ones are called `_example` or `_instance` inside their namespace.
    `statement` is the source between the name and the proof or value, white space collapsed, comments removed.
    `statement_hash` identifies the statement, `text_hash` the whole declaration with its proof; both ignore
    white space and comments.
    """

    name: str
    kind: str
    line: int
    column: int
    end_line: int
    end_column: int
    byte_start: int
    byte_end: int
    statement: str
    statement_hash: str
    text_hash: str


@dataclass(frozen=True, slots=True)
class Sorry:
    """One `sorry` or `admit` that Lean would elaborate.

    `index` is the position of its declaration in the file's list (two declarations can share a name),
    `ordinal` counts the sorrys inside that declaration from 0. `context_hash` covers the few tokens around
    it, so that the ones that stay can be told from the one that went when a proof is filled in part.
    """

    declaration: str
    index: int
    ordinal: int
    token: SorryToken
    mode: SorryMode
    line: int
    column: int
    byte_start: int
    byte_end: int
    context_hash: str


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """The scan of one file. `error` says why a file could not be read in full; what was read is still here."""

    path: str
    error: str | None
    imports: tuple[str, ...]
    declarations: tuple[Declaration, ...]
    sorries: tuple[Sorry, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "error": self.error,
            "imports": list(self.imports),
            "declarations": [item._asdict() for item in self.declarations],
            "sorries": [{name: getattr(item, name) for name in Sorry.__slots__} for item in self.sorries],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ScannedFile:
        return cls(
            path=data["path"],
            error=data["error"],
            imports=tuple(data["imports"]),
            declarations=tuple(map(_declaration, data["declarations"])),
            sorries=tuple(Sorry(**item) for item in data["sorries"]),
        )


_fields_of = itemgetter(*Declaration._fields)


def _declaration(data: dict[str, Any]) -> Declaration:
    if len(data) != len(Declaration._fields):
        raise TypeError(f"a declaration has {', '.join(Declaration._fields)}, this one {', '.join(data)}")
    return Declaration._make(_fields_of(data))


@dataclass(frozen=True, slots=True)
class ReadFile:
    """One version of a file as a job read it: its scan, and of each declaration the hash of its proof or value.

    The hashes ignore white space and comments, as `text_hash` does; with the scan alone a declaration that got another
    name or attribute could not be told from one that got another proof. `exercise_words` is how often the text says
    "exercise", comments too, in whatever case: such a file's sorrys may be there for people to fill.
    """

    scan: ScannedFile
    proof_hashes: tuple[str, ...]
    exercise_words: int = 0
