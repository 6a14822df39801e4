"""What is put down of an attempt: its spec for the child, and the events of its beginning and end for the log."""

from __future__ import annotations

import json
import shutil
import sqlite3

from daemon.due import DueJob
from pipeline.protocol import JobSpec
from store import queries
from store.events import EventBody, JobStarted
from store.identity import event_id
from store.log import NewEvent
from store.reader import LogReader


def of_attempt(due: DueJob, body: EventBody) -> NewEvent:
    """Return an event of an attempt's beginning or end; each is recorded once."""
    natural = event_id(body.type, due.job, str(due.attempt))
    return NewEvent(f"job:{due.job}", body, event_id=natural, correlation_id=due.job, actor="daemon")


def started_event(due: DueJob) -> JobStarted:
    """Return the beginning of an attempt, to be recorded before there is a process."""
    return JobStarted(
        job=due.job,
        kind=due.kind,
        attempt=due.attempt,
        repository=due.repository,
        branch=due.branch,
        sha=due.sha,
        describes=due.describes,
        simulated=due.simulated,
    )


def is_cancelled(view: sqlite3.Connection, *, job: str) -> bool:
    """Say whether a job was cancelled and not asked for again."""
    return any(
        row.job == job and row.state == "cancelled" for row in queries.jobs_by_prefix(view, prefix=job)
    )


def failures_of(reader: LogReader, *, job: str) -> int:
    """Return how many attempts of a job have failed."""
    return sum(1 for _ in reader.read(stream=f"job:{job}", types=("job_failed",)))


def write_spec(spec: JobSpec) -> None:
    """Make the folder of an attempt anew, with its spec."""
    # An attempt that died before it was recorded may have left this folder; nothing in it counts.
    shutil.rmtree(spec.directory, ignore_errors=True)
    spec.staging.mkdir(parents=True)
    (spec.directory / "spec.json").write_text(
        json.dumps(spec.as_json(), ensure_ascii=False), encoding="utf-8"
    )
