"""Engines start the runner's attempts, carry their lines, and end them.

The runner (`daemon.jobs.runner`) decides about due jobs, records and the ends of attempts; an engine owns the
places and processes of attempts. `tests/daemon/test_engines.py` has an engine's duties, and each passes it:
`daemon.jobs.local` runs attempts as children of the daemon, `daemon.jobs.cluster` behind a launcher.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from daemon.jobs.gpus import Gpu
from daemon.jobs.limits import Usage
from pipeline.jobs.child import Exit
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.spec import KeyPlace, Spec
from pipeline.lean.build.build_cache import BuildKey

if TYPE_CHECKING:  # a carrier, a process for each attempt, does not load it
    from daemon.jobs.due import DueJob


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to check out for an attempt, with the build of its project in a folder if `built`."""

    repository: str
    sha: str
    built: bool
    project: str = ""

    @property
    def key(self) -> BuildKey:
        return BuildKey(self.repository, self.sha, self.project)


@dataclass(frozen=True, slots=True)
class Order:
    """An attempt to start.

    Attributes:
        spec: its specification. The engine fills in its places (worktree, mirror, locks of its GPUs) and
            writes the file. The folder is the daemon's and exists: the engine keeps standard error there
            (`spec.log`), and payloads (`spec.staging`).
        module: the module to run, such as "pipeline.scan".
        memory_bytes: the limit of each process.
        whole_bytes: the limit of the job with all its processes.
        commit: the commit to check out; None: nothing.
        mirror: the repository whose bare clone it reads; "" for none.
        key: the place of its one secret.
        away: it runs on the cluster, if there is one (not for kinds of `JobKind.stays`).
    """

    spec: JobSpec[Spec]
    module: str
    memory_bytes: int
    whole_bytes: int
    commit: Commit | None = None
    mirror: str = ""
    key: KeyPlace | None = None
    away: bool = False

    @classmethod
    def of(cls, due: DueJob, spec: JobSpec[Spec], *, module: str) -> Order:
        """Return the order of a due job."""
        return cls(
            spec=spec,
            module=module,
            memory_bytes=due.memory_bytes,
            whole_bytes=due.whole_bytes,
            commit=Commit(due.repository, due.sha, due.built, due.project) if due.needs_worktree else None,
            mirror=due.repository if due.kind in ("scan", "count") else "",
            key=due.key,
            away=not due.stays,
        )


class End(NamedTuple):
    """An attempt's end and its memory.

    `exit` is None if its machine is lost. `usage` comes from its control group (None without one),
    `seen_bytes` is the most memory seen of it with all its processes.
    """

    exit: Exit | None
    usage: Usage | None
    seen_bytes: int


class StartError(Exception):
    """An attempt could not be started. `reason` is a stable snake_case word, `remedy` is for a person."""

    def __init__(self, reason: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.remedy = remedy


class AttemptLostError(Exception):
    """An attempt's machine or its launcher is gone: the attempt's own end is unknown.

    `suspect`: the attempt itself may be the cause.
    """

    def __init__(self, message: str, *, suspect: bool) -> None:
        super().__init__(message)
        self.suspect = suspect


class DiskRefusedError(StartError):
    """The daemon's disk took no more (`refused`), in or below `folder`: no fault of the job."""

    def __init__(self, refused: OSError, folder: Path) -> None:
        super().__init__("disk", f"the disk refused: {refused}", "")
        self.refused = refused
        self.folder = folder


_DISK_REFUSES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def refused_by_system(job: str, error: OSError, folder: Path) -> StartError:
    """Return the error of a start for something the system refused below this folder."""
    if error.errno in _DISK_REFUSES:
        return DiskRefusedError(error, folder)
    return StartError(
        "spawn", f"{job} could not be started: {error}", "check free memory, processes and disk space"
    )


class Attempt(Protocol):
    """A started attempt. The caller of `start` closes it, however it went."""

    pid: int
    """Of its first process, for people."""

    async def run(self, hear: Callable[[bytes], Awaitable[None]]) -> Exit:
        """Pass each whole line to `hear`, one after the other in the job's order; return its exit.

        It returns after the last line and the end, never after the end of the lines alone; a last line
        without its end is dropped. When `hear` gets a line, the payloads staged before it are in the order's
        folder.

        Raises:
            LineTooLongError: a line exceeds `pipeline.jobs.child.LONGEST_LINE_BYTES`.
            AttemptLostError: its machine is lost.
        """

    async def stop(self, *, grace_s: float, first_alone: bool = False) -> None:
        """Send SIGTERM to the job's first process alone or to all, SIGKILL after the grace; return once they
        are gone, or their machine is lost."""

    async def close(self) -> End:
        """Kill its remaining processes at once, and give back its worktree, memory and GPUs."""


class Engine(Protocol):
    """Starts attempts."""

    @property
    def problem(self) -> str:
        """Why no job can leave the daemon's machine, with the remedy; "" if one can."""

    async def look(self, lent: Mapping[str, str]) -> tuple[Gpu, ...]:
        """Look at the GPUs and the cluster's resources; return the GPUs for jobs to lease.

        Args:
            lent: the job (as shown to people) with a lease on each GPU, by UUID.
        """

    @property
    def room(self) -> int | None:
        """The number of jobs the cluster has room for, including its running ones; None: as many as there are
        slots."""

    async def start(self, order: Order, *, over: Callable[[str], None]) -> Attempt:
        """Start an attempt.

        Args:
            over: called once, with a sentence, when the attempt exceeds its memory.

        Raises:
            StartError: it could not be started; nothing of it is left.
        """

    async def reap(self, directory: Path) -> int:
        """Kill the remains of a dead daemon's attempt; return their number of processes.

        Args:
            directory: the attempt's folder (`JobSpec.directory`).
        """

    async def aclose(self) -> None:
        """Stop looking."""
