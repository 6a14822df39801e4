"""A job with its attempts, progress, end and next attempt."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from store.documents.document import of_row
from store.documents.live import JobProgress
from store.text import ago, headline
from store.view.reading import read
from store.view.rows import JobAttemptRow, JobRow

NO_PROGRESS: Mapping[str, JobProgress] = {}


@dataclass(frozen=True, slots=True)
class JobAttempt(JobAttemptRow):
    SHOWN: ClassVar = ("attempt", "started_at", "ended_at", "outcome")


@dataclass(frozen=True, slots=True)
class Job(JobRow):
    alive: bool | None
    """It is running, and so is the daemon; null as of an earlier moment."""
    folder: Path
    """Of its newest attempt; old ones are removed."""
    progress: JobProgress | None
    """Null before its first word."""
    attempts: list[JobAttempt]
    """Oldest first."""

    @property
    def state_text(self) -> str:
        """Return the state; a job still running at the daemon's end is not running now."""
        return "lost" if self.state == "running" and self.alive is False else self.state

    @property
    def text(self) -> str:
        """Return its work in one line, with its progress, end or missing part."""
        text = self.describes
        if self.state == "running":
            return f"{text} ({self.progress.text})" if self.progress is not None else text
        if self.state == "failed":
            return f"{text}: {self.reason}: {headline(self.message)}"
        if self.state == "cancelled":
            return f"{text}: {self.message}"
        missing = self.summary.get("modules_failed")
        return f"{text}: without {', '.join(map(str, missing))}, which failed" if missing else text

    @property
    def next_try(self) -> str:
        """Return the time of the next attempt, or how to start one; "" if neither applies."""
        if self.state == "cancelled":
            return f"not automatically; {try_again(self.job)}"
        if self.state != "failed":
            return ""
        if self.retry_at is not None:
            return ago(self.retry_at)
        why = "the same inputs would fail again" if self.deterministic else "it was tried often enough"
        return f"not automatically ({why}); {try_again(self.job)}"


def try_again(job: str) -> str:
    """Return the remedy for a job dropped by the plan."""
    return f"`everlean jobs retry {job}` tries it again"


def describe_jobs(
    view: sqlite3.Connection,
    jobs: Sequence[JobRow],
    *,
    folder: Path,
    running: bool | None,
    progress: Mapping[str, JobProgress] = NO_PROGRESS,
) -> list[Job]:
    """Return the documents of jobs, in their order, with a fixed number of queries.

    Args:
        view: the database.
        jobs: their rows.
        folder: of all jobs' folders.
        running: whether the daemon runs; None: the query is about an earlier moment.
        progress: the living daemon's progress of running jobs.
    """
    attempts: dict[str, list[JobAttempt]] = defaultdict(list)
    ids = json.dumps([row.job for row in jobs])
    conditions = ["job IN (SELECT value FROM json_each(?))"]
    order = "job, attempt"
    for one in read(
        view, JobAttemptRow, "job_attempts", conditions=conditions, parameters=[ids], order=order
    ):
        attempts[one.job].append(of_row(JobAttempt, one))
    return [
        of_row(
            Job,
            row,
            alive=None if running is None else running and row.state == "running",
            folder=folder / row.job / str(row.attempt),
            progress=progress.get(row.job),
            attempts=attempts.get(row.job, []),
        )
        for row in jobs
    ]
