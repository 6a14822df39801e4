"""One child process of the daemon: its environment, limits, output, end and remains.

Owns spawning, the reading of its standard output, and killing it with everything that it started. What the lines
mean is `daemon.joblines`, what becomes of the job is `daemon.jobs`.

Why it is done this way:
    - Limits are set from outside (prlimit) right after the start, and the wish to die with the daemon is set by the
      child itself (`pipeline.protocol.run_job`): `preexec_fn` would run Python between fork and exec while the
      daemon's other threads hold locks, which can hang the child for good.
    - RLIMIT_DATA and not RLIMIT_AS: Lean maps gigabytes of compiled files that cost no memory of their own. It is
      the soft limit, for each process of the job by itself.
    - The end is seen through a pidfd and the group is killed before the dead leader is reaped, so that its number
      cannot have become somebody else's group. What left the group is found by a variable in its environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from daemon.handover import handed_over
from pipeline.external.credentials import KeyPlace
from pipeline.lean.toolchain.standins import SWITCH as STAND_INS_SWITCH

LONGEST_LINE_BYTES = 512 * 2**20
MARK = "UNSORRY_ATTEMPT"
DAEMON_PID = "UNSORRY_DAEMON_PID"
_CHUNK_BYTES = 2**18
# What a job may know of the daemon's environment. Tokens, credentials and sockets are not among it; a job that needs
# a key of somebody's (rung 4) is handed that one by a pipe (`daemon.handover`).
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


def job_environment(attempt_directory: Path, *, visible: str | None = None) -> dict[str, str]:
    """Return the whole environment of a job: an allow-list, and the mark that its descendants are found by.

    `visible` is the GPU that CUDA shows it, "" for none; None leaves it those that the daemon sees.
    """
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if visible is not None:
        passed["CUDA_VISIBLE_DEVICES"] = visible
    return {**passed, MARK: str(attempt_directory), DAEMON_PID: str(os.getpid()), "PYTHONUNBUFFERED": "1"}


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
        leased: bool = False,
    ) -> JobProcess:
        """Spawn `python -m module --spec spec` in `directory`, and hand it the key that is in this place.

        Args:
            visible: see `job_environment`.
            leased: whether it takes the lock of the GPU in its spec first (`pipeline.leased`).

        Raises:
            OSError: the system refused.
        """
        lease = ("pipeline.leased",) if leased else ()
        with stderr.open("ab") as errors, handed_over(key) as handed:
            popen = subprocess.Popen(  # noqa: ASYNC220 - short, and it has to be this thread
                # -P: the working directory is no place to import from.
                [sys.executable, "-P", "-m", *lease, module, "--spec", str(spec)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=directory,
                env={**job_environment(directory, visible=visible), **handed.variables},
                pass_fds=handed.descriptors,
                start_new_session=True,
            )
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(popen.pid, resource.RLIMIT_CORE, (0, 0))
            _, hard = resource.prlimit(popen.pid, resource.RLIMIT_DATA)
            soft = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
            resource.prlimit(popen.pid, resource.RLIMIT_DATA, (soft, hard))
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


def kill_marked(directory: Path) -> int:
    """Kill every process that descends from the attempt in `directory`, wherever it went; return how many."""
    killed = 0
    for _ in range(3):  # a process may fork between the look and the signal
        found = [process for process in _own_processes() if _mark_of(process) == str(directory)]
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed += 1
        if not found:
            break
        psutil.wait_procs(found, timeout=2)
    return killed


def _own_processes() -> Sequence[psutil.Process]:
    ours = os.getuid()
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.uids().real == ours:
                found.append(process)
    return found


def _mark_of(process: psutil.Process) -> str | None:
    try:
        mark: str | None = process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None
    return mark
