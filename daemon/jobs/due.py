"""A due job: planned, started by the runner, and the measure of a job's lines."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.place.answers import Gpu
from pipeline.jobs.kinds import KINDS
from pipeline.jobs.lines import Assignment
from pipeline.jobs.spec import KeyPlace, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class DueJob(Assignment):
    """A job allowed to run now. `sha` is the commit of its worktree, if its kind has one.

    `built`: its worktree gets the project's build too. `timeout_s` and `memory_bytes` (of each process) are
    its limits. `tree_bytes` is the memory limit of the process tree; None: the per-process limit. Each GPU
    after the first adds a per-process limit. `gpus`: the numbers of GPUs it can use, from one on; empty:
    none. `cpu_too`: if no GPU works, it runs on the processor. `leases`: the GPUs given at its admission.
    `rank`: the lower of a kind go first. `cost_s`: its share of the day's seconds of search. `key`: the place
    of its one secret. `paid`: it costs money, within a day's limit.

    `spec` is None while it waits in a plan: the specifications of a million sorries are made when their jobs
    begin.
    """

    lane: str
    describes: str
    timeout_s: float = 1800.0
    memory_bytes: int = 2**32
    built: bool = False
    tree_bytes: int | None = None
    gpus: tuple[int, ...] = ()
    cpu_too: bool = False
    leases: tuple[Gpu, ...] = ()
    rank: int = 0
    cost_s: float = 0.0
    key: KeyPlace | None = None
    paid: bool = False

    @property
    def whole_bytes(self) -> int:
        """The memory limit of the job with all its children, in bytes."""
        whole = self.memory_bytes if self.tree_bytes is None else self.tree_bytes
        # Each GPU more is one process more.
        return whole + self.memory_bytes * max(0, len(self.leases) - 1)

    @property
    def whole_spec(self) -> Spec:
        """The specification.

        Raises:
            ValueError: the job waits in a plan; `Planner.complete` gives it one.
        """
        if self.spec is None:
            raise ValueError(f"{self.job} has no specification yet")
        return self.spec

    @property
    def stays(self) -> bool:
        """Return whether it runs on the daemon's machine, whatever the engine."""
        return KINDS[self.kind].stays

    @property
    def needs_worktree(self) -> bool:
        return KINDS[self.kind].in_worktree
