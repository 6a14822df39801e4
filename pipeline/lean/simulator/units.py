"""What a text's commands are made of before they mean anything on the wire: notes, ranges, search targets.

All offsets are in code points of the text; `byte_offsets` turns them into the wire's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pipeline.lean.simulator.meta import Meta
from pipeline.lean.simulator.scope import Invocation, Scope
from pipeline.lean.simulator.syntax import Binder, ParseError, all_tokens, plain_name
from pipeline.lean.simulator.terms import MVar, Term

Severity = Literal["information", "warning", "error"]


class Note(NamedTuple):
    """One message, with its range in code points of the file."""

    severity: Severity
    text: str
    start: int
    end: int
    kind: str = "[anonymous]"


@dataclass(slots=True)
class Command:
    """What became of one top-level command; `start`/`end` and the ranges of `sorries` are code points."""

    start: int
    end: int = 0
    notes: list[Note] = field(default_factory=list)
    new_constants: list[str] = field(default_factory=list)
    invocations: list[Invocation] = field(default_factory=list)
    sorries: list[tuple[int, int]] = field(default_factory=list)
    declaration_start: int = 0
    target: SorryTarget | None = None


class SectionFrame(NamedTuple):
    """What `end` gives back."""

    kind: Literal["namespace", "section"]
    name: str
    scope: Scope
    variables: tuple[Binder, ...]


class SorryTarget(NamedTuple):
    """A declaration with sorrys, ready for search: its goals, in a `Meta` whose `root` they fill.

    `spans[i]` is the range of code points of the sorry that `goals[i]` stands for; empty when there is one goal
    for the whole statement.
    """

    meta: Meta
    root: MVar
    root_type: Term
    goals: tuple[MVar, ...]
    spans: tuple[tuple[int, int], ...] = ()


class Header(NamedTuple):
    """The imports of a file, and where its commands start."""

    imports: tuple[str, ...]
    end: int


def read_header(text: str) -> Header:
    """Read the imports; a module docstring does not belong to the header."""
    tokens = all_tokens(text)
    index = 0
    imports: list[str] = []
    while True:
        start = index
        while tokens[index].text in ("public", "meta"):
            index += 1
        if tokens[index].text != "import":
            return Header(tuple(imports), tokens[start].start)
        index += 1
        while tokens[index].text in ("all", "runtime"):
            index += 1
        if tokens[index].kind != "ident":
            raise ParseError("expected a module name", tokens[index].start)
        imports.append(plain_name(tokens[index].text))
        index += 1


def byte_offsets(text: str) -> Callable[[int], int]:
    """Return the function from code points to UTF-8 bytes."""
    if text.isascii():
        return lambda offset: offset
    table = [0]
    for char in text:
        table.append(table[-1] + len(char.encode("utf-8", "surrogatepass")))
    return lambda offset: table[offset]


def line_starts(text: str) -> Iterator[int]:
    """Yield the code points where lines begin."""
    yield 0
    for index, char in enumerate(text):
        if char == "\n":
            yield index + 1
