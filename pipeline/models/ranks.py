"""The processes of one training: each knows the others by torchrun's variables.

Each takes its part of every step, the first one alone writes, and they agree on when to save the run.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TypeVar

MEETING = "EVERLEAN_RANKS_FILE"
"""The variable with the path of the file where a job's processes meet: another program may take a port before."""
A_DAY_S = 86_400.0
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
    # Lightning gives the processes it starts no RANK.
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


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


def start(count: int, kind: str, *, timeout_s: float) -> None:
    """Start this very program again for each further process of a training, by Lightning, and meet them.

    Args:
        count: of all.
        kind: of their devices, "cuda" or "cpu".
        timeout_s: the longest wait for another.
    """
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    strategy = DDPStrategy(timeout=timedelta(seconds=timeout_s))
    Fabric(accelerator=kind, devices=count, strategy=strategy).launch()


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
