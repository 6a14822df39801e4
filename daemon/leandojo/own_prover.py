"""Run prove jobs with the caller's prover, in the agent's process; all other jobs are children as the
daemon's are."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from daemon.jobs.engine import Attempt, End, Order
from daemon.jobs.local import LocalEngine, prepare, start_errors
from daemon.place.paths import Paths
from daemon.polling.git import Git
from pipeline.jobs.child import Exit
from pipeline.jobs.kinds import KINDS
from pipeline.jobs.protocol import JobSpec, Reporter, reported
from pipeline.loop_thread import LoopThread


class _Lines:
    """A reporter's output. A line is written when the runner's loop has taken it."""

    def __init__(self, hear: Callable[[bytes], Awaitable[None]]) -> None:
        self._hear = hear
        self._loop = asyncio.get_running_loop()

    def write(self, line: str) -> None:
        async def heard() -> None:
            await self._hear(line.encode())

        asyncio.run_coroutine_threadsafe(heard(), self._loop).result()

    def flush(self) -> None:
        """Do nothing: lines are not buffered."""


class OwnAttempt:
    """An attempt of a prove job in a thread of this process."""

    def __init__(self, spec: JobSpec[Any], prover: Any, places: AsyncExitStack, *, whole: bool) -> None:
        self.pid = os.getpid()
        self._spec = spec
        self._prover = prover
        self._places = places
        self._whole = whole
        self._thread = LoopThread("own-prover")
        self._running: asyncio.Task[int] | None = None
        self._exit: Exit | None = None

    async def run(self, hear: Callable[[bytes], Awaitable[None]]) -> Exit:
        reporter = Reporter(self._spec, _Lines(hear))  # type: ignore[arg-type]
        work = partial(asyncio.to_thread, reported, reporter, partial(self._work, reporter))
        self._running = asyncio.create_task(work())
        self._exit = Exit(await self._running, None, 0)
        return self._exit

    def _work(self, reporter: Reporter) -> dict[str, Any]:
        # It imports torch, which only agents with a prover of their own need.
        from pipeline.prove.job import ProveJob

        engine = self._prover.engine(whole=self._whole)
        return self._thread.run(ProveJob(self._spec, reporter, own=engine).run())

    async def stop(self, *, grace_s: float, first_alone: bool = False) -> None:  # noqa: ARG002
        """See `daemon.jobs.engine.Attempt.stop`: the thread's tasks are cancelled."""
        await asyncio.to_thread(self._thread.close)

    async def close(self) -> End:
        try:
            await self.stop(grace_s=0.0)
        finally:
            await self._places.aclose()
        return End(self._exit, None, 0)


class AgentEngine(LocalEngine):
    """The local engine with the caller's prover.

    Attributes:
        prover: a `pipeline.prove.provers.Prover`; None: every job is a child.
        whole: whether it writes whole proofs.
    """

    def __init__(self, paths: Paths, git: Git) -> None:
        super().__init__(paths, git)
        self.prover: Any = None
        self.whole = False

    async def start(self, order: Order, *, over: Callable[[str], None]) -> Attempt:
        if self.prover is None or order.module != KINDS["prove"].module:
            return await super().start(order, over=over)
        with start_errors(order.spec.job, self._paths):
            async with AsyncExitStack() as places:
                spec = await prepare(order, places, git=self._git, paths=self._paths)
                return OwnAttempt(spec, self.prover, places.pop_all(), whole=self.whole)
