"""The local engine: attempts are children of the daemon, in worktrees of commits of its mirrors."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import structlog

from daemon.jobs.engine import (
    Attempt,
    Commit,
    DiskRefusedError,
    End,
    Engine,
    Order,
    StartError,
    refused_by_system,
)
from daemon.jobs.gpus import Gpu, Gpus
from daemon.jobs.limits import Cgroups, MemoryBound, MemoryLooks
from daemon.place.lock import holder
from daemon.place.paths import Paths
from daemon.polling.errors import NoSpaceError, RemoteError
from daemon.polling.git import Git
from pipeline.endpoint.credentials import job_key
from pipeline.jobs.checkout import in_a_thread, worktree
from pipeline.jobs.child import Exit, JobProcess, kill_marked
from pipeline.jobs.protocol import JobError, JobSpec
from pipeline.jobs.spec import Spec
from pipeline.lean.build.build_cache import BuildMissingError, attach, empty_lake
from store.domain.identity import slug

log = structlog.get_logger("daemon.jobs.local")


@asynccontextmanager
async def checkout(folder: Path, commit: Commit, *, git: Git, paths: Paths) -> AsyncIterator[None]:
    """Check a commit out into a folder, with the build of its project if `built`; remove both at the end.

    Raises:
        BuildMissingError: the build was swept away since the plan was made.
        JobError: the commit cannot be written out.
        RemoteError: the mirror lacks some of it, which cannot be fetched.
        OSError: the system refused.
    """
    mirror = paths.mirrors / f"{slug(commit.repository)}.git"

    @contextmanager
    def made(left: threading.Event) -> Iterator[None]:
        with worktree(folder, mirror=mirror, sha=commit.sha, left=left), ExitStack() as stack:
            if commit.built:
                stack.enter_context(attach(folder, paths.cache, commit.key))
            else:
                empty_lake(folder, commit.project)
            yield

    places = AsyncExitStack()
    try:
        try:
            await places.enter_async_context(in_a_thread(made))
        except JobError:
            # An observed commit is complete in the mirror; a user's may not be.
            if not await git.complete(mirror, [commit.sha]):
                raise
            await places.enter_async_context(in_a_thread(made))
        yield
    finally:
        try:
            await places.aclose()
        except (OSError, RuntimeError) as error:
            # The job's outcome counts, whatever the machine lacks (processes, files, memory; threads, as
            # Python's RuntimeError); the next start sweeps the folder.
            log.warning("worktree_left", path=str(folder), reason=str(error))


async def prepare(order: Order, places: AsyncExitStack, *, git: Git, paths: Paths) -> JobSpec[Spec]:
    """Make the places of an attempt, removed with the stack; return its specification with them."""
    spec, commit = order.spec, order.commit
    if commit is not None:
        folder = paths.worktrees / f"{spec.job}-{spec.attempt}"
        try:
            await places.enter_async_context(checkout(folder, commit, git=git, paths=paths))
        except OSError as error:
            raise refused_by_system(spec.job, error, paths.worktrees) from error
        spec = replace(spec, worktree=folder)
    if order.mirror:
        spec = replace(spec, mirror=paths.mirrors / f"{slug(order.mirror)}.git")
    return spec


@contextmanager
def start_errors(job: str, paths: Paths) -> Iterator[None]:
    """Turn the obstacles to an attempt's start into `StartError`."""
    try:
        yield
    except BuildMissingError as error:
        # It was swept away since the plan was made; the next plan has it built again first.
        raise StartError("build_missing", str(error), "nothing: it is built again") from error
    except NoSpaceError as error:
        raise DiskRefusedError(OSError(errno.ENOSPC, str(error)), paths.worktrees) from error
    except (JobError, RemoteError) as error:
        raise StartError("worktree", str(error), error.remedy) from error
    except OSError as error:
        raise refused_by_system(job, error, paths.jobs) from error


class LocalAttempt(Attempt):
    """A child of the daemon, with its memory bound and places; `LocalEngine` starts it."""

    def __init__(self, process: JobProcess, memory: MemoryBound, places: AsyncExitStack) -> None:
        self.pid = process.pid
        self._process = process
        self._memory = memory
        self._places = places

    async def run(self, hear: Callable[[bytes], Awaitable[None]]) -> Exit:
        """See `Attempt.run`."""

        async def read() -> None:
            async for raw in self._process.lines():
                await hear(raw)

        _, end = await asyncio.gather(read(), self._process.ended())
        return end

    async def stop(self, *, grace_s: float, first_alone: bool = False) -> None:
        await self._process.stop(grace_s=grace_s, first_alone=first_alone)

    async def close(self) -> End:
        try:
            end = await self._process.stop(grace_s=0.0)
            self._process.close()
            usage, seen_bytes = await self._memory.end()
        finally:
            await self._places.aclose()
        return End(end, usage, seen_bytes)


class LocalEngine(Engine):
    """The daemon's machine. Every method belongs to the event loop's thread.

    Args:
        gpus: the GPUs of this machine; None: all.
        cgroups: the groups that hold jobs to their memory; None: their processes are measured instead.
    """

    def __init__(
        self,
        paths: Paths,
        git: Git,
        *,
        gpus: Gpus | None = None,
        cgroups: Cgroups | None = None,
    ) -> None:
        self._paths = paths
        self._git = git
        self._gpus = gpus or Gpus(paths.runtime / "gpus")
        self._cgroups = cgroups
        self._looks = MemoryLooks()

    @property
    def problem(self) -> str:
        return ""  # nothing leaves this machine

    async def look(self, lent: Mapping[str, str]) -> tuple[Gpu, ...]:
        return await self._gpus.look(lent)

    @property
    def room(self) -> None:
        return None

    async def start(self, order: Order, *, over: Callable[[str], None]) -> Attempt:
        """Check the commit out, write the specification, start the process and bound its memory.

        Raises:
            StartError: see `Engine.start`.
        """
        with start_errors(order.spec.job, self._paths):
            attempt, memory = await self._started(order, over)
        try:
            await memory.begin()
        except BaseException:
            await asyncio.shield(attempt.close())
            raise
        return attempt

    async def _started(self, order: Order, over: Callable[[str], None]) -> tuple[LocalAttempt, MemoryBound]:
        async with AsyncExitStack() as places:
            spec = await prepare(order, places, git=self._git, paths=self._paths)
            # In the order of their names, so no two jobs wait for each other.
            spec = replace(spec, gpu_locks=tuple(self._gpus.lock(uuid) for uuid in sorted(spec.gpus)))
            await asyncio.to_thread(spec.write)
            process = await JobProcess.start(
                order.module,
                spec=spec.directory / "spec.json",
                directory=spec.directory,
                stderr=spec.log,
                memory_bytes=order.memory_bytes,
                key=job_key(order.key),
                # Without a GPU of its own it sees none; the nameless one is the daemon's own view.
                visible=None if spec.gpus == ("",) else ",".join(spec.gpus),
            )
            memory = MemoryBound(
                f"{spec.job}-{spec.attempt}",
                process.pid,
                limit_bytes=order.whole_bytes,
                cgroups=self._cgroups,
                looks=self._looks,
                over=over,
            )
            return LocalAttempt(process, memory, places.pop_all()), memory

    async def reap(self, directory: Path) -> int:
        return await asyncio.to_thread(end_attempt, directory)

    async def aclose(self) -> None:
        self._looks.close()
        self._gpus.close()


_PATIENCE_S = 5.0


def end_attempt(directory: Path) -> int:
    """Kill the remains of the attempt in `directory`; return their number of processes.

    The holder of the attempt's lock is the job itself, so its number cannot belong to another process; its
    stray descendants are found by their mark.
    """
    lock = directory / "lock"
    killed = 0
    deadline = time.monotonic() + _PATIENCE_S
    while (pid := holder(lock)) is not None and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # The job leads its own session, so the group has its number.
            (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)
            killed = 1
        time.sleep(0.02)
    return killed + kill_marked(directory)
