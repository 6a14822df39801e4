"""The processes of one training: each knows the others by torchrun's variables.

Each takes its part of every step, the first one alone writes, and they agree on when to save the run.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from subprocess import DEVNULL, Popen
from threading import Thread
from typing import TypeVar

from pipeline.jobs.preemption import STATUS

MEETING = "EVERLEAN_RANKS_FILE"
"""The variable with the path of the file where a job's processes meet: another program may take a port before."""
A_DAY_S = 86_400.0
_OWN_END_S = 30.0
T = TypeVar("T")


def world() -> int:
    """Return the number of processes that learn together; 1 for one alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def place() -> tuple[int, int]:
    """Return this process's number among those that have met, and their number."""
    from torch import distributed

    return (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)


def is_first() -> bool:
    """Return whether this process is the writing one."""
    return _rank() == 0


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def join(device: str, *, timeout_s: float = A_DAY_S) -> None:
    """Take the GPU of one's own, and meet the other processes, if there are any, once.

    Args:
        device: of the training: "cpu", or a GPU if there is one.
        timeout_s: the longest wait for another; something outside ends a wait for a dead one.
    """
    import torch
    from torch import distributed

    if world() == 1 or distributed.is_initialized():
        return
    cuda = device != "cpu" and torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"file://{os.environ[MEETING]}" if MEETING in os.environ else "env://",
        rank=_rank(),
        world_size=world(),
        timeout=timedelta(seconds=timeout_s),
    )


def leave() -> None:
    """Part from the other processes, if they have joined; all must ask."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def start_again(count: int) -> None:
    """Start this very program again for each further process of a training; each goes to its own end."""
    folder = Path(tempfile.mkdtemp(prefix="everlean-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [sys.executable, *sys.orig_argv[1:]]
    start([], count, folder / "ranks", lambda environment: Popen(command, stdin=DEVNULL, env=environment))


def start(
    helpers: list[Popen[bytes]], count: int, meeting: Path, launch: Callable[[dict[str, str]], Popen[bytes]]
) -> None:
    """Make this process the first of several, and start the others, each in the list at once.

    If one fails, this process ends with status 1, also while it waits for that one, unless it fails by itself.
    """
    os.environ |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), MEETING: str(meeting)}
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "RANK": "0", "LOCAL_RANK": "0"}
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    for rank in map(str, range(1, count)):
        helpers.append(launch({**os.environ, **threads, "RANK": rank, "LOCAL_RANK": rank}))
        Thread(target=_watch, args=(helpers[-1], rank), daemon=True).start()


def _watch(helper: Popen[bytes], rank: str) -> None:
    status = helper.wait()
    if world() == 1 or status in (0, STATUS):
        return
    # The reason is often this process's own, too.
    time.sleep(_OWN_END_S)
    if world() > 1:
        print(  # noqa: T201 - the program's log
            f"of the processes that learned together number {rank} ended with {status}: its reason is above",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)


def stop(helpers: Sequence[Popen[bytes]]) -> None:
    """Be alone again; the others end."""
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", MEETING, "RANK", "LOCAL_RANK"):
        os.environ.pop(name, None)
    for one in helpers:
        one.kill()
    for one in helpers:
        one.wait()


def any_of(value: bool) -> bool:
    """Return whether it is so in any of the processes; all must ask."""
    import torch
    from torch import distributed

    if not distributed.is_initialized():
        return value
    flag = torch.tensor(
        value, dtype=torch.int, device="cuda" if "nccl" in distributed.get_backend() else "cpu"
    )
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag)


def of_first(value: T) -> T:
    """Return the first process's value; all must ask."""
    from torch import distributed

    if not distributed.is_initialized():
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def meet() -> None:
    """Wait for all processes, if they have joined."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.barrier()
