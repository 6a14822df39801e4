"""A runner on an opened deployment with one observed commit, whose jobs behave as the test says (`.job`).

async with bench(deployment, memory_bytes=2**29) as b:
    row = await b.run(b.due("succeed"))
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, get_args

from daemon.jobs.due import DueJob
from daemon.jobs.engine import Engine
from daemon.jobs.gpus import Gpu, Gpus
from daemon.jobs.limits import Cgroups
from daemon.jobs.local import LocalEngine
from daemon.jobs.runner import JobRunner
from daemon.process.service import engine_of
from daemon.scheduling.scheduler import Scheduler
from pipeline.jobs.kinds import Kind
from pipeline.lean.backend import Leans
from store.view import queries
from store.view.rows import JobRow
from tests.support.daemon import warm
from tests.support.daemon.deployment import Deployment, NoTasks, Parts
from tests.support.daemon.job import Behaving
from tests.support.planning import NO_LEAN

_MODULES: dict[Kind, str] = dict.fromkeys(get_args(Kind), "tests.support.daemon.job")


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for what happens in another process; long, for a machine that has much else to do."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - there is no event to await
            await asyncio.sleep(0.02)


@dataclass
class Bench:
    """The parts, the runner, and the commit."""

    parts: Parts
    engine: Engine
    runner: JobRunner
    sha: str

    def due(
        self,
        behave: str,
        *,
        attempt: int = 1,
        kind: Kind = "scan",
        leases: tuple[Gpu, ...] = (),
        job: str = "",
    ) -> DueJob:
        """Return a job that will do so, on these GPUs."""
        repository = self.parts.repo.key
        return DueJob(
            job=job or f"{kind}-{behave}",
            kind=kind,
            attempt=attempt,
            lane=f"{kind}:{behave}",
            repository=repository,
            branch="main",
            sha=self.sha,
            describes=f"{kind} that shall {behave}",
            timeout_s=self.runner.limits.timeout_s,
            memory_bytes=self.runner.limits.memory_bytes,
            gpus=(len(leases),) if leases else (),
            leases=leases,
            spec=Behaving(
                behave=behave,
                repository=repository,
                branch="main",
                sha=self.sha,
                base=None,
                include=("**/*.lean",),
                exclude=(),
            ),
        )

    async def observe(self) -> str:
        """Record what the branch has now; return its tip."""
        await self.parts.poller.poll(self.parts.repo)
        (branch,) = await self.parts.store.ask(queries.branches)
        return branch.tip

    def scheduler(self, leans: Leans = NO_LEAN) -> Scheduler:
        """Return a scheduler of the runner's jobs."""
        upkeep: Any = SimpleNamespace(cache_bytes=0, advisories=(), sweep_cache=lambda _: asyncio.sleep(0))
        return Scheduler(
            store=self.parts.store,
            runner=self.runner,
            upkeep=upkeep,
            engine=self.engine,
            context=NoTasks(self.parts.settings),
            leans=leans,
        )

    async def run(self, due: DueJob) -> JobRow:
        """Run a job to its end, and return its row."""
        self.runner.start(due)
        await until(lambda: not self.runner.running())
        return await self.row(due.job)

    async def row(self, job: str) -> JobRow:
        """Return the row of a job."""
        (row,) = await self.parts.store.ask(lambda view: queries.jobs_by_prefix(view, job))
        return row


@contextlib.asynccontextmanager
async def bench(
    deployment: Deployment,
    *,
    gpus: Gpus | None = None,
    cgroups: Cgroups | None = None,
    modules: Mapping[Kind, str] = _MODULES,
    forked: bool = True,
    **limits: Any,
) -> AsyncIterator[Bench]:
    """Open one; `limits` are fields of [jobs].

    Args:
        modules: what runs the jobs.
        forked: whether the jobs are forks of a process that has loaded what they need.
    """
    with warm.forked_jobs() if forked else contextlib.nullcontext():
        async with _bench(deployment, gpus, cgroups, modules, limits) as opened:
            yield opened


@contextlib.asynccontextmanager
async def _bench(
    deployment: Deployment,
    gpus: Gpus | None,
    cgroups: Cgroups | None,
    modules: Mapping[Kind, str],
    limits: dict[str, Any],
) -> AsyncIterator[Bench]:
    async with deployment.opened() as parts:
        settings = parts.settings
        local = LocalEngine(settings.paths, parts.git, gpus=gpus, cgroups=cgroups)
        engine = engine_of(settings, local, parts.git)
        runner = JobRunner(
            store=parts.store,
            engine=engine,
            paths=settings.paths,
            limits=settings.jobs.model_copy(update={"retry_base_s": 30.0, **limits}),
            finished=lambda: None,
            modules=modules,
        )
        try:
            opened = Bench(parts, engine, runner, "")
            opened.sha = await opened.observe()
            yield opened
        finally:
            await runner.stop(deadline_s=10)
            await engine.aclose()
