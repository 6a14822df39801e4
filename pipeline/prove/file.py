"""All sorrys of one file, in the order in which they stand, each declaration in a session of its own.

The file's text up to a declaration is processed in pieces, each under the preamble of its place, so that what the
file has declared so far is known, and nothing that comes later. The process that served one declaration knows the
pieces before it and serves the next one with one piece more; a process that dies or hangs costs only the time to
bring another to the same place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.repl import ReplDied, ReplError, ReplStartError
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session, SetupFailed
from pipeline.lean.source.scanner import Command, SourceFile, parse, scan_source
from pipeline.prove.declaration import (
    CannotAttempt,
    Declaration,
    Worked,
    prove_declaration,
)
from pipeline.prove.imports import closure
from pipeline.prove.search import Budget
from pipeline.prove.source import tokens_of
from pipeline.prove.splice import Replacement, splice
from pipeline.prove.tactics import Ladder
from store.scanned import Sorry

PROVABLE_KINDS = frozenset({"theorem", "lemma", "example"})

AttemptOutcome = Literal["found", "exhausted", "budget", "unsupported", "error"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sorry that the job is asked to fill, as the database knows it."""

    sorry: str
    path: str
    blob: str
    byte_start: int
    byte_end: int
    declaration: str
    kind: str
    ordinal: int

    @classmethod
    def from_json(cls, raw: Mapping[str, object]) -> Wanted:
        """Read one item of the job's `sorries`; keys that are not used here may be there too."""
        return cls(
            sorry=str(raw["sorry"]),
            path=str(raw["path"]),
            blob=str(raw["blob"]),
            byte_start=_int(raw["byte_start"]),
            byte_end=_int(raw["byte_end"]),
            declaration=str(raw["declaration"]),
            kind=str(raw["kind"]),
            ordinal=_int(raw["ordinal"]),
        )


@dataclass(frozen=True, slots=True)
class FoundProof:
    """A text that Lean took in the sorry's place, by itself or together with its neighbours'."""

    replacement: Replacement
    tactics: tuple[str, ...]
    text_hash: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """How the work on one sorry ended."""

    wanted: Wanted
    outcome: AttemptOutcome
    detail: str = ""
    nodes: int = 0
    repl_calls: int = 0
    seconds: float = 0.0
    proof: FoundProof | None = None


class FileProver:
    """Attempts the wanted sorrys of one file, in the order in which they stand."""

    def __init__(
        self,
        backend: LeanBackend,
        *,
        pool: ReplPool,
        project: Path,
        path: str,
        budget: Budget,
        done: Callable[[Attempt], None],
    ) -> None:
        self._backend = backend
        self._pool = pool
        self._project = project
        self._path = path
        self._budget = budget
        self._done = done
        self._data = b""
        self._source: SourceFile
        self._key: ReplKey
        self._ladder = Ladder()
        self._prefix: tuple[str, ...] = ()
        self._reached = 0
        self._setup_failed: SetupFailed | None = None

    async def run(self, wanted: Sequence[Wanted]) -> None:
        """Attempt every wanted sorry; `done` hears of each as soon as it ends.

        Raises:
            ReplStartError: no REPL could be started with the file's imports.
        """
        for command, group in self._by_command(self._readable(wanted)):
            await self._attempt(command, group)

    def _readable(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Read the file; report the sorrys that it no longer has as it is here."""
        file = self._project / self._path
        try:
            self._data = file.read_bytes()
        except OSError as error:
            self._report(wanted, "error", f"{self._path}: cannot be read: {error.strerror}")
            return []
        self._source = parse(self._data)
        if self._source.scanned.error is not None:
            self._report(wanted, "unsupported", f"{self._path}: {self._source.scanned.error}")
            return []
        fitting = []
        for one in wanted:
            if one.blob != git_blob(self._data, like=one.blob):
                self._report([one], "error", f"{self._path} in the worktree is not blob {one.blob}")
            elif self._data[one.byte_start : one.byte_end] not in (b"sorry", b"admit"):
                self._report(
                    [one], "error", f"{self._path}: no sorry at bytes {one.byte_start}..{one.byte_end}"
                )
            else:
                fitting.append(one)
        self._key = ReplKey(self._backend, self._project, self._source.imports or ("Init",))
        self._ladder = Ladder(core_only=closure(self._project, self._source.imports).core_only)
        self._reached = self._source.header_end
        return fitting

    def _by_command(self, wanted: Iterable[Wanted]) -> list[tuple[Command, list[Wanted]]]:
        """Group by the top-level command; report what cannot be attempted."""
        groups: dict[int, tuple[Command, list[Wanted]]] = {}
        for one in sorted(wanted, key=lambda item: item.byte_start):
            command = self._command_at(one.byte_start)
            if one.kind not in PROVABLE_KINDS:
                self._report(
                    [one],
                    "unsupported",
                    f"{one.declaration} is a {one.kind}: data and structure may not be invented",
                )
            elif command is None:
                self._report(
                    [one], "unsupported", f"{one.declaration}: the sorry is in no command of the file"
                )
            elif self._declarations_in(command) != 1:
                self._report(
                    [one],
                    "unsupported",
                    f"{one.declaration} shares its command with other declarations (mutual)",
                )
            else:
                groups.setdefault(command.byte_start, (command, []))[1].append(one)
        return [groups[start] for start in sorted(groups)]

    def _command_at(self, offset: int) -> Command | None:
        for command in self._source.commands:
            if command.byte_start <= offset < command.byte_end:
                return command
        return None

    def _declarations_in(self, command: Command) -> int:
        return sum(
            command.byte_start <= declaration.byte_start < command.byte_end
            for declaration in self._source.scanned.declarations
        )

    async def _attempt(self, command: Command, group: list[Wanted]) -> None:
        self._advance(command.byte_start)
        if self._setup_failed is not None:
            # Every later declaration has the same text before it.
            self._report(group, "error", self._before_the_declaration(self._setup_failed))
            return
        declaration = Declaration(
            data=self._data,
            byte_start=command.byte_start,
            byte_end=command.byte_end,
            preamble=self._source.preamble_at(command.byte_start),
            tokens=tokens_of(self._data, command.byte_start, command.byte_end),
            sorries=self._sorries_in(command),
        )
        try:
            async with Session(self._pool, self._key, Setup(prefix=self._prefix)) as session:
                worked = await prove_declaration(
                    session, declaration, ladder=self._ladder, budget=self._budget
                )
        except CannotAttempt as error:
            self._report(group, "error", str(error))
        except SetupFailed as error:
            self._setup_failed = error
            self._report(group, "error", self._before_the_declaration(error))
        except ReplStartError:
            raise
        except ReplDied as error:
            self._report(
                group, "error", f"the Lean process ended, twice at the same place: {short(str(error))}"
            )
        except ReplError as error:
            self._report(group, "error", short(str(error)))
        else:
            self._conclude(group, worked)

    def _before_the_declaration(self, error: SetupFailed) -> str:
        if error.refused:
            return f"{self._path}: Lean refuses the text before the declaration: {short(str(error))}"
        return (
            f"{self._path}: Lean cannot get past the text before the declaration; tried twice:"
            f" {short(str(error))}"
        )

    def _sorries_in(self, command: Command) -> tuple[Sorry, ...]:
        return tuple(
            sorry
            for sorry in self._source.scanned.sorries
            if command.byte_start <= sorry.byte_start < command.byte_end
        )

    def _advance(self, offset: int) -> None:
        """Add the text between the last declaration and `offset` to what a process has to know."""
        if self._reached < offset:
            piece = self._data[self._reached : offset].decode()
            preamble = self._source.preamble_at(self._reached)
            text = f"{preamble}\n{piece}" if preamble else piece
            if text.strip():
                self._prefix = (*self._prefix, text)
            self._reached = offset

    def _conclude(self, group: list[Wanted], worked: Worked) -> None:
        for one in group:
            solved = worked.solved.get(one.ordinal)
            if solved is not None:
                replacement = worked.joint or solved.replacement
                scripts = worked.solved.values() if worked.joint else (solved,)
                tactics = tuple(tactic for item in scripts for tactic in item.script.tactics)
                detail = (
                    f"together with the declaration's other {len(worked.solved) - 1}" if worked.joint else ""
                )
                text_hash = self._text_hash(one, splice(self._data, replacement))
                if text_hash is None:
                    self._report([one], "error", "the patched file does not scan as the same declarations")
                    continue
                search = solved.search
                self._done(
                    Attempt(
                        one, "found", detail, search.nodes, search.repl_calls, search.seconds,
                        FoundProof(replacement, tactics, text_hash),
                    )
                )  # fmt: skip
                continue
            nodes = sum(result.nodes for result in worked.unsolved)
            calls = sum(result.repl_calls for result in worked.unsolved)
            seconds = sum(result.seconds for result in worked.unsolved)
            outcome: AttemptOutcome
            if any(result.outcome == "budget" for result in worked.unsolved):
                outcome, detail = "budget", "the budget ended the search"
            elif worked.unplaced:
                outcome, detail = (
                    "error",
                    f"a proof was found and no sorry's place takes it: {worked.unplaced}",
                )
            else:
                outcome, detail = "exhausted", "no tactic is left to try"
            if killed := sum(result.killed for result in worked.unsolved):
                detail += f"; ended the Lean process each time, and count as failed: {killed}"
            self._done(Attempt(one, outcome, detail, nodes, calls, seconds))

    def _text_hash(self, one: Wanted, patched: bytes) -> str | None:
        """Return the scanner's hash of the patched declaration, None if the patch changed more than that."""
        before, after = self._source.scanned, scan_source(patched, path=self._path)
        if after.error is not None or len(after.declarations) != len(before.declarations):
            return None
        index = next((sorry.index for sorry in before.sorries if sorry.byte_start == one.byte_start), None)
        return None if index is None else after.declarations[index].text_hash

    def _report(self, wanted: Iterable[Wanted], outcome: AttemptOutcome, detail: str) -> None:
        for one in wanted:
            self._done(Attempt(one, outcome, detail))


def git_blob(data: bytes, *, like: str) -> str:
    """Return git's object id of the data, in the hash (SHA-1 or SHA-256) that `like` is in."""
    content = b"blob %d\0" % len(data) + data
    if len(like) == 64:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def short(text: str) -> str:
    """Return the text, or its beginning and its end: what a dying process said last is what matters."""
    text = " ".join(text.split())
    return text if len(text) <= 600 else f"{text[:250]} … {text[-340:]}"
