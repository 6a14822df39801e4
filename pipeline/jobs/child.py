"""A job's process: its environment, limits, key, output and end, and the end of its descendants.

The daemon and the server for editors start jobs with this. The environment is an allow-list and passes no secret on.
`pipeline.jobs.protocol` defines the lines.

Reasons for the design:
    - Limits are set from outside right after the start (`hold_to`), and the child itself asks to die with its parent
      (`pipeline.jobs.protocol.run_job`): `preexec_fn` would run Python between fork and exec while the parent's other
      threads hold locks, and could hang the child for good.
    - A pidfd reports the end, and the group is killed before the dead leader is reaped: its number cannot yet belong to
      another program's group. Processes outside the group are found by a variable in their environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pipeline.jobs.protocol import HUB_PIPE, KEY_PIPE, KEY_PROBLEM, NO_KEY, JobKey
from pipeline.lean.toolchain.standins import SWITCH as STAND_INS_SWITCH

MARK = "EVERLEAN_ATTEMPT"
DAEMON_PID = "EVERLEAN_DAEMON_PID"
# The variables passed on to a job. Tokens, credentials and sockets are missing; a job with a key (rung 4's or 5's, or
# Hugging Face's) gets it through a pipe.
_PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "ELAN_HOME",
    STAND_INS_SWITCH,
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    "HF_HOME",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "COVERAGE_PROCESS_START",
)


def job_environment(attempt_directory: Path, *, visible: str | None = None) -> dict[str, str]:
    """Return the whole environment of a job: an allow-list, and the mark of its descendants.

    `visible` names the GPUs shown by CUDA, "" for none; None leaves our own.
    """
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if visible is not None:
        passed["CUDA_VISIBLE_DEVICES"] = visible
    return {**passed, MARK: str(attempt_directory), DAEMON_PID: str(os.getpid()), "PYTHONUNBUFFERED": "1"}


def hold_to(pid: int, *, memory_bytes: int) -> None:
    """Limit a new process and its children: no core file, and a maximum of private memory.

    RLIMIT_DATA and not RLIMIT_AS: Lean maps gigabytes of compiled files at no cost in memory. From outside, since
    `preexec_fn` would run Python between fork and exec while our other threads hold locks.

    Args:
        pid: a dead one is no error.
        memory_bytes: the soft limit, of each process by itself; never above its hard limit.
    """
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        soft = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.prlimit(pid, resource.RLIMIT_DATA, (soft, hard))


def kill_marked(directory: Path, *, below: bool = False) -> int:
    """Kill every descendant of the attempt in `directory`; return their number.

    `below`: also descendants of the attempts in folders below.
    """
    killed = 0
    for _ in range(3):  # a process may fork between the look and the signal
        result = _marked(directory, below=below)
        for process in result:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed += 1
        if not result:
            break
        psutil.wait_procs(result, timeout=2)
    return killed


def _marked(directory: Path, *, below: bool) -> list[psutil.Process]:
    """Return our processes with the mark. Every process of the machine is checked, so only by its environment."""
    own, is_marked = os.getpid(), _tells_marks(os.fsencode(directory), below=below)
    result = []
    for pid in psutil.pids():
        if pid != own and is_marked(pid):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                # Checked again: the number may have passed to another process.
                if process.uids().real == os.getuid() and is_marked(pid):
                    result.append(process)
    return result


def _tells_marks(directory: bytes, *, below: bool) -> Callable[[int], bool]:
    """Return a test of a process for an attempt's mark. Called for hundreds of processes at each job's end."""
    variable = f"\0{MARK}=".encode()
    ends = (b"\0", os.fsencode(os.sep)) if below else (b"\0",)
    marks = tuple(variable + directory + end for end in ends)

    def is_marked(pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - a Path takes longer
                environment = b"\0" + file.read() + b"\0"
        except OSError:
            return False  # it is gone, or not ours
        at = environment.find(variable)  # the first one counts, as for the process itself
        return at >= 0 and environment.startswith(marks, at)

    return is_marked


# ---- Give a child its one key, by a pipe that is empty after the first reading
# Not by a variable: /proc/PID/environ shows it to this user's processes while the job runs; not by a file, since it
# would outlive the job; and not by systemd's folder of credentials, with the GitHub token in it. The other end is
# `pipeline.endpoint.credentials`.


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The inherited file descriptors of a child, and the variables that name them."""

    descriptors: tuple[int, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def key_pipe(given: JobKey) -> Iterator[HandedOver]:
    """Yield a child's access to the key; none without a key."""
    if given.key is None:
        # A public model needs no key of the hub: an unusable one stops no job.
        tells = given.problem and not given.hub
        yield HandedOver(variables={KEY_PROBLEM: given.problem} if tells else {})
        return
    read, write = os.pipe()
    try:
        os.write(write, given.key.encode("ascii"))
        os.close(write)
        yield HandedOver((read,), {HUB_PIPE if given.hub else KEY_PIPE: str(read)})
    finally:
        os.close(read)


# ---- The process


LONGEST_LINE_BYTES = 16 * 2**20
"""Batches are kept far below; a line takes several times its size in the daemon's memory."""
_CHUNK_BYTES = 2**18


@contextmanager
def _standard_input(given: bytes | None) -> Iterator[int]:
    """Yield a descriptor to read these bytes from; for None, one at its end."""
    if given is None:
        yield subprocess.DEVNULL
        return
    descriptor = os.memfd_create("given")
    try:
        os.write(descriptor, given)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


class LineTooLongError(Exception):
    """A child printed too much without ending the line."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a process. `signal` is None if it exited by itself.

    `peak_rss_bytes` includes its largest child, and on Linux is at least our own size at its start.
    """

    status: int
    signal: int | None
    peak_rss_bytes: int


class JobProcess:
    """A running child in a session of its own. Made with `start`, on the main thread:

    PR_SET_PDEATHSIG fires at the end of the spawning thread, and the main thread ends last.
    """

    def __init__(self, popen: subprocess.Popen[bytes], directory: Path, reader: asyncio.StreamReader) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._directory = directory
        self._reader = reader
        self._exit: Exit | None = None
        self._swept = False
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
        key: JobKey = NO_KEY,
        visible: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> JobProcess:
        """Start the job module (`pipeline.jobs.launch`) in `directory`.

        Args:
            module: such as "pipeline.scan".
            spec: its specification's file.
            directory: the attempt's own folder.
            stderr: the file for its standard error; appended to.
            memory_bytes: see `hold_to`.
            key: the key to hand over.
            visible: see `job_environment`.
            variables: further variables of its environment.

        Raises:
            OSError: the system refused.
        """
        with key_pipe(key) as handed:
            environment = job_environment(directory, visible=visible)
            return await cls.start_command(
                # -P: the working directory is no place to import from.
                [sys.executable, "-P", "-m", "pipeline.jobs.launch", module, "--spec", str(spec)],
                directory=directory,
                stderr=stderr,
                environment={**environment, **(variables or {}), **handed.variables},
                descriptors=handed.descriptors,
                memory_bytes=memory_bytes,
            )

    @classmethod
    async def start_command(
        cls,
        command: Sequence[str],
        *,
        directory: Path,
        stderr: Path,
        environment: Mapping[str, str],
        descriptors: Sequence[int] = (),
        memory_bytes: int | None = None,
        given: bytes | None = None,
    ) -> JobProcess:
        """Start a command in `directory`; processes with the mark of that folder end with it.

        Args:
            descriptors: open ones for it to inherit.
            memory_bytes: see `hold_to`; no limit if None.
            given: its standard input, kept off the disk.

        Raises:
            OSError: the system refused.
        """
        with stderr.open("ab") as errors, _standard_input(given) as stdin:
            popen = subprocess.Popen(  # noqa: ASYNC220 - short, and it has to be this thread
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=directory,
                env=environment,
                pass_fds=descriptors,
                start_new_session=True,
            )
        if memory_bytes is not None:
            hold_to(popen.pid, memory_bytes=memory_bytes)
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        process = cls(popen, directory, reader)
        try:
            process._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), popen.stdout
            )
        except BaseException:
            # The caller was cancelled or is out of memory, and would never learn of the process.
            await asyncio.shield(process.stop(grace_s=0.0))
            process.close()
            raise
        return process

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield its output, line by line; an unfinished last line is dropped.

        Raises:
            LineTooLongError: a line is longer than LONGEST_LINE_BYTES.
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
        """Wait for the end, kill its remaining group and descendants, reap it."""
        await self._gone.wait()
        if self._exit is None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._kill_group(signal.SIGKILL)
            _, status, usage = os.wait4(self.pid, 0)  # noqa: ASYNC222 - it has ended: no waiting
            code = os.waitstatus_to_exitcode(status)
            # Popen must not wait for a reaped process: its number may be someone else's by then.
            self._popen.returncode = code
            self._exit = Exit(
                status=max(code, 0), signal=-code if code < 0 else None, peak_rss_bytes=usage.ru_maxrss * 1024
            )
        if not self._swept:
            await asyncio.to_thread(kill_marked, self._directory)
            self._swept = True
        return self._exit

    async def stop(self, *, grace_s: float, first_alone: bool = False) -> Exit:
        """Send SIGTERM to the whole group, SIGKILL after the grace, and wait.

        `first_alone`: SIGTERM goes to the job alone, which needs its children in order to save.
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
        """Close the pipe."""
        if self._transport is not None:
            self._transport.close()
        if self._popen.stdout is not None:
            self._popen.stdout.close()

    def _kill_group(self, number: signal.Signals) -> None:
        if self._exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
