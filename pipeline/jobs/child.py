"""What a job's process knows of its parent's environment, the memory that it may take, and the end of all that it
started.

Whoever starts jobs does it with this: the daemon (`daemon.jobs.process`) and the server for editors. No secret is
passed on: the environment is an allow-list.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import psutil

from pipeline.lean.toolchain.standins import SWITCH as STAND_INS_SWITCH

MARK = "UNSORRY_ATTEMPT"
DAEMON_PID = "UNSORRY_DAEMON_PID"
# What a job may know of the parent's environment. Tokens, credentials and sockets are not among it; a job that needs
# a key of somebody's (rung 4) is handed that one by a pipe.
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
    """Return the whole environment of a job: an allow-list, and the mark that its descendants are found by.

    `visible` is the GPU that CUDA shows it, "" for none; None leaves it those that we see.
    """
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if visible is not None:
        passed["CUDA_VISIBLE_DEVICES"] = visible
    return {**passed, MARK: str(attempt_directory), DAEMON_PID: str(os.getpid()), "PYTHONUNBUFFERED": "1"}


def hold_to(pid: int, *, memory_bytes: int) -> None:
    """Limit a process that was just started, and with it each that it starts: no core file, and so much private memory.

    RLIMIT_DATA and not RLIMIT_AS: Lean maps gigabytes of compiled files that cost no memory of their own. From outside,
    since `preexec_fn` would run Python between fork and exec while our other threads hold locks.

    Args:
        pid: one that is gone already is no error.
        memory_bytes: the soft limit, of each process by itself; never above the hard limit that it has.
    """
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        soft = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.prlimit(pid, resource.RLIMIT_DATA, (soft, hard))


def kill_marked(directory: Path, *, below: bool = False) -> int:
    """Kill every process that descends from the attempt in `directory`, wherever it went; return how many.

    `below`: from every attempt in a folder below it too.
    """
    killed = 0
    for _ in range(3):  # a process may fork between the look and the signal
        found = _marked(directory, below=below)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed += 1
        if not found:
            break
        psutil.wait_procs(found, timeout=2)
    return killed


def _marked(directory: Path, *, below: bool) -> list[psutil.Process]:
    """Our processes that have the mark. Every process of the machine is looked at, and so only in its environment."""

    def is_marked(pid: int) -> bool:
        mark = _mark_of(pid)
        return mark == str(directory) or (
            below and mark is not None and mark.startswith(f"{directory}{os.sep}")
        )

    found = []
    for pid in psutil.pids():
        if pid != os.getpid() and is_marked(pid):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                # Asked again: until now the number may have become somebody else's.
                if process.uids().real == os.getuid() and is_marked(pid):
                    found.append(process)
    return found


def _mark_of(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None  # it is gone, or not ours to look into
    _, marked, rest = (b"\0" + environment).partition(f"\0{MARK}=".encode())
    return os.fsdecode(rest.partition(b"\0")[0]) if marked else None
