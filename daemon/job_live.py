"""A job that runs now: what the runner keeps of it, and what people are shown."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import datetime

from daemon.due import DueJob, Kind
from daemon.gpus import Gpu
from daemon.job_ends import Stopped
from daemon.joblines import Progress


@dataclass(frozen=True, slots=True)
class RunningJob:
    """What `status` shows of a job that runs now. `gpu` is the one that it is lent, "" without one."""

    job: str
    kind: Kind
    attempt: int
    repository: str
    branch: str
    sha: str
    describes: str
    pid: int | None
    started_at: str
    seconds: float
    done: int
    total: int
    note: str
    gpu: str


@dataclass(slots=True)
class Live:
    due: DueJob
    gpu: Gpu | None
    task: asyncio.Task[None]
    started_at: datetime
    started: float
    pid: int | None = None
    progress: Progress | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: Stopped = ""
    fault: str = ""

    def ask(self, stopped: Stopped, fault: str) -> None:
        """Have the attempt ended, for a reason; the first one stands, but one that makes way may be cancelled."""
        if not self.asked.is_set() or (stopped == "cancel" and self.stopped == "yield"):
            self.stopped, self.fault = stopped, fault
            self.asked.set()


def shown_of(live: Live) -> RunningJob:
    """Return what people are shown of it."""
    progress = live.progress or Progress(0, 0, "")
    return RunningJob(
        job=live.due.job,
        kind=live.due.kind,
        attempt=live.due.attempt,
        repository=live.due.repository,
        branch=live.due.branch,
        sha=live.due.sha,
        describes=live.due.describes,
        pid=live.pid,
        started_at=live.started_at.isoformat(),
        seconds=round(time.monotonic() - live.started, 1),
        done=progress.done,
        total=progress.total,
        note=progress.note,
        gpu="" if live.gpu is None else live.gpu.called,
    )
