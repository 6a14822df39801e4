"""Pure: which of the due jobs begin now, on which GPU, and what the others wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from daemon.jobs.due import DueJob
from daemon.jobs.gpus import Gpu
from daemon.planning.plan import Plan
from pipeline.jobs.kinds import KINDS, Kind

_SLOTS = "a slot; the running jobs have them all ([jobs] max_running)"
_LAST_SLOT = "a slot; the last one is kept free for short jobs"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job that begins now, with the GPU that it leases (None: none)."""

    due: DueJob
    gpu: Gpu | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """The jobs that begin now, most urgent first, and the reason for waiting of each other job, by its id.

    `for_gpu` are the proofs among those that only wait for a GPU which another job has, as people call them.
    """

    start: tuple[Admitted, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict)
    for_gpu: tuple[str, ...] = ()


def admit(
    plan: Plan,
    *,
    running: Sequence[Kind],
    max_running: int,
    most: Mapping[str, int] | None = None,
    gpus: Sequence[Gpu] = (),
) -> Admission:
    """Choose the jobs to start now: free slots, one per lane, one per GPU, one slot that long ones never take.

    What learns takes no slot: a training of days must not keep commits and proofs waiting, nor wait for them.

    Args:
        plan: what is due, most urgent first.
        running: the kinds of the running jobs.
        max_running: how many slots there are.
        most: how many of a kind may run at the same time, where there is a limit.
        gpus: the GPUs as they are now.
    """
    kinds = list(running)
    lanes: set[str] = set()
    free = [gpu for gpu in gpus if gpu.state == "free"]
    start: list[Admitted] = []
    waits: dict[str, str] = {}
    for_gpu: list[str] = []
    for job in plan.due:
        why = next(_reasons(job, kinds, lanes, max_running, most or {}), "")
        gpu = None
        if not why and job.gpu:
            if free:
                gpu = free.pop(0)
            elif not job.cpu_too or any(one.state != "lost" for one in gpus):
                why = f"a GPU; {_why_none(gpus)}"
                if job.kind == "prove" and any(one.state == "lent" for one in gpus):
                    for_gpu.append(job.describes)
        if why:
            waits[job.job] = why
            continue
        # The more urgent come first, so that training gets a GPU when nothing else wants it.
        lanes.add(job.lane)
        kinds.append(job.kind)
        start.append(Admitted(job, gpu))
    return Admission(tuple(start), waits, tuple(for_gpu))


def _reasons(
    job: DueJob, kinds: Sequence[Kind], lanes: set[str], max_running: int, most: Mapping[str, int]
) -> Iterator[str]:
    """Yield what a job waits for beside a GPU."""
    if job.lane in lanes:
        yield "the job before it, which is of the same branch or model"
    if kinds.count(job.kind) >= most.get(job.kind, len(kinds) + 1):
        yield f"another {job.kind} job; {most[job.kind]} run at the same time ([schedule.running])"
    if KINDS[job.kind].beside:
        return
    slots = [kind for kind in kinds if not KINDS[kind].beside]
    if len(slots) >= max_running:
        yield _SLOTS
    # A new commit's sorries are visible within seconds, even while provers work for half an hour.
    if (
        KINDS[job.kind].long
        and max_running > 1
        and sum(KINDS[kind].long for kind in slots) >= max_running - 1
    ):
        yield _LAST_SLOT


def _why_none(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return "none is to be seen here"
    return "; ".join(
        {
            "lent": f"{gpu.called} is leased by: {gpu.detail}",
            "busy": f"{gpu.called} is {gpu.detail}: {gpu.remedy}",
            "lost": f"{gpu.called} is lost ({gpu.detail}): {gpu.remedy}",
            "free": f"{gpu.called} goes to a job before it",
        }[gpu.state]
        for gpu in gpus
    )
