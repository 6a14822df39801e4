"""One REPL process of a pool: what it was started as, what it has been brought to, whose goal states it holds.

A process belongs to a `ReplKey` (backend, project, imports) and has been brought to a `Setup` (options, texts that its
environment has taken in). Neither can be undone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.messages import StateRef
from pipeline.lean.client.repl import CALL_TIMEOUT_S, GRACE_S, READY_TIMEOUT_S, Repl

PROCESSES = 2
MEMORY_BYTES = 8 * 1024**3
CALLS = 20_000
SETUP_TIMEOUT_S = 300.0
_RSS_EVERY_CALLS = 16
_WORN_AFTER_CALLS = 64


@dataclass(frozen=True, slots=True)
class ReplKey:
    """What a process is started with and cannot change. Equal keys may share processes."""

    backend: LeanBackend
    project: Path
    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process is brought to before a search: REPL options, and texts elaborated into its environment."""

    options: tuple[tuple[str, bool | int], ...] = ()
    prefix: tuple[str, ...] = ()

    def begins_with(self, other: Setup) -> bool:
        """Say whether a process in the state `other` can still be brought to this one."""
        options = dict(self.options)
        same = all(name in options and options[name] == value for name, value in other.options)
        return same and self.prefix[: len(other.prefix)] == other.prefix


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Bounds of a pool.

    Attributes:
        processes: how many may exist at once.
        memory_bytes: of one process; its hard limit on private memory.
        recycle_bytes: the resident size of a process above which it is replaced between two calls. None: three
            quarters of `memory_bytes`.
        total_memory_bytes: of all together; lowers `processes` so that their hard limits fit. None: no such bound.
        calls: after so many requests a process is replaced.
        ready_timeout_s, call_timeout_s, grace_s: see `Repl.start`; a call's own limit is interrupted in band, and
            `grace_s` later the process is killed.
        setup_timeout_s: for each text of a setup, which may be most of a file.
    """

    processes: int = PROCESSES
    memory_bytes: int = MEMORY_BYTES
    recycle_bytes: int | None = None
    total_memory_bytes: int | None = None
    calls: int = CALLS
    ready_timeout_s: float = READY_TIMEOUT_S
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
        """The number of processes that may exist at once, memory considered."""
        if self.total_memory_bytes is None:
            return self.processes
        return min(self.processes, self.total_memory_bytes // self.memory_bytes)


@dataclass(slots=True, eq=False)
class PooledRepl:
    """One process of the pool. `setup` is what it has been brought to; whoever holds it keeps that true."""

    repl: Repl
    key: ReplKey
    setup: Setup = field(default_factory=Setup)
    guests: set[object] = field(default_factory=set)
    """Whose goal states it holds beside those of whoever has it now."""
    unwanted: list[StateRef] = field(default_factory=list)
    """States of guests that are gone: whoever has it next frees them."""
    paid_at_calls: int = 0
    """Its number of calls when it was last set up or had states replayed into it: what came since was of use."""
    made_in_s: float = 0.0
    """Seconds that its start and its setup took: what another one like it would take."""
    _rss_at_calls: int = 0
    _rss_bytes: int = 0

    async def free(self) -> None:
        """Free what guests left behind; raises what the process raises."""
        if self.unwanted:
            unwanted, self.unwanted = self.unwanted, []
            await self.repl.goal_delete(unwanted)

    async def clear(self) -> None:
        """Drop all goal states; raises what the process raises."""
        self.guests.clear()
        self.unwanted.clear()
        await self.repl.reset()

    def worn(self, limits: PoolLimits) -> bool:
        """Say whether it has answered so many calls or grown so large that it should be replaced."""
        if self.repl.calls >= limits.calls:
            return True
        if self.repl.calls != self._rss_at_calls:
            self._rss_at_calls = self.repl.calls
            self._rss_bytes = self.repl.rss_bytes()
        return self._rss_bytes > (limits.recycle_bytes or limits.memory_bytes * 3 // 4)

    def worn_in_use(self, limits: PoolLimits) -> bool:
        """Say the same in the middle of a search, where replacing costs a replay: some calls must have paid for it."""
        calls = self.repl.calls
        if calls - self.paid_at_calls < _WORN_AFTER_CALLS:
            return False
        return (calls >= limits.calls or calls - self._rss_at_calls >= _RSS_EVERY_CALLS) and self.worn(limits)
