"""How an attempt ended: what it said, what its process did, and so which event closes it.

Everything here follows from what was heard; the process is `daemon.process`', the order of things `daemon.jobs`'.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from daemon.cgroups import Usage
from daemon.due import DueJob
from daemon.job_memory import shown, why_killed
from daemon.job_records import cancelled_event
from daemon.joblines import Failure, Result
from daemon.kinds import LONGER, MORE_MEMORY
from daemon.process import Exit
from pipeline import yielding
from store.events.base import EventBody
from store.events.jobs import JobCancelled, JobInterrupted, JobSucceeded

Stopped = Literal["", "shutdown", "yield", "cancel", "deadline", "memory", "protocol", "conflict"]


@dataclass(slots=True)
class Heard:
    """What an attempt has said so far, and what ended it."""

    started: float
    """When it began, by the monotonic clock."""
    last: Result | Failure | None = None
    exit: Exit | None = None
    stopped: Stopped = ""
    """Why the daemon ended it; empty where it ended by itself."""
    fault: str = ""
    """Of the last four: what was wrong. Of `yield`: what it makes way for. Of `cancel`: who asked."""
    events: int = 0
    usage: Usage | None = None
    """What its control group says; None without one."""
    seen_bytes: int = 0
    """The most memory that was seen of it and all that it started."""

    @property
    def seconds(self) -> float:
        """How long it has been under way."""
        return round(time.monotonic() - self.started, 3)

    @property
    def peak_bytes(self) -> int | None:
        """What the job said of its memory; of one that could not say, what the kernel says (at least our own)."""
        if isinstance(self.last, Result | Failure) and self.last.peak_rss_bytes is not None:
            return self.last.peak_rss_bytes
        return self.exit.peak_rss_bytes if self.exit else None


def verdict(due: DueJob, heard: Heard, said: str) -> EventBody | Failure:
    """Return the event that closes an attempt, or what is to be recorded as its failure.

    Args:
        said: its last words on standard error.
    """
    end = heard.exit
    well = end is not None and end.signal is None and end.status == 0
    if isinstance(heard.last, Result) and well and heard.stopped in ("", "shutdown", "yield", "cancel"):
        return JobSucceeded(
            job=due.job,
            attempt=due.attempt,
            seconds=heard.seconds,
            peak_rss_bytes=heard.peak_bytes,
            summary=heard.last.summary,
            simulated=due.simulated,
        )
    match heard.stopped:
        case "shutdown":
            return JobInterrupted(job=due.job, attempt=due.attempt, reason=f"the daemon stopped{_saved(end)}")
        case "yield":
            return JobInterrupted(
                job=due.job, attempt=due.attempt, reason=f"made way: {heard.fault}{_saved(end)}"
            )
        case "cancel":
            return cancelled(due, by=heard.fault, heard=heard)
        case "":
            return _of_itself(due, heard, said)
        case _:
            return _ended_by_us(due, heard)


def cancelled(due: DueJob, *, by: str, heard: Heard) -> JobCancelled:
    """Return the end of an attempt that somebody wanted ended."""
    seconds, peak = heard.seconds, heard.peak_bytes
    return cancelled_event(due, attempt=due.attempt, by=by, seconds=seconds, peak_rss_bytes=peak)


def last_words(stderr: Path) -> str:
    """Return the last line that a job wrote on standard error; "" without one."""
    try:
        with stderr.open("rb") as file:
            file.seek(max(0, stderr.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def _saved(end: Exit | None) -> str:
    """A job that has saved where it is says so by its status (`pipeline.yielding`)."""
    return "; where it was is saved" if end is not None and end.status == yielding.STATUS else ""


def _of_itself(due: DueJob, heard: Heard, said: str) -> EventBody | Failure:
    end = heard.exit
    if end is not None and end.status == yielding.STATUS:
        # Somebody else's SIGTERM, such as the machine's at its end.
        return JobInterrupted(
            job=due.job, attempt=due.attempt, reason=f"somebody asked it to end{_saved(end)}"
        )
    if isinstance(heard.last, Failure):
        return _with_memory_in_mind(due, heard.last)
    return _crash(due, heard, said)


def _with_memory_in_mind(due: DueJob, failure: Failure) -> Failure:
    """What ran against the limit of one process says so and does not know what to do about it."""
    if failure.reason != "out_of_memory" or failure.remedy:
        return failure
    return Failure(
        failure.reason,
        f"{due.describes}: {failure.message}: a process of it reached its {shown(due.memory_bytes)}",
        MORE_MEMORY[due.kind],
        failure.deterministic,
        failure.peak_rss_bytes,
    )


def _ended_by_us(due: DueJob, heard: Heard) -> Failure:
    reason, remedy = {
        "deadline": ("deadline", LONGER[due.kind]),
        "memory": ("out_of_memory", MORE_MEMORY[due.kind]),
        "protocol": (
            "protocol",
            "report this as a defect, with the job's log: the job printed what it must not",
        ),
        "conflict": (
            "conflict",
            "the job's result contradicts the log; report this as a defect, with the job's log",
        ),
    }[heard.stopped]
    return Failure(reason, f"{due.describes}: {heard.fault}", remedy, deterministic=False)


def _crash(due: DueJob, heard: Heard, said: str) -> Failure:
    end = heard.exit
    last = f"; its last words: {said}" if said else ""
    look = f"see `unsorry jobs logs {due.job}`"
    if end is not None:
        # A kernel that kills for memory takes the whole group, or one process whose parent then fails in its own way.
        peak = max(heard.seen_bytes, heard.peak_bytes or 0)
        memory = why_killed(end, limit_bytes=due.whole_bytes, peak_bytes=peak, usage=heard.usage)
        if memory:
            return Failure(
                "out_of_memory",
                f"{due.describes}: {memory}{last}",
                f"{MORE_MEMORY[due.kind]}; {look}",
                deterministic=False,
            )
        if end.signal is not None:
            remedy = look
            if end.signal == signal.SIGKILL:
                remedy = f"it may have been killed for memory: {MORE_MEMORY[due.kind]}; {look}"
            message = f"{due.describes}: killed by signal {end.signal}{last}"
            return Failure("crashed", message, remedy, deterministic=False)
    status = end.status if end is not None else None
    what = f"ended with status {status} and no last line"
    if isinstance(heard.last, Result):
        what = f"gave a result and then ended with status {status}"
    return Failure("crashed", f"{due.describes}: {what}{last}", look, deterministic=False)
