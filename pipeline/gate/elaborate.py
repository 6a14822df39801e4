"""Check 3, as the REPL sees it: the whole file before and after, command by command, each in a fresh process.

Tells what lake's exit status cannot: that Lean reads the same commands at the same bytes, that the proof's own command
uses no sorry, and that no command declares another constant than it did. The REPL elaborates with default options, so
the project's own are lake's to apply (`lake.py`). `track` adds the REPL's own comparison of the two declarations.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import BadRequest, ReplError, UnsupportedByDialect
from pipeline.lean.client.messages import Message, Unit
from pipeline.lean.client.repl import Repl
from pipeline.lean.source.scanner import parse

TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Files:
    """One file of the project without and with a proof; `byte_start` is the offset of the proof's sorry."""

    project: Path
    before: bytes
    after: bytes
    byte_start: int

    @property
    def imports(self) -> tuple[str, ...]:
        return parse(self.before).imports or ("Init",)

    def with_line_feeds(self) -> Files:
        """Return the same files with each CRLF as a line feed."""
        start = len(self.before[: self.byte_start].replace(b"\r\n", b"\n"))
        before, after = (data.replace(b"\r\n", b"\n") for data in (self.before, self.after))
        return Files(self.project, before, after, start)


@dataclass(frozen=True, slots=True)
class Compiled:
    """The commands of the file without and with the proof, and the proof's command's position."""

    before: tuple[Unit, ...]
    after: tuple[Unit, ...]
    byte_start: int
    grown: int

    def complaint(self, declaration: str) -> str | None:
        """Return why the file with the proof is not the file without it plus a proof; None if it is."""
        if self.new_errors:
            error = self.new_errors[0]
            known = sum(len(unit.errors) for unit in self.before)
            where = f"{error.pos.line}:{error.pos.column}: {error.data}"
            return where + (f" (the file has {known} errors without the proof)" if known else "")
        if len(self.before) != len(self.after):
            return f"Lean sees {len(self.before)} commands before and {len(self.after)} after"
        for one, other in zip(self.before, self.after, strict=True):
            start = one.byte_start + (self.grown if one.byte_start > self.byte_start else 0)
            end = one.byte_end + (self.grown if one.byte_end > self.byte_start else 0)
            if (other.byte_start, other.byte_end) != (start, end):
                was, now = f"{one.byte_start}..{one.byte_end}", f"{other.byte_start}..{other.byte_end}"
                return f"Lean sees the command at bytes {was} at {now}"
        unit = self.unit
        if unit is None:
            return "Lean sees no command at the proof's place"
        if unit.uses_sorry:
            return f"{declaration} still uses sorry"
        for one, other in zip(self.before, self.after, strict=True):
            if one.new_constants is None or other.new_constants is None:
                return "Lean does not say what the commands declare"
            made, expected = set(other.new_constants), set(one.new_constants)
            if made != expected:
                names = ", ".join(sorted(made ^ expected))
                return f"the commands declare other constants than without the proof: {names}"
        return None

    @property
    def new_errors(self) -> tuple[Message, ...]:
        """The errors that the file does not have without the proof, by their texts."""
        known = Counter(error.data for unit in self.before for error in unit.errors)
        found = []
        for error in (error for unit in self.after for error in unit.errors):
            if known[error.data]:
                known[error.data] -= 1
            else:
                found.append(error)
        return tuple(found)

    @property
    def broken(self) -> str | None:
        """Return why the file cannot be judged here: an error that it has without the proof, or None."""
        error = next((error for unit in self.before for error in unit.errors), None)
        return None if error is None else f"{error.pos.line}:{error.pos.column}: {error.data}"

    @property
    def unit(self) -> Unit | None:
        """The command that the proof is in."""
        return next((u for u in self.after if u.byte_start <= self.byte_start < u.byte_end), None)

    @property
    def uses_sorry(self) -> bool:
        return self.unit is not None and self.unit.uses_sorry

    @property
    def made(self) -> frozenset[str]:
        """The constants that the proof's command makes, as Lean names them."""
        return frozenset(() if self.unit is None else self.unit.new_constants or ())

    @property
    def declared(self) -> frozenset[str]:
        """The constants that the file's commands make."""
        return frozenset(name for unit in self.before for name in unit.new_constants or ())


async def elaborate(backend: LeanBackend, files: Files) -> Compiled:
    """Elaborate both versions of a file.

    Raises:
        HeaderNotLoaded: an import is missing; read with the text, the header would fail without a word.
        ReplError: Lean could not be asked.
    """
    # Lean takes a CRLF for one line end (since 4.9), and counts it as one byte.
    files = files.with_line_feeds()
    source = parse(files.before)
    header_end = source.header_end
    header = files.before[:header_end].decode()
    # Bytes and lines stay where they are in the file.
    blank = "".join(c if c in "\r\n" else " " * len(c.encode()) for c in header)
    # Such a file means something else in an environment that was made without these words.
    own_kind = source.own_header != ""
    units = []
    for data in (files.before, files.after):
        # A process of its own: what the first text leaves behind must not help the second.
        async with await Repl.start(backend, imports=files.imports, project=files.project) as repl:
            await repl.check_imports(timeout_s=TIMEOUT_S)
            text = data.decode() if own_kind else blank + data[header_end:].decode()
            units.append(
                await repl.process(
                    text,
                    read_header=own_kind,
                    inherit_env=not own_kind,
                    new_constants=True,
                    timeout_s=TIMEOUT_S,
                )
            )
    return Compiled(units[0], units[1], files.byte_start, len(files.after) - len(files.before))


@dataclass(frozen=True, slots=True)
class Tracked:
    """The answer of `frontend.track`: `failure` is its complaint, `unasked` why there is no answer.

    With both None the texts agree.
    """

    failure: str | None = None
    unasked: str | None = None


async def track(backend: LeanBackend, files: Files) -> Tracked:
    """Compare the proof's command with the one that has the sorry in the REPL, if its dialect can.

    It replays the new constants through the kernel and holds that names, types, universe parameters and all values
    without a sorry are the same. Only the one command is given to it: it refuses a text in which another sorry is left.
    Nothing rests on this check alone, so a REPL that cannot answer, or dies of the question, leaves it out.
    """
    before, after, byte_start = files.before, files.after, files.byte_start
    source = parse(before)
    grown = len(after) - len(before)
    command = source.command_at(byte_start)
    if command is None:
        return Tracked(unasked="the sorry is in no command of the file")
    preamble = source.preamble_at(command.byte_start)
    texts = [
        f"{preamble}\n{data[command.byte_start : end].decode()}\n"
        for data, end in ((before, command.byte_end), (after, command.byte_end + grown))
    ]
    prefix = before[source.header_end : command.byte_start].decode()
    try:
        async with await Repl.start(backend, imports=files.imports, project=files.project) as repl:
            if prefix.strip():
                units = await repl.process(prefix, inherit_env=True, timeout_s=TIMEOUT_S)
                errors = [error for unit in units for error in unit.errors]
                if errors:
                    return Tracked(unasked=f"the text before the declaration: {errors[0].data}")
            answer = await repl.track(texts[0], texts[1], timeout_s=TIMEOUT_S)
    except (BadRequest, UnsupportedByDialect):
        return Tracked(unasked="this REPL does not have it")
    except ReplError as error:
        return Tracked(unasked=str(error))
    if not answer.compared:
        return Tracked(unasked="one of the two texts does not compile by itself")
    return Tracked(failure=answer.failure)
