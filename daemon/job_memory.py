"""What a job, or the server for editors, and all that it started hold in memory: watched while it runs, and judged when
it was killed.

In a control group the kernel itself holds them to their limit (`daemon.cgroups`). The processes are looked at every
few seconds as well, and ended when they hold more together; a limit of each single process (RLIMIT_DATA) there is
besides. What killed them is said as far as it is known: that the kernel did is only known of a control group.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import structlog

from daemon.cgroups import Cgroups, Usage
from daemon.process import Exit
from pipeline.lean.sandbox.bounded import look_at_tree

LOOK_EVERY_S = 2.0
_NEAR = 0.9
"""What was killed with so much of its limit in hand was probably killed for it."""

log = structlog.get_logger("daemon.job_memory")


class MemoryBound:
    """Holds a process and its descendants to their memory, from the start to the end.

    Args:
        name: what the group is called.
        pid: the process.
        limit_bytes: what it and all that it starts may hold together.
        cgroups: where it gets a group of its own; None: nowhere.
        over: called once, with a sentence, when it holds more than it may.
    """

    def __init__(
        self,
        name: str,
        pid: int,
        *,
        limit_bytes: int,
        cgroups: Cgroups | None,
        over: Callable[[str], None],
    ) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        """As of the last look."""
        self._name = name
        self._pid = pid
        self._cgroups = cgroups
        self._over = over
        self._group: Path | None = None
        self._peak_bytes = 0
        self._watching: asyncio.Task[None] | None = None

    @property
    def has_group(self) -> bool:
        """Whether the kernel holds it to its limit, and not our looks alone."""
        return self._group is not None

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
                log.error("memory_not_watched", of=self._name, reason=f"{type(ended).__name__}: {ended}")
        usage, group = None, self._group
        if group is not None and self._cgroups is not None:
            self._group = None
            usage = await asyncio.to_thread(self._leave, self._cgroups, group)
        return usage, max(self._peak_bytes, (usage.peak_bytes or 0) if usage is not None else 0)

    async def _watch(self) -> None:
        most = self.limit_bytes
        while True:
            self.held_bytes = held = await asyncio.to_thread(held_by, self._pid)
            self._peak_bytes = max(self._peak_bytes, held)
            if held > most:
                self._over(f"with all that it started it held {shown(held)}, more than its {shown(most)}")
                return
            await asyncio.sleep(LOOK_EVERY_S)

    def _enter(self, cgroups: Cgroups) -> Path | None:
        group = None
        try:
            group = cgroups.open(self._name, memory_bytes=self.limit_bytes)
            cgroups.enter(group, self._pid)
        except OSError as error:
            # Its processes are looked at all the same. One that has ended already is no matter.
            log.warning("cgroup_refused", of=self._name, reason=str(error))
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
