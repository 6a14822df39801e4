"""All sorries of one file, each declaration in a session of its own: in the order of the source, or side by side.

The file's text up to a declaration is elaborated in pieces, each under its place's preamble, so that a search sees all
earlier declarations and no later one. A process that served one declaration has the pieces before it, and serves the
next with one piece more; a dead or hanging process costs only the time to bring another to the same place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.jobs.protocol import first_error
from pipeline.jobs.specs import Budget, KnownProof, Lemma, SorryToProve
from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import ReplDied, ReplError, ReplStartError, short
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session, SetupFailed
from pipeline.lean.source.imports import closure
from pipeline.lean.source.scanner import Command, LocatedFile, SourceFile, locate, parse
from pipeline.lean.source.splice import Declaration
from pipeline.lean.source.worktree import read_inside
from pipeline.prove.declaration import CannotAttempt, DeclarationProver
from pipeline.prove.effort import Attempt, AttemptOutcome, DeclarationResult, SolvedSorry, found, in_vain
from pipeline.prove.rungs import Engine, FilePlace
from pipeline.prove.search import SearchMethod
from pipeline.prove.whole_file import WholeFile
from store.domain.identity import git_blob
from store.domain.keywords import INSTANCE_KINDS, PROVABLE_KINDS


@dataclass(frozen=True, slots=True)
class _Piece:
    """A declaration, the wanted sorries in it, and the text before it."""

    declaration: Declaration
    group: list[SorryToProve]
    prefix: tuple[str, ...]


@dataclass(slots=True)
class FileProver:
    """Attempts the requested sorries of one file. When the money is used up, the rest is left alone.

    Attributes:
        backend: runs Lean.
        pool: of its processes.
        project: the folder of the Lake project.
        path: the file in it.
        shown: the file's path in the repository, as in premises.
        budget: for one sorry.
        done: receives each attempt.
        engine: the rung.
        slots: limit the declarations at work, over all files.
        seed: of the sampling.
        known: by sorry, proofs to try first.
        lemmas: for a search's use, without a sorry's own.
    """

    backend: LeanBackend
    pool: ReplPool
    project: Path
    path: str
    shown: str
    budget: Budget
    done: Callable[[Attempt], None]
    engine: Engine
    slots: asyncio.Semaphore
    seed: int = 0
    known: Mapping[str, Sequence[KnownProof]] = field(default_factory=dict)
    lemmas: Sequence[Lemma] = ()
    _data: bytes = field(default=b"", init=False)
    _source: SourceFile = field(init=False)
    _located: LocatedFile | None = field(default=None, init=False)
    _key: ReplKey = field(init=False)
    _place: FilePlace = field(init=False)
    _setup_failed: tuple[SetupFailed, int] | None = field(default=None, init=False)

    async def run(self, wanted: Sequence[SorryToProve]) -> None:
        """Attempt every wanted sorry; `done` receives each attempt as soon as it ends.

        Raises:
            ReplStartError: no REPL could be started with the file's imports.
        """
        pieces = self._pieces(wanted)
        if not self.engine.together:
            for piece in pieces:
                await self._attempt(piece)
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                for piece in pieces:
                    tasks.create_task(self._attempt(piece))
        except BaseExceptionGroup as errors:
            unstarted = errors.subgroup(ReplStartError)
            if unstarted is None or errors.split(ReplStartError)[1] is not None:
                raise
            raise first_error(unstarted) from errors

    async def run_in_whole_files(self, wanted: Sequence[SorryToProve]) -> bool:
        """Try sorries of a file already read by `run`, without a session; return whether Lean could be used."""
        file = WholeFile(
            self.backend,
            self.project,
            self.path,
            self._data,
            self._source,
            core_only=self._place.core_only,
            memory_bytes=self.pool.limits.memory_bytes,
        )
        for one in wanted:
            async with self.slots:
                attempt = await file.attempt(one, self.budget)
            if attempt is None:
                return False
            self.done(attempt)
        return True

    def _pieces(self, wanted: Sequence[SorryToProve]) -> list[_Piece]:
        """Read the file, and group the sorries by the top-level command; report those beyond attempting."""
        try:
            self._data = read_inside(self.project, self.path)
        except OSError as error:
            self._report(wanted, "error", f"{self.path}: cannot be read: {error.strerror}")
            return []
        self._source = source = parse(self._data)
        if source.scanned.error is not None:
            self._report(wanted, "unsupported", f"{self.path}: {source.scanned.error}")
            return []
        self._key = ReplKey.of_file(self.backend, self.project, source)
        core_only = closure(self.project, source.imports).core_only
        self._place = FilePlace(self.shown, source.imports, core_only=core_only)
        groups: dict[int, tuple[Command, list[SorryToProve]]] = {}
        for one in sorted(wanted, key=lambda item: item.byte_start):
            command = source.command_at(one.byte_start)
            if complaint := self._other_text(one):
                self._report([one], "error", complaint)
            elif command is None:
                self._report(
                    [one], "unsupported", f"{one.declaration}: the sorry is in no command of the file"
                )
            elif complaint := self._unsupported(one, command):
                self._report([one], "unsupported", complaint)
            else:
                groups.setdefault(command.byte_start, (command, []))[1].append(one)
        pieces, reached, prefix = [], source.header_end, ()  # type: list[_Piece], int, tuple[str, ...]
        for start, (command, group) in sorted(groups.items()):
            # The text between the last declaration and this one is one more piece of a process's setup.
            between, preamble = self._data[reached:start].decode(), source.preamble_at(reached)
            text = f"{preamble}\n{between}" if preamble and between else between
            prefix, reached = (*prefix, text) if text.strip() else prefix, start
            declaration = Declaration.cut(self._data, source, command)
            # The declarations of a `mutual` block count their own sorries.
            ordinals = {sorry.byte_start: sorry.ordinal for sorry in declaration.sorries}
            group = [replace(one, ordinal=ordinals.get(one.byte_start, one.ordinal)) for one in group]
            pieces.append(_Piece(declaration, group, prefix))
        return pieces

    def _other_text(self, one: SorryToProve) -> str:
        """Return the reason to think that the file differs from the sorry's; "" for nothing."""
        if one.blob != git_blob(self._data, like=one.blob):
            return f"{self.path} in the worktree is not blob {one.blob}"
        if self._data[one.byte_start : one.byte_end] not in (b"sorry", b"admit", b"stop"):
            return f"{self.path}: no sorry at bytes {one.byte_start}..{one.byte_end}"
        return ""

    def _unsupported(self, one: SorryToProve, command: Command) -> str:
        """Return why a sorry of this command cannot be attempted; "" if it can."""
        if self._data[one.byte_start : one.byte_end] == b"stop":
            return "a stop leaves the tactics after it out; write sorry in its place"
        if command.holder or command.kind != "declaration":
            held = f"the command {command.holder or command.keyword}"
            return f"{one.declaration} is held by {held}, which may do anything"
        if one.kind not in PROVABLE_KINDS | INSTANCE_KINDS:
            return f"{one.declaration} is a {one.kind}: data and structure may not be invented"
        if self._is_stated(one.byte_start):
            return f"{one.declaration}: the sorry is in its statement, which no proof may change"
        if self.engine.wholly is not None and self._source.declarations_in(command) != 1:
            return f"{one.declaration} shares its command with other declarations (mutual)"
        return ""

    def _is_stated(self, at: int) -> bool:
        """Return whether a sorry stands in its declaration's statement."""
        if self._located is None:
            self._located = locate(self._data)
        inside = (
            item for item in self._located.declarations if item.record.byte_start <= at < item.record.byte_end
        )
        result = next(inside, None)
        return result is not None and at < self._located.positions.byte(result.stated)

    async def _attempt(self, piece: _Piece) -> None:
        answering = self.engine.answering
        async with self.slots:
            if answering is not None and answering.over is not None:
                return
            if self._setup_failed is not None and self._setup_failed[1] <= piece.declaration.byte_start:
                # Every later declaration has the same text before it.
                self._report(piece.group, "error", self._before_the_declaration(self._setup_failed[0]))
                return
            try:
                async with Session(self.pool, self._key, Setup(prefix=piece.prefix)) as session:
                    worked = await self._work(session, piece)
            except CannotAttempt as error:
                self._report(piece.group, "error", str(error))
            except SetupFailed as error:
                self._setup_failed = (error, piece.declaration.byte_start)
                self._report(piece.group, "error", self._before_the_declaration(error))
            except ReplStartError:
                raise
            except ReplDied as error:
                self._report(
                    piece.group,
                    "error",
                    f"the process of Lean ended, twice at the same place: {short(str(error))}",
                )
            except ReplError as error:
                self._report(piece.group, "error", short(str(error)))
            else:
                tried = {whose for whose, _ in worked.unsolved}
                for one in piece.group:
                    if (solved := worked.solved.get(one.ordinal)) is not None:
                        self.done(self._success(one, solved))
                    elif worked.stopped is None or one.ordinal in tried:
                        self.done(in_vain(one, worked))
                # The declarations beside it have paid for the answers they wait for.
                if worked.stopped is not None and (answering is None or worked.stopped is not answering.over):
                    raise worked.stopped

    async def _work(self, session: Session, piece: _Piece) -> DeclarationResult:
        first = piece.group[0]
        known = {one.ordinal: self.known[one.sorry] for one in piece.group if one.sorry in self.known}
        shown = self.engine.show(self._place, first.declaration, self._position(first))
        method = SearchMethod(
            self.engine.propose(self._place, shown),
            scoring=self.engine.scoring,
            remaining=self.engine.remaining,
            seed=self.seed,
            negate=self.engine.again,
            lemmas=self._citable(piece),
        )
        prover = DeclarationProver(
            session,
            piece.declaration,
            self.budget,
            method,
            known,
            self.engine.wholly,
            self.path,
            shown,
            frozenset(one.ordinal for one in piece.declaration.sorries if self._is_stated(one.byte_start)),
        )
        return await prover.prove()

    def _citable(self, piece: _Piece) -> tuple[Lemma, ...]:
        """Return the lemmas but for the sorries' own; none for a paid endpoint."""
        if not self.engine.again:
            return ()
        own = {one.sorry for one in piece.group}
        return tuple(one for one in self.lemmas if one.sorry not in own)

    def _position(self, wanted: SorryToProve) -> tuple[int, int]:
        """Return the position of the sorry's declaration: line and column, from 1."""
        scanned = self._source.scanned
        index = next(sorry.index for sorry in scanned.sorries if sorry.byte_start == wanted.byte_start)
        return scanned.declarations[index].line, scanned.declarations[index].column + 1

    def _before_the_declaration(self, error: SetupFailed) -> str:
        if error.refused:
            return f"{self.path}: Lean refuses the text before the declaration: {short(str(error))}"
        return (
            f"{self.path}: Lean cannot get past the text before the declaration; tried twice:"
            f" {short(str(error))}"
        )

    def _success(self, one: SorryToProve, solved: SolvedSorry) -> Attempt:
        return found(one, solved, data=self._data, source=self._source, path=self.path)

    def _report(self, wanted: Iterable[SorryToProve], outcome: AttemptOutcome, detail: str) -> None:
        for one in wanted:
            self.done(Attempt(one, outcome, detail))
