"""What a process knows of those that learn the same task beside it, by the variables that torchrun sets.

Each takes its part of every step, the first one alone writes, and they agree on when the run is saved.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TypeVar

MEETING = "EVERLEAN_RANKS_FILE"
"""The variable with the path of the file by which they find each other."""
T = TypeVar("T")


def world() -> int:
    """Return how many processes were started to learn together; 1 where this one is alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Return whether this process is the one that writes. Lightning gives those that it starts no RANK."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def join(*, timeout_s: float) -> None:
    """Take the GPU of one's own, and meet the other processes.

    Args:
        timeout_s: how long one waits for another; whoever waits for one that has ended is ended from outside.
    """
    import torch

    cuda, rank = torch.cuda.is_available(), int(os.environ["RANK"])
    if cuda:
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "nccl" if cuda else "gloo",
        # A file and no port, which another program may take before these do.
        init_method=f"file://{os.environ[MEETING]}",
        rank=rank,
        world_size=world(),
        timeout=timedelta(seconds=timeout_s),
    )


def any_of(value: bool) -> bool:
    """Return whether it is so in any of the processes, each of which asks."""
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
    """Return what the first of the processes has, each of which asks."""
    from torch import distributed

    if not distributed.is_initialized():
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def meet() -> None:
    """Wait until all processes are here, where they know each other yet."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.barrier()
