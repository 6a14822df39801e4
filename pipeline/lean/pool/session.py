"""One search's view of Lean: goal states that outlive the process they were made in.

A `Session` knows what has to be established (`ReplKey`, `Setup`) and how each of its states came about: a statement
or a text at the root, then one tactic after another. When the process that held the states is gone (crashed, hung,
worn, or lent to another search while this one was parked), it takes another from the pool, brings it to the same
setup, replays the tactics that lead to the state at hand, checks that the goals are what they were, and goes on.
A request that ends the process twice is not tried a third time: a tactic then counts as failed (`TacticKilled`),
anything else raises. A session is one search's: its calls are served one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from pipeline.lean.client.errors import ReplDied, ReplError, ReplRefused, ReplStartError, ReplSuspect
from pipeline.lean.client.messages import Message, StateRef, TacticFailed, TacticOk, TacticParseError, Unit
from pipeline.lean.client.repl import Repl
from pipeline.lean.pool.pool import PoolClosed, ReplPool
from pipeline.lean.pool.pooled import PooledRepl, ReplKey, Setup
from pipeline.lean.pool.replay import Replayer
from pipeline.lean.pool.states import Origin, ReplayDied, State, canonical

STRIKES = 2
"""So often may one request end the process."""
_LIVES_PER_REQUEST = 6
T = TypeVar("T")
Strike = tuple[str, ...]
"""What was asked, in a form that another state or process asks in the same way."""


class SetupFailed(ReplError):  # noqa: N818 - named by what happened
    """The texts before the goal cannot be established. `refused`: by Lean's word, not by the process's end."""

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class TacticKilled:
    """The tactic ended the process each time it was tried (crash, hang, or an answer outside the protocol)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """The tactic ran. `state` has no goals left: a hint that the statement may be proved, never a proof."""

    state: State
    messages: tuple[Message, ...]
    has_sorry: bool
    has_unsafe: bool


Answer = Stepped | TacticFailed | TacticParseError | TacticKilled


class Session:
    """The states of one search. Also an async context manager that gives its process back."""

    def __init__(self, pool: ReplPool, key: ReplKey, setup: Setup | None = None) -> None:
        self._pool = pool
        self._key = key
        self._setup = setup or Setup()
        self._process: PooledRepl | None = None
        self._lock = asyncio.Lock()
        self._strikes: dict[Strike, int] = {}
        self._killed: dict[Strike, ReplError] = {}
        self._setup_failed: SetupFailed | None = None
        self._calls = 0
        self._calls_before = 0
        self._closed = False
        self._states = Replayer()

    @property
    def lives(self) -> int:
        """How many processes it has had, resets by others counted; the first is 1."""
        return self._states.lives

    @property
    def replayed(self) -> int:
        """How many tactics were run again to get a state back."""
        return self._states.replayed

    @property
    def calls(self) -> int:
        """The number of requests sent for this session so far, those of replays and setups included."""
        return self._calls + (0 if self._process is None else self._process.repl.calls - self._calls_before)

    @property
    def judge(self) -> str:
        """Who answers, in words."""
        return self._key.backend.judge

    @property
    def process_id(self) -> int | None:
        """The id of the process at hand, None where there is none now."""
        return None if self._process is None else self._process.repl.pid

    # ---- what a search asks

    async def ready(self) -> None:
        """Have a process that is set up; the other calls do this by themselves.

        Raises:
            SetupFailed, ReplStartError, PoolClosed: there is none to be had.
        """

        async def nothing(_: Repl, __: StateRef | None) -> None:
            return None

        await self._request(None, nothing)

    async def start(self, expr: str, *, timeout_s: float | None = None) -> State:
        """Open a goal for a closed statement; `ReplRefused` when it does not elaborate."""
        (state,) = await self._open(Origin(expr=expr, timeout_s=timeout_s))
        return state

    async def distil(
        self, text: str, *, ignore_values: bool = False, timeout_s: float | None = None
    ) -> tuple[State, ...]:
        """Make one state for each declaration with sorrys of a text; its goals are the sorrys'.

        Raises:
            ReplRefused: the text does not compile.
            ReplDied: it ended two processes.
            SetupFailed, ReplStartError, PoolClosed: there is no process to be had.
        """
        origin = Origin(text=text, ignore_values=ignore_values, timeout_s=timeout_s)
        return await self._open(origin)

    async def tactic(
        self, state: State, tactic: str, *, goal: int | None = None, timeout_s: float | None = None
    ) -> Answer:
        """Run a tactic on the state's first goal, or on the one with index `goal`.

        Raises:
            StateLost: the state had to be made again, and that ended processes or came out otherwise.
            SetupFailed, ReplStartError, PoolClosed: there is no process to be had.
        """
        if state.released:
            raise ValueError(f"{state}: released already; a state is good until it is released")

        def strike() -> Strike:
            at = state.goals[goal or 0 : (goal or 0) + 1]
            return ("tactic", tactic, canonical(at), "" if at else str(goal))

        async def run(repl: Repl, ref: StateRef | None) -> Answer:
            assert ref is not None
            result = await repl.goal_tactic(ref, tactic, goal=goal, timeout_s=timeout_s)
            if not isinstance(result, TacticOk):
                return result
            child = self._states.child(state, result, tactic, site=goal, timeout_s=timeout_s)
            return Stepped(child, result.messages, result.has_sorry, result.has_unsafe)

        def killed(error: ReplError) -> Answer:
            return TacticKilled(str(error))

        return await self._request(strike, run, state=state, killed=killed)

    async def process(self, text: str, *, timeout_s: float | None = None) -> tuple[Unit, ...]:
        """Elaborate a text after the setup's, leaving no trace of it; its errors are messages of its units.

        Raises:
            ReplRefused, ReplDied, SetupFailed, ReplStartError, PoolClosed: as for `distil`.
        """

        async def run(repl: Repl, _: StateRef | None) -> tuple[Unit, ...]:
            return await repl.process(text, timeout_s=timeout_s)

        return await self._request(lambda: ("process", text), run)

    async def stat(self) -> int:
        """Return how many goal states the process holds."""

        async def count(repl: Repl, _: StateRef | None) -> int:
            await self._states.free(repl, all_of_them=True)
            return await repl.stat()

        return await self._request(None, count)

    def release(self, states: Iterable[State]) -> None:
        """Let go of states. Each is freed in the process soon, and is replayed no more than its descendants need."""
        self._states.release(states)

    def park(self) -> None:
        """Lend the process to whoever needs it; the states stay in it if nobody does, and are replayed if so.

        Does nothing while a call runs.
        """
        if not self._lock.locked():
            self._detach(owner=self)

    def lending_s(self, replay_s: float) -> float | None:
        """Return what it would cost to lend the process now, in seconds; `replay_s` to get the state at hand again.

        Who waits for the very same setup leaves process and states as they are. Any other has the process brought
        elsewhere, or closed, and coming back takes as long as getting there took. None: nobody waits, or there is no
        process.
        """
        wanted = "" if self._process is None else self._pool.wanted(self._key, self._setup)
        if self._process is None or not wanted:
            return None
        return 0.0 if wanted == "same" else self._process.made_in_s + replay_s

    async def close(self) -> None:
        """Free the states and give the process back, warm. The states are of no more use."""
        self._closed = True
        async with self._lock:
            self._pool.leave(self, self._states.leave())
            process = self._process
            if process is not None and process.repl.alive:
                try:
                    # One request, whatever was released and whatever not.
                    await (process.free() if process.guests else process.clear())
                except ReplError:
                    self._retire()
                except BaseException:
                    self._retire()
                    raise
            self._detach(owner=None)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- one request, through the deaths of processes

    async def _request(
        self,
        strike: Callable[[], Strike] | None,
        ask: Callable[[Repl, StateRef | None], Awaitable[T]],
        *,
        state: State | None = None,
        killed: Callable[[ReplError], T] | None = None,
    ) -> T:
        """Ask a process that is set up and has the state, and another one when it dies.

        What was asked, as `strike` tells it, and has ended its last process is answered by `killed`, else raised.
        """
        async with self._lock:
            for life in range(1, _LIVES_PER_REQUEST + 1):
                last = life == _LIVES_PER_REQUEST
                if strike is not None and self._killed and (error := self._killed.get(strike())) is not None:
                    if killed is not None:
                        return killed(error)
                    raise error
                try:
                    repl = await self._attached()
                except ReplStartError:
                    # The first start tells about the project; one that fails later is one more death.
                    if self.lives == 0 or last:
                        raise
                    continue
                except ReplDied:
                    if last:
                        raise
                    continue
                try:
                    ref = await self._brought(state, repl)
                except (ReplDied, ReplSuspect) as death:
                    self._retire()
                    if last:
                        raise self._lose(state, death) from death
                    continue
                try:
                    return await ask(repl, ref)
                except (ReplDied, ReplSuspect) as death:
                    self._retire()
                    had_its_last = self._strike(strike, death)
                    if had_its_last and killed is not None:
                        return killed(death)
                    if had_its_last or last:
                        raise
        raise AssertionError("unreachable: the last life returns or raises")

    async def _brought(self, state: State | None, repl: Repl) -> StateRef | None:
        """Return the state's id in the process at hand; raises what `Replayer.bring` raises."""
        calls = repl.calls
        ref = None if state is None else await self._states.bring(state, repl)
        if repl.calls != calls and self._process is not None:
            # A replay is no use of the process: or one that is long would wear it out by itself.
            self._process.paid_at_calls = repl.calls
        await self._states.free(repl)
        if self._process is not None:
            await self._process.free()
        return ref

    def _strike(self, strike: Callable[[], Strike] | None, error: ReplError) -> bool:
        """Count a death against what was asked; say whether it has had its last."""
        if strike is None:
            return False
        key = strike()
        self._strikes[key] = self._strikes.get(key, 0) + 1
        if self._strikes[key] >= STRIKES:
            self._killed[key] = error
        return key in self._killed

    def _lose(self, state: State | None, error: ReplError) -> ReplError:
        if state is None:
            return error
        detail = f"{_LIVES_PER_REQUEST} processes ended over it, the last: {error}"
        state.lost = ReplayDied(state.tactic, detail)
        return state.lost

    async def _open(self, origin: Origin) -> tuple[State, ...]:
        async def run(repl: Repl, _: StateRef | None) -> tuple[State, ...]:
            return await self._states.open(origin, repl)

        return await self._request(lambda: ("open", origin.step), run)

    async def _attached(self) -> Repl:
        """Return a process that is set up: the one at hand, or another where that is dead or worn."""
        if self._closed:
            raise PoolClosed("the session was closed")
        if self._setup_failed is not None:
            raise self._setup_failed
        process = self._process
        if process is not None and not process.repl.alive:
            self._retire()
        elif process is not None and process.worn_in_use(self._pool.limits):
            self._detach(owner=None, worn=True)
        if self._process is None:
            process = await self._pool.take(self._key, self._setup, owner=self)
            self._process = process
            self._calls_before = process.repl.calls
            self._states.enter(process.repl)
        process = self._process
        if process.setup is not self._setup:
            try:
                await self._establish(process)
            except BaseException:
                # What it has half taken in cannot be undone.
                self._retire()
                raise
        return process.repl

    async def _establish(self, process: PooledRepl) -> None:
        """Bring a process from the setup that it has to this session's."""
        began = time.monotonic()
        repl, have, wanted = process.repl, process.setup, self._setup
        had = {name for name, _ in have.options}
        if options := {name: value for name, value in wanted.options if name not in had}:
            await repl.options_set(**options)
        for text in wanted.prefix[len(have.prefix) :]:
            try:
                units = await repl.process(
                    text, inherit_env=True, timeout_s=self._pool.limits.setup_timeout_s
                )
            except (ReplDied, ReplSuspect) as error:
                if self._strike(lambda text=text: ("prefix", text), error):  # type: ignore[misc]
                    self._setup_failed = SetupFailed(str(error), refused=False)
                    raise self._setup_failed from error
                raise
            except ReplRefused as error:
                self._setup_failed = SetupFailed(error.desc, refused=True)
                raise self._setup_failed from error
            complaint = next((message for unit in units for message in unit.errors), None)
            if complaint is not None:
                self._setup_failed = SetupFailed(complaint.data, refused=True)
                raise self._setup_failed
        process.setup = wanted
        process.paid_at_calls = repl.calls
        process.made_in_s += time.monotonic() - began

    def _retire(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._calls += process.repl.calls - self._calls_before
            self._pool.retire(process)

    def _detach(self, *, owner: object | None, worn: bool = False) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._calls += process.repl.calls - self._calls_before
            if worn:
                self._pool.recycle(process)
            else:
                self._pool.give_back(process, owner=owner)
