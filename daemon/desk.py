"""What people ask of the work: pause and resume it, have it done now, cancel a job, have one tried again.

Each is an event, and outlives us. What follows from it is the plan's: a pause keeps jobs from beginning
(`daemon.timetable`), a trigger makes them due (`daemon.planner`, `daemon.training`); whether it can is
`daemon.triggers`'. Asking for what is so already changes nothing, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from daemon.due import DueJob
from daemon.job_records import cancelled_event
from daemon.jobs import JobRunner
from daemon.ledger import Ledger
from daemon.settings import Settings
from daemon.triggers import why_not
from daemon.work import Work
from store.events.jobs import JobReleased, PausedWork, TriggeredWork, WorkPaused, WorkResumed, WorkTriggered
from store.log.envelope import NewEvent
from store.view.queries import basic as queries
from store.view.queries import jobs as job_queries
from store.view.rows import JobRow

_STREAM = "work"

log = structlog.get_logger("daemon.desk")


class WorkStateError(Exception):
    """What is asked does not fit how things stand; the message says why, and what would."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Takes what is asked for, for one daemon."""

    ledger: Ledger
    runner: JobRunner
    work: Work
    settings: Callable[[], Settings]

    async def pause(self, work: PausedWork, *, by: str, reason: str) -> bool:
        """Keep a sort of work from beginning; return False where it was paused before, and stays so."""
        if await self._paused(work):
            return False
        await self._append(WorkPaused(work=work, by=by, reason=reason), by)
        log.info("work_paused", work=work, by=by, reason=reason)
        return True

    async def resume(self, work: PausedWork, *, by: str) -> bool:
        """Let it begin again; return False where it was not paused.

        Raises:
            WorkStateError: it is paused with everything.
        """
        if work == "all":
            paused = bool(await self.ledger.ask(job_queries.pauses))
        else:
            paused = await self._paused(work)
            if not paused and await self._paused("all"):
                raise WorkStateError(f"{work}: everything is paused; `unsorry resume all`")
        if paused:
            await self._append(WorkResumed(work=work, by=by), by)
            log.info("work_resumed", work=work, by=by)
        return paused

    async def trigger(self, work: TriggeredWork, repository: str, *, by: str) -> dict[str, Any]:
        """Have work done once in a repository, though nothing there is new enough; return what came of it.

        Returns:
            `triggered`: False where it waits since an earlier trigger; `waits`: what keeps it from beginning, or None.

        Raises:
            KeyError: the repository is not watched.
            WorkStateError: the work cannot be done there; the message says why.
        """
        repo = next((repo for repo in self.settings().repos if repo.key == repository), None)
        if repo is None:
            raise KeyError(repository)
        why = await self.ledger.ask(
            partial(
                why_not,
                work=work,
                repo=repo,
                settings=self.settings(),
                leans=self.work.leans,
                untrainable=self.work.untrainable,
            )
        )
        if why:
            raise WorkStateError(f"{repository}: {why}")
        rows = await self.ledger.ask(job_queries.triggers)
        waiting = any((row.work, row.repository) == (work, repository) and row.waits for row in rows)
        if not waiting:
            await self._append(WorkTriggered(work=work, repository=repository, by=by), by)
            log.info("work_triggered", work=work, repository=repository, by=by)
        wait = None if self.work.plan.timetable is None else self.work.plan.timetable.of_work(work)
        return {"triggered": not waiting, "waits": None if wait is None else wait.text}

    async def end_in_vain(self) -> None:
        """End the triggers for which nothing is left to do: what they were for was done before a job of them began."""
        ends, self.work.in_vain = self.work.in_vain, []
        for body in ends:
            await self.ledger.append([NewEvent(_STREAM, body, actor="daemon")])
            log.info("trigger_ended", work=body.work, repository=body.repository, reason=body.reason)

    async def retry(self, job: str) -> None:
        """Make a job that failed, or waits for its next attempt, due again now.

        Raises:
            KeyError: no such job.
            WorkStateError: it did not fail, and nobody cancelled it.
        """
        row = await self._row(job)
        if row is None:
            raise KeyError(job)
        if row.state not in ("failed", "cancelled"):
            raise WorkStateError(f"{job}: is {row.state}; only a failed or cancelled job can be tried again")
        await self.ledger.append([NewEvent(f"job:{job}", JobReleased(job=job), actor="control")])
        log.info("job_released", job=job)

    async def cancel(self, job: str, *, by: str) -> str:
        """End a job that runs, or take one that waits off the queue; return what it was: "running" or "waiting".

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
        await self.ledger.append([NewEvent(f"job:{job}", body, correlation_id=job, actor=f"user:{by}")])
        if self.runner.cancel(job, by=by):
            return "running"  # it began while that was recorded
        log.info("job_cancelled", job=job, by=by, was="waiting")
        return "waiting"

    async def _row(self, job: str) -> JobRow | None:
        rows = await self.ledger.ask(partial(queries.jobs_by_prefix, prefix=job))
        return next((row for row in rows if row.job == job), None)

    def _planned(self, job: str) -> DueJob | None:
        plan = self.work.plan
        return next((due for due in (*plan.due, *(held.due for held in plan.held)) if due.job == job), None)

    async def _paused(self, work: str) -> bool:
        return any(row.work == work for row in await self.ledger.ask(job_queries.pauses))

    async def _append(self, body: WorkPaused | WorkResumed | WorkTriggered, by: str) -> None:
        await self.ledger.append([NewEvent(_STREAM, body, actor=f"user:{by}")])


def _waits(row: JobRow) -> bool:
    """Whether an attempt may follow by itself."""
    return row.state in ("interrupted", "released") or (
        row.state == "failed" and row.retry_at is not None and not row.deterministic
    )
