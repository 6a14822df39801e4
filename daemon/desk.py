"""What people ask of the work: pause and resume it, have it done now, cancel a job, have one tried again.

Each is an event, and outlives us. What follows from it is the plan's: a pause keeps jobs from beginning
(`daemon.timetable`), a trigger makes them due (`daemon.planner`, `daemon.training`). Asking for what is so already
changes nothing, and says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from daemon.due import DueJob
from daemon.job_records import cancelled_event
from daemon.jobs import JobRunner
from daemon.ledger import Ledger
from daemon.proving import exercises
from daemon.settings import Repo, Settings
from daemon.watching import asked_for
from daemon.work import Work
from store import line_queries, queries, trace_queries, work_queries
from store.events import JobReleased
from store.log import NewEvent
from store.rows import BranchRow, JobRow
from store.trace_rows import TraceRow
from store.work_events import PausedWork, TriggeredWork, WorkPaused, WorkResumed, WorkTriggered

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
            paused = bool(await self.ledger.ask(work_queries.pauses))
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
        why = await self.ledger.ask(partial(self._why_not, work=work, repo=repo))
        if why:
            raise WorkStateError(f"{repository}: {why}")
        rows = await self.ledger.ask(work_queries.triggers)
        waiting = any((row.work, row.repository, row.job) == (work, repository, None) for row in rows)
        if not waiting:
            await self._append(WorkTriggered(work=work, repository=repository, by=by), by)
            log.info("work_triggered", work=work, repository=repository, by=by)
        wait = None if self.work.plan.timetable is None else self.work.plan.timetable.of_work(work)
        return {"triggered": not waiting, "waits": None if wait is None else wait.text}

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
        return any(row.work == work for row in await self.ledger.ask(work_queries.pauses))

    async def _append(self, body: WorkPaused | WorkResumed | WorkTriggered, by: str) -> None:
        await self.ledger.append([NewEvent(_STREAM, body, actor=f"user:{by}")])

    def _why_not(self, view: sqlite3.Connection, *, work: TriggeredWork, repo: Repo) -> str:
        """Say why this work cannot be done in a repository; "" where it can."""
        settings = self.settings()
        if not repo.enabled:
            return "is not enabled; write enabled = true in its [[repos]]"
        enabled = {
            "trace": settings.trace.enabled,
            "train": settings.train.enabled,
            "prove": settings.prove.enabled,
        }
        if not enabled[work]:
            return f"nothing is to {work}; write enabled = true under [{work}]"
        if work != "trace" and repo.opt_out:
            return "has opt_out; neither is it learned from nor is a proof searched there"
        if work == "train":
            if self.work.untrainable:
                return f"nothing can be trained here: {self.work.untrainable}"
            traced = trace_queries.newest_traces(view, simulated=True)
            trace = next((trace for trace in traced if trace.repository == repo.key), None)
            if trace is None:
                return "has no trace to learn from; `unsorry trigger trace` makes one"
            if not self._by_its_lean(view, trace):
                return "its newest trace is not by the Lean that works there now; `unsorry trigger trace` makes one"
            return ""
        branches = [
            row
            for row in queries.branches(view, repo.key)
            if row.state == "live" and (not repo.branches or asked_for(row.branch, repo.branches))
        ]
        scanned = [row for row in branches if row.scanned == row.tip and row.toolchain is not None]
        if not scanned:
            return "no tip of it is scanned yet; `unsorry repos` says how it stands"
        leans = [self.work.leans.for_toolchain(row.toolchain or "") for row in scanned]
        if all(lean.kind == "none" for lean in leans):
            return f"no Lean for it: {leans[0].detail}"
        return _nothing_to_prove(view, repo, scanned) if work == "prove" else ""

    def _by_its_lean(self, view: sqlite3.Connection, trace: TraceRow) -> bool:
        for row in queries.branches(view, trace.repository):
            if row.state == "live" and line_queries.branch_line(row.branch) == trace.line:
                lean = self.work.leans.for_toolchain(row.toolchain or "")
                return lean.kind != "none" and lean.simulated == trace.simulated
        return False


def _nothing_to_prove(view: sqlite3.Connection, repo: Repo, branches: Sequence[BranchRow]) -> str:
    """Say why no search would begin on these branches; "" where one would."""
    is_exercise = {row.branch: exercises(view, repo, row.branch) for row in branches}
    still_open = [
        row
        for row in queries.sorries(view, repository=repo.key)
        if row.state == "open" and row.branch in is_exercise
    ]
    if not still_open:
        return "has no open sorry"
    if all(is_exercise[row.branch](row.path) for row in still_open):
        return "every open sorry of it is an exercise, for people to solve; write exercises = [] in its [[repos]]"
    return ""


def _waits(row: JobRow) -> bool:
    """Whether an attempt may follow by itself."""
    return row.state in ("interrupted", "released") or (
        row.state == "failed" and row.retry_at is not None and not row.deterministic
    )
