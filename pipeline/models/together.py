"""Start processes that learn one task together, each on a GPU of its own, as torchrun would.

A job that leases several GPUs starts its own program again for each and computes nothing meanwhile: it passes on what
the first one reports, passes SIGTERM on to all, and ends all where one fails (`pipeline.models.ranks`).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import Any

from pipeline.jobs.child import DAEMON_PID, key_pipe
from pipeline.jobs.preemption import STATUS, Yielded
from pipeline.jobs.protocol import JobError, JobKey
from pipeline.jobs.spec import HUB_KEY


def learn_together(count: int, spec: Path, report: Callable[[int, int, str], object]) -> None:
    """Run this job's program in so many processes to their end.

    Args:
        count: at least two.
        spec: the job's specification, which all of them read.
        report: takes (steps done, steps in all, a note).

    Raises:
        JobError: one of them failed; the others are ended.
        Yielded: they were preempted, and the run is saved.
    """
    read, write = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []

    asked = False

    def terminate(number: int, _frame: object) -> None:
        nonlocal asked
        asked = True
        for one in processes:
            one.send_signal(number)

    def watch(one: subprocess.Popen[bytes]) -> None:
        if one.wait() not in (0, STATUS):
            # The others wait for it, for a day.
            for other in processes:
                other.kill()

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        _start(processes, count, spec, write)
        if asked:  # before all were there to be told
            terminate(signal.SIGTERM, None)
        watches = [Thread(target=watch, args=(one,)) for one in processes]
        for thread in watches:
            thread.start()
        with os.fdopen(read, encoding="utf-8") as lines:
            failure = _first_failure(map(json.loads, lines), report)
        for thread in watches:
            thread.join()
    finally:
        signal.signal(signal.SIGTERM, before)
        for one in processes:
            one.kill()
    ends = [one.returncode for one in processes]
    if asked and not set(ends) <= {0, STATUS}:
        # One that ended without saving leaves the others a connection that fails, which is no failure of the job.
        raise SystemExit(128 + signal.SIGTERM)
    if failure is not None:
        raise failure
    if not set(ends) <= {0, STATUS}:
        raise JobError("crashed", f"of {count} processes that learned together one ended by itself: {ends}")
    if STATUS in ends:
        raise Yielded(f"all {count} processes have saved")


def _first_failure(
    lines: Iterable[dict[str, Any]], report: Callable[[int, int, str], object]
) -> JobError | None:
    """Read what the processes say to its end, and report their progress; the first failure ends the others."""
    failure = None
    for line in lines:
        if line["line"] == "progress":
            report(line["done"], line["total"], line["note"])
        elif line["line"] == "failure" and failure is None:
            reason, message, remedy = (line[name] for name in ("reason", "message", "remedy"))
            failure = JobError(reason, message, remedy=remedy, deterministic=line["deterministic"])
    return failure


def _start(processes: list[subprocess.Popen[bytes]], count: int, spec: Path, write: int) -> None:
    """Start the processes, which write their lines there; what is started is in the list at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        # The hub's key goes by a pipe.
        **{name: value for name, value in os.environ.items() if name != HUB_KEY.variable},
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        # With this process they end, as it does with the daemon.
        DAEMON_PID: str(os.getpid()),
    }
    try:
        for rank in map(str, range(count)):
            with key_pipe(JobKey(os.environ.get(HUB_KEY.variable), hub=True)) as handed:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-m", "pipeline.models", "--spec", str(spec)],
                        stdin=subprocess.DEVNULL,
                        stdout=write,
                        env={**environment, **handed.variables, "RANK": rank, "LOCAL_RANK": rank},
                        pass_fds=handed.descriptors,
                    )
                )
    finally:
        os.close(write)
