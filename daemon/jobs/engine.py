"""What an engine is: it starts the attempts that the runner orders, carries their lines, and ends them.

The runner (`daemon.jobs.runner`) owns what is due, what is recorded, and when an attempt is over; an engine owns the
places where attempts work and their processes. What an engine must do is in `tests/daemon/test_engines.py`, which each
passes: `daemon.jobs.local` runs attempts as children of the daemon, `daemon.jobs.remote` on other machines too.
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
from pipeline.jobs.spec import Spec
from pipeline.lean.build.build_cache import BuildKey
from pipeline.models.endpoint.credentials import KeyPlace

if TYPE_CHECKING:  # a node, which starts a process for each attempt, does not load it
    from daemon.jobs.due import DueJob


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that attempts run on.

    Attributes:
        slots: how many jobs at the same time, beside trainings.
        gpus: as they are now; only the daemon's own machine lends any.
        id: what an order names it by; "": the daemon's own machine.
        problem: why it gets no jobs, with the remedy; "" where it does.
    """

    name: str
    slots: int
    gpus: tuple[Gpu, ...]
    id: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that is checked out for an attempt, with the build of its project in a folder if `built`."""

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
        spec: its specification. The engine fills in the places that it makes (worktree, mirror, lock of the GPU) and
            writes the file. The folder is the daemon's and exists: the engine keeps standard error there (`spec.log`),
            and payloads (`spec.staging`).
        module: what runs, such as "pipeline.scan".
        memory_bytes: the limit of each process.
        whole_bytes: the limit of the job with all that it starts.
        commit: what is checked out for it; None: nothing.
        mirror: the repository whose bare clone it reads; "" for none.
        gpu: the one that it leases, of those that `Engine.nodes` gave.
        key: where the one secret is that it is handed.
        node: the one that runs it (`Node.id`).
    """

    spec: JobSpec[Spec]
    module: str
    memory_bytes: int
    whole_bytes: int
    commit: Commit | None = None
    mirror: str = ""
    gpu: Gpu | None = None
    key: KeyPlace | None = None
    node: str = ""

    @classmethod
    def of(cls, due: DueJob, spec: JobSpec[Spec], *, module: str, gpu: Gpu | None, node: str = "") -> Order:
        """Return the order of a due job."""
        return cls(
            spec=spec,
            module=module,
            memory_bytes=due.memory_bytes,
            whole_bytes=due.whole_bytes,
            commit=Commit(due.repository, due.sha, due.built, due.project) if due.needs_worktree else None,
            mirror=due.repository if due.kind in ("scan", "count") else "",
            gpu=gpu,
            key=due.key,
            node=node,
        )


class End(NamedTuple):
    """How an attempt ended, and what memory was seen of it.

    `exit` is None where its node is lost. `usage` is what its control group says (None without one), `seen_bytes` the
    most that was seen of it and all that it started.
    """

    exit: Exit | None
    usage: Usage | None
    seen_bytes: int


class StartError(Exception):
    """An attempt could not be started. `reason` is a stable snake_case word, `remedy` tells a person what helps."""

    def __init__(self, reason: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.remedy = remedy


class NodeRefusedError(StartError):
    """A node could not start an attempt, for a reason of its own: no fault of the job, and others may.

    `suspect`: the node was lost meanwhile, and what the attempt did may be why.
    """

    def __init__(self, reason: str, message: str, remedy: str, *, suspect: bool = False) -> None:
        super().__init__(reason, message, remedy)
        self.suspect = suspect


class AttemptLostError(Exception):
    """The node of an attempt does not answer any more, or ends: how the attempt would have ended is not known.

    `suspect`: what the attempt did may be why.
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
    """Return why an attempt could not be started where the system refused something below this folder."""
    if error.errno in _DISK_REFUSES:
        return DiskRefusedError(error, folder)
    return StartError(
        "spawn", f"{job} could not be started: {error}", "check free memory, processes and disk space"
    )


class Attempt(Protocol):
    """A started attempt. Whoever started it closes it, however it went."""

    pid: int
    """Of its first process, for people."""

    async def run(self, hear: Callable[[bytes], Awaitable[None]]) -> Exit:
        """Pass each whole line to `hear`, one after the other in the job's order; return how the process ended.

        It returns after the last line and the end, never after the end of the lines alone; a last line without its end
        is dropped. When `hear` gets a line, the payloads that the job staged before it are in the order's folder.

        Raises:
            LineTooLongError: a line exceeds `pipeline.jobs.child.LONGEST_LINE_BYTES`.
            AttemptLostError: its node is lost.
        """

    async def stop(self, *, grace_s: float, first_alone: bool = False) -> None:
        """SIGTERM, to the job's first process alone or to all, SIGKILL after the grace; return once they are gone, or
        their node is lost."""

    async def close(self) -> End:
        """Kill at once what still runs of it, and give back all that it had: worktree, memory, GPU."""


class Engine(Protocol):
    """Starts attempts on its nodes."""

    slots: int
    """[jobs] max_running; replaced on reload."""

    @property
    def now(self) -> tuple[Node, ...]:
        """The nodes as of the last look."""

    async def nodes(self, lent: Mapping[str, str]) -> tuple[Node, ...]:
        """Look at the nodes.

        Args:
            lent: the job (as shown to people) that leases each GPU, by UUID.
        """

    async def start(self, order: Order, *, over: Callable[[str], None]) -> Attempt:
        """Start an attempt.

        Args:
            over: called once, with a sentence, when the attempt holds more memory than it may.

        Raises:
            StartError: it could not be started; nothing of it is left.
        """

    async def reap(self, directory: Path) -> int:
        """Kill what a dead daemon's attempt left running; return how many processes that were.

        Args:
            directory: the attempt's folder (`JobSpec.directory`).
        """

    async def aclose(self) -> None:
        """Stop looking at the nodes."""
