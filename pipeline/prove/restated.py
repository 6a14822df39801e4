"""A theorem as something to prove: its statement with one sorry for a proof, where it stands in its file.

Whatever comes (a statement, a goal as Lean prints it, a traced theorem) becomes a declaration with a sorry, so that
what a search finds is tried as a whole text afterwards, as the prove job does. Of a theorem whose file is there, that
file up to the theorem is the context; a proof that the theorem has already is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.lean.pool.pooled import Setup
from pipeline.lean.source.lexer import tokens_of
from pipeline.lean.source.scanner import Located, SourceFile, locate, parse
from pipeline.lean.source.splice import Declaration, Replacement, splice
from pipeline.models.tactics.goals import NAME, SourcePlaces, statement
from pipeline.prove.retrieving import Place
from pipeline.prove.server import Server

PROVABLE = frozenset({"theorem", "lemma", "example"})
_SORRY = "by\n{indent}sorry"


class StatementError(Exception):
    """There is nothing here that could be proved; the message says what to give instead."""


@dataclass(frozen=True, slots=True)
class Restated:
    """A declaration with one sorry, and what stands before it.

    Attributes:
        declaration: see `pipeline.prove.declaration`.
        imports: of its file; none: the server's.
        setup: the file's text before it.
        place: where it stands, for retrieval.
        whole_file: whether its own file is the context.
    """

    declaration: Declaration
    imports: tuple[str, ...] = ()
    setup: Setup = Setup()  # noqa: RUF009 - frozen
    place: Place = Place()  # noqa: RUF009 - frozen
    whole_file: bool = False

    @property
    def context(self) -> str:
        """The text of the file before the declaration."""
        return self.declaration.data[: self.declaration.byte_start].decode("utf-8", "replace")

    def proof(self, replacement: Replacement) -> str:
        """Return what stands behind the `:=` with the replacement in the sorry's place."""
        (sorry,) = self.declaration.sorries
        data = self.declaration.data
        begin = data.rindex(b"by", 0, sorry.byte_start)
        end = self.declaration.byte_end - len(data)
        patched = splice(data, replacement)
        return patched[begin : len(patched) + end].decode("utf-8", "replace").rstrip()


def of_goal(goal: str, imports: Sequence[str] = ()) -> Restated:
    """Return a theorem that states a goal: a proposition of Lean, or a goal as Lean prints it.

    Raises:
        StatementError: it is empty, has several goals, or mentions hypotheses that have no name to write.
    """
    text = goal.strip()
    if not text:
        raise StatementError("the goal is empty; give a proposition, or a goal as Lean prints it")
    if "⊢" not in text:
        return _bare(f"theorem {NAME} : {text}", Place(imports=tuple(imports) or None))
    stated = statement(text)
    if stated is None:
        raise StatementError(
            f"{text[:200]!r} cannot be written as a theorem: it has local definitions, hypotheses without a name, or "
            "no target. Give the theorem itself"
        )
    return _bare(stated.header, Place(imports=tuple(imports) or None))


def of_theorem(theorem: Any, server: Server | None) -> Restated:
    """Return a theorem as it stands in the server's project; by its statement alone where its file is not there.

    Args:
        theorem: a record of `store.leandojo`, or anything with `theorem_statement`, or `full_name` and `file_path`;
            or its text.
        server: whose project has the file; None: no file is looked for.

    Raises:
        StatementError: it has neither, or its kind cannot be proved.
    """
    if isinstance(theorem, str):
        return _of_text(theorem, Place())
    name, path = getattr(theorem, "full_name", None), getattr(theorem, "file_path", None)
    if name and path is not None and server is not None:
        found = _in_file(server, str(path), str(name), getattr(theorem, "start", None))
        if found is not None:
            return found
    said = getattr(theorem, "theorem_statement", None)
    if not said:
        where = "no project was named" if server is None else f"{server.project} has no such theorem"
        raise StatementError(
            f"{name or type(theorem).__name__} cannot be stated: its record has no theorem_statement, and {where} in "
            f"{path}. Make the server with the folder of its repository, at the commit of the record"
        )
    start = getattr(theorem, "start", None)
    position = None if start is None else (int(next(iter(start))), int(tuple(start)[1]))
    place = Place() if path is None else Place(str(path), position, str(name or ""), ())
    return _of_text(str(said), place)


def _of_text(text: str, place: Place) -> Restated:
    """Read a theorem's text, with or without its proof; or a proposition."""
    data = text.encode("utf-8", "replace")
    found = locate(data).declarations
    if not found:
        return of_goal(text)
    header = _header(data, found[0])
    if found[0].record.kind not in PROVABLE:
        raise StatementError(
            f"{found[0].record.name} is a {found[0].record.kind}, and only theorems are proved"
        )
    return _bare(header, place)


def _header(data: bytes, located: Located) -> str:
    end = locate(data).positions.byte(located.stated)
    return data[:end].decode("utf-8", "replace").rstrip()


def _bare(header: str, place: Place) -> Restated:
    data = f"{header} := {_SORRY.format(indent='  ')}\n".encode("utf-8", "replace")
    source = parse(data)
    if len(source.commands) != 1 or len(source.scanned.sorries) != 1:
        raise StatementError(f"{header[:200]!r} is not the statement of one theorem")
    return Restated(_declaration(data, source, 0, ""), place=place)


def _in_file(server: Server, path: str, name: str, start: Any) -> Restated | None:
    """Return a theorem of a file, its proof made a sorry; None where the project has no such file or theorem."""
    file = server.project / path
    if not file.is_file() or not file.resolve().is_relative_to(server.project):
        return None
    data = file.read_bytes()
    located = locate(data)
    named = [item for item in located.declarations if item.record.name == name]
    if not named:
        return None
    line = None if start is None else next(iter(start))
    chosen = min(named, key=lambda item: abs(item.record.line - line) if line is not None else 0)
    record = chosen.record
    if record.kind not in PROVABLE:
        raise StatementError(f"{name} is a {record.kind}, and only theorems are proved")
    begin, end = located.positions.byte(chosen.stated), record.byte_end
    proof = _SORRY.format(indent=" " * (record.column + 2))
    kept = data[:begin].rstrip()
    patched = kept + f" := {proof}\n".encode() + data[end:]
    source = parse(patched)
    number = next(
        (n for n, item in enumerate(source.commands) if item.byte_start <= record.byte_start < item.byte_end),
        None,
    )
    found = SourcePlaces(server.backend, server.project)(
        {"path": path, "start": (record.line, record.column + 1)}
    )
    if number is None or found is None:
        return None
    declaration = _declaration(patched, source, number, found.preamble)
    beside = sum(
        declaration.byte_start <= one.byte_start < declaration.byte_end for one in source.scanned.declarations
    )
    if beside != 1 or len(declaration.sorries) != 1:
        raise StatementError(
            f"{name} shares its command with other declarations (mutual), or its statement has a sorry"
        )
    position = (record.line, record.column + 1)
    return Restated(
        declaration,
        found.key.imports,
        found.setup,
        Place(path, position, name, found.key.imports),
        whole_file=True,
    )


def _declaration(data: bytes, source: SourceFile, number: int, preamble: str) -> Declaration:
    command = source.commands[number]
    start, end = command.byte_start, command.byte_end
    return Declaration(
        data=data,
        byte_start=start,
        byte_end=end,
        preamble=preamble,
        tokens=tokens_of(data, start, end),
        sorries=tuple(one for one in source.scanned.sorries if start <= one.byte_start < end),
    )
