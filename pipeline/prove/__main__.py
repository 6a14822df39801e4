"""The prove job: rung 0 on a batch of sorrys of one commit.

`python -m pipeline.prove --spec spec.json`; parameters: repository, branch, sha, worktree, lean
(`LeanBackend.as_json`), prover ("tactics"), rung (0), budget {seconds_per_sorry, nodes_per_sorry,
tactic_timeout_s}, budget_key, parallel, sorries [{sorry, path, blob, byte_start, byte_end, declaration, kind,
ordinal, mode}]; and, where the defaults of `PoolLimits` do not suit: repls (how many REPL processes at once, else
`parallel`), repl_memory_bytes (of one), repl_calls (after which one is replaced). Emits, as each sorry ends, one
batch: `proof_found` where there is one, and `attempt_finished`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.gate.lake import BUILD_BOUNDS, build
from pipeline.held import lean_held
from pipeline.lean.backend import REPL_FAILED_REMEDY, LeanBackend
from pipeline.lean.build.lake import LakeRunner
from pipeline.lean.client.repl import ReplStartError
from pipeline.lean.pool.pool import CALLS, MEMORY_BYTES, PoolLimits, ReplKey, ReplPool
from pipeline.lean.pool.session import Session
from pipeline.lean.source.scanner import parse
from pipeline.protocol import JobError, JobSpec, Recorded, Reporter, run_job
from pipeline.prove.file import Attempt, FileProver, Wanted, short
from pipeline.prove.imports import local_file
from pipeline.prove.search import Budget
from store.events import AttemptFinished, ProofFound
from store.identity import proof_id

PROVER, RUNG = "tactics", 0
IMPORT_FAILED = "uncaught exception"  # how Lean's REPL ends when a module cannot be imported


@dataclass(frozen=True, slots=True)
class Order:
    """The job's parameters, read and checked."""

    repository: str
    branch: str
    sha: str
    worktree: Path
    lean: LeanBackend
    prover: str
    rung: int
    budget: Budget
    budget_key: str
    parallel: int
    limits: PoolLimits
    sorries: tuple[Wanted, ...]

    @classmethod
    def read(cls, parameters: dict[str, Any]) -> Order:
        try:
            budget = parameters["budget"]
            parallel = max(1, int(parameters["parallel"]))
            order = cls(
                repository=parameters["repository"],
                branch=parameters["branch"],
                sha=parameters["sha"],
                worktree=Path(parameters["worktree"]),
                lean=LeanBackend.from_json(parameters["lean"]),
                prover=parameters["prover"],
                rung=parameters["rung"],
                budget=Budget(
                    nodes=int(budget["nodes_per_sorry"]),
                    seconds=float(budget["seconds_per_sorry"]),
                    tactic_timeout_s=float(budget["tactic_timeout_s"]),
                ),
                budget_key=parameters["budget_key"],
                parallel=parallel,
                limits=PoolLimits(
                    processes=int(parameters.get("repls", parallel)),
                    memory_bytes=int(parameters.get("repl_memory_bytes", MEMORY_BYTES)),
                    calls=int(parameters.get("repl_calls", CALLS)),
                ),
                sorries=tuple(Wanted.from_json(item) for item in parameters["sorries"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise JobError(
                "bad_spec",
                f"the prove job's parameters cannot be read: {type(error).__name__}: {error}",
                remedy="see pipeline/prove/__main__.py for what they are",
                deterministic=True,
            ) from error
        if (order.prover, order.rung) != (PROVER, RUNG):
            raise JobError(
                "unknown_prover",
                f"prover {order.prover!r} at rung {order.rung} is not known; this version has {PROVER!r} at {RUNG}",
                deterministic=True,
            )
        if order.lean.kind == "none":
            raise JobError("no_lean", f"no Lean: {order.lean.detail}", remedy="see `unsorry doctor`")
        return order


class Run:
    """One run of the job: the files side by side, on the REPLs of one pool."""

    def __init__(self, order: Order, spec: JobSpec, reporter: Reporter) -> None:
        self._order = order
        self._spec = spec
        self._reporter = reporter
        self._outcomes: dict[str, int] = {}
        self._done = 0

    async def run(self) -> dict[str, Any]:
        order = self._order
        files: dict[str, list[Wanted]] = {}
        for wanted in order.sorries:
            files.setdefault(wanted.path, []).append(wanted)
        slots = asyncio.Semaphore(order.parallel)
        await self._build(files)
        self._reporter.progress(0, len(order.sorries))
        async with ReplPool(order.limits) as pool, asyncio.TaskGroup() as tasks:
            for path in sorted(files):
                tasks.create_task(self._file(path, files[path], slots, pool))
        return {"sorries": len(order.sorries), **self._outcomes, "simulated": order.lean.simulated}

    async def _build(self, files: Iterable[str]) -> None:
        """Have lake build the project's modules that the files import: the REPL reads only what is built.

        A build that fails is not the end: a file whose imports are then missing says so itself.
        """
        lake = LakeRunner.find(self._order.lean, project=self._order.worktree)
        if isinstance(lake, str):
            return
        project = self._order.worktree
        readable = [project / path for path in files if (project / path).is_file()]
        imports = {name for file in readable for name in parse(file.read_bytes()).imports}
        modules = sorted(name for name in imports if local_file(project, name) is not None)
        if modules:
            self._reporter.progress(0, len(self._order.sorries), f"lake build of {len(modules)} modules")
            built = await asyncio.to_thread(build, lake, *modules)
            if not built.ok:
                print(f"lake build: {built.explain(BUILD_BOUNDS)}: {built.output}", file=sys.stderr)  # noqa: T201

    async def _file(self, path: str, wanted: list[Wanted], slots: asyncio.Semaphore, pool: ReplPool) -> None:
        order = self._order
        finished: set[str] = set()

        def done(attempt: Attempt) -> None:
            finished.add(attempt.wanted.sorry)
            self._record(attempt)

        async with slots:
            prover = FileProver(
                order.lean, pool=pool, project=order.worktree, path=path, budget=order.budget, done=done
            )
            try:
                await prover.run(wanted)
            except ReplStartError as error:
                await self._blame(error, pool)
                for one in wanted:
                    if one.sorry not in finished:
                        done(Attempt(one, "error", short(f"the imports of {path} fail: {error}")))

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
            batch.append(Recorded(f"proof:{proof}", body, (proof,)))
        finished = AttemptFinished(
            repository=order.repository,
            branch=order.branch,
            sha=order.sha,
            sorry=wanted.sorry,
            blob=wanted.blob,
            prover=order.prover,
            rung=order.rung,
            budget=order.budget_key,
            outcome=attempt.outcome,
            detail=attempt.detail,
            nodes=attempt.nodes,
            repl_calls=attempt.repl_calls,
            seconds=round(attempt.seconds, 3),
            simulated=order.lean.simulated,
            job=self._spec.job,
        )
        key = (wanted.sorry, wanted.blob, order.prover, str(order.rung), order.budget_key)
        batch.append(Recorded(stream, finished, key))
        self._reporter.events(batch)
        self._done += 1
        self._outcomes[attempt.outcome] = self._outcomes.get(attempt.outcome, 0) + 1
        self._reporter.progress(self._done, len(order.sorries), wanted.path)


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Try the curated tactics on the sorrys of the spec."""
    order = Order.read(spec.parameters)
    with lean_held(order.lean):
        return asyncio.run(Run(order, spec, reporter).run())


if __name__ == "__main__":
    sys.exit(run_job(work))
