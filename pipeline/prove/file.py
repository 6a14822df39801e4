"""All sorries of one file, each declaration in a session of its own: in the order of the source, or side by side.

The file's text up to a declaration is elaborated in pieces, each under the preamble of its place, so that a search sees
all earlier declarations and no later one. The process that served one declaration has the pieces before it and serves
the next one with one piece more; a process that dies or hangs costs only the time to bring another to the same place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.jobs.specs import Budget, KnownProof, Lemma, SorryToProve
from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import ReplDied, ReplError, ReplStartError, short
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session, SetupFailed
from pipeline.lean.source.imports import closure
from pipeline.lean.source.scanner import Command, SourceFile, parse
from pipeline.lean.source.splice import Declaration
from pipeline.lean.source.worktree import read_inside
from pipeline.prove.declaration import CannotAttempt, DeclarationProver
from pipeline.prove.effort import Attempt, AttemptOutcome, DeclarationResult, SolvedSorry, found, in_vain
from pipeline.prove.rungs import Engine, FilePlace
from pipeline.prove.search import SearchMethod
from store.domain.identity import git_blob
from store.domain.keywords import INSTANCE_KINDS, PROVABLE_KINDS


@dataclass(frozen=True, slots=True)
class _Piece:
    """A declaration: its command, the wanted sorries in it, and the text before it."""

    command: Command
    group: list[SorryToProve]
    prefix: tuple[str, ...]


@dataclass(slots=True)
class FileProver:
    """Attempts the wanted sorries of one file.

    Attributes:
        backend: runs Lean.
        pool: of its processes.
        project: the folder of the Lake project.
        path: the file in it.
        shown: the file's path in the repository, as premises have it.
        budget: for one sorry.
        done: receives each attempt.
        engine: the rung.
        slots: limit the declarations at work, over all files.
        seed: of the sampling.
        known: by sorry, proofs to try first.
        lemmas: that a search may bring in, without a sorry's own.
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
    _key: ReplKey = field(init=False)
    _place: FilePlace = field(init=False)
    _prefix: tuple[str, ...] = field(default=(), init=False)
    _reached: int = field(default=0, init=False)
    _setup_failed: tuple[SetupFailed, int] | None = field(default=None, init=False)

    async def run(self, wanted: Sequence[SorryToProve]) -> None:
        """Attempt every wanted sorry; `done` receives each attempt as soon as it ends.

        Raises:
            ReplStartError: no REPL could be started with the file's imports.
        """
        pieces = []
        for command, group in self._by_command(self._readable(wanted)):
            self._advance(command.byte_start)
            pieces.append(_Piece(command, group, self._prefix))
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
            raise _first(unstarted) from errors

    def _readable(self, wanted: Sequence[SorryToProve]) -> list[SorryToProve]:
        """Read the file; report the sorries that it no longer has."""
        try:
            self._data = read_inside(self.project, self.path)
        except OSError as error:
            self._report(wanted, "error", f"{self.path}: cannot be read: {error.strerror}")
            return []
        self._source = parse(self._data)
        if self._source.scanned.error is not None:
            self._report(wanted, "unsupported", f"{self.path}: {self._source.scanned.error}")
            return []
        fitting = []
        for one in wanted:
            if one.blob != git_blob(self._data, like=one.blob):
                self._report([one], "error", f"{self.path} in the worktree is not blob {one.blob}")
            elif (word := self._data[one.byte_start : one.byte_end]) == b"stop":
                self._report(
                    [one], "unsupported", "a stop leaves the tactics after it out; write sorry in its place"
                )
            elif word not in (b"sorry", b"admit"):
                self._report(
                    [one], "error", f"{self.path}: no sorry at bytes {one.byte_start}..{one.byte_end}"
                )
            else:
                fitting.append(one)
        self._key = ReplKey.of_file(self.backend, self.project, self._source)
        imports = self._source.imports
        core_only = closure(self.project, imports).core_only
        self._place = FilePlace(self.shown, imports, core_only=core_only)
        self._reached = self._source.header_end
        return fitting

    def _by_command(self, wanted: Iterable[SorryToProve]) -> list[tuple[Command, list[SorryToProve]]]:
        """Group by the top-level command; report the sorries that cannot be attempted."""
        groups: dict[int, tuple[Command, list[SorryToProve]]] = {}
        for one in sorted(wanted, key=lambda item: item.byte_start):
            command = self._source.command_at(one.byte_start)
            if command is None:
                self._report(
                    [one], "unsupported", f"{one.declaration}: the sorry is in no command of the file"
                )
            elif command.holder or command.kind != "declaration":
                held = f"the command {command.holder or command.keyword}"
                self._report(
                    [one], "unsupported", f"{one.declaration} is held by {held}, which may do anything"
                )
            elif one.kind not in PROVABLE_KINDS | INSTANCE_KINDS:
                self._report(
                    [one],
                    "unsupported",
                    f"{one.declaration} is a {one.kind}: data and structure may not be invented",
                )
            elif self.engine.wholly is not None and self._source.declarations_in(command) != 1:
                self._report(
                    [one],
                    "unsupported",
                    f"{one.declaration} shares its command with other declarations (mutual)",
                )
            else:
                groups.setdefault(command.byte_start, (command, []))[1].append(one)
        return [(command, self._numbered(command, group)) for _, (command, group) in sorted(groups.items())]

    def _numbered(self, command: Command, group: list[SorryToProve]) -> list[SorryToProve]:
        """Return sorries with their ordinals in the command: the declarations of a `mutual` block count their own."""
        cut = Declaration.cut(self._data, self._source, command)
        ordinals = {sorry.byte_start: sorry.ordinal for sorry in cut.sorries}
        return [replace(one, ordinal=ordinals.get(one.byte_start, one.ordinal)) for one in group]

    async def _attempt(self, piece: _Piece) -> None:
        async with self.slots:
            if self._setup_failed is not None and self._setup_failed[1] <= piece.command.byte_start:
                # Every later declaration has the same text before it.
                self._report(piece.group, "error", self._before_the_declaration(self._setup_failed[0]))
                return
            try:
                async with Session(self.pool, self._key, Setup(prefix=piece.prefix)) as session:
                    worked = await self._work(session, piece)
            except CannotAttempt as error:
                self._report(piece.group, "error", str(error))
            except SetupFailed as error:
                self._setup_failed = (error, piece.command.byte_start)
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
                self._conclude(piece.group, worked)

    async def _work(self, session: Session, piece: _Piece) -> DeclarationResult:
        command, first = piece.command, piece.group[0]
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
        declaration = Declaration.cut(self._data, self._source, command)
        prover = DeclarationProver(
            session, declaration, self.budget, method, known, self.engine.wholly, self.path, shown
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

    def _advance(self, offset: int) -> None:
        """Add the text between the last declaration and `offset` to a process's setup."""
        if self._reached < offset:
            piece = self._data[self._reached : offset].decode()
            preamble = self._source.preamble_at(self._reached)
            text = f"{preamble}\n{piece}" if preamble else piece
            if text.strip():
                self._prefix = (*self._prefix, text)
            self._reached = offset

    def _conclude(self, group: list[SorryToProve], worked: DeclarationResult) -> None:
        for one in group:
            solved = worked.solved.get(one.ordinal)
            if solved is None:
                self.done(in_vain(one, worked))
                continue
            joint = worked.joint_of(one.ordinal)
            replacement = joint.replacement if joint else solved.replacement
            parts = [worked.solved[other] for other in joint.ordinals] if joint else [solved]
            tactics = tuple(tactic for part in parts for tactic in part.tactics)
            said = [f"together with the declaration's other {len(parts) - 1}"] if joint else []
            said += [solved.effort.detail] if solved.effort.detail else []
            proof = SolvedSorry(tactics, replacement, solved.effort)
            self.done(
                found(one, proof, "; ".join(said), data=self._data, source=self._source, path=self.path)
            )

    def _report(self, wanted: Iterable[SorryToProve], outcome: AttemptOutcome, detail: str) -> None:
        for one in wanted:
            self.done(Attempt(one, outcome, detail))


def _first(errors: BaseExceptionGroup[ReplStartError]) -> ReplStartError:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
