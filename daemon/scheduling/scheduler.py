"""Plan and start the due jobs, with the lookups for a plan.

`daemon.planning.plan` plans, `daemon.jobs.runner` runs jobs; this brings the two together in each turn of the
loop. A failed plan is a problem in `status` until the next one.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from daemon.health.requirements import Need, lacking, why_no_models, why_not_trainable
from daemon.jobs import limits
from daemon.jobs.due import DueJob
from daemon.jobs.engine import Engine
from daemon.jobs.gpus import Gpu
from daemon.jobs.runner import JobRunner, cancelled_event, why_lost
from daemon.planning.admission import Admission, Money, SlotQueue, admit, turn_ends
from daemon.planning.bumps import why_no_bump
from daemon.planning.look import Judges
from daemon.planning.plan import Plan, Planner
from daemon.planning.schedule import Wait, in_vain, read_timetable, why_not, why_yield
from daemon.scheduling.maintenance import Maintenance
from daemon.settings import Settings
from daemon.state.context import Context
from daemon.state.store_service import StoreService
from pipeline.gate.second_kernel import second_since
from pipeline.lean.backend import Leans, find_leans
from pipeline.lean.build.build_cache import present
from store.domain.identity import short_hash
from store.errors import LogError
from store.events.bumps import BumpAsked
from store.events.jobs import (
    JobFailed,
    JobReleased,
    PausedWork,
    TriggeredWork,
    TriggerEnded,
    WorkPaused,
    WorkResumed,
    WorkTriggered,
)
from store.events.proofs import AttemptFinished
from store.events.repositories import RepositoryIdentified
from store.events.service import LeanBuild, LeanChosen
from store.log.envelope import NewEvent
from store.view import queries
from store.view.bumps import bumps, job_of
from store.view.rows import JobRow

PLAN_EVERY_S = 15.0
"""A plan is made at least this often: a toolchain may have been installed, a build removed."""

_PATIENCE_S = 0.5
"""Time limit of one planning turn; the rest continues in the next."""

log = structlog.get_logger("daemon.scheduling.scheduler")


class Scheduler:
    """The plan and its beginning, for one daemon."""

    def __init__(
        self,
        *,
        store: StoreService,
        runner: JobRunner,
        upkeep: Maintenance,
        engine: Engine,
        context: Context,
        leans: Leans,
    ) -> None:
        self.leans = leans
        """The Leans available here."""
        self.plan = Plan()
        self.admission = Admission()
        """The plan's jobs that could begin when it was made, and why the others waited."""
        self.gpus: tuple[Gpu, ...] = ()
        """The GPUs for jobs to lease, as of the last turn."""
        self.for_slot = SlotQueue()
        self._money = Money()
        self.lacking: tuple[Need, ...] = ()
        self.in_vain: list[TriggerEnded] = []
        """The ends of triggers without work left when the plan was made; still to be recorded."""
        self.beginning = asyncio.Lock()
        """Lock: no claim may take a sorry while jobs start."""
        self.untrainable = ""
        """The missing requirements of training; "" without any."""
        self._no_models = ""
        self._second_since = ""
        self._store = store
        self._runner = runner
        self._engine = engine
        self._upkeep = upkeep
        self._context = context
        self._swept = False
        self._planner = Planner(patience_s=_PATIENCE_S)
        store.subscribe(self._heard)
        self._look_for_models()

    def _heard(self, events: Sequence[NewEvent]) -> None:
        self._planner.changed(event.body for event in events)
        # "above_cap" is independent of today's money: that one request is too large for any day.
        if any(isinstance(event.body, JobFailed) and event.body.reason == "spending_cap" for event in events):
            self._money.spent(self._context.settings, now=datetime.now(UTC))

    def has_news(self, events: Sequence[NewEvent]) -> bool:
        """Return whether something may begin, or has to end, since these events.

        A search's events about its sorries free no lane and no slot before it ends. After its first one, it
        can be preempted for a repository that waits too long. The plan itself began a running job. When it
        ends, the runner asks for a turn, once the slot is free.
        """
        overdue = self.for_slot.overdue(now=time.monotonic())
        saved = {live.due.job for live in self._runner.attempts if live.saved}
        return not all(
            (isinstance(event.body, AttemptFinished) and (not overdue or event.body.job in saved))
            or self._runner.runs(event.stream.removeprefix("job:"))
            for event in events
        )

    async def look_around(self) -> None:
        """Look again for Lean and the requirements of training: they may have been installed since.

        A new Lean is used once it is recorded.

        Raises:
            StoreFailedError: it cannot be recorded; the Lean in use stays.
        """
        await asyncio.to_thread(self._look_for_models)
        leans = await asyncio.to_thread(leans_of, self._context.settings)
        if (body := lean_chosen(leans)) != lean_chosen(self.leans):
            await self._store.append([NewEvent("daemon", body)])
        self.leans = leans
        self._second_since = await asyncio.to_thread(second_since, self._context.settings.lean.second_kernel)

    async def start_due(self) -> None:
        """Make a plan and start its jobs that may start now."""
        settings = self._context.settings
        try:
            self.plan, self.lacking, self.in_vain = await self._store.ask(self._survey(settings))
            self.gpus = await self._engine.look(self._runner.lent)
        except (LogError, sqlite3.Error, OSError) as error:
            self._context.problems.set("plan", f"what is due cannot be found out: {error}")
            log.exception("plan_failed")
            return
        self._context.problems.clear("plan")
        if settings.lean.install == "auto" and any(need.version for need in self.lacking):
            self._upkeep.install_lean_soon()
        if not self._swept or self._upkeep.cache_bytes > settings.cache.size_bytes:
            # Not before the first plan, which names the builds about to be used. With each plan while they
            # take too much: those that had to stay belonged to a running job, or were the base of its own
            # build.
            self._swept = True
            self.sweep()
        now, holders = time.monotonic(), self._runner.holders()
        self.for_slot.update(self.admission.for_slot, holders, now=now)
        overdue = self.for_slot.overdue(now=now)
        served = self._served(settings)
        stops, beside = turn_ends(holders, overdue, served=served)
        self.admission = admit(
            self.plan,
            running=self._runner.kinds,
            beside=beside,
            max_running=settings.jobs.max_running,
            room=self._engine.room,
            gpus=self.gpus,
            no_cluster=self._no_cluster(),
            no_money=self._money.why(settings, now=datetime.now(UTC)),
            served=served,
        )
        async with self.beginning:
            jobs = self.admission.start
            whole = await self._store.ask(partial(self._planner.complete, jobs=jobs)) if jobs else []
            if self._store.room.problem:
                # Since this turn began a job has found no room, reported it and left: it is due in the plan.
                # From here on nothing is awaited, so no other task can.
                return
            for job in whole:
                self._runner.start(job)
        # A start makes no turn of its own, and running jobs are not due.
        self.plan = replace(self.plan, running=self._runner.lanes)
        self.for_slot.update(self.admission.for_slot, self._runner.holders(), now=now)
        waiting = [self.admission.for_slot[key] for key in overdue if key in self.admission.for_slot]
        if stops is not None and waiting:
            next_one = waiting[0]
            self._runner.preempt(stops.job, f"{next_one.describes} waits for a slot; what is done stays")
        self._preempt()
        if not self._runner.kinds:
            limits.give_back()

    def _served(self, settings: Settings) -> dict[str, float]:
        """Return the repositories' recent seconds of slots, without those with priority."""
        first = {repo.key for repo in settings.repos if repo.priority > 0}
        return {key: seconds for key, seconds in self.for_slot.served.items() if key not in first}

    def _no_cluster(self) -> str:
        """Return why jobs for other machines wait, and report it; "" if they need not."""
        if problem := self._engine.problem:
            self._context.problems.set("engine", problem)
            return f"the cluster; {problem}"
        self._context.problems.clear("engine")
        return ""

    def _survey(
        self, settings: Settings
    ) -> Callable[[sqlite3.Connection], tuple[Plan, tuple[Need, ...], list[TriggerEnded]]]:
        """Return one question for a turn's reads of the view and the cache: one thread switch and not
        many."""
        leans, runner = self.leans, self._runner
        plan = partial(
            self._planner.plan,
            settings=settings,
            leans=leans,
            trainable=not self.untrainable,
            no_models=self._no_models,
            # As if they had recorded nothing.
            reserved_s=sum(live.due.cost_s for live in runner.attempts),
            now=datetime.now(UTC),
            running=runner.lanes,
            last_started=dict(runner.last_started),
            waits_s=runner.retries.waits_s(),
            judges=Judges(self._upkeep.advisories, self._second_since),
        )

        version, last = self.plan.version, (self.lacking, self.in_vain)

        def ask(view: sqlite3.Connection) -> tuple[Plan, tuple[Need, ...], list[TriggerEnded]]:
            result = plan(view, builds=present(settings.paths.cache))
            if result.version == version:
                return result, *last
            return result, lacking(view, leans), in_vain(view, settings=settings, leans=leans)

        return ask

    def clock_set(self) -> None:
        """Plan anew everything that waits for a time of day."""
        self._planner.clock_set()

    async def polls_wait(self) -> Wait | None:
        """Return why polls wait; None if they need not."""
        schedule, now = self._context.settings.schedule, datetime.now(UTC)
        table = self.plan.timetable
        if self.plan.version == 0:  # none was made yet
            table = await self._store.ask(partial(read_timetable, schedule=schedule, now=now))
        return replace(table, schedule=schedule, now=now).of_work("poll")

    def _preempt(self) -> None:
        """Preempt the jobs whose time is over, for proofs no more than they wait for GPUs."""
        now = time.monotonic()
        works = {gpu.uuid for gpu in self.gpus if gpu.state != "lost"}
        for live in self._runner.attempts:
            ending = (one.due.leases for one in self._runner.attempts if one.asked.is_set())
            freed = sum(gpu.uuid in works for leases in ending for gpu in leases)
            job = live.due.job
            if lost := why_lost(live.due, self.gpus):
                self._runner.preempt(job, lost)
            else:
                why = why_yield(
                    self.plan.timetable,
                    live.due.kind,
                    runs_for_s=now - live.started,
                    holds_gpu=bool(live.due.leases),
                    waiting_for_gpu=self.admission.for_gpu[freed:],
                    asks_endpoint=live.asks_endpoint,
                )
                if why:
                    self._runner.preempt(job, why)

    def until_due_s(self) -> float:
        """Return the seconds until a job becomes due, or a turn ends, by the clock alone."""
        turn = self.for_slot.until_s(self._runner.holders, now=time.monotonic())
        retry = None
        if self.plan.next_retry_at is not None:
            retry = max(0.0, (self.plan.next_retry_at - datetime.now(UTC)).total_seconds())
        more = None if self.plan.complete else 0.0
        return min((one for one in (turn, retry, more) if one is not None), default=PLAN_EVERY_S)

    def sweep(self, just_built: Collection[tuple[str, str]] = ()) -> None:
        """Begin to sweep the cache, without builds in use or about to be."""
        # New builds are about to be used, though the earlier plan does not have them yet.
        planned = ((due.repository, due.sha) for due in self.plan.due)
        running = ((live.due.repository, live.due.sha) for live in self._runner.attempts)
        keep = {*just_built, *planned, *running}
        self._context.spawn(self._upkeep.sweep_cache(keep), name="sweep")

    def _look_for_models(self) -> None:
        settings = self._context.settings
        self.untrainable = why_not_trainable(settings.train)
        self._no_models = why_no_models(settings.prove)


def lean_chosen(leans: Leans) -> LeanChosen:
    """Return the event for the Lean in use from here on."""
    lean = leans.summary
    builds = tuple(
        LeanBuild(toolchain=build.toolchain, lean=build.kind, detail=build.detail) for build in leans.builds
    )
    return LeanChosen(lean=lean.kind, lean_detail=lean.detail, builds=builds)


def leans_of(settings: Settings) -> Leans:
    """Return the Leans available under these settings."""
    lean = settings.lean
    return find_leans(
        backend=lean.backend,
        repl=lean.repl,
        sandbox=lean.sandbox,
        start_timeout_s=lean.start_timeout_s,
        as_root=lean.as_root,
    )


# ---- Requests of people: pause and resume work, have it done now, cancel a job, retry one
# Each is an event, and outlives us. The plan draws the consequences: a pause holds jobs back
# (`daemon.planning.schedule`), a trigger makes them due (`daemon.planning.plan`, `daemon.planning.training`);
# `daemon.planning.schedule` decides whether it can. A request without effect changes nothing, and reports so.


_STREAM = "work"


class WorkStateError(Exception):
    """A command does not fit the present state; the message gives the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Accepts requests for work, for one daemon."""

    store: StoreService
    runner: JobRunner
    work: Scheduler
    context: Context

    async def pause(self, work: PausedWork, *, by: str, reason: str) -> bool:
        """Pause an activity; return False if it was paused before."""
        if await self._paused(work):
            return False
        await self._append(WorkPaused(work=work, by=by, reason=reason), by)
        log.info("work_paused", work=work, by=by, reason=reason)
        return True

    async def resume(self, work: PausedWork, *, by: str) -> bool:
        """Resume an activity; return False if it was not paused.

        Raises:
            WorkStateError: it is paused with everything.
        """
        if work == "all":
            paused = bool(await self.store.ask(queries.pauses))
        else:
            paused = await self._paused(work)
            if not paused and await self._paused("all"):
                raise WorkStateError(f"{work}: everything is paused; `everlean resume all`")
        if paused:
            await self._append(WorkResumed(work=work, by=by), by)
            log.info("work_resumed", work=work, by=by)
        return paused

    async def trigger(self, work: TriggeredWork, repository: str, *, by: str) -> dict[str, Any]:
        """Make work due once in a repository, even without enough news; return the outcome.

        Returns:
            `triggered`: False if it waits since an earlier trigger; `waits`: why it cannot begin, or None.

        Raises:
            KeyError: the repository is not watched.
            WorkStateError: the work cannot be done there, for the reason in the message.
        """
        await self._check(
            repository,
            partial(
                why_not,
                work=work,
                settings=self.context.settings,
                leans=self.work.leans,
                untrainable=self.work.untrainable,
            ),
        )
        rows = await self.store.ask(queries.triggers)
        waiting = any((row.work, row.repository) == (work, repository) and row.waits for row in rows)
        if not waiting:
            await self._append(WorkTriggered(work=work, repository=repository, by=by), by)
            log.info("work_triggered", work=work, repository=repository, by=by)
        wait = self.work.plan.timetable.of_work(work)
        return {"triggered": not waiting, "waits": None if wait is None else wait.text}

    async def _check(self, repository: str, why_not: Callable[..., str]) -> None:
        """Raise if something cannot be done in a repository: `why_not` gives the reason, from the view and
        `repo`."""
        repo = next((repo for repo in self.context.settings.repos if repo.key == repository), None)
        if repo is None:
            raise KeyError(repository)
        if why := await self.store.ask(partial(why_not, repo=repo)):
            raise WorkStateError(f"{repository}: {why}")

    async def accept(self, repository: str, *, by: str) -> RepositoryIdentified:
        """Accept the forge's repository under the name of a watched one; return the event.

        Raises:
            KeyError: no such repository was ever watched.
            WorkStateError: it was not replaced.
        """
        row = await self.store.ask(partial(queries.repository, key=repository))
        if row is None:
            raise KeyError(repository)
        if row.replaced_by is None:
            raise WorkStateError(f"{repository}: no other repository was seen under its name")
        body = RepositoryIdentified(
            repository=repository, forge_id=row.replaced_by, private=row.private, by=by
        )
        await self.store.append([NewEvent(f"repository:{repository}", body, actor=f"user:{by}")])
        log.info("repository_accepted", repository=repository, forge_id=row.replaced_by, by=by)
        return body

    async def bump(
        self, repository: str, *, toolchain: str, package: str, rev: str, by: str
    ) -> tuple[BumpAsked, str | None]:
        """Request a trial of a newer Lean or package in a repository; return the event, and why it waits.

        An earlier request that is not over stands for the new one, unless its job is not retried.

        Raises:
            KeyError: the repository is not watched.
            WorkStateError: it cannot be tried, for the reason in the message.
        """
        await self._check(repository, partial(why_no_bump, leans=self.work.leans, toolchain=toolchain))
        wait = self.work.plan.timetable.of_kind("bump")
        waits = None if wait is None else wait.text
        rows = await self.store.ask(partial(bumps, repository=repository))
        bump = short_hash("bump", repository, toolchain, package, rev, str(len(rows)))
        body = BumpAsked(
            repository=repository, bump=bump, toolchain=toolchain, package=package, rev=rev, by=by
        )
        for row in rows:
            same = (row.toolchain, row.package, row.rev) == (toolchain, package, rev)
            if not (same and row.by and row.finished_at is None):
                continue
            earlier = body.model_copy(update={"bump": row.bump, "by": row.by})
            job = await self._row(job_of(row))
            match None if job is None else job.state:
                case "running":
                    return earlier, f"it runs already; `everlean jobs show {job_of(row)}`"
                case "failed" if job is not None and job.retry_at is not None and not job.deterministic:
                    return earlier, (
                        f"it failed ({job.reason}) and is tried again by itself after {job.retry_at};"
                        f" `everlean jobs retry {job.job}` has it tried now"
                    )
                case "failed" | "cancelled" | "succeeded":
                    continue  # nothing more comes of this job
                case _:
                    return earlier, waits
        await self.store.append([NewEvent(f"repository:{repository}", body, actor=f"user:{by}")])
        log.info("bump_asked", repository=repository, toolchain=toolchain, package=package, by=by)
        return body, waits

    async def end_in_vain(self) -> None:
        """End the triggers without work left: it was done before their jobs began."""
        while self.work.in_vain:
            body = self.work.in_vain[0]
            await self.store.append([NewEvent(_STREAM, body, actor="daemon")])
            self.work.in_vain.pop(0)
            log.info("trigger_ended", work=body.work, repository=body.repository, reason=body.reason)

    async def retry(self, job: str) -> None:
        """Make a job that failed, or waits for its next attempt, due again now.

        Raises:
            KeyError: no such job.
            WorkStateError: it neither failed nor was cancelled.
        """
        row = await self._row(job)
        if row is None:
            raise KeyError(job)
        if row.state not in ("failed", "cancelled"):
            raise WorkStateError(f"{job}: is {row.state}; only a failed or cancelled job can be tried again")
        await self.store.append([NewEvent(f"job:{job}", JobReleased(job=job), actor="control")])
        log.info("job_released", job=job)

    async def cancel(self, job: str, *, by: str) -> str:
        """End a running job, or take a waiting one off the queue; return its state: "running" or "waiting".

        Raises:
            KeyError: no such job.
            WorkStateError: it has ended, or is cancelled already.
        """
        if self.runner.cancel(job, by=by):
            log.info("job_cancelled", job=job, by=by, was="running")
            return "running"
        row = await self._row(job)
        due = self._planned(job)
        if row is None and due is None:
            raise KeyError(job)
        if row is not None and not _waits(row) and due is None:
            raise WorkStateError(f"{job}: is {row.state}; only a job that runs or waits can be cancelled")
        if self.runner.cancel(job, by=by):
            return "running"  # it began while we looked
        if row is not None:
            seconds, peak = row.seconds, row.peak_rss_bytes
            body = cancelled_event(row, attempt=row.attempt, by=by, seconds=seconds, peak_rss_bytes=peak)
        else:
            assert due is not None
            body = cancelled_event(due, attempt=0, by=by, seconds=None, peak_rss_bytes=None)
        await self.store.append([NewEvent(f"job:{job}", body, correlation_id=job, actor=f"user:{by}")])
        if self.runner.cancel(job, by=by):
            return "running"  # it began during the record
        log.info("job_cancelled", job=job, by=by, was="waiting")
        return "waiting"

    async def _row(self, job: str) -> JobRow | None:
        rows = await self.store.ask(partial(queries.jobs_by_prefix, prefix=job))
        return next((row for row in rows if row.job == job), None)

    def _planned(self, job: str) -> DueJob | None:
        plan = self.work.plan
        return next((due for due in (*plan.due, *(held.due for held in plan.held)) if due.job == job), None)

    async def _paused(self, work: str) -> bool:
        return any(row.work == work for row in await self.store.ask(queries.pauses))

    async def _append(self, body: WorkPaused | WorkResumed | WorkTriggered, by: str) -> None:
        await self.store.append([NewEvent(_STREAM, body, actor=f"user:{by}")])


def _waits(row: JobRow) -> bool:
    """Return whether another attempt follows by itself."""
    return row.state in ("interrupted", "released") or (
        row.state == "failed" and row.retry_at is not None and not row.deterministic
    )
