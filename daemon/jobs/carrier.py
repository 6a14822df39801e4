"""Run an attempt on a launcher's machine: `python -m daemon.jobs.carrier`, the command after the prefix.

The attempt's folder is on a file system shared with the daemon's machine (`daemon.jobs.cluster`). Standard
input is one `Carried` in JSON, with the job's key if it has one. Standard output is the line `BEGIN`, the
job's own lines, among them one with `OVER` if the attempt exceeds its memory, and a last line with `END`,
once nothing of the attempt is left; a launcher's words before and after are no lines of the job. The daemon
writes a new number and its wish to the folder's file `control` every few seconds. Without a new number for
the length of the lease, or without its launcher, the attempt ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from daemon.jobs.limits import MemoryBound, MemoryLooks
from daemon.jobs.local import LocalAttempt
from pipeline.jobs.child import Exit, JobProcess, LineTooLongError
from pipeline.jobs.protocol import NO_KEY, JobKey

CONTROL = "control"
BEGIN, OVER, END = b"everlean begins", b"everlean over ", b"everlean end "
_LOOK_S = 0.5
_TOLD_S = 5.0
"""Seconds to write the last line, as the daemon may have stopped reading."""
_CONTROL_BYTES = 200
_OF_THE_MACHINE = ("TMPDIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Variables set by the launcher's own machine."""
_WRITING = threading.Lock()


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Carried(_Message):
    """The order of a carrier, from its standard input.

    Attributes:
        directory: the attempt's folder, with its specification.
        environment: the job's, without its machine's own variables.
        gpu: whether the launcher asked for GPUs; without them the job sees none.
        key: the job's one secret.
    """

    module: str
    directory: Path
    memory_bytes: int
    whole_bytes: int
    lease_s: float
    environment: dict[str, str]
    gpu: bool = False
    key: JobKey = NO_KEY


class Control(_Message):
    """The daemon's wish for an attempt: `run`, `stop` (save first, within the grace) or `kill`."""

    beat: int = 0
    wish: Literal["run", "stop", "kill"] = "run"
    grace_s: float = 0.0
    first_alone: bool = False

    def write(self, directory: Path) -> None:
        """Overwrite the file in place: on a shared file system a renamed file can take long to appear."""
        data = self.model_dump_json().encode().ljust(_CONTROL_BYTES)
        descriptor = os.open(directory / CONTROL, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)

    @classmethod
    def read(cls, directory: Path) -> Control | None:
        """Return the last wish; None if the file cannot be read, or has arrived in part."""
        try:
            return cls.model_validate_json((directory / CONTROL).read_bytes())
        except (OSError, ValidationError):
            return None


class CarriedEnd(_Message):
    """The end of an attempt.

    Attributes:
        too_long: the message about a line over the limit; "" without one.
        alone: the reason for an end without the daemon's wish; "" otherwise.
    """

    status: int
    signal: int | None
    peak_rss_bytes: int
    seen_bytes: int = 0
    too_long: str = ""
    alone: str = ""

    @property
    def exit(self) -> Exit:
        return Exit(self.status, self.signal, self.peak_rss_bytes)


async def carry(order: Carried) -> None:
    """Run the attempt until it ends, or the daemon ends it; report the end."""
    directory, looks = order.directory, MemoryLooks()
    control = await asyncio.to_thread(Control.read, directory)
    if control is not None and control.wish == "kill":
        return  # it was given up while waiting for a machine
    lines: list[asyncio.Task[None]] = [asyncio.create_task(_put(BEGIN))]
    process = await JobProcess.start(
        order.module,
        spec=directory / "spec.json",
        directory=directory,
        stderr=directory / "stderr.log",
        memory_bytes=order.memory_bytes,
        key=order.key,
        visible=None if order.gpu else "",
    )

    def over_limit(message: str) -> None:
        lines.append(asyncio.create_task(_put(OVER + message.encode())))

    memory = MemoryBound(
        directory.name,
        process.pid,
        limit_bytes=order.whole_bytes,
        cgroups=None,
        looks=looks,
        over=over_limit,
    )
    attempt = LocalAttempt(process, memory, AsyncExitStack())
    await memory.begin()
    await asyncio.gather(*lines)  # before the job's first line
    whole = asyncio.create_task(attempt.run(_put))
    over = asyncio.create_task(_until_over(attempt, order))
    await asyncio.wait({whole, over}, return_when=asyncio.FIRST_COMPLETED)
    too_long = (
        str(whole.exception()) if whole.done() and isinstance(whole.exception(), LineTooLongError) else ""
    )
    end = await attempt.close()
    looks.close()
    assert end.exit is not None
    ended = CarriedEnd(
        status=end.exit.status,
        signal=end.exit.signal,
        peak_rss_bytes=end.exit.peak_rss_bytes,
        seen_bytes=end.seen_bytes,
        too_long=too_long,
        alone=over.result() if over.done() else "",
    )
    last = asyncio.create_task(_put(END + ended.model_dump_json().encode()))
    # The daemon reads it, perhaps late, or has given the attempt up.
    await asyncio.wait({last, over}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({last}, timeout=_TOLD_S)


async def _put(raw: bytes) -> None:
    """Write a line to standard output in a thread: a reader that stopped must not block the attempt's end."""
    await asyncio.to_thread(_write, raw + b"\n")


def _write(data: bytes) -> None:
    with _WRITING:  # a line is whole
        while data:
            data = data[os.write(1, data) :]


async def _until_over(attempt: LocalAttempt, order: Carried) -> str:
    """Pass on a soft stop, and wait for a kill, the end of the lease, or the end of the launcher.

    Return the reason for the end; "" after a kill.
    """
    last, heard, parent = None, time.monotonic(), os.getppid()
    stopping: asyncio.Task[None] | None = None
    while time.monotonic() - heard < order.lease_s:
        if os.getppid() != parent:
            return "its launcher was gone"
        control = await asyncio.to_thread(Control.read, order.directory)
        if control is not None and control != last:
            last, heard = control, time.monotonic()
            if control.wish == "kill":
                return ""
            if control.wish == "stop" and stopping is None:
                stop = attempt.stop(grace_s=control.grace_s, first_alone=control.first_alone)
                stopping = asyncio.create_task(stop)
        await asyncio.sleep(_LOOK_S)
    return f"it did not hear of the daemon for {order.lease_s:g} s ([engine] lease)"


async def _carry_and_leave(order: Carried) -> None:
    """Carry, and exit without waiting for threads: one may be blocked on a line without a reader."""
    status = 1
    try:
        await carry(order)
        status = 0
    except Exception:  # noqa: BLE001 - the border of the process, which records it
        # Into the launcher's log; the daemon shows its last line.
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def main() -> None:
    """Carry the attempt of standard input."""
    order = Carried.model_validate_json(sys.stdin.buffer.read())
    own = {name: os.environ[name] for name in _OF_THE_MACHINE if name in os.environ}
    os.environ.clear()
    # The daemon's own values mean nothing here: its GPUs, or a folder of its machine.
    os.environ.update(
        {name: value for name, value in order.environment.items() if name not in _OF_THE_MACHINE}
    )
    os.environ.update(own)
    asyncio.run(_carry_and_leave(order))


if __name__ == "__main__":
    main()
