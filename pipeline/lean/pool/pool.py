"""A bounded pool of warm REPL processes, shared by the searches of one event loop.

A process's setup cannot be undone (`PooledRepl`), so it serves a search only if the search's own setup begins with it;
hence a theorem's own text, once taken in, is never visible to a search for its proof. `ReplPool.take` gives one process
to one taker at a time; an idle process is kept for the next taker it fits. For room the pool closes the process idle
longest; it also closes dead ones, and those with too many calls or too much memory. Searches with the very same setup
share a process: it holds the goal states of all of them, and a search waiting for a model leaves it to the others at no
cost. `Line` decides on turns; `session.py` uses the process.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.dialect import Dialect
from pipeline.lean.client.errors import ReplError
from pipeline.lean.client.messages import StateRef
from pipeline.lean.client.repl import Repl
from pipeline.lean.client.server import start_repl
from pipeline.lean.pool import PoolLimits
from pipeline.lean.source.scanner import SourceFile

# ---- One REPL process of a pool
# It belongs to a `ReplKey` (backend, project, imports), has a `Setup` (texts taken into its environment), and holds
# sessions' goal states. Neither key nor setup can be undone.


_RSS_EVERY_CALLS = 16
_WORN_AFTER_CALLS = 64


@dataclass(frozen=True, slots=True)
class ReplKey:
    """The immutable start parameters of a process. Equal keys may share processes.

    `header` is a `module` file's own, which says more than the names of its imports.
    """

    backend: LeanBackend
    project: Path
    imports: tuple[str, ...]
    header: str = ""

    @classmethod
    def of_file(cls, backend: LeanBackend, project: Path, source: SourceFile) -> ReplKey:
        """Return the key of a search in a file."""
        header = source.own_header
        return cls(backend.reading(header), project, source.imports or ("Init",), header)


@dataclass(frozen=True, slots=True)
class Setup:
    """The preparation of a process for a search: texts elaborated into its environment."""

    prefix: tuple[str, ...] = ()

    def begins_with(self, other: Setup) -> bool:
        """Return whether a process in the state `other` can still be brought to this one."""
        return self.prefix[: len(other.prefix)] == other.prefix


@dataclass(slots=True, eq=False)
class PooledRepl:
    """One process of the pool. `setup` is its present one; its holder keeps that true."""

    repl: Repl
    key: ReplKey
    setup: Setup = field(default_factory=Setup)
    guests: set[object] = field(default_factory=set)
    """The sessions with goal states in it, beside its holder."""
    unwanted: list[StateRef] = field(default_factory=list)
    """States of departed guests: the next holder frees them."""
    paid_at_calls: int = 0
    """Its number of calls at its last setup or replay: later ones were of use."""
    made_in_s: float = 0.0
    """Seconds of its start and its setup: the cost of another one."""
    _rss_at_calls: int = 0
    _rss_bytes: int = 0

    async def free(self) -> None:
        """Free the states left by guests; raises the process's errors."""
        if self.unwanted:
            unwanted, self.unwanted = self.unwanted, []
            await self.repl.goal_delete(unwanted)

    async def clear(self) -> None:
        """Drop all goal states; raises the process's errors."""
        self.guests.clear()
        self.unwanted.clear()
        await self.repl.reset()

    def worn(self, limits: PoolLimits) -> bool:
        """Return whether it is due for replacement, for its number of calls or its size."""
        if self.repl.calls >= limits.calls:
            return True
        if self.repl.calls != self._rss_at_calls:
            self._rss_at_calls = self.repl.calls
            self._rss_bytes = self.repl.rss_bytes()
        return self._rss_bytes > (limits.recycle_bytes or limits.memory_bytes * 3 // 4)

    def worn_in_use(self, limits: PoolLimits) -> bool:
        """Like `worn`, in the middle of a search, where replacing costs a replay: some calls must have paid for it."""
        calls = self.repl.calls
        if calls - self.paid_at_calls < _WORN_AFTER_CALLS:
            return False
        return (calls >= limits.calls or calls - self._rss_at_calls >= _RSS_EVERY_CALLS) and self.worn(limits)


# ---- Waiters for a REPL process, and their turns
# First come, first served, except for goal states. A session with states in the free process goes first. A session with
# states in a busy one waits a moment for it: elsewhere they would be made again. Nobody is overtaken more often than a
# few dozen times.


PATIENCE_S = 0.1
_OVERTAKEN_AT_MOST = 32


class Home(Enum):
    """The place of a waiting session's goal states."""

    NOWHERE = "nowhere"
    FREE = "in a process that is free"
    BUSY = "in a process that is busy"


W = TypeVar("W")


@dataclass(slots=True, eq=False)
class _Waiter(Generic[W]):
    turn: asyncio.Future[None]
    wanted: W
    owner: object | None
    since: float = field(default_factory=time.monotonic)
    overtaken: int = 0


class Line(Generic[W]):
    """The waiters, in order of arrival. `W` is the type of their wishes."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], _Waiter[W]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def join(self, wanted: W, owner: object | None) -> asyncio.Future[None]:
        """Come last; the future is done at the owner's turn."""
        turn = asyncio.get_running_loop().create_future()
        self._waiters[turn] = _Waiter(turn, wanted, owner)
        return turn

    def leave(self, turn: asyncio.Future[None]) -> None:
        """Leave the queue; no-op if not queued."""
        self._waiters.pop(turn, None)

    def wants_only(self, wanted: W) -> bool:
        """Return whether someone waits, and all waiters for just this."""
        waiting = [one for one in self._waiters.values() if not one.turn.done()]
        return bool(waiting) and all(one.wanted == wanted for one in waiting)

    def call(self, home: Callable[[object], Home]) -> bool:
        """Give a free process's turn to the next session; False when no one waits, or all have patience.

        `home` returns the place of an owner's states.
        """
        for turn in [turn for turn in self._waiters if turn.done()]:
            del self._waiters[turn]
        chosen = self._next(home)
        if chosen is None:
            return False
        for one in self._waiters.values():
            if one is chosen:
                break
            one.overtaken += 1
        del self._waiters[chosen.turn]
        chosen.turn.set_result(None)
        return True

    def _next(self, home: Callable[[object], Home]) -> _Waiter[W] | None:
        now, result = time.monotonic(), None
        for one in self._waiters.values():
            if one.overtaken >= _OVERTAKEN_AT_MOST:
                return one
            lies = Home.NOWHERE if one.owner is None else home(one.owner)
            if lies is Home.FREE:
                return one
            if result is None and (lies is Home.NOWHERE or now - one.since >= PATIENCE_S):
                result = one
        return result

    def refuse(self, error: Callable[[], BaseException]) -> None:
        """Dismiss all waiters with an error."""
        for turn in self._waiters:
            if not turn.done():
                turn.set_exception(error())
        self._waiters.clear()


_CLOSED = "the pool of REPLs was closed"
T = TypeVar("T")


class PoolClosed(ReplError):  # noqa: N818 - named by what happened
    """The pool is closed and takes no more requests."""


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Counters since the pool was made, and its present state: takers served, idle processes, takers waiting."""

    started: int
    reused: int
    evicted: int
    recycled: int
    died: int
    busy: int
    idle: int
    waiting: int


class ReplPool:
    """The processes. As an async context manager it closes them."""

    def __init__(
        self,
        limits: PoolLimits | None = None,
        *,
        start: Callable[..., Coroutine[Any, Any, Repl]] | None = None,
    ) -> None:
        """Args:
        limits: its bounds.
        start: makes a process, with the arguments of `start_repl`; None: that one.
        """
        self.limits = limits or PoolLimits()
        self._start_repl = start or start_repl
        self._idle: collections.OrderedDict[PooledRepl, None] = collections.OrderedDict()
        self._busy: set[PooledRepl] = set()
        # Takers at their turn, and processes being closed: each may stand for a process.
        self._tickets = 0
        self._line: Line[tuple[ReplKey, Setup]] = Line()
        self._again: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starting: set[asyncio.Task[Repl]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        # The dialect of a backend's first process holds for all its others.
        self._dialects: dict[LeanBackend, Dialect] = {}
        self._closed = False
        self._started = self._reused = self._evicted = self._recycled = self._died = 0

    @property
    def stats(self) -> PoolStats:
        since_made = (self._started, self._reused, self._evicted, self._recycled, self._died)
        # A process being closed keeps its place, and serves no one.
        busy = self._tickets - len(self._ending)
        return PoolStats(*since_made, busy=busy, idle=len(self._idle), waiting=len(self._line))

    def wanted(self, key: ReplKey, setup: Setup) -> Literal["", "same", "other"]:
        """Return whether someone waits for a process: all for just this one, or some for another."""
        return "same" if self._line.wants_only((key, setup)) else "other" if self._line else ""

    async def take(
        self, key: ReplKey, setup: Setup | None = None, *, owner: object | None = None
    ) -> PooledRepl:
        """Wait for a turn and return a process for `key` that can be brought to `setup`; give it back afterwards.

        An `owner` with goal states in an idle process gets that one, if it is still there. Another process may hold
        the states of others with the same setup; before another setup they are dropped.

        Raises:
            PoolClosed: the pool is closed, or was while this waited.
            ReplStartError: a process had to be started and could not.
            RuntimeError: the pool is another event loop's.
        """
        wanted = setup or Setup()
        await self._turn(key, wanted, owner)
        try:
            while (result := self._choose(key, wanted, owner)) is not None:
                if result.guests and result.setup != wanted and not await self._forget(result):
                    continue
                self._reused += 1
                return result
            return await self._start(key)
        except BaseException:
            self._end_turn()
            raise

    def give_back(self, process: PooledRepl, *, owner: object | None = None) -> None:
        """Return a process to the pool. It stays warm unless it is dead or worn; never blocks.

        With `owner` its goal states stay until someone needs the process for another setup; without, they must be
        gone, or among the `unwanted`.
        """
        if process not in self._busy:
            return
        if self._closed or not process.repl.alive:
            self.retire(process)
            return
        if process.worn(self.limits):
            self._recycled += 1
            self.retire(process)
            return
        self._busy.discard(process)
        process.guests.discard(owner)
        if owner is not None:
            process.guests.add(owner)
        self._idle[process] = None
        self._end_turn()

    def leave(self, owner: object, states: Mapping[int, Sequence[StateRef]]) -> None:
        """Forget a guest. `states`: the ids it leaves behind, by the generation of their process."""
        for process in (*self._idle, *self._busy):
            process.guests.discard(owner)
            process.unwanted += states.get(process.repl.generation, ())

    def retire(self, process: PooledRepl) -> None:
        """Return a process to be closed; its place is free once it is gone. Never blocks."""
        if process not in self._busy:
            return
        self._died += not process.repl.alive
        self._end(process)

    def recycle(self, process: PooledRepl) -> None:
        """Retire a process because it is worn."""
        self._recycled += process in self._busy
        self.retire(process)

    async def close(self) -> None:
        """End every process, also those in use, and refuse the waiters. Returns when all are gone."""
        self._closed = True
        self._line.refuse(lambda: PoolClosed(_CLOSED))
        if self._again is not None:
            self._again.cancel()
        for starting in self._starting:
            starting.cancel()
        for process in list(self._busy):
            self.retire(process)
        while self._idle:
            self._end(self._idle.popitem()[0])
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> ReplPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- turns: at most `capacity` takers hold a process or are getting one

    def _hold_open(self) -> None:
        if self._closed:
            raise PoolClosed(_CLOSED)

    async def _turn(self, key: ReplKey, wanted: Setup, owner: object | None) -> None:
        self._hold_open()
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError("this pool of REPLs belongs to another event loop; make one for each")
        self._loop = loop
        waiter = self._line.join((key, wanted), owner)
        self._give_turns()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # The turn came in the same moment: it goes to the next in line.
                self._end_turn()
            self._line.leave(waiter)
            raise

    def _end_turn(self) -> None:
        self._tickets -= 1
        self._give_turns()

    def _give_turns(self) -> None:
        while self._tickets < self.limits.capacity and self._line.call(self._home):
            self._tickets += 1
        if self._tickets < self.limits.capacity and self._line and self._again is None:
            # The waiting session has states in a busy process, and does not wait for ever.
            self._again = asyncio.get_running_loop().call_later(PATIENCE_S, self._ask_again)

    def _ask_again(self) -> None:
        self._again = None
        self._give_turns()

    def _home(self, owner: object) -> Home:
        if any(owner in process.guests for process in self._idle):
            return Home.FREE
        return Home.BUSY if any(owner in process.guests for process in self._busy) else Home.NOWHERE

    # ---- processes

    def _choose(self, key: ReplKey, wanted: Setup, owner: object | None) -> PooledRepl | None:
        """Remove and return the best idle process; None if a new one is better or the only way."""
        fitting = []
        for process in list(self._idle):
            if not process.repl.alive:
                # It ended while no one used it, or spoke unasked.
                self._died += 1
                del self._idle[process]
                self._end(process)
            elif process.key == key and wanted.begins_with(process.setup):
                fitting.append(process)
        own = [process for process in fitting if owner in process.guests]
        free = [process for process in fitting if not process.guests]
        # Share others' processes, or drop their states, only if a process would be closed anyway.
        others = fitting if self._tickets + len(self._idle) > self.limits.capacity else []
        shared = [process for process in others if process.setup == wanted]
        for candidates in (own, free, shared, others):
            if candidates:
                # Among those with most of the setup done, the one used last, but others' states by age.
                newest_first = candidates if candidates is others else candidates[::-1]
                best = max(newest_first, key=lambda process: len(process.setup.prefix))
                del self._idle[best]
                self._busy.add(best)
                return best
        return None

    async def _forget(self, process: PooledRepl) -> bool:
        """Drop the states of former users; False if the process died of it."""
        try:
            await process.clear()
        except BaseException as error:
            if process in self._busy:
                self._died += 1
                self._tickets += 1  # beside the taker's own
                self._end(process)
            if isinstance(error, ReplError):
                return False
            raise
        return True

    async def _start(self, key: ReplKey) -> PooledRepl:
        limits = self.limits
        while self._tickets + len(self._idle) > limits.capacity:
            if self._idle:
                self._evicted += 1
                self._end(self._idle.popitem(last=False)[0])
            await asyncio.wait(self._ending, return_when=asyncio.FIRST_COMPLETED)
        self._hold_open()
        # A task of its own, so that closing the pool can end it; a cancelled taker ends it too, and waits for its end.
        began = time.monotonic()
        starting = self._spawn(
            self._start_repl(
                key.backend,
                imports=key.imports,
                header=key.header,
                project=key.project,
                ready_timeout_s=limits.ready_timeout_s,
                call_timeout_s=limits.call_timeout_s,
                grace_s=limits.grace_s,
                memory_bytes=limits.memory_bytes,
                dialect=self._dialects.get(key.backend),
            )
        )
        self._starting.add(starting)
        try:
            repl = await starting
        except asyncio.CancelledError:
            if starting.done() and not starting.cancelled() and starting.exception() is None:
                await asyncio.shield(self._spawn(starting.result().close()))
            task = asyncio.current_task()
            if self._closed and (task is None or not task.cancelling()):
                raise PoolClosed(_CLOSED) from None
            raise
        finally:
            self._starting.discard(starting)
        if self._closed:
            await asyncio.shield(self._spawn(repl.close()))
            raise PoolClosed(_CLOSED)
        self._started += 1
        self._dialects[key.backend] = repl.dialect
        process = PooledRepl(repl, key, made_in_s=time.monotonic() - began)
        self._busy.add(process)
        return process

    def _end(self, process: PooledRepl) -> None:
        """Close a process. It keeps its place, or gets one if it was idle, until it is gone."""
        self._tickets += process not in self._busy
        self._busy.discard(process)
        ending = self._spawn(process.repl.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ended)

    def _ended(self, ending: asyncio.Task[None]) -> None:
        self._ending.discard(ending)
        self._end_turn()

    def _spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name="repl-pool")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
