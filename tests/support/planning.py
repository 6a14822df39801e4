"""The events of a repository and of its due jobs, for tests that write a log by hand and plan from it."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from daemon.jobs.due import DueJob
from daemon.planning.plan import Plan, Planner
from daemon.settings import Settings
from pipeline.lean.backend import Leans, find_leans
from store.events.base import EventBody
from store.events.jobs import JobCancelled, JobFailed, JobInterrupted, JobStarted, JobSucceeded
from store.events.projects import Project
from store.events.repositories import BranchCreated
from store.log.reader import LogReader
from store.log.upcast import read_body
from tests.support import events
from tests.support.specs import A_LEAN

KEY = "local/remotes/demo"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LEAN = Leans(A_LEAN)
"""One Lean for every project; nothing starts it."""
NO_LEAN = find_leans(backend="none", repl="", sandbox="none")


class TurnByTurn:
    """A planner that goes on from plan to plan; each plan of it is the same as one that is made anew."""

    def __init__(self) -> None:
        self._planner = Planner()
        self._seq = 0

    def plan(self, view: sqlite3.Connection, *, settings: Settings, **about: Any) -> Plan:
        """Return the plan, with the specifications of all its jobs."""
        with LogReader.open(settings.paths.events_db) as log:
            events = [*log.read(after=self._seq)]
        self._planner.changed(map(read_body, events))
        self._seq = events[-1].seq if events else self._seq
        about["settings"] = settings
        kept, anew = self._planner.plan(view, **about), Planner(whole=True).plan(view, **about)
        assert [*map(_bare, kept.due)] == [*map(_bare, anew.due)]
        assert [(_bare(one.due), one.waits) for one in kept.held] == [
            (_bare(one.due), one.waits) for one in anew.held
        ]
        assert (kept.ladder, kept.next_retry_at) == (anew.ladder, anew.next_retry_at)
        assert self._planner.complete(view, kept.due) == [*anew.due]
        return anew


def _bare(job: DueJob) -> DueJob:
    return replace(job, spec=None)


def sha(number: int) -> str:
    return f"{number:040x}"


def observed(number: int, *, repository: str = KEY, branch: str = "main") -> list[EventBody]:
    body = events.observed(sha(number), branch=branch)
    return [body.model_copy(update={"repository": repository, "committed_at": NOW, "baseline": False})]


def created(*, repository: str = KEY, branch: str = "main", tip: int = 1) -> list[EventBody]:
    return [
        BranchCreated(repository=repository, branch=branch, tip=sha(tip), is_default=True),
        *observed(tip, repository=repository, branch=branch),
    ]


def commit_scanned(number: int, *, repository: str = KEY, toolchain: str = "", **changes: Any) -> EventBody:
    """Return the end of a scan; `toolchain` is that of the one Lake project, at the root."""
    given = {"projects": (Project("", toolchain, ""),), **changes}
    return events.commit_scanned(sha(number)).model_copy(update={"repository": repository, **given})


def started(job: DueJob) -> list[EventBody]:
    return [JobStarted(**_about(job))]


def succeeded(job: DueJob) -> list[EventBody]:
    """Return the start and the good end of a job."""
    ended = JobSucceeded(job=job.job, attempt=job.attempt, seconds=1, peak_rss_bytes=1, summary={})
    return [*started(job), ended]


def failed(job: DueJob, **changes: Any) -> list[EventBody]:
    """Return the start and the failure of a job, which is not tried again."""
    failure = {
        "job": job.job, "attempt": job.attempt, "reason": "crashed", "message": "m", "remedy": "r",
        "deterministic": False, "retry_at": None, "seconds": 1.0, "peak_rss_bytes": None,
    }  # fmt: skip
    return [*started(job), JobFailed.model_validate(failure | changes)]


def interrupted(job: DueJob, reason: str = "the daemon stopped") -> list[EventBody]:
    """Return the start and the interruption of a job."""
    return [*started(job), JobInterrupted(job=job.job, attempt=job.attempt, reason=reason)]


def cancelled(job: DueJob) -> list[EventBody]:
    """Return the end of a job that began and was cancelled."""
    return [JobCancelled(**_about(job), by="ada", seconds=1.0, peak_rss_bytes=None)]


def _about(job: DueJob) -> dict[str, Any]:
    names = ("job", "kind", "attempt", "repository", "branch", "sha", "describes")
    return {name: getattr(job, name) for name in names}
