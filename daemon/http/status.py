"""Return the running daemon's own state: problems, running and queued jobs, reasons for waiting.

Reads the parts and changes none. The command line reads the log's facts there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from importlib.metadata import version

from daemon.health.status_report import collect
from daemon.jobs.due import DueJob
from daemon.jobs.runner import JobRunner
from daemon.place.answers import (
    CacheUse,
    ConfigInForce,
    LackingLean,
    LiveStatus,
    Training,
)
from daemon.place.instance import DaemonAnswer, Instance
from daemon.planning.plan import WaitingJob
from daemon.polling.github import Forge
from daemon.polling.schedule import PollScheduler
from daemon.scheduling.maintenance import Maintenance
from daemon.scheduling.scheduler import Scheduler
from daemon.state.clock import ClockWatch
from daemon.state.context import Context
from daemon.state.shipping import Shipping
from daemon.state.store_service import StoreService
from store.documents.live import QueuedJob
from store.documents.problems import Problem

MOST_QUEUED = 1000
"""The most jobs described: a million open sorries are some 70,000 jobs."""


@dataclass(frozen=True, slots=True)
class RuntimeStatus:
    """The parts that report their state."""

    context: Context
    store: StoreService
    runner: JobRunner
    polls: PollScheduler
    work: Scheduler
    upkeep: Maintenance
    forge: Forge
    jumps: ClockWatch
    shipping: Shipping
    no_groups: str
    """Why jobs have no control groups; "" if they have."""

    def own_problems(self) -> list[str]:
        """Return the problems of its parts."""
        problems = [f"config: {error}" for error in self.context.config_errors]
        problems += self.context.problems.texts()
        if self.forge.problem:
            problems.append(self.forge.problem)
        if self.shipping.problem:
            problems.append(self.shipping.problem)
        if self.store.room.problem:
            problems.append(self.store.room.problem)
        if self.store.failure is not None:
            problems.append(f"the store failed: {self.store.failure}")
        return problems

    async def problems(self) -> list[Problem]:
        """Return the problems of `everlean status`, made from the same answer; read on another thread.

        The socket, the metrics, the report and the digest show these.
        """
        settings = self.context.settings
        instance = Instance(settings.path, settings.paths, os.getpid())
        live = DaemonAnswer(self.status())
        return (await asyncio.to_thread(collect, instance, live=live)).problems

    def queued(self) -> list[DueJob]:
        """Return the jobs that begin as soon as they may."""
        lanes = self.runner.lanes
        return [due for due in self.work.plan.due if due.lane not in lanes]

    def status(self) -> LiveStatus:
        """Return the whole status, for the control socket."""
        settings = self.context.settings
        queued, more = described(self.queued(), self.work.plan.held, self.work.admission.why)
        lean = self.work.leans.summary
        return LiveStatus(
            problems=self.own_problems(),
            pid=os.getpid(),
            version=version("everlean"),
            started_at=self.context.started_at.astimezone(UTC).isoformat(),
            lean=lean.kind,
            lean_detail=lean.detail,
            config=ConfigInForce(str(settings.path), settings.digest, self.context.config_errors),
            jobs=[one if one.total else replace(one, progress=None) for one in self.runner.running()],
            queued=queued,
            more_queued=more,
            gpus=self.work.gpus,
            polling=sorted(self.polls.running),
            lacking=[
                LackingLean(
                    need.toolchain,
                    need.version,
                    [str(place) for place in need.places],
                    need.backend.detail,
                    need.remedy,
                )
                for need in self.work.lacking
            ],
            ladder=self.work.plan.ladder,
            training=Training(settings.train.enabled, self.work.untrainable),
            clock=self.jumps.lately(),
            root=os.geteuid() == 0,
            no_groups=self.no_groups,
            cache=CacheUse(self.upkeep.cache_bytes, settings.cache.size_bytes),
        )

    def sentence(self) -> str:
        """Return one line for `systemctl status`."""
        running = self.runner.attempts
        jobs = f"{len(running)} jobs running" if len(running) != 1 else f"running: {running[0].due.describes}"
        problem = f"; PROBLEM: {problems[0]}" if (problems := self.own_problems()) else ""
        lean = self.work.leans.summary.kind
        return f"{len(self.context.settings.repos)} repositories, {jobs}, Lean: {lean}{problem}"


def described(
    ready: Sequence[DueJob], held: Sequence[WaitingJob], why: Callable[[DueJob], str | None]
) -> tuple[list[QueuedJob], int]:
    """Describe the first waiting jobs, and count the others.

    Args:
        why: gives the reason why a due job waits.
    """
    first = [(due, why(due)) for due in ready[:MOST_QUEUED]]
    first += [(one.due, one.waits) for one in held[: MOST_QUEUED - len(first)]]
    jobs = [QueuedJob(due.job, due.kind, due.describes, waits) for due, waits in first]
    return jobs, len(ready) + len(held) - len(jobs)
