"""One child process of the daemon: its environment, limits, output, end and remains.

Owns spawning, the reading of its standard output, and killing it with everything that it started. What the lines
mean is `daemon.jobs.lines`, what becomes of the job is `daemon.jobs.runner`.

Why it is done this way:
    - Limits are set from outside right after the start (`pipeline.jobs.child.hold_to`), and the wish to die with the
      daemon is set by the child itself (`pipeline.jobs.protocol.run_job`): `preexec_fn` would run Python between fork
      and exec while the daemon's other threads hold locks, which can hang the child for good.
    - The end is seen through a pidfd and the group is killed before the dead leader is reaped, so that its number
      cannot have become somebody else's group. What left the group is found by a variable in its environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.jobs.child import hold_to, job_environment, kill_marked
from pipeline.models.endpoint.credentials import KEY_PIPE, KEY_PROBLEM, KeyPlace, read_key
from pipeline.models.endpoint.errors import CredentialError

# ---- Give a child the keys that it needs, and no other: by a pipe that is empty once it is read
# Not by a variable, which every process of this user finds in /proc/PID/environ for as long as the job runs; not by a
# file, which would outlive it; and not by systemd's folder of credentials, in which the GitHub token lies too. The
# other end is `pipeline.models.endpoint.credentials`.


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What a child is started with: descriptors that it inherits, and variables that say which they are."""

    descriptors: tuple[int, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def handed_over(place: KeyPlace | None) -> Iterator[HandedOver]:
    """Yield what a child needs to read the key that is in this place now; nothing where there is none.

    A key that cannot be used is the job's to report: it is told why, and not the key.
    """
    try:
        key = None if place is None else read_key(credential=place.credential, variable=place.variable)
    except CredentialError as error:
        yield HandedOver(variables={KEY_PROBLEM: str(error)})
        return
    if key is None:
        yield HandedOver()
        return
    read, write = os.pipe()
    try:
        # A key is shorter than any pipe's buffer (`read_key`), so this does not wait for a reader.
        os.write(write, key.encode("ascii"))
        os.close(write)
        yield HandedOver((read,), {KEY_PIPE: str(read)})
    finally:
        os.close(read)


LONGEST_LINE_BYTES = 512 * 2**20
_CHUNK_BYTES = 2**18


class LineTooLongError(Exception):
    """A child printed more than LONGEST_LINE_BYTES without ending the line."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended. `signal` is None where it exited by itself.

    `peak_rss_bytes` is its largest child's too, and on Linux never less than what we held when it was started.
    """

    status: int
    signal: int | None
    peak_rss_bytes: int


class JobProcess:
    """A running child in a session of its own. Made with `start`, which must be called on the main thread.

    (PR_SET_PDEATHSIG fires when the thread that spawned ends, and the main thread ends last.)
    """

    def __init__(self, popen: subprocess.Popen[bytes], directory: Path, reader: asyncio.StreamReader) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._directory = directory
        self._reader = reader
        self._exit: Exit | None = None
        self._transport: asyncio.ReadTransport | None = None
        self._pidfd = os.pidfd_open(popen.pid)
        self._gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pidfd, self._gone.set)

    @classmethod
    async def start(
        cls,
        module: str,
        *,
        spec: Path,
        directory: Path,
        stderr: Path,
        memory_bytes: int,
        key: KeyPlace | None = None,
        visible: str | None = None,
    ) -> JobProcess:
        """Spawn the job module (`pipeline.jobs.launch`) in `directory`, and hand it the key from this place.

        Args:
            visible: see `job_environment`.

        Raises:
            OSError: the system refused.
        """
        return await cls.spawn(
            ["pipeline.jobs.launch", module, "--spec", str(spec)],
            directory=directory,
            stderr=stderr,
            memory_bytes=memory_bytes,
            secrets=handed_over(key),
            visible=visible,
        )

    @classmethod
    async def spawn(
        cls,
        module: Sequence[str],
        *,
        directory: Path,
        stderr: Path,
        memory_bytes: int,
        secrets: AbstractContextManager[HandedOver],
        visible: str | None,
    ) -> JobProcess:
        """Spawn `python -m` with these words in `directory`; its standard error is appended to the file `stderr`.

        Raises:
            OSError: the system refused.
        """
        with stderr.open("ab") as errors, secrets as handed:
            popen = subprocess.Popen(  # noqa: ASYNC220 - short, and it has to be this thread
                # -P: the working directory is no place to import from.
                [sys.executable, "-P", "-m", *module],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=directory,
                env={**job_environment(directory, visible=visible), **handed.variables},
                pass_fds=handed.descriptors,
                start_new_session=True,
            )
        hold_to(popen.pid, memory_bytes=memory_bytes)
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        process = cls(popen, directory, reader)
        process._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), popen.stdout
        )
        return process

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield what it prints, line by line; a last line without its end is not a line and is dropped.

        Raises:
            LineTooLongError: a line is longer than any that a job has reason to print.
        """
        parts: list[bytes] = []
        size = 0
        while chunk := await self._reader.read(_CHUNK_BYTES):
            *complete, rest = chunk.split(b"\n")
            for piece in complete:
                yield b"".join([*parts, piece])
                parts, size = [], 0
            parts.append(rest)
            size += len(rest)
            if size > LONGEST_LINE_BYTES:
                raise LineTooLongError(f"a line of more than {LONGEST_LINE_BYTES // 2**20} MiB")

    async def ended(self) -> Exit:
        """Wait for the end, kill what it left running, reap it."""
        await self._gone.wait()
        if self._exit is None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._kill_group(signal.SIGKILL)
            _, status, usage = os.wait4(self.pid, 0)  # noqa: ASYNC222 - it has ended: no waiting
            code = os.waitstatus_to_exitcode(status)
            # Popen must not wait for a process that is gone (its number may be somebody else's by then).
            self._popen.returncode = code
            self._exit = Exit(
                status=max(code, 0), signal=-code if code < 0 else None, peak_rss_bytes=usage.ru_maxrss * 1024
            )
            await asyncio.to_thread(kill_marked, self._directory)
        return self._exit

    async def stop(self, *, grace_s: float, first_alone: bool = False) -> Exit:
        """SIGTERM to the whole group, SIGKILL after the grace, and wait.

        `first_alone`: the SIGTERM is for the job itself only, which needs what it started in order to save.
        """
        if not self._gone.is_set():
            if first_alone:
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            else:
                self._kill_group(signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_s):
                    await self._gone.wait()
            except TimeoutError:
                self._kill_group(signal.SIGKILL)
        return await self.ended()

    def close(self) -> None:
        """Give the pipe back."""
        if self._transport is not None:
            self._transport.close()
        if self._popen.stdout is not None:
            self._popen.stdout.close()

    def _kill_group(self, number: signal.Signals) -> None:
        if self._exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
