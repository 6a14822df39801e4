"""The prove job: one rung on a batch of sorrys of one commit.

`python -m pipeline.prove --spec spec.json`; parameters: repository, branch, sha, worktree, lean
(`LeanBackend.as_json`), prover and rung ("tactics" 0, "retrieval" 1, "generator" 2, "whole" 3, "external" 4), model
(its id; "" for rung 0), seed, budget {seconds_per_sorry, nodes_per_sorry, tactic_timeout_s, and, if wanted,
calls_per_sorry}, budget_key, parallel, sorries [{sorry, path, blob, byte_start, byte_end, declaration, kind, ordinal,
mode}]; and, where the defaults do not suit or the rung needs them:

    repls, repl_memory_bytes, repl_calls   how many REPL processes at once (else `parallel`), memory of one, and after
                                           how many calls one is replaced
    journal                                a folder that stays, for all prove jobs: a search that was killed goes on
    lemmas {database_db}                   the view, for proofs that the repository has of the same statements, and
                                           for those of its lemmas that a search may bring in
    generator {path, device, candidates, decoding "beam" or "sample", temperature}                          rungs 1 to 3
    retriever {chain, checkpoint, indices, premises, events_db, database_db}                          rung 1
    progress {path, weight}                a progress model, if wanted                                rungs 1, 2
    whole {proofs, repairs, max_tokens}                                                               rungs 3, 4
    external {base_url, model, credential, key_variable, timeout_s, retries, ledger, cap_usd,
              usd_per_million_prompt, usd_per_million_completion, mode "whole" or "tactics", and for the latter
              candidates, temperature, max_tokens}                                                    rung 4

Emits, as each sorry ends, one batch: `proof_found` where there is one, and `attempt_finished` with the search's tree. A
model that cannot be loaded, or that answers nobody, fails the job; what goes wrong with one sorry is that sorry's
attempt.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.gate.lake_checks import BUILD_BOUNDS, build
from pipeline.held import lean_held
from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter, run_job
from pipeline.lean.backend import REPL_FAILED_REMEDY
from pipeline.lean.build.lake import LakeRunner
from pipeline.lean.client.errors import short
from pipeline.lean.client.repl import ReplStartError
from pipeline.lean.pool.pool import ReplKey, ReplPool
from pipeline.lean.pool.session import Session
from pipeline.lean.source.imports import local_file
from pipeline.lean.source.scanner import parse
from pipeline.prove.answering import Answering
from pipeline.prove.attempt import Attempt, Wanted
from pipeline.prove.file import FileProver
from pipeline.prove.journal import Journal, JournalFile
from pipeline.prove.lemmas import Known, Lemma, known_to, lemmas_of
from pipeline.prove.order import Order
from pipeline.prove.rungs import Engine, engine
from pipeline.prove.tree import Tree
from pipeline.prove.whole_declaration import AnswerJournal
from pipeline.worktree import read_inside
from store.domain.identity import proof_id
from store.errors import LogError
from store.events.base import BlobRef
from store.events.proofs import AttemptFinished, ProofFound

IMPORT_FAILED = "uncaught exception"  # how Lean's REPL ends when a module cannot be imported


class _Kept(JournalFile):
    """A journal of the job: where it cannot be kept the job fails, and no sorry is taken for tried."""

    def _begin(self, header: Mapping[str, Any], replay: Callable[[list[Mapping[str, Any]]], None]) -> None:
        with self._writable():
            super()._begin(header, replay)

    def close(self) -> None:
        with self._writable():
            super().close()

    def _write(self, entry: Mapping[str, Any]) -> None:
        with self._writable():
            super()._write(entry)

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JobError(
                "journal",
                f"the journal {self.path} cannot be kept: {error.strerror or error}",
                remedy="make room there, or let this user write; the job is tried again",
            ) from error


class _KeptSearch(_Kept, Journal):
    """The journal of a search, of the job."""


class _KeptAnswers(_Kept, AnswerJournal):
    """The journal of whole proofs, of the job."""


class Run:
    """One run of the job: the files side by side, on the REPLs of one pool."""

    def __init__(self, order: Order, spec: JobSpec, reporter: Reporter) -> None:
        self._order = order
        self._spec = spec
        self._reporter = reporter
        self._outcomes: dict[str, int] = {}
        self._done = 0
        self._files = asyncio.Semaphore(order.parallel)
        self._declarations = asyncio.Semaphore(order.parallel)
        self._journals: dict[str, list[JournalFile]] = {}
        self._held: list[tuple[Attempt, int]] = []

    async def run(self) -> dict[str, Any]:
        order = self._order
        files: dict[str, list[Wanted]] = {}
        for wanted in order.sorries:
            files.setdefault(wanted.path, []).append(wanted)
        order.forget_old_journals()
        known, lemmas = self._known()
        await self._build(files)
        self._reporter.progress(0, len(order.sorries))
        # Its model first: without one there is nothing to start Lean for.
        async with engine(order) as rung, ReplPool(order.limits) as pool, asyncio.TaskGroup() as tasks:
            for path in sorted(files):
                tasks.create_task(self._file(path, files[path], pool, rung, known, lemmas))
        self._let_go(rung.answering)
        return {"sorries": len(order.sorries), **self._outcomes, "simulated": order.lean.simulated}

    async def _build(self, files: Iterable[str]) -> None:
        """Have lake build the project's modules that the files import: the REPL reads only what is built.

        A build that fails is not the end: a file whose imports are then missing says so itself.
        """
        lake = LakeRunner.find(self._order.lean, project=self._order.worktree)
        if isinstance(lake, str):
            return
        project = self._order.worktree
        imports = {name for path in files for name in _imports(project, path)}
        modules = sorted(name for name in imports if local_file(project, name) is not None)
        if modules:
            self._reporter.progress(0, len(self._order.sorries), f"lake build of {len(modules)} modules")
            built = await asyncio.to_thread(build, lake, *modules)
            if not built.ok:
                print(f"lake build: {built.explain(BUILD_BOUNDS)}: {built.output}", file=sys.stderr)  # noqa: T201

    def _known(self) -> tuple[Mapping[str, Sequence[Known]], Sequence[Lemma]]:
        """Return, by sorry, the proofs that the repository has of the same statement; and what others may cite."""
        order = self._order
        if order.database_db is None:
            return {}, ()
        view, repository, simulated = order.database_db, order.repository, order.lean.simulated
        try:
            known = known_to(
                view,
                repository=repository,
                sorries=(one.sorry for one in order.sorries),
                simulated=simulated,
            )
            return known, lemmas_of(view, repository=repository, branch=order.branch, simulated=simulated)
        except LogError as error:
            raise JobError(
                "database", f"the proofs that are known: {error}", remedy="see `unsorry doctor`"
            ) from error

    async def _file(
        self,
        path: str,
        wanted: list[Wanted],
        pool: ReplPool,
        rung: Engine,
        known: Mapping[str, Sequence[Known]],
        lemmas: Sequence[Lemma],
    ) -> None:
        order = self._order
        finished: set[str] = set()

        def done(attempt: Attempt) -> None:
            finished.add(attempt.wanted.sorry)
            self._ended(attempt, rung.answering)

        async with self._files:
            prover = FileProver(
                order.lean,
                pool=pool,
                project=order.worktree,
                path=path,
                budget=order.budget,
                done=done,
                engine=rung,
                slots=self._declarations,
                seed=order.seed,
                journals=None if order.journal is None else self._journal,
                answers=None if order.journal is None else self._answers,
                known=known,
                lemmas=lemmas,
            )
            try:
                await prover.run(wanted)
            except ReplStartError as error:
                await self._blame(error, pool)
                for one in wanted:
                    if one.sorry not in finished:
                        done(Attempt(one, "error", short(f"the imports of {path} fail: {error}")))

    def _journal(self, wanted: Wanted, goal: int) -> Journal | None:
        path = self._order.journal_of(wanted, goal)
        if path is None:
            return None
        journal = _KeptSearch(path, prover=self._order.prover, model=self._order.model)
        self._journals.setdefault(wanted.sorry, []).append(journal)
        return journal

    def _answers(self, wanted: Wanted, ordinal: int) -> AnswerJournal | None:
        path = self._order.journal_of(wanted, ordinal)
        if path is None:
            return None
        journal = _KeptAnswers(path)
        self._journals.setdefault(wanted.sorry, []).append(journal)
        return journal

    async def _blame(self, error: ReplStartError, pool: ReplPool) -> None:
        """Tell a file whose imports fail from a Lean that does not run or crashes: the latter fails the job.

        An attempt is remembered for as long as the file stays as it is, so it must not record our own trouble.
        """
        if IMPORT_FAILED not in str(error):
            raise JobError("lean_does_not_start", str(error), remedy=REPL_FAILED_REMEDY) from error
        try:
            async with Session(pool, ReplKey(self._order.lean, self._order.worktree, ("Init",))) as session:
                await session.ready()
        except ReplStartError:
            raise JobError("lean_does_not_start", str(error), remedy=REPL_FAILED_REMEDY) from error

    def _ended(self, attempt: Attempt, answering: Answering | None) -> None:
        """Record an attempt; one that ended in an error while nobody is answered is held back (`answering`)."""
        if attempt.outcome == "error" and answering is not None and answering.failure:
            self._held.append((attempt, answering.answered))
        else:
            self._record(attempt)

    def _let_go(self, answering: Answering | None) -> None:
        """Record what was held back, or fail because nobody is answered any more."""
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
        order, wanted = self._order, attempt.wanted
        stream = f"repository:{order.repository}"
        batch: list[Recorded] = []
        if attempt.proof is not None:
            text = attempt.proof.replacement
            proof = proof_id(wanted.sorry, wanted.blob, text.text)
            body = ProofFound(
                proof=proof,
                sorry=wanted.sorry,
                repository=order.repository,
                branch=order.branch,
                sha=order.sha,
                path=wanted.path,
                blob=wanted.blob,
                byte_start=text.byte_start,
                byte_end=text.byte_end,
                declaration=wanted.declaration,
                declaration_text_hash=attempt.proof.text_hash,
                replacement=text.text,
                tactics=attempt.proof.tactics,
                prover=order.prover,
                rung=order.rung,
                toolchain=order.lean.toolchain,
                simulated=order.lean.simulated,
                job=self._spec.job,
            )
            # The job is in the keys: another rung, or another branch's job, may find the same text.
            batch.append(Recorded(f"proof:{proof}", body, (proof, self._spec.job)))
        effort = attempt.effort
        finished = AttemptFinished(
            repository=order.repository,
            branch=order.branch,
            sha=order.sha,
            sorry=wanted.sorry,
            blob=wanted.blob,
            prover=order.prover,
            rung=order.rung,
            model=order.model,
            seed=order.seed,
            budget=order.budget_key,
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
            simulated=order.lean.simulated,
            job=self._spec.job,
        )
        key = (wanted.sorry, wanted.blob, order.prover, str(order.rung), order.model, order.budget_key)
        batch.append(Recorded(stream, finished, (*key, self._spec.job)))
        self._reporter.events(batch)
        for journal in self._journals.pop(wanted.sorry, ()):
            journal.close()
            journal.path.unlink(missing_ok=True)
        self._done += 1
        self._outcomes[attempt.outcome] = self._outcomes.get(attempt.outcome, 0) + 1
        self._reporter.progress(self._done, len(order.sorries), wanted.path)

    def _stage(self, tree: Tree) -> BlobRef:
        return self._reporter.stage(json.dumps(tree.as_json(), separators=(",", ":")).encode())


def _imports(project: Path, path: str) -> tuple[str, ...]:
    try:
        return parse(read_inside(project, path)).imports
    except OSError:
        return ()  # the attempts at its sorrys say why it cannot be read


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Work on the sorrys of the spec with its rung."""
    order = Order.read(spec.parameters)
    with lean_held(order.lean):
        return asyncio.run(Run(order, spec, reporter).run())


if __name__ == "__main__":
    sys.exit(run_job(work))
