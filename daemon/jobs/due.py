"""A job that is due: what the plan says, what the runner starts, what a job's lines are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.models.endpoint.credentials import KeyPlace

Kind = Literal[
    "scan", "check", "build", "trace", "prove", "evaluate", "train", "train_tactics", "train_progress"
]
PRIORITY: dict[Kind, int] = {
    "scan": 0,
    "check": 1,
    "build": 2,
    "trace": 3,
    "prove": 4,
    "evaluate": 5,
    "train": 6,
    "train_tactics": 7,
    "train_progress": 8,
}
LONG: frozenset[Kind] = frozenset({"build", "trace", "prove"})
"""Jobs that may take hours; they never take the last free slot."""
BESIDE: frozenset[Kind] = frozenset({"evaluate", "train", "train_tactics", "train_progress"})
"""Jobs that may take days. They take none of the slots, and there is one of them at a time (by their lane)."""
LEANS_OF_A_CHECK = 2
"""The Lean processes of a check: one that compiles, one that is asked for the axioms."""
IN_A_WORKTREE: frozenset[Kind] = frozenset({"check", "build", "trace", "prove"})


@dataclass(frozen=True, slots=True)
class DueJob:
    """A job that may run now. `sha` is the commit whose worktree it gets, if its kind is one that gets one.

    `built`: its worktree gets the commit's build too. `timeout_s` and `memory_bytes` (of each process) are its limits.
    `tree_bytes` is what it and all that it starts may hold together; None: as much as each. `gpu`: it holds a GPU for
    as long as it runs; `cpu_too`: where none works, it runs on the processor. `rank`: of one kind, the lower go first.
    `cost_s`: what it may take of the day's seconds of search. `key`: where the one secret is that it is handed.
    """

    job: str
    kind: Kind
    attempt: int
    lane: str
    repository: str
    branch: str
    sha: str
    describes: str
    simulated: bool
    parameters: Mapping[str, Any] = field(repr=False)
    timeout_s: float = 1800.0
    memory_bytes: int = 2**32
    built: bool = False
    tree_bytes: int | None = None
    gpu: bool = False
    cpu_too: bool = False
    rank: int = 0
    cost_s: float = 0.0
    key: KeyPlace | None = None

    @property
    def whole_bytes(self) -> int:
        """What it and all that it starts may hold together."""
        return self.memory_bytes if self.tree_bytes is None else self.tree_bytes

    @property
    def needs_worktree(self) -> bool:
        return self.kind in IN_A_WORKTREE


# ---- What runs each kind of job, and what a person can do where its limits are too narrow


MODULES: Mapping[Kind, str] = {
    "scan": "pipeline.scan",
    "build": "pipeline.build",
    "trace": "pipeline.trace",
    "prove": "pipeline.prove",
    "check": "pipeline.check",
    "train": "pipeline.models",
    "train_tactics": "pipeline.models",
    "train_progress": "pipeline.models",
    "evaluate": "pipeline.models",
}
_TRAIN_LONGER = (
    "raise [train] timeout; the steps that were saved stay, and the next attempt goes on from there"
)
LONGER: Mapping[Kind, str] = {
    "scan": "raise [jobs] timeout",
    "build": "raise [build] timeout",
    "trace": "raise [jobs] timeout; what is traced stays, and the next attempt goes on from there",
    "prove": "raise [jobs] timeout, or lower [prove] sorries_per_job",
    "check": "raise [jobs] timeout",
    "train": _TRAIN_LONGER,
    "train_tactics": _TRAIN_LONGER,
    "train_progress": _TRAIN_LONGER,
    "evaluate": "raise [train] timeout",
}
"""What to do where a job did not end in time."""
MORE_MEMORY: Mapping[Kind, str] = {
    "scan": "raise [jobs] memory",
    "build": "raise [build] memory, or lower [jobs] max_running",
    "trace": "raise [jobs] memory, or lower [trace] parallel",
    "prove": "raise [jobs] memory ([prove] memory where a model runs in it), or lower [prove] parallel",
    "check": "raise [jobs] memory",
    "train": "raise [train] memory, or lower batch_size under [train.retriever]",
    "train_tactics": "raise [train] memory, or lower batch_size or set lora under [train.tactics]",
    "train_progress": "raise [train] memory, or lower batch_size under [train.progress]",
    "evaluate": "raise [train] memory, or lower eval_batch_size under [train.retriever]",
}
"""What to do where a job may have been killed for its memory."""
