"""A log that a test writes by hand and the plans made of it, and the events of a repository and of its due jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from daemon.jobs.due import DueJob
from daemon.place.answers import Gpu
from daemon.planning.plan import Plan, Planner
from daemon.polling.branch_diff import watchlist_events
from daemon.settings import Settings
from pipeline.lean.backend import Leans, find_leans
from store.events.base import BlobRef, EventBody
from store.events.jobs import JobCancelled, JobFailed, JobInterrupted, JobStarted, JobSucceeded
from store.events.projects import Project
from store.events.repositories import BranchCreated
from store.log.envelope import Expect, NewEvent
from store.log.upcast import read_body
from store.view import queries
from store.view.view import catch_up
from tests.support import events
from tests.support.daemon.deployment import Deployment
from tests.support.memory_log import MemoryLog
from tests.support.specs import A_LEAN
from tests.support.views import connect, empty_view

T = TypeVar("T")
Told = EventBody | Sequence[EventBody]
KEY = "local/remotes/demo"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LEAN = Leans(A_LEAN)
"""One Lean for every project; nothing starts it."""
NO_LEAN = find_leans(backend="none", repl="", sandbox="none")

_A_GPU = Gpu("GPU-a", 0, "Test GPU")


class World:
    """A configuration, a log in memory that has what the watchlist says, and the plans made of its view."""

    def __init__(self, folder: Path) -> None:
        self.deployment = Deployment(folder)
        self.log = MemoryLog()
        # A planner sees by the connection that it reads with whether another one has written since.
        self._written = empty_view(folder / "view.db")
        self.view = connect(folder / "view.db")
        self.view.row_factory = sqlite3.Row
        self._reader = self.log.reader()
        self._planner = Planner()
        self._planned = 0
        self._staged: dict[str, Path] = {}
        self.settings = self.configure()

    def configure(self) -> Settings:
        """Write the configuration, and load it."""
        self.settings = self.deployment.write(repos=[f"https://{events.REPOSITORY}"])
        return self.settings

    def stage(self, payload: bytes) -> BlobRef:
        """Have a payload ready for the events that cite it; return the reference."""
        reference, files = events.stage(self.deployment.folder / "staging", payload)
        self._staged |= files
        return reference

    def tell(self, *groups: Told) -> int:
        """Record the events; return the log's position then."""
        watched = watchlist_events(self.settings.repos, queries.repositories(self.view))
        bodies = [body for group in groups for body in ([group] if isinstance(group, EventBody) else group)]
        self._append([*watched, *(NewEvent(_stream(body), body) for body in bodies)])
        return self._reader.position()

    def _append(self, new: Sequence[NewEvent]) -> None:
        if new:
            self.log.append(new, expect={event.stream: Expect.ANY for event in new}, blobs=self._staged)
        catch_up(self._written, self._reader)

    def plan(self, *groups: Told, **about: Any) -> Plan:
        """Record the events, then plan: by a planner that goes on from plan to plan, and by one that begins anew.

        Their plans are the same; this one has the specifications of all its jobs.
        """
        self.tell(*groups)
        view, about = self.view, {"settings": self.settings, "leans": LEAN, "now": NOW, **about}
        self._planner.changed([read_body(event) for event in self._reader.read(after=self._planned)])
        self._planned = self._reader.position()
        kept, anew = self._planner.plan(view, **about), Planner(whole=True).plan(view, **about)
        assert [*map(_bare, kept.due)] == [*map(_bare, anew.due)]
        assert [(_bare(one.due), one.waits) for one in kept.held] == [
            (_bare(one.due), one.waits) for one in anew.held
        ]
        assert (kept.ladder, kept.next_retry_at) == (anew.ladder, anew.next_retry_at)
        kept_due, anew_due = ([replace(job, leases=(_A_GPU,)) for job in plan.due] for plan in (kept, anew))
        assert self._planner.complete(view, kept_due) == anew_due, "with the GPUs that it was given"
        return anew

    async def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Answer as the service of the store does."""
        return question(self.view)

    async def append(self, new: Sequence[NewEvent]) -> None:
        """Record events as the service of the store does."""
        self._append(new)


def _stream(body: EventBody) -> str:
    named = {name: getattr(body, name, None) for name in ("job", "model", "repository")}
    if body.type.startswith("work_"):
        return "work"
    if body.type.startswith("job_"):
        return f"job:{named['job']}"
    return f"model:{named['model']}" if named["model"] else f"repository:{named['repository']}"


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
