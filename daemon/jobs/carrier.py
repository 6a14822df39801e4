"""Run an attempt on the machine that a launcher chose: `python -m daemon.jobs.carrier`, the command after the prefix.

The attempt's folder lies on a file system that the daemon's machine sees too (`daemon.jobs.cluster`). Standard input is
one `Carried` in JSON, with the key that the job is handed, if it is handed one; standard output is the job's own. In
the folder are three files besides the job's: `control`, in which the daemon writes a new number every few seconds and
what it wants; `over`, which says that the attempt holds more memory than it may; and `end`, written once nothing of
the attempt is left. Without a new number for the length of the lease, or once the launcher is gone, the attempt ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from daemon.jobs.limits import MemoryBound, MemoryLooks
from daemon.jobs.local import LocalAttempt
from pipeline.jobs.child import Exit, JobProcess, LineTooLongError
from pipeline.jobs.protocol import NO_KEY, JobKey
from store.files import write_whole

CONTROL, OVER, END = "control", "over", "end"
_LOOK_S = 0.5
_CONTROL_BYTES = 200
_OF_THE_MACHINE = ("TMPDIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Variables that the launcher's own machine decides."""


class Carried(BaseModel):
    """What a carrier is given.

    Attributes:
        directory: the attempt's folder, with its specification.
        environment: of the job, but for what its machine decides.
        gpu: whether the launcher was to get it one; without one it sees none.
        key: that it is handed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str
    directory: Path
    memory_bytes: int
    whole_bytes: int
    lease_s: float
    environment: dict[str, str]
    gpu: bool = False
    key: JobKey = NO_KEY


class Control(BaseModel):
    """What the daemon wants of an attempt: that it goes on, that it saves and ends, or that it ends now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    beat: int = 0
    wish: Literal["run", "stop", "kill"] = "run"
    grace_s: float = 0.0
    first_alone: bool = False

    def write(self, directory: Path) -> None:
        """Write it over the last one, in place: other machines may know a new file of that name only much later."""
        data = self.model_dump_json().encode().ljust(_CONTROL_BYTES)
        descriptor = os.open(directory / CONTROL, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)

    @classmethod
    def read(cls, directory: Path) -> Control | None:
        """Return what was written last; None where it cannot be read, or only half of it is here yet."""
        try:
            return cls.model_validate_json((directory / CONTROL).read_bytes())
        except (OSError, ValidationError):
            return None


class CarriedEnd(BaseModel):
    """How an attempt ended; `too_long` is said of a line that was."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: int
    signal: int | None
    peak_rss_bytes: int
    seen_bytes: int = 0
    too_long: str = ""

    @property
    def exit(self) -> Exit:
        return Exit(self.status, self.signal, self.peak_rss_bytes)

    @classmethod
    def read(cls, directory: Path) -> CarriedEnd | None:
        """Return it; None where none was written, or it is none."""
        try:
            return cls.model_validate_json((directory / END).read_bytes())
        except (OSError, ValidationError):
            return None


async def carry(given: Carried) -> None:
    """Run the attempt to its end, or until the daemon wants no more of it; write the end."""
    directory, looks = given.directory, MemoryLooks()
    process = await JobProcess.start(
        given.module,
        spec=directory / "spec.json",
        directory=directory,
        stderr=directory / "stderr.log",
        memory_bytes=given.memory_bytes,
        key=given.key,
        visible=None if given.gpu else "",
    )

    def over_limit(said: str) -> None:
        (directory / OVER).write_text(said, "utf-8")

    memory = MemoryBound(
        directory.name,
        process.pid,
        limit_bytes=given.whole_bytes,
        cgroups=None,
        looks=looks,
        over=over_limit,
    )
    attempt = LocalAttempt(process, memory, AsyncExitStack())
    await memory.begin()
    whole = asyncio.create_task(attempt.run(_put))
    over = asyncio.create_task(_until_over(attempt, given))
    await asyncio.wait({whole, over}, return_when=asyncio.FIRST_COMPLETED)
    too_long = (
        str(whole.exception()) if whole.done() and isinstance(whole.exception(), LineTooLongError) else ""
    )
    end = await attempt.close()
    looks.close()
    assert end.exit is not None
    said = CarriedEnd(
        status=end.exit.status,
        signal=end.exit.signal,
        peak_rss_bytes=end.exit.peak_rss_bytes,
        seen_bytes=end.seen_bytes,
        too_long=too_long,
    )
    write_whole(directory / END, said.model_dump_json())


async def _put(raw: bytes) -> None:
    """Pass a line on. In a thread: where nobody takes it, the attempt can still be ended."""
    await asyncio.to_thread(_write, raw + b"\n")


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


async def _until_over(attempt: LocalAttempt, given: Carried) -> None:
    """Wait until the daemon wants an end now, is not heard of, or has lost its launcher; pass on a soft stop."""
    last, heard, parent = None, time.monotonic(), os.getppid()
    stopping: asyncio.Task[None] | None = None
    while time.monotonic() - heard < given.lease_s and os.getppid() == parent:
        control = await asyncio.to_thread(Control.read, given.directory)
        if control is not None and control != last:
            last, heard = control, time.monotonic()
            if control.wish == "kill":
                return
            if control.wish == "stop" and stopping is None:
                stop = attempt.stop(grace_s=control.grace_s, first_alone=control.first_alone)
                stopping = asyncio.create_task(stop)
        await asyncio.sleep(_LOOK_S)


def main() -> None:
    """Carry what standard input says."""
    given = Carried.model_validate_json(sys.stdin.buffer.read())
    own = {name: os.environ[name] for name in _OF_THE_MACHINE if name in os.environ}
    os.environ.clear()
    os.environ.update({**given.environment, **own})
    asyncio.run(carry(given))
    sys.stdout.flush()
    # At once: a thread may still be at a line that nobody takes.
    os._exit(0)


if __name__ == "__main__":
    main()
