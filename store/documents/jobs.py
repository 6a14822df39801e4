"""A job with its attempts, how far it is, how it ended and when it is tried again."""

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
    """Null where it has said nothing."""
    attempts: list[JobAttempt]
    """Oldest first."""

    @property
    def state_text(self) -> str:
        """Return the state; a job that was running when the daemon ended is not running now."""
        return "lost" if self.state == "running" and self.alive is False else self.state

    @property
    def text(self) -> str:
        """Return what it does in one line, and how far it is, how it ended or what it lacks."""
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
        """Return when it is tried again, or what has to be done for that; "" where nothing has to be."""
        if self.state == "cancelled":
            return f"not automatically; {try_again(self.job)}"
        if self.state != "failed":
            return ""
        if self.retry_at is not None:
            return ago(self.retry_at)
        why = "the same inputs would fail again" if self.deterministic else "it was tried often enough"
        return f"not automatically ({why}); {try_again(self.job)}"


def try_again(job: str) -> str:
    """Return the remedy for a job that no plan will try again."""
    return f"`everlean jobs retry {job}` tries it again"


def describe_jobs(
    view: sqlite3.Connection,
    jobs: Sequence[JobRow],
    *,
    folder: Path,
    running: bool | None,
    progress: Mapping[str, JobProgress] = NO_PROGRESS,
) -> list[Job]:
    """Return the documents of jobs, in their order; the number of questions does not grow with theirs.

    Args:
        view: the database.
        jobs: their rows.
        folder: where jobs have theirs.
        running: whether the daemon runs; None: the question is about an earlier moment.
        progress: what the living daemon says of those that run.
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
