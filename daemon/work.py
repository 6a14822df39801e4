"""What is due is found out and begun: the plan of this moment, and what has to be looked up before it is made.

What is due is `daemon.plan`'s to say, how a job lives `daemon.jobs`'; this brings the two together in each turn of the
loop. Where a plan cannot be made, that is a problem that `status` shows until one was made again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from daemon import memory
from daemon.admission import Admission, admit
from daemon.gpus import Gpus
from daemon.jobs import JobRunner
from daemon.lean_needs import Need, lacking
from daemon.ledger import Ledger
from daemon.plan import Plan, make_plan
from daemon.settings import Settings
from daemon.timetable import Wait, read_timetable, why_yield
from daemon.training import Counted
from daemon.training_needs import why_no_models, why_not_trainable
from daemon.triggers import in_vain
from daemon.upkeep import Upkeep
from pipeline.lean.backend import Leans, find_leans
from pipeline.lean.build.build_cache import present
from store.events.jobs import TriggerEnded
from store.log.errors import LogError

PLAN_EVERY_S = 15.0
"""A plan is made at least this often: a toolchain may have been installed, a build removed."""

log = structlog.get_logger("daemon.work")


class Work:
    """The plan and its beginning, for one daemon.

    Args:
        problems: what is wrong, by a name of its own: "plan" is put there while no plan can be made.
        begin: starts something in the background, under a name.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        runner: JobRunner,
        upkeep: Upkeep,
        gpus: Gpus,
        settings: Callable[[], Settings],
        leans: Leans,
        problems: dict[str, str],
        begin: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        self.leans = leans
        """What can run Lean here."""
        self.plan = Plan((), None)
        self.admission = Admission()
        """What of it could begin when it was made, and what the rest waited for."""
        self.gpus = gpus
        self.lacking: tuple[Need, ...] = ()
        self.in_vain: list[TriggerEnded] = []
        """The ends of triggers for which nothing was left to do when the plan was made; they are to be recorded."""
        self.untrainable = ""
        """What training lacks here; "" where nothing is missing."""
        self._no_models = ""
        self._ledger = ledger
        self._runner = runner
        self._upkeep = upkeep
        self._settings = settings
        self._problems = problems
        self._begin = begin
        self._swept = False
        self._counted: Counted = {}
        self._look_for_models()

    async def look_around(self) -> None:
        """Find out anew what can run Lean, and what training needs: it may have been installed since."""
        self.leans = await asyncio.to_thread(leans_of, self._settings())
        self._look_for_models()

    async def start_due(self) -> None:
        """Make a plan and start of it what may start now."""
        settings = self._settings()
        try:
            builds = await asyncio.to_thread(present, settings.paths.cache)
            self.plan, self.lacking, self.in_vain = await self._ledger.ask(self._found(settings, builds))
            gpus = await self.gpus.look(self._runner.lent)
        except (LogError, sqlite3.Error, OSError) as error:
            self._problems["plan"] = f"what is due cannot be found out: {error}"
            log.exception("plan_failed")
            return
        self._problems.pop("plan", None)
        if not self._swept or self._upkeep.cache_bytes > settings.cache.size_bytes:
            # Not before the first plan: it says which builds are about to be used. With each plan while there is too
            # much of them: what had to stay was a running job's, or what it began its own build from.
            self._swept = True
            self.sweep()
        self.admission = admit(
            self.plan,
            running=self._runner.kinds,
            max_running=settings.jobs.max_running,
            most=settings.schedule.running,
            gpus=gpus,
        )
        self._runner.grace_s = settings.schedule.grace_s
        if self._ledger.room.problem:
            # Since this turn began a job has found no room, told so and left: the plan has it as due again. From here
            # on nothing is awaited, so that nobody else can.
            return
        for one in self.admission.start:
            self._runner.start(one.due, one.gpu)
        self._make_way()
        if not self._runner.kinds:
            memory.give_back()

    def _found(
        self, settings: Settings, builds: Collection[tuple[str, str]]
    ) -> Callable[[sqlite3.Connection], tuple[Plan, tuple[Need, ...], list[TriggerEnded]]]:
        """Return one question for all that a turn has to know of the view: each by itself costs a thread's turn."""
        leans, runner = self.leans, self._runner
        plan = partial(
            make_plan,
            settings=settings,
            leans=leans,
            builds=builds,
            trainable=not self.untrainable,
            no_models=self._no_models,
            counted=self._counted,
            reserved_s=runner.reserved_s,
            now=datetime.now(UTC),
            running=runner.lanes,
            last_started=dict(runner.last_started),
            waits_s=runner.retries.waits_s(),
        )
        return lambda view: (
            plan(view),
            lacking(view, leans),
            in_vain(view, settings=settings, leans=leans),
        )

    async def polls_wait(self) -> Wait | None:
        """Return what keeps the polls from beginning now, None where nothing does."""
        schedule, now = self._settings().schedule, datetime.now(UTC)
        table = self.plan.timetable
        if table is None:
            table = await self._ledger.ask(partial(read_timetable, schedule=schedule, now=now))
        return replace(table, schedule=schedule, now=now).of_work("poll")

    def _make_way(self) -> None:
        """Have those end, for now, that should not run any longer."""
        lost = {gpu.called: gpu for gpu in self.gpus.now if gpu.state == "lost"}
        for job in self._runner.running():
            if job.gpu in lost:
                self._runner.make_way(job.job, f"{job.gpu} was lost: {lost[job.gpu].detail}")
            elif self.plan.timetable is not None:
                why = why_yield(
                    self.plan.timetable,
                    job.kind,
                    runs_for_s=job.seconds,
                    holds_gpu=bool(job.gpu),
                    waiting_for_gpu=self.admission.for_gpu,
                    asks_endpoint=job.job in self._runner.at_endpoints,
                )
                if why:
                    self._runner.make_way(job.job, why)

    def until_due_s(self) -> float:
        """How long until something becomes due by the clock alone."""
        if self.plan.next_retry_at is None:
            return PLAN_EVERY_S
        return max(0.0, (self.plan.next_retry_at - datetime.now(UTC)).total_seconds())

    def sweep(self, just_built: Collection[tuple[str, str]] = ()) -> None:
        """Begin to sweep the cache, but for what is or is about to be used."""
        # What was just built is about to be used, though the plan was made before and does not say so yet.
        planned = ((due.repository, due.sha) for due in self.plan.due)
        keep = {*just_built, *planned, *self._runner.commits}
        self._begin(self._upkeep.sweep_cache(keep), "sweep")

    def _look_for_models(self) -> None:
        settings = self._settings()
        self.untrainable = why_not_trainable(settings.train)
        self._no_models = why_no_models(settings.prove)


def leans_of(settings: Settings) -> Leans:
    """Return what can run Lean under these settings."""
    lean = settings.lean
    return find_leans(
        backend=lean.backend, repl=lean.repl, sandbox=lean.sandbox, toolchains=settings.paths.toolchains
    )
