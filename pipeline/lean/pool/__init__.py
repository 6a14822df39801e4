"""Many REPL processes for many searches: a bounded pool, and sessions whose states outlive a process.

`PoolLimits` is here because a job's specification holds it, and loading the pool would cost every job its start.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.lean.client import CALL_TIMEOUT_S, GRACE_S

PROCESSES = 2
MEMORY_BYTES = 8 * 1024**3
CALLS = 20_000
SETUP_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Bounds of a pool.

    Attributes:
        processes: the greatest number at once.
        memory_bytes: of one process; its hard limit on private memory.
        recycle_bytes: the greatest resident size of a process kept after a call. None: three quarters of
            `memory_bytes`.
        total_memory_bytes: of all together; lowers `processes` so that their hard limits fit. None: no such bound.
        calls: the number of requests after which a process is replaced.
        ready_timeout_s, call_timeout_s, grace_s: see `Repl.start`; None: the backend's. A call's own limit is
            interrupted in band, and `grace_s` later the process is killed.
        setup_timeout_s: for each text of a setup, which may be most of a file.
    """

    processes: int = PROCESSES
    memory_bytes: int = MEMORY_BYTES
    recycle_bytes: int | None = None
    total_memory_bytes: int | None = None
    calls: int = CALLS
    ready_timeout_s: float | None = None
    call_timeout_s: float = CALL_TIMEOUT_S
    grace_s: float = GRACE_S
    setup_timeout_s: float = SETUP_TIMEOUT_S

    def __post_init__(self) -> None:
        for name in ("processes", "memory_bytes", "calls"):
            if getattr(self, name) < 1:
                raise ValueError(f"pool limits: {name} is {getattr(self, name)}; it must be at least 1")
        if self.total_memory_bytes is not None and self.total_memory_bytes < self.memory_bytes:
            raise ValueError(
                f"pool limits: total_memory_bytes {self.total_memory_bytes} has no room for one process of"
                f" {self.memory_bytes}; raise it or lower memory_bytes"
            )

    @property
    def capacity(self) -> int:
        """The greatest number of processes at once, memory considered."""
        if self.total_memory_bytes is None:
            return self.processes
        return min(self.processes, self.total_memory_bytes // self.memory_bytes)
