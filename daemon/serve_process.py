"""One run of the server for editors, from its start to its end: process, output, log, memory, and the GPU that it has.

Why a run must end, or ended, is found out here; whether there is to be one, and what follows, is `daemon.serving`'s.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from daemon.cgroups import Cgroups
from daemon.gpus import Gpu
from daemon.handover import all_handed_over
from daemon.job_ends import last_words
from daemon.job_memory import MemoryBound, why_killed
from daemon.process import Exit, JobProcess, LineTooLongError
from pipeline.children import kill_marked
from pipeline.serve.order import ServeOrder

_GROUP = "serve"
_LOG_BYTES = 2**20
_MORE_MEMORY = "raise [serve] memory, or serve smaller models"

log = structlog.get_logger("daemon.serving")


@dataclass(frozen=True, slots=True)
class Launch:
    """What a server is started with. Equal ones need no other server.

    `memory_bytes` is for itself, `whole_bytes` for all that it starts too. `gpu` is a UUID ("": the nameless one).
    """

    order: ServeOrder
    keys: bytes
    memory_bytes: int
    whole_bytes: int
    gpu: str | None


@dataclass(frozen=True, slots=True)
class End:
    """Why a server ended by itself or had to be ended, and what a person can do; "": what its log says."""

    reason: str
    remedy: str = ""


class ServeRun:
    """A server. Made with `start`, which must be called on the main thread; then `begin`, and in any case `stop`.

    Args:
        launch: what it was started with.
        process: its process.
        stderr: its log.
        cgroups: where it gets a group of its own; None: nowhere.
        seen: the GPUs as of the last look.
        look: looks at them again.
        listens: called once, when it has said where it listens.
    """

    module = "pipeline.serve"
    log_every_s = 30.0
    gpu_every_s = 1.0

    def __init__(
        self,
        launch: Launch,
        process: JobProcess,
        stderr: Path,
        *,
        cgroups: Cgroups | None,
        seen: Callable[[], Sequence[Gpu]],
        look: Callable[[], Awaitable[Sequence[Gpu]]],
        listens: Callable[[str], None],
    ) -> None:
        self.launch = launch
        self.pid = process.pid
        self.address = ""
        """Where it listens, as host:port; "" before."""
        self._process = process
        self._stderr = stderr
        self._seen = seen
        self._look = look
        self._listens = listens
        self._memory = MemoryBound(
            _GROUP, process.pid, limit_bytes=launch.whole_bytes, cgroups=cgroups, over=self._is_over
        )
        self._must_end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(
        cls,
        launch: Launch,
        folder: Path,
        *,
        cgroups: Cgroups | None,
        seen: Callable[[], Sequence[Gpu]],
        look: Callable[[], Awaitable[Sequence[Gpu]]],
        listens: Callable[[str], None],
    ) -> ServeRun:
        """Start a server whose order and log lie in `folder`.

        Raises:
            OSError: the system refused.
        """
        stderr = await asyncio.to_thread(_prepared, folder, launch.order)
        process = await JobProcess.spawn(
            [cls.module, str(folder / "order.json")],
            directory=folder,
            stderr=stderr,
            memory_bytes=launch.memory_bytes,
            secrets=all_handed_over(launch.keys),
            visible="" if launch.gpu is None else launch.gpu or None,
        )
        return cls(launch, process, stderr, cgroups=cgroups, seen=seen, look=look, listens=listens)

    async def begin(self) -> None:
        """Hold it to its memory, listen to it, and keep an eye on its log and its GPU."""
        await self._memory.begin()
        self._tasks = [asyncio.create_task(self._hear()), asyncio.create_task(self._keep_short())]
        if self.launch.gpu is not None:
            self._tasks.append(asyncio.create_task(self._keep_looking(self.launch.gpu)))

    @property
    def memory(self) -> dict[str, Any]:
        """What it and all that it started hold, what they may, and what holds them to it, for `status`."""
        return {
            "held_bytes": self._memory.held_bytes,
            "limit_bytes": self._memory.limit_bytes,
            "by": "control group" if self._memory.has_group else "watch",
        }

    async def end(self) -> End:
        """Wait until it ended by itself or must be ended, and say why."""
        ended = asyncio.create_task(self._process.ended())
        either: set[asyncio.Future[Any]] = {ended, self._must_end}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return await self._why(ended.result()) if ended.done() else self._must_end.result()
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)

    async def stop(self, *, grace_s: float) -> None:
        """End it where it still runs, what is under way first, and all that it started."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._process.stop(grace_s=grace_s, first_alone=True)
        self._process.close()
        await self._memory.end()
        # The jobs that it began for clients are in sessions of their own, and it may have been killed.
        await asyncio.to_thread(kill_marked, self.launch.order.lean.scratch, below=True)

    def _is_over(self, held: str) -> None:
        self._ends(End(held, _MORE_MEMORY))

    def _ends(self, end: End) -> None:
        if not self._must_end.done():
            self._must_end.set_result(end)

    async def _why(self, ended: Exit) -> End:
        usage, peak_bytes = await self._memory.end()
        how = f"exit status {ended.status}" if ended.signal is None else f"signal {ended.signal}"
        killed = why_killed(ended, limit_bytes=self.launch.whole_bytes, peak_bytes=peak_bytes, usage=usage)
        if killed:
            return End(killed, _MORE_MEMORY)
        if self.launch.gpu is not None and (lost := _lost(await self._look(), self.launch.gpu)) is not None:
            return lost
        said = await asyncio.to_thread(last_words, self._stderr)
        return End(f"{said} ({how})" if said else how)

    async def _keep_looking(self, gpu: str) -> None:
        """Have it ended when its GPU is lost: what it computes there does not come back, nor does it fail by itself."""
        while (lost := _lost(self._seen(), gpu)) is None:  # noqa: ASYNC110 - the plan looks, and tells nobody
            await asyncio.sleep(self.gpu_every_s)
        self._ends(lost)

    async def _hear(self) -> None:
        """Read what it prints to the end: the first line says where it listens."""
        try:
            async for line in self._process.lines():
                place = _listening(line)
                if place is not None and not self.address:
                    self.address = place
                    self._listens(place)
        except LineTooLongError as error:
            log.warning("serve_output", reason=str(error))

    async def _keep_short(self) -> None:
        while True:
            try:
                await asyncio.to_thread(_cut, self._stderr)
            except OSError as error:
                log.warning("serve_log_not_cut", reason=str(error))
            await asyncio.sleep(self.log_every_s)


def _lost(gpus: Sequence[Gpu], uuid: str) -> End | None:
    gpu = next((gpu for gpu in gpus if gpu.uuid == uuid and gpu.state == "lost"), None)
    return None if gpu is None else End(f"{gpu.called} was lost: {gpu.detail}", gpu.remedy)


def _prepared(folder: Path, order: ServeOrder) -> Path:
    """Make the folder ready for a server, and see to it that none of a daemon that died is left; return its log."""
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    kill_marked(folder)
    kill_marked(order.lean.scratch, below=True)
    order.write(folder / "order.json")
    return folder / "server.log"


def _cut(log_file: Path) -> None:
    """Begin the log anew where it is long; what it held is in `server.log.1` until the next time."""
    if log_file.exists() and log_file.stat().st_size > _LOG_BYTES:
        shutil.copyfile(log_file, log_file.with_name(f"{log_file.name}.1"))
        # The server appends to this very file, so it cannot be renamed; a line between copy and cut is lost.
        os.truncate(log_file, 0)


def _listening(line: bytes) -> str | None:
    """Return where a line of the server says that it listens, as host:port; None where it says something else."""
    try:
        place = json.loads(line)["listening"]
        host, port = str(place["host"]), int(place["port"])
    except (ValueError, KeyError, TypeError):
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
