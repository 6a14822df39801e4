"""The daemon's parts without the daemon: the store, the plan and the runner, for one call of an agent.

What is due is `daemon.planning.plan`'s, how it runs is `daemon.jobs.runner`', as ever; this turns until nothing of
the wanted kinds is due any more. Nothing is polled and nothing is watched.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import structlog

from daemon.agents.errors import AgentError
from daemon.context import Context
from daemon.jobs.gpus import Gpus
from daemon.jobs.recovery import recover
from daemon.jobs.runner import JobRunner
from daemon.maintenance import Maintenance
from daemon.planning.admission import admit
from daemon.planning.plan import Plan, make_plan
from daemon.planning.proving import Ladder
from daemon.planning.training import Counted
from daemon.polling.git import Git
from daemon.polling.github import Forge
from daemon.requirements import why_no_models, why_not_trainable
from daemon.settings import Settings
from daemon.store_service import StoreFailedError, StoreService
from pipeline.jobs.kinds import Kind
from pipeline.lean.backend import Leans, find_leans
from pipeline.lean.build.build_cache import present
from store.errors import LogError
from store.view import model_queries, queries
from store.view.rows import JobRow

Answer = TypeVar("Answer")
Say = Callable[[str], object]
OpenShop = Callable[[], AbstractAsyncContextManager["Workshop"]]

_LOOK_AGAIN_S = 1.0


def in_a_loop(work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """Run to its end what needs an event loop, from a script or from a notebook, whose thread has a loop already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1, thread_name_prefix="agent") as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


class Workshop:
    """Open parts on a state folder that the caller holds (`daemon.agents.home.held`). Made with `open`."""

    def __init__(self, settings: Settings, store: StoreService, say: Say) -> None:
        self.settings = settings
        self.store = store
        self.leans: Leans = find_leans(
            backend=settings.lean.backend,
            repl=settings.lean.repl,
            sandbox=settings.lean.sandbox,
            toolchains=settings.paths.toolchains,
        )
        self._say = say
        self._forge = Forge()
        self._forge.connect(settings)
        self.git = Git(timeout_s=settings.poll.timeout_s, token=self._forge.token_for)
        self._context = Context(settings)
        self._upkeep = Maintenance(store, self._context)
        self._woken = asyncio.Event()
        self._gpus = Gpus(settings.paths.runtime / "gpus")
        self._runner = JobRunner(
            store=store,
            git=self.git,
            paths=settings.paths,
            limits=settings.jobs,
            finished=self._woken.set,
            gpus=self._gpus,
        )
        self._counted: Counted = {}
        self.tactics: tuple[str, str] | None = None
        """The id and the folder or hub name of the tactic model to prove with; None: the one in use."""
        self.waiting: tuple[str, ...] = ()
        """What rungs of the ladder waited for in the last plan."""

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, *, say: Say, mend: bool = True) -> AsyncIterator[Workshop]:
        """Open the store, and close everything at the end.

        Args:
            settings: the daemon's, with the repositories that are to be worked on.
            say: takes lines of text for people.
            mend: put in order first what a killed process left. Not while a job of this process is under way.

        Raises:
            AgentError: the store cannot be used.
        """
        if not structlog.is_configured():
            # Left to itself it prints every step to standard output.
            quiet = structlog.make_filtering_bound_logger(logging.WARNING)
            structlog.configure(wrapper_class=quiet)
        try:
            store = await StoreService.open(settings.paths)
        except (LogError, OSError) as error:
            raise AgentError(f"the store in {settings.paths.state} cannot be opened: {error}") from error
        shop = cls(settings, store, say)
        try:
            if mend:
                await recover(store=store, git=shop.git, paths=settings.paths, keep=settings.jobs.keep)
            yield shop
        except StoreFailedError as error:
            raise AgentError(f"the store in {settings.paths.state} cannot be written: {error}") from error
        finally:
            await shop._runner.stop(deadline_s=settings.daemon.shutdown_timeout_s)
            if shop._forge.github is not None:
                await shop._forge.github.close()
            await store.close()

    async def work_off(self, kinds: Collection[Kind]) -> Sequence[JobRow]:
        """Run the due jobs of these kinds, and what they make due, until there is none; return how they ended.

        A job that failed and is to be tried again is waited for, as long as the settings say. One that failed for good
        is said, and stands among those returned.

        Raises:
            StoreFailedError: the store cannot be written.
        """
        started: set[str] = set()
        told: set[tuple[str, int]] = set()
        while True:
            self._woken.clear()
            await self._upkeep.settle_models()
            now = datetime.now(UTC)
            plan = await self._plan(kinds, now)
            admission = admit(
                plan,
                running=self._runner.kinds,
                max_running=self.settings.jobs.max_running,
                most=self.settings.schedule.running,
                gpus=await self._gpus.look(self._runner.lent),
            )
            for one in admission.start:
                self._runner.start(one.due, one.gpu)
                started.add(one.due.job)
            ended = await self._ended(started)
            for row in ended:
                if (row.job, row.attempt) not in told:
                    told.add((row.job, row.attempt))
                    self._tell(row)
            waits = [wait for row in ended if (wait := _wait_s(row, now)) > 0]
            if not self._runner.kinds and not waits:
                return ended
            try:
                async with asyncio.timeout(_LOOK_AGAIN_S if self._runner.kinds else min(waits)):
                    await self._woken.wait()
            except TimeoutError:
                await self.store.check()
            if self.store.failure is not None:
                raise StoreFailedError(str(self.store.failure))

    async def settle_models(self) -> None:
        """Decide which of the new checkpoints is used, as the daemon would."""
        await self._upkeep.settle_models()

    async def tidy(self, in_use: Collection[tuple[str, str]]) -> None:
        """Write the patches of proofs, and keep the cache within its bound, but for these repositories and commits."""
        await self._upkeep.write_patches(None)
        await self._upkeep.sweep_cache(in_use)
        for problem in self._context.problems.texts():
            self._say(problem)

    async def ladder(self) -> Ladder:
        """Return the rungs of the settings, as the plan has them."""
        rows = await self.store.ask(model_queries.checkpoints)
        in_use = [row for row in rows if row.promoted]
        return Ladder(
            self.settings, in_use, no_models=why_no_models(self.settings.prove), tactics=self.tactics
        )

    async def _plan(self, kinds: Collection[Kind], now: datetime) -> Plan:
        builds = await asyncio.to_thread(present, self.settings.paths.cache)
        plan = await self.store.ask(
            partial(
                make_plan,
                settings=self.settings,
                leans=self.leans,
                builds=builds,
                trainable="train" in kinds and not why_not_trainable(self.settings.train),
                no_models=why_no_models(self.settings.prove),
                tactics=self.tactics,
                counted=self._counted,
                now=now,
                running=self._runner.lanes,
                last_started=dict(self._runner.last_started),
            )
        )
        self.waiting = plan.waiting
        return replace(plan, due=tuple(due for due in plan.due if due.kind in kinds))

    async def _ended(self, started: Collection[str]) -> list[JobRow]:
        def rows(view: sqlite3.Connection) -> list[JobRow]:
            return [row for job in sorted(started) for row in queries.jobs_by_prefix(view, job)]

        return [row for row in await self.store.ask(rows) if row.state != "running"]

    def _tell(self, row: JobRow) -> None:
        seconds = f" in {row.seconds:.1f} s" if row.seconds is not None else ""
        if row.state == "succeeded":
            self._say(f"{row.describes}: done{seconds}")
            return
        again = "; it is tried again" if row.retry_at is not None else ""
        remedy = f"; {row.remedy}" if row.remedy else ""
        self._say(f"{row.describes}: {row.state}{seconds}: {row.message or row.reason}{remedy}{again}")


def _wait_s(row: JobRow, now: datetime) -> float:
    """Return how long it is until a job that failed is tried again; 0 where it is not."""
    if row.state != "failed" or row.retry_at is None:
        return 0.0
    return (datetime.fromisoformat(row.retry_at) - now).total_seconds()
