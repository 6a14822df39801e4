"""What a job and all that it started hold in memory: watched while it runs, and judged when it was killed.

In a control group the kernel itself holds the job to its limit (`daemon.cgroups`). Its processes are looked at every
few seconds as well, and the job is ended when they hold more together; a limit of each single process (RLIMIT_DATA)
there is besides. What killed a job is said as far as it is known: that the kernel did is only known of a control group.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import structlog

from daemon.cgroups import Cgroups, Usage
from daemon.due import DueJob
from daemon.process import Exit
from pipeline.lean.sandbox.watch import look_at_tree

LOOK_EVERY_S = 2.0
_NEAR = 0.9
"""A job that was killed with so much of its limit in hand was probably killed for it."""

log = structlog.get_logger("daemon.job_memory")


class MemoryBound:
    """Holds one job to its memory, from its start to its end.

    Args:
        due: the job.
        pid: its process.
        cgroups: where it gets a group of its own; None: nowhere.
        over: called once, with a sentence, when it holds more than it may.
    """

    def __init__(
        self, due: DueJob, pid: int, cgroups: Cgroups | None, *, over: Callable[[str], None]
    ) -> None:
        self._due = due
        self._pid = pid
        self._cgroups = cgroups
        self._over = over
        self._group: Path | None = None
        self._peak_bytes = 0
        self._watching: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Put it into a group, and begin to look at its processes."""
        if self._cgroups is not None:
            self._group = await asyncio.to_thread(self._enter, self._cgroups)
        self._watching = asyncio.create_task(self._watch())

    async def end(self) -> tuple[Usage | None, int]:
        """Kill what is left in the group; return what that says (None without one) and the most that was seen."""
        if self._watching is not None:
            self._watching.cancel()
            (ended,) = await asyncio.gather(self._watching, return_exceptions=True)
            if isinstance(ended, Exception):
                log.error("job_not_watched", job=self._due.job, reason=f"{type(ended).__name__}: {ended}")
        usage = None
        if self._group is not None and self._cgroups is not None:
            usage = await asyncio.to_thread(self._leave, self._cgroups, self._group)
        return usage, max(self._peak_bytes, (usage.peak_bytes or 0) if usage is not None else 0)

    async def _watch(self) -> None:
        most = self._due.whole_bytes
        while True:
            held = await asyncio.to_thread(held_by, self._pid)
            self._peak_bytes = max(self._peak_bytes, held)
            if held > most:
                self._over(f"with all that it started it held {shown(held)}, more than its {shown(most)}")
                return
            await asyncio.sleep(LOOK_EVERY_S)

    def _enter(self, cgroups: Cgroups) -> Path | None:
        due, group = self._due, None
        try:
            group = cgroups.open(f"{due.job}-{due.attempt}", memory_bytes=due.whole_bytes)
            cgroups.enter(group, self._pid)
        except OSError as error:
            # Its processes are looked at all the same. One that has ended already is no matter.
            log.warning("cgroup_refused", job=due.job, reason=str(error))
            if group is not None:
                cgroups.close(group)
            return None
        return group

    def _leave(self, cgroups: Cgroups, group: Path) -> Usage | None:
        usage = None
        try:
            usage = cgroups.usage(group)
        except (OSError, ValueError) as error:
            log.warning("cgroup_unread", path=str(group), reason=str(error))
        cgroups.close(group)
        return usage


def held_by(pid: int) -> int:
    """Return what a process and its descendants hold for themselves, in bytes; 0 for one that is gone."""
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0
    return max(memory.rss - memory.shared, 0) + look_at_tree(pid, frozenset()).memory_bytes


def shown(size_bytes: int) -> str:
    """Return a size for people."""
    return f"{size_bytes / 2**30:.1f}G"


def why_killed(end: Exit, *, limit_bytes: int, peak_bytes: int, usage: Usage | None) -> str:
    """Say how memory ended a job; "" where nothing says that it did.

    Args:
        end: how its process ended.
        limit_bytes: what it and all that it started might hold.
        peak_bytes: the most that was seen of them.
        usage: what its control group says; None without one.
    """
    limit = shown(limit_bytes)
    if usage is not None and usage.kills:
        if usage.at_limit:
            return f"the kernel killed it for its memory: with all that it started it reached its {limit}"
        return (
            f"the kernel killed it because the whole machine was out of memory; its own limit of {limit} it did not"
            " reach"
        )
    if end.signal == signal.SIGKILL and peak_bytes >= _NEAR * limit_bytes:
        held = f"it had held {shown(peak_bytes)} of its {limit}"
        return f"probably killed for its memory: somebody sent SIGKILL, and {held}"
    return ""
