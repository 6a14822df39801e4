"""A job that is due: what the plan says, what the runner starts, what a job's lines are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["scan", "check", "build", "trace", "prove"]
PRIORITY: dict[Kind, int] = {"scan": 0, "check": 1, "build": 2, "trace": 3, "prove": 4}
LONG: frozenset[Kind] = frozenset({"build", "trace", "prove"})
"""Jobs that may take hours; they never take the last free slot."""


@dataclass(frozen=True, slots=True)
class DueJob:
    """A job that may run now. `sha` is the commit whose worktree it gets, unless it is a scan.

    `built`: its worktree gets the commit's build too. `timeout_s` and `memory_bytes` (of each process) are its limits.
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

    @property
    def needs_worktree(self) -> bool:
        return self.kind != "scan"
