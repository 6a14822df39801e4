"""The processes of a job with several GPUs, which learn together: the job itself, and its program again for each
further GPU.

Unlike torchrun's agent, which takes a process that has saved and ended for a failed one and kills the others meanwhile,
nothing stands between them: they agree on when to save (`pipeline.models.ranks`), so one SIGTERM is enough.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from pipeline.jobs.child import DAEMON_PID, key_pipe
from pipeline.jobs.preemption import STATUS
from pipeline.jobs.protocol import JobKey
from pipeline.jobs.spec import HUB_KEY
from pipeline.models.ranks import MEETING, join, leave

_OWN_END_S = 30.0
"""Time for the job to end by itself after another process failed: the reason is often its own, too."""


@contextmanager
def helped(count: int, spec: Path, device: str) -> Iterator[None]:
    """Be the first of several processes that learn together, to the end of the block; the others end with it.

    If one of them fails, this process ends with status 1, also while it waits for that one on a GPU.

    Args:
        count: of all, at least two.
        spec: the job's specification, for all.
        device: of the training.
    """
    shared = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "RANK": "0",
        "LOCAL_RANK": "0",
        MEETING: str(spec.with_name("ranks")),
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    os.environ.update(shared)
    helpers: list[subprocess.Popen[bytes]] = []
    ended = Event()
    try:
        for rank in range(1, count):
            helpers.append(_start(rank, spec))
            Thread(target=_watch, args=(helpers[-1], rank, ended), daemon=True).start()
        join(device)
        yield
        leave()
    finally:
        ended.set()
        for one in helpers:
            one.kill()
        for one in helpers:
            one.wait()
        for name in shared:
            del os.environ[name]


def _start(rank: int, spec: Path) -> subprocess.Popen[bytes]:
    environment = {
        # The hub's key goes by a pipe.
        **{name: value for name, value in os.environ.items() if name != HUB_KEY.variable},
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        # With this process they end, as it does with the daemon.
        DAEMON_PID: str(os.getpid()),
    }
    with key_pipe(JobKey(os.environ.get(HUB_KEY.variable), hub=True)) as handed:
        return subprocess.Popen(
            # Its lines go to the job's log: standard output is that already (`run_job`).
            [sys.executable, "-P", "-m", "pipeline.models", "--spec", str(spec)],
            stdin=subprocess.DEVNULL,
            env={**environment, **handed.variables},
            pass_fds=handed.descriptors,
        )


def _watch(helper: subprocess.Popen[bytes], rank: int, ended: Event) -> None:
    """End this process after a helper's failure, unless it ends by itself: it may wait for that one for good."""
    status = helper.wait()
    if status not in (0, STATUS) and not ended.wait(_OWN_END_S):
        print(  # noqa: T201 - the job's log
            f"of the processes that learned together number {rank} ended with {status}: its reason is above",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)
