"""The prove job: one rung on a batch of sorries of one commit. A bump job runs it in its own process.

The job emits one batch for each attempt: `proof_found` for a proof, and `attempt_finished` with the search's tree. A
model out of reach, or impossible to load, fails the job; a failure with one sorry is that sorry's attempt.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.jobs.lean import hold_that_it_is_lean, hold_that_lean_is_there
from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter
from pipeline.jobs.specs import (
    CORPUS,
    KNOWN,
    NO_CORPUS,
    ProveKnown,
    ProveSpec,
    SorryToProve,
)
from pipeline.lean.backend import REPL_FAILED_REMEDY
from pipeline.lean.build.lake import BUILD_BOUNDS, LakeRunner, build
from pipeline.lean.client.errors import ImportsRefused, ReplStartError, short
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool
from pipeline.lean.pool.session import Session
from pipeline.lean.source.imports import local_file
from pipeline.lean.source.scanner import parse
from pipeline.lean.source.worktree import read_inside
from pipeline.models.errors import DatasetError
from pipeline.prove.effort import Attempt
from pipeline.prove.file import FileProver
from pipeline.prove.lemmas import recalled
from pipeline.prove.rungs import Engine, ModelHealth, engine
from pipeline.prove.tree import Tree
from store.domain.identity import proof_id
from store.events.base import BlobRef
from store.events.projects import inside, outside
from store.events.proofs import AttemptFinished, ProofFound

if TYPE_CHECKING:
    from pipeline.models.retriever.corpus import Corpus

IMPORT_FAILED = "uncaught exception"  # how Lean's REPL ends when a module cannot be imported


class ProveJob:
    """One run of the job: the files side by side, on the REPLs of one pool."""

    def __init__(
        self,
        spec: JobSpec[ProveSpec],
        reporter: Reporter,
        pool: Callable[[PoolLimits], ReplPool] = ReplPool,
        own: Engine | None = None,
    ) -> None:
        """Args:
        own: a search engine in the place of the specification's rung, recorded under its number.
        """
        self._own = own
        self._spec = spec
        self._given = parameters = spec.parameters
        self._project = spec.project(parameters.folder)
        self._reporter = reporter
        self._pool = pool
        self._outcomes: dict[str, int] = {}
        self._done = 0
        self._files = asyncio.Semaphore(parameters.parallel)
        self._declarations = asyncio.Semaphore(parameters.parallel)
        self._held: list[tuple[Attempt, int]] = []

    async def run(self) -> dict[str, Any]:
        given = self._given
        files: dict[str, list[SorryToProve]] = {}
        for wanted in given.sorries:
            files.setdefault(inside(wanted.path, given.folder), []).append(wanted)
        known = self._knowledge()
        await self._build(files)
        self._reporter.progress(0, len(given.sorries))
        # The model first: without it Lean need not start.
        async with (
            nullcontext(self._own) if self._own else engine(self._spec, self._corpus, known.attempts) as rung,
            self._pool(given.limits) as pool,
            asyncio.TaskGroup() as tasks,
        ):
            for path in sorted(files):
                tasks.create_task(self._file(path, files[path], pool, rung, known))
        self._record_held(rung.answering)
        return {"sorries": len(given.sorries), **self._outcomes}

    async def _build(self, files: Iterable[str]) -> None:
        """Build the project's modules imported by the files, with lake: the REPL reads only built ones.

        A failed build is only printed: the attempts in a file with missing imports report it.
        """
        lake = LakeRunner.find(self._given.lean, project=self._project)
        if isinstance(lake, str):
            return
        project = self._project
        imports = {name for path in files for name in _imports(project, path)}
        modules = sorted(name for name in imports if local_file(project, name) is not None)
        if modules:
            self._reporter.progress(0, len(self._given.sorries), f"lake build of {len(modules)} modules")
            built = await asyncio.to_thread(build, lake, *modules)
            if not built.ok:
                print(f"lake build: {built.explain(BUILD_BOUNDS)}: {built.output}", file=sys.stderr)  # noqa: T201

    def _knowledge(self) -> ProveKnown:
        """Return the view's knowledge of the sorries and their branch."""
        if KNOWN not in self._spec.inputs:
            return ProveKnown()
        return ProveKnown.model_validate_json(self._spec.input(KNOWN).read_bytes())

    def _corpus(self) -> Corpus:
        """Return the premises for the retriever.

        Raises:
            DatasetError: the repository has none.
        """
        from pipeline.models.retriever.corpus import Corpus

        if NO_CORPUS not in self._spec.inputs:
            return Corpus(self._spec.input(CORPUS))
        raise DatasetError(self._spec.input(NO_CORPUS).read_text(encoding="utf-8"))

    async def _file(
        self,
        path: str,
        wanted: list[SorryToProve],
        pool: ReplPool,
        rung: Engine,
        known: ProveKnown,
    ) -> None:
        given = self._given
        finished: set[str] = set()

        def done(attempt: Attempt) -> None:
            finished.add(attempt.wanted.sorry)
            self._ended(attempt, rung.answering)

        async with self._files:
            prover = FileProver(
                given.lean,
                pool=pool,
                project=self._project,
                path=path,
                shown=outside(path, given.folder),
                budget=given.budget,
                done=done,
                engine=rung,
                slots=self._declarations,
                seed=given.seed,
                known=recalled(known),
                lemmas=known.lemmas,
            )
            try:
                await prover.run(wanted)
            except ReplStartError as error:

                def left() -> list[SorryToProve]:
                    return [one for one in wanted if one.sorry not in finished]

                # For a Lean without sessions the curated tactics are tried in whole files.
                apart = given.lean.kind == "server" and not given.rung.number
                apart = apart and not isinstance(error, ImportsRefused)
                if not (apart and await prover.run_in_whole_files(left())):
                    await self._blame(error, pool)
                    for one in left():
                        done(Attempt(one, "error", short(f"the imports of {path} fail: {error}")))

    async def _blame(self, error: ReplStartError, pool: ReplPool) -> None:
        """Fail the job if Lean does not run or crashes; return if only the file's imports fail.

        An attempt is remembered until the file changes, so it must not record a failure of the machine.
        """
        if not isinstance(error, ImportsRefused) and IMPORT_FAILED not in str(error):
            raise JobError("lean_does_not_start", str(error), remedy=REPL_FAILED_REMEDY) from error
        try:
            async with Session(pool, ReplKey(self._given.lean, self._project, ("Init",))) as session:
                await session.ready()
        except ReplStartError:
            raise JobError("lean_does_not_start", str(error), remedy=REPL_FAILED_REMEDY) from error

    def _ended(self, attempt: Attempt, answering: ModelHealth | None) -> None:
        """Record an attempt; hold back one with an error during an outage of the model (`ModelHealth`)."""
        if attempt.outcome == "error" and answering is not None and answering.failure:
            self._held.append((attempt, answering.answered))
        else:
            self._record(attempt)

    def _record_held(self, answering: ModelHealth | None) -> None:
        """Record the held attempts, or fail because the model is down."""
        if answering is None:
            return
        for attempt, answered in self._held:
            if answered < answering.answered:
                self._record(attempt)
        since = [attempt for attempt, answered in self._held if answered == answering.answered]
        if (given_up := answering.given_up(len(since))) is not None:
            raise given_up
        for attempt in since:
            self._record(attempt)

    def _record(self, attempt: Attempt) -> None:
        given, wanted = self._given, attempt.wanted
        stream = f"repository:{given.repository}"
        batch: list[Recorded] = []
        if attempt.proof is not None:
            text = attempt.proof.replacement
            proof = proof_id(wanted.sorry, wanted.blob, text.text, text.parts)
            body = ProofFound(
                proof=proof,
                sorry=wanted.sorry,
                repository=given.repository,
                branch=given.branch,
                sha=given.sha,
                path=wanted.path,
                blob=wanted.blob,
                byte_start=text.byte_start,
                byte_end=text.byte_end,
                declaration=wanted.declaration,
                declaration_text_hash=attempt.text_hash,
                replacement=text.text,
                parts=text.parts,
                tactics=attempt.proof.tactics,
                prover=given.prover,
                rung=given.rung.number,
                toolchain=given.lean.toolchain,
                job=self._spec.job,
            )
            # The job is part of the key: another rung, or another branch's job, may find the same text.
            batch.append(Recorded(f"proof:{proof}", body, (proof, self._spec.job)))
        effort = attempt.effort
        finished = AttemptFinished(
            repository=given.repository,
            branch=given.branch,
            sha=given.sha,
            sorry=wanted.sorry,
            blob=wanted.blob,
            prover=given.prover,
            rung=given.rung.number,
            model=given.model,
            seed=given.seed,
            budget=given.budget_key,
            outcome=attempt.outcome,
            detail=attempt.detail,
            best=effort.best,
            goals_left=effort.goals_left,
            nodes=effort.nodes,
            repl_calls=effort.repl_calls,
            seconds=round(effort.seconds, 3),
            prompt_tokens=effort.cost.prompt_tokens,
            completion_tokens=effort.cost.completion_tokens,
            usd=effort.cost.usd,
            tree=None if effort.tree is None else self._stage(effort.tree),
            job=self._spec.job,
        )
        key = (wanted.sorry, wanted.blob, given.prover, str(given.rung.number), given.model, given.budget_key)
        batch.append(Recorded(stream, finished, (*key, self._spec.job)))
        self._reporter.events(batch)
        self._done += 1
        self._outcomes[attempt.outcome] = self._outcomes.get(attempt.outcome, 0) + 1
        self._reporter.progress(self._done, len(given.sorries), wanted.path)

    def _stage(self, tree: Tree) -> BlobRef:
        return self._reporter.stage(json.dumps(tree.as_json(), separators=(",", ":")).encode())


def _imports(project: Path, path: str) -> tuple[str, ...]:
    try:
        return parse(read_inside(project, path)).imports
    except OSError:
        return ()  # the attempts at its sorries report that


def work(
    spec: JobSpec[ProveSpec], reporter: Reporter, pool: Callable[[PoolLimits], ReplPool] = ReplPool
) -> dict[str, Any]:
    """Work on the sorries of the specification with its rung, on the processes of a pool."""
    lean = spec.parameters.lean
    hold_that_lean_is_there(lean)
    hold_that_it_is_lean(lean)
    return asyncio.run(ProveJob(spec, reporter, pool).run())
