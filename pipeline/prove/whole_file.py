"""Rung 0 without a session: many tactics in one file, for a Lean without a usable language server.

Each tactic is tried in a copy of its declaration, in a namespace of its own behind the file's text; one run of the
compiler judges all of them. A tactic without an end costs the run, and then the halves of the list run again.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.jobs.specs import Budget, SorryToProve
from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import short
from pipeline.lean.client.process import run_to_end
from pipeline.lean.source.imports import lean_options
from pipeline.lean.source.scanner import SourceFile
from pipeline.lean.source.splice import Declaration, Replacement, Script, Step, placements, splice
from pipeline.prove.curated import CLOSERS, CLOSERS_AT_START, OF_LIBRARIES
from pipeline.prove.effort import Attempt, Effort, SolvedSorry, found

_MARK = "#check Prop\n"
"""Lean answers it wherever it comes to it."""
_HEARTBEATS = 200_000
"""Of one copy: Lean's own default, whatever the file sets."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A declaration with a tactic in its sorry's place, and the lines of the marks before and behind it, from 1."""

    tactic: str
    replacement: Replacement
    before: int
    behind: int


@dataclass(frozen=True, slots=True)
class _Message:
    line: int
    text: str
    is_error: bool
    speaks_against: bool
    """It is an error, or tells of a sorry."""


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file with sorries, and its compiler."""

    backend: LeanBackend
    project: Path
    path: str
    data: bytes
    source: SourceFile
    core_only: bool
    memory_bytes: int | None

    async def attempt(self, wanted: SorryToProve, budget: Budget) -> Attempt | None:
        """Try the curated tactics on a sorry; None if Lean does not compile files either.

        Raises:
            ReplStartError: Lean cannot be started.
        """
        command = self.source.command_at(wanted.byte_start)
        if command is None or self.source.declarations_in(command) != 1:
            return Attempt(wanted, "unsupported", f"{wanted.declaration} is no declaration of its own")
        declaration = Declaration.cut(self.data, self.source, command)
        if len(declaration.sorries) != 1:
            return Attempt(wanted, "unsupported", f"{wanted.declaration} has more than one sorry")
        started = time.monotonic()
        ends = started + budget.seconds
        todo, tried, compiled = [list(self._tactics())], 0, False
        while todo and (left := ends - time.monotonic()) > 0:
            tactics = todo.pop(0)
            text, copies = self._copies(declaration, tactics)
            messages = await self._compile(text, left / 2 if len(tactics) > 1 else left)
            compiled = compiled or messages is not None
            for one in messages or ():
                if one.is_error and one.line < copies[0].before:
                    message = f"{self.path}: Lean refuses the text before the declaration: {short(one.text)}"
                    return Attempt(wanted, "error", message)
            judged = [copy for copy in copies if _is_judged(copy, messages or ())]
            tried += len(judged)
            for copy in judged:
                if not any(one.speaks_against for one in _within(copy, messages or ())):
                    seconds = time.monotonic() - started
                    effort = Effort("found", "in whole files", nodes=tried, seconds=seconds)
                    solved = SolvedSorry(tuple(copy.tactic.split("; ")), copy.replacement, effort)
                    return found(wanted, solved, data=self.data, source=self.source, path=self.path)
            rest = [copy.tactic for copy in copies if copy not in judged]
            half = len(rest) // 2 if not judged else len(rest)
            todo += [some for some in (rest[:half], rest[half:]) if half and some]
        if not compiled and await self._compile("", budget.seconds) is None:
            return None
        message = f"{tried} tactics were tried in whole files, for there is no session with this Lean"
        effort = Effort("exhausted", message, nodes=tried, seconds=time.monotonic() - started)
        return Attempt(wanted, "budget" if todo else "exhausted" if tried else "error", message, effort)

    def _tactics(self) -> Iterator[str]:
        closers = [
            one
            for one in (*CLOSERS, *CLOSERS_AT_START)
            if not (self.core_only and one in OF_LIBRARIES) and not one.endswith("?")
        ]
        yield from closers
        yield from (f"intros; {one}" for one in closers)

    def _copies(self, declaration: Declaration, tactics: Sequence[str]) -> tuple[str, list[_Copy]]:
        """Return the text with a copy of the declaration for each tactic, and the copies."""
        (sorry,) = declaration.sorries
        text = f"{self.data[: declaration.byte_start].decode()}\n{_MARK}"
        before = text.count("\n")
        copies = []
        for number, tactic in enumerate(tactics):
            steps = tactic.split("; ")
            script = Script(tuple(Step(one, 1, int(at < len(steps))) for at, one in enumerate(steps, 1)))
            replacement = placements(declaration, sorry, script)[0]
            patched = splice(self.data, replacement)
            end = declaration.byte_end + len(patched) - len(self.data)
            copy = patched[declaration.byte_start : end].decode().strip("\n")
            name, limit = f"EverleanTry{number}", f"set_option maxHeartbeats {_HEARTBEATS} in"
            text += f"namespace {name}\n{limit}\n{copy}\nend {name}\n{_MARK}"
            behind = text.count("\n")
            copies.append(_Copy(tactic, replacement, before, behind))
            before = behind
        return text, copies

    async def _compile(self, text: str, limit_s: float) -> list[_Message] | None:
        """Return Lean's messages, the first of too many left out; None if it did not come to the end."""
        options = [f"-D{one}" for one in lean_options(self.project)]
        with tempfile.TemporaryDirectory(prefix="everlean-tries-", ignore_cleanup_errors=True) as folder:
            file = Path(folder, "Tries.lean")
            await asyncio.to_thread(file.write_text, text, "utf-8")
            status, said = await run_to_end(
                self.backend,
                (*options, "--json", str(file)),
                project=self.project,
                folder=Path(folder),
                memory_bytes=self.memory_bytes,
                limit_s=limit_s,
            )
        if status not in (0, 1):
            return None
        return [one for line in said.splitlines() if (one := _message(line)) is not None]


def _message(line: str) -> _Message | None:
    """Read a line of the compiler's; None for one of another program, or of the file's own."""
    try:
        answer = json.loads(line)
        severity, text, at = answer["severity"], str(answer["data"]), int(answer["pos"]["line"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_error = severity == "error"
    return _Message(at, text, is_error, is_error or text.startswith("declaration uses "))


def _within(copy: _Copy, messages: Sequence[_Message]) -> Iterator[_Message]:
    return (one for one in messages if copy.before < one.line < copy.behind)


def _is_judged(copy: _Copy, messages: Sequence[_Message]) -> bool:
    """Return whether Lean got through a copy, with all its messages present."""
    return {copy.before, copy.behind} <= {one.line for one in messages}
