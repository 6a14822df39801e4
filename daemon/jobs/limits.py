"""Limit the memory of a process tree, by cgroup or polling, and explain its kills.

For jobs, and for the server for editors.

In a control group the kernel itself holds the tree to its limit. The processes are also measured every few
seconds, and ended when they hold more together; each single process has its own limit too (RLIMIT_DATA). Only
a control group reports the kernel's kills.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil
import structlog

from pipeline.jobs.child import Exit
from pipeline.lean.sandbox.bounded import below, look_at
from store.text import gigabytes

# ---- A control group for each job, if systemd delegates a part of the tree to the daemon (Delegate=yes,
# cgroup v2)
# The kernel then holds a job with all its processes to its memory, and reports its kills (`memory.events`). A
# group with processes of its own cannot be divided: the daemon first moves into a group `daemon` below its
# own. Without delegation, the processes are measured instead.


ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
_DAEMON = "daemon"
_JOB = "job-"
_GONE_S = 5.0

log = structlog.get_logger("daemon.jobs.limits")


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory statistics of a control group: its peak (None on an old kernel), its kills for memory, and the
    times it met its own limit."""

    peak_bytes: int | None
    kills: int
    at_limit: int


class NoCgroupsError(Exception):
    """Jobs cannot have groups of their own here, for the reason in the message."""


class Cgroups:
    """The daemon's part of the tree. Made with `take`.

    Args:
        top: the group delegated by the service manager.
        remove: removes an empty group.
    """

    def __init__(self, top: Path, *, remove: Callable[[Path], object] = os.rmdir) -> None:
        self._top = top
        self._remove = remove

    @classmethod
    def take(
        cls, *, root: Path = ROOT, own: Path = OWN, remove: Callable[[Path], object] = os.rmdir
    ) -> Cgroups:
        """Divide the daemon's group, so jobs can have groups beside it; remove a dead daemon's groups.

        Args:
            root: the mount of cgroup v2.
            own: the kernel's file with our group.

        Raises:
            NoCgroupsError: there is no cgroup v2 here, or it is not ours to divide.
        """
        top = root / _own_path(own).lstrip("/")
        if top.name == _DAEMON:
            top = top.parent
        try:
            if "memory" not in (top / "cgroup.controllers").read_text(encoding="ascii").split():
                raise NoCgroupsError(f"{top}: no memory controller; the unit's Delegate= has to name memory")
            ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
            pids = {int(pid) for pid in (top / "cgroup.procs").read_text(encoding="ascii").split()}
            if pids - ours:
                raise NoCgroupsError(
                    f"{top}: other processes than ours are in it; run the daemon as a service"
                )
            (top / _DAEMON).mkdir(exist_ok=True)
            for pid in pids:
                _write(top / _DAEMON / "cgroup.procs", str(pid))
            _write(top / "cgroup.subtree_control", "+memory")
        except OSError as error:
            raise NoCgroupsError(
                f"{error.filename or top}: {error.strerror or error}; run the daemon by its unit, which has Delegate="
                " and a ReadWritePaths= for its own part of the tree (another name of the unit needs another path)"
            ) from error
        result = cls(top, remove=remove)
        for left in top.glob(f"{_JOB}*"):
            result.close(left)
        return result

    def open(self, name: str, *, memory_bytes: int) -> Path:
        """Make the group of an attempt, held to `memory_bytes` without swap; the kernel kills it as a whole.

        Raises:
            OSError: the kernel refuses.
        """
        group = self._top / f"{_JOB}{name}"
        group.mkdir(exist_ok=True)
        _write(group / "memory.max", str(memory_bytes))
        _write(group / "memory.oom.group", "1")
        try:
            _write(group / "memory.swap.max", "0")
        except OSError as error:
            # A kernel without swap accounting has no such file.
            if error.errno not in (errno.ENOENT, errno.EACCES, errno.EPERM):
                raise
        return group

    @staticmethod
    def enter(group: Path, pid: int) -> None:
        """Put a process, and its later children, into a group.

        Raises:
            OSError: the kernel refuses; ESRCH: it has ended.
        """
        _write(group / "cgroup.procs", str(pid))

    @staticmethod
    def usage(group: Path) -> Usage:
        """Return a group's memory statistics.

        Raises:
            OSError: it cannot be read.
        """
        events = dict(
            line.split() for line in (group / "memory.events").read_text(encoding="ascii").splitlines()
        )
        try:
            peak = int((group / "memory.peak").read_text(encoding="ascii"))
        except FileNotFoundError:
            peak = None
        return Usage(peak, int(events.get("oom_kill", 0)), int(events.get("oom", 0)))

    def close(self, group: Path) -> None:
        """Kill a group's processes and remove it; log one that stays."""
        deadline = time.monotonic() + _GONE_S
        while True:
            try:
                if (group / "cgroup.kill").exists():
                    _write(group / "cgroup.kill", "1")
                self._remove(group)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno == errno.EBUSY and time.monotonic() < deadline:
                    time.sleep(0.02)  # the killed are still on their way out
                    continue
                log.warning("cgroup_left", path=str(group), reason=str(error))
            return


def cgroups_here() -> Cgroups | str:
    """Return the daemon's part of the tree, or why jobs cannot have groups of their own."""
    try:
        return Cgroups.take()
    except NoCgroupsError as error:
        log.debug("cgroups_not_used", reason=str(error))
        return str(error)


def _own_path(own: Path) -> str:
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise NoCgroupsError(f"{own}: {error.strerror or error}") from error
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if path is None:
        raise NoCgroupsError(f"{own}: no cgroup v2 here")
    return path


def _write(file: Path, text: str) -> None:
    # Not write_text: a file of the kernel's must not be truncated.
    with file.open("r+" if file.exists() else "w", encoding="ascii") as opened:
        opened.write(text)


LOOK_EVERY_S = 2.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NEAR = 0.9
"""A process killed at this share of its limit was probably killed for it."""


class MemoryLooks:
    """Measures the memory of all jobs every few seconds, on one thread: handing each look to a thread costs
    more than the look."""

    def __init__(self) -> None:
        self._bounds: dict[MemoryBound, None] = {}
        self._looking: asyncio.Task[None] | None = None
        self._refused = ""

    def begin(self, bound: MemoryBound) -> None:
        """Look at this one too, for the first time within LOOK_EVERY_S."""
        self._bounds[bound] = None
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())

    def end(self, bound: MemoryBound) -> None:
        """Stop looking at this one."""
        self._bounds.pop(bound, None)

    def close(self) -> None:
        """Stop looking."""
        self._bounds.clear()
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        try:
            while bounds := tuple(self._bounds):
                for bound, held_bytes in await self._held_by(bounds):
                    if bound in self._bounds:
                        bound.saw(held_bytes)
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._looking = None

    async def _held_by(self, bounds: Sequence[MemoryBound]) -> list[tuple[MemoryBound, int]]:
        refused, result = "", list[tuple[MemoryBound, int]]()
        try:
            result = await asyncio.to_thread(lambda: [(bound, held_by(bound.pid)) for bound in bounds])
        except (OSError, RuntimeError) as error:  # out of files or threads; the next look may succeed
            refused = str(error)
        if refused and not self._refused:
            log.error("memory_not_watched", jobs=len(bounds), reason=refused)
        elif self._refused and not refused:
            log.info("memory_watched_again", jobs=len(bounds))
        self._refused = refused
        return result


class MemoryBound:
    """Holds a process and its descendants to their memory, from the start to the end.

    Args:
        name: the group's name.
        pid: the process.
        limit_bytes: the limit of its whole tree.
        cgroups: the parent of its own group; None: no group.
        looks: the measurements of its processes.
        over: called once, with a sentence, when it exceeds its limit.
    """

    def __init__(
        self,
        name: str,
        pid: int,
        *,
        limit_bytes: int,
        cgroups: Cgroups | None,
        looks: MemoryLooks,
        over: Callable[[str], None],
    ) -> None:
        self.pid = pid
        self._limit_bytes = limit_bytes
        self._name = name
        self._cgroups = cgroups
        self._looks = looks
        self._over = over
        self._group: Path | None = None
        self._peak_bytes = 0

    async def begin(self) -> None:
        """Put it into a group, and begin to look at its processes."""
        if self._cgroups is not None:
            self._group = await asyncio.to_thread(self._enter, self._cgroups)
        self._looks.begin(self)

    async def end(self) -> tuple[Usage | None, int]:
        """Kill the rest of the group; return its statistics (None without one) and the most memory seen."""
        self._looks.end(self)
        usage, group = None, self._group
        if group is not None and self._cgroups is not None:
            self._group = None
            usage = await asyncio.to_thread(self._leave, self._cgroups, group)
        return usage, max(self._peak_bytes, (usage.peak_bytes or 0) if usage is not None else 0)

    def saw(self, held_bytes: int) -> None:
        """Note a look's memory; report the first one over the limit."""
        self._peak_bytes = max(self._peak_bytes, held_bytes)
        if held_bytes > self._limit_bytes:
            self._looks.end(self)
            held, most = gigabytes(held_bytes), gigabytes(self._limit_bytes)
            self._over(f"with all that it started it held {held}, more than its {most}")

    def _enter(self, cgroups: Cgroups) -> Path | None:
        group = None
        try:
            group = cgroups.open(self._name, memory_bytes=self._limit_bytes)
            cgroups.enter(group, self.pid)
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


@cache
def _children_are_listed() -> bool:
    """Return whether the kernel lists a process's children."""
    return Path("/proc/thread-self/children").exists()


def _read(name: str) -> bytes:
    # For each job every other second: a Path takes longer than the file.
    with open(name, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()


def _started_by(pid: int) -> list[int]:
    """Return the descendants of a process.

    If the kernel lists a process's children, nothing else is read: a look at every process of the machine,
    for each job, took more processor time than all the daemon's other work for a job. A child ending at that
    moment may hide another from this one look.
    """
    if not _children_are_listed():
        return below(pid)
    result: dict[int, None] = {}
    left = [pid]
    while left:
        one, tasks = f"/proc/{left.pop()}/task", list[str]()
        # A process or thread may be gone by now, and its children are no longer below it.
        with contextlib.suppress(OSError):
            tasks = os.listdir(one)  # noqa: PTH208
        for task in tasks:
            with contextlib.suppress(OSError):
                listed = map(int, _read(f"{one}/{task}/children").split())
                new = {child: None for child in listed if child not in result}
                result |= new
                left += new
    return list(result)


def held_by(pid: int) -> int:
    """Return the private memory of a process and its descendants, in bytes; 0 if it is gone."""
    try:
        _, resident, shared, *_ = map(int, _read(f"/proc/{pid}/statm").split())
    except OSError:
        return 0
    return _PAGE_BYTES * max(resident - shared, 0) + look_at(_started_by(pid), frozenset()).memory_bytes


def why_killed(end: Exit, *, limit_bytes: int, peak_bytes: int, usage: Usage | None) -> str:
    """Return how memory ended a job; "" without a sign of it.

    Args:
        end: its process's exit.
        limit_bytes: the limit of its whole tree.
        peak_bytes: the most memory seen of the tree.
        usage: its control group's statistics; None without one.
    """
    limit = gigabytes(limit_bytes)
    if usage is not None and usage.kills:
        if usage.at_limit:
            return f"the kernel killed it for its memory: with all that it started it reached its {limit}"
        return (
            f"the kernel killed it because the whole machine was out of memory; its own limit of {limit} it did not"
            " reach"
        )
    if end.signal == signal.SIGKILL and peak_bytes >= _NEAR * limit_bytes:
        figure = f"it had held {gigabytes(peak_bytes)} of its {limit}"
        return f"probably killed for its memory: it got SIGKILL, and {figure}"
    return ""


# ---- Keep the idle daemon small
# Glibc holds on to memory freed after a large scan's parsing, one heap for each thread. With glibc only;
# other C libraries have neither the two calls nor the habit.


_M_ARENA_MAX = -8  # malloc.h


def use_one_heap() -> None:
    """Make all threads share one heap. The daemon's threads hardly ever allocate at the same time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Hand freed pages back to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
