"""A control group for each job, where systemd lends the daemon its own part of the tree (Delegate=yes, cgroup v2).

The kernel then holds a job to its memory as a whole, with all that it starts, and says whether it killed something for
it (`memory.events`). Whoever has processes of its own in a group may not divide it: the daemon first moves into a group
`daemon` below its own. Where nothing was delegated, `daemon.job_memory` looks at the processes instead.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import structlog

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
_DAEMON = "daemon"
_JOB = "job-"
_GONE_S = 5.0

log = structlog.get_logger("daemon.cgroups")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a group says of its memory: its peak (None where the kernel is too old), how often something in it was
    killed for memory, and how often it met its own limit."""

    peak_bytes: int | None
    kills: int
    at_limit: int


class NoCgroupsError(Exception):
    """Jobs cannot have groups of their own here; the message says why."""


class Cgroups:
    """The daemon's part of the tree. Made with `take`.

    Args:
        top: the group that the service manager delegated.
        remove: removes an empty group.
    """

    def __init__(self, top: Path, *, remove: Callable[[Path], object] = os.rmdir) -> None:
        self._top = top
        self._remove = remove

    @classmethod
    def take(
        cls, *, root: Path = ROOT, own: Path = OWN, remove: Callable[[Path], object] = os.rmdir
    ) -> Cgroups:
        """Divide the daemon's group, so that jobs can have groups beside it; remove what a dead daemon left.

        Args:
            root: where cgroup v2 is mounted.
            own: the file in which the kernel says in which group we are.

        Raises:
            NoCgroupsError: there is no cgroup v2 here, or it is not ours to divide.
        """
        top = root / _own_path(own).lstrip("/")
        if top.name == _DAEMON:
            top = top.parent
        try:
            if "memory" not in (top / "cgroup.controllers").read_text(encoding="ascii").split():
                raise NoCgroupsError(f"{top}: no memory controller; write Delegate=yes into the unit")
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
                f"{error.filename or top}: {error.strerror or error}; write Delegate=yes and ProtectControlGroups=no"
                " into the unit"
            ) from error
        found = cls(top, remove=remove)
        for left in top.glob(f"{_JOB}*"):
            found.close(left)
        return found

    def open(self, name: str, *, memory_bytes: int) -> Path:
        """Make the group of an attempt, held to `memory_bytes` without swap; what dies of it dies as a whole.

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
        """Put a process, and all that it will start, into a group.

        Raises:
            OSError: the kernel refuses; ESRCH: it has ended.
        """
        _write(group / "cgroup.procs", str(pid))

    @staticmethod
    def usage(group: Path) -> Usage:
        """Return what a group's memory was and did.

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
        """Kill what is left in a group and remove it; one that stays is said in the log."""
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
                    time.sleep(0.02)  # what was killed is still on its way out
                    continue
                log.warning("cgroup_left", path=str(group), reason=str(error))
            return


def cgroups_here() -> Cgroups | None:
    """Return the daemon's part of the tree; None, and why in the log, where jobs cannot have groups of their own."""
    try:
        return Cgroups.take()
    except NoCgroupsError as error:
        log.info("cgroups_not_used", reason=str(error))
        return None


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
    # Not write_text: nothing is to be cut off in a file of the kernel's.
    with file.open("r+" if file.exists() else "w", encoding="ascii") as opened:
        opened.write(text)
