"""One search's view of Lean: goal states that outlive the process that made them.

A `Session` knows the setup of its process (`ReplKey`, `Setup`) and the way to each of its states: a statement or a text
at the root, then one tactic after another. If the process with the states is gone (crashed, hung, worn, or taken by
another search while this one was parked), it takes another from the pool, brings it to the same setup, replays the
tactics to the state at hand, checks that the goals are unchanged, and continues. A request that ends the process twice
is not tried a third time: a tactic then counts as failed (`TacticKilled`), any other request raises. A session is one
search's: its calls are served one after the other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from pipeline.lean.client.errors import (
    ReplDied,
    ReplError,
    ReplRefused,
    ReplStartError,
    ReplSuspect,
)
from pipeline.lean.client.messages import (
    Goal,
    Message,
    StateRef,
    TacticFailed,
    TacticOk,
    TacticParseError,
    Unit,
)
from pipeline.lean.client.repl import Repl
from pipeline.lean.goal_text import renumbered, state_of
from pipeline.lean.pool.pool import PoolClosed, PooledRepl, ReplKey, ReplPool, Setup
from store.text import cut, one_line

# ---- Goal states as handles that outlive their process
# A `State` knows its parent and its tactic, or the `Origin` of its root; `ref` is its present number in one process, if
# any. `canonical` shows whether a replay led to the same goals. `session.py` chooses the process and the time of a
# replay.


class StateLost(ReplError):  # noqa: N818 - named by what happened
    """A state whose process is gone could not be made again. Other states of the session may still work.

    `step` is the tactic (or text) that failed in the replay.
    """

    def __init__(self, step: str, detail: str) -> None:
        super().__init__(
            f"replaying {shortened(step)}: {detail}; the state is lost, start it again from its text"
        )
        self.step = step


class ReplayDiverged(StateLost):
    """Replaying the state's tactics in another process did not lead to the same goals."""


class ReplayDied(StateLost):
    """Replaying the state's tactics ended one process after another."""


class State:
    """A goal state of a session, as a handle independent of processes. `goals` is Lean's answer at its making.

    A goal's name means the same goal throughout the session, in all processes.
    """

    __slots__ = (
        "goals",
        "holds",
        "lost",
        "names",
        "origin",
        "parent",
        "ref",
        "released",
        "site",
        "tactic",
        "timeout_s",
    )

    def __init__(
        self,
        goals: tuple[Goal, ...],
        *,
        ref: StateRef,
        names: tuple[str, ...],
        origin: Origin | None = None,
        parent: State | None = None,
        tactic: str = "",
        site: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.goals = goals
        self.ref: StateRef | None = ref
        self.names = names  # the goals' names in the process of `ref`
        self.origin = origin
        self.parent = parent
        self.tactic = tactic
        self.site = site
        self.timeout_s = timeout_s
        self.lost: StateLost | None = None
        self.released = False
        self.holds = 1  # its own handle, and its children still in use
        if parent is not None:
            parent.holds += 1

    def __repr__(self) -> str:
        return (
            f"<State of {len(self.goals)} goals by {shortened(self.tactic)}>"
            if self.parent
            else "<root State>"
        )


@dataclass(eq=False, slots=True)
class Origin:
    """The source of root states: a closed statement, or each target of a text with sorries."""

    expr: str | None = None
    text: str = ""
    timeout_s: float | None = None
    states: tuple[State, ...] = ()

    @property
    def step(self) -> str:
        """The statement or the text."""
        return self.text if self.expr is None else self.expr

    async def make(self, repl: Repl) -> list[tuple[StateRef, tuple[Goal, ...]]]:
        """Make the states in this process; raises the process's errors."""
        if self.expr is not None:
            ref = await repl.goal_start(self.expr, timeout_s=self.timeout_s)
            return [(ref, await repl.goal_print(ref))]
        targets = await repl.open_sorries(self.text, timeout_s=self.timeout_s)
        return [(target.state, target.goals) for target in targets]


def names_of(goals: tuple[Goal, ...]) -> tuple[str, ...]:
    """Return the internal names of goals, in order."""
    return tuple(goal.name for goal in goals)


def canonical(goals: tuple[Goal, ...]) -> str:
    """Render goals with Lean's counters (`?m.12`, `_uniq.5`) renumbered in order of appearance."""
    return renumbered(state_of(goals), {})


def difference(before: str, now: str) -> str:
    """Describe the first difference between two canonical texts."""
    for old, new in zip(before.split("\n"), now.split("\n"), strict=False):
        if old != new:
            return f"{shortened(old)} before, {shortened(new)} now"
    return f"{before.count(chr(10)) + 1} lines before, {now.count(chr(10)) + 1} now"


def shortened(text: str) -> str:
    """Quote the text on one line, cut if long."""
    return repr(cut(one_line(text), 120))


# ---- The states of one session across processes
# Restores states whose process is gone, frees released ones.
# To restore a state, make its root again and run its tactics in the process at hand; each must lead to the same goals
# as before. States on the way stay in the process while a state below them is in use. In a process shared with other
# sessions, states are freed one by one. `session.py` chooses the process, and handles its death.


_PATIENCE = 3.0
_FREE_AT = 32


class Replayer:
    """Keeps the states of a session.

    Attributes:
        lives: the number of processes (or resets of one) so far; the first is 1.
        replayed: the number of replayed tactics.
    """

    def __init__(self) -> None:
        self.lives = 0
        self.replayed = 0
        self._generation = 0
        self._there: dict[StateRef, State] = {}
        self._garbage: dict[int, list[StateRef]] = {}

    def enter(self, repl: Repl) -> None:
        """Note the process now at hand."""
        if repl.generation != self._generation:
            self._generation = repl.generation
            self.lives += 1

    async def open(self, origin: Origin, repl: Repl) -> tuple[State, ...]:
        """Make the root states; raises the process's errors."""
        result = await origin.make(repl)
        origin.states = tuple(
            State(self._named(goals, None), ref=ref, names=names_of(goals), origin=origin)
            for ref, goals in result
        )
        self._there.update(zip((ref for ref, _ in result), origin.states, strict=True))
        return origin.states

    def child(
        self, parent: State, result: TacticOk, tactic: str, *, site: int | None, timeout_s: float | None
    ) -> State:
        """Return the state made by a tactic."""
        child = State(
            self._named(result.goals, parent),
            ref=result.state,
            names=names_of(result.goals),
            parent=parent,
            tactic=tactic,
            site=site,
            timeout_s=timeout_s,
        )
        self._there[result.state] = child
        return child

    async def bring(self, state: State, repl: Repl) -> StateRef:
        """Return the state's id in this process, after replaying its tactics if it is not there.

        Raises:
            StateLost: its goals came out differently, now or before.
            ReplDied, ReplSuspect: the process is gone.
        """
        path: list[State] = []
        node: State | None = state
        while node is not None and (node.ref is None or node.ref.generation != repl.generation):
            path.append(node)
            node = node.parent
        for node in reversed(path):
            if node.lost is None and node.origin is not None:
                await self._remake(node.origin, repl)
            elif node.lost is None:
                await self._step_again(node, repl)
            if node.lost is not None:
                raise node.lost
        assert state.ref is not None
        return state.ref

    def release(self, states: Iterable[State]) -> None:
        """Release states; skip those already released."""
        for state in states:
            if not state.released:
                state.released = True
                self._discard(state)
                self._drop(state)

    async def free(self, repl: Repl, *, all_of_them: bool = False) -> None:
        """Delete released states in the process, once they are worth a request."""
        garbage = self._garbage.get(repl.generation, ())
        if len(garbage) >= _FREE_AT or (all_of_them and garbage):
            await repl.goal_delete(self._garbage.pop(repl.generation))

    def leave(self) -> dict[int, list[StateRef]]:
        """Release everything; return the states' ids by the generation of their process."""
        left, self._garbage = self._garbage, {}
        for ref, state in self._there.items():
            state.ref = None
            left.setdefault(ref.generation, []).append(ref)
        self._there = {}
        return left

    async def _remake(self, origin: Origin, repl: Repl) -> None:
        try:
            result = await origin.make(repl)
        except ReplSuspect:
            raise
        except ReplRefused as error:
            _lose(origin.states, origin.step, str(error))
            return
        if len(result) != len(origin.states):
            for ref, _ in result:
                self._throw(ref)
            _lose(origin.states, origin.step, f"{len(origin.states)} goal states before, {len(result)} now")
            return
        for state, (ref, goals) in zip(origin.states, result, strict=True):
            if state.holds and (state.ref is None or state.ref.generation != repl.generation):
                self._rebind(state, ref, goals, origin.step)
            else:
                self._throw(ref)

    async def _step_again(self, state: State, repl: Repl) -> None:
        parent = state.parent
        assert parent is not None
        assert parent.ref is not None
        self.replayed += 1
        # The machine may be busier than before; a tactic must not fail for that.
        timeout_s = None if state.timeout_s is None else state.timeout_s * _PATIENCE
        try:
            result = await repl.goal_tactic(parent.ref, state.tactic, goal=state.site, timeout_s=timeout_s)
        except ReplSuspect:
            raise
        except ReplRefused as error:
            _lose((state,), state.tactic, str(error))
            return
        if isinstance(result, TacticOk):
            self._rebind(state, result.state, result.goals, state.tactic)
        else:
            said = result.text if isinstance(result, TacticParseError) else result.reason
            _lose((state,), state.tactic, f"it succeeded before and fails now: {said}")

    def _rebind(self, state: State, ref: StateRef, goals: tuple[Goal, ...], step: str) -> None:
        before, now = canonical(state.goals), canonical(goals)
        if before == now:
            # Its old place is of no more use: a state is sought in one process only.
            self._discard(state)
            state.ref, state.names = ref, names_of(goals)
            self._there[ref] = state
        else:
            self._throw(ref)
            _lose((state,), step, f"the goals are not what they were: {difference(before, now)}")

    def _named(self, goals: tuple[Goal, ...], parent: State | None) -> tuple[Goal, ...]:
        """Name the goals so that a name means the same goal in all processes of this session."""
        if self.lives <= 1:
            return goals
        known = {} if parent is None else dict(zip(parent.names, names_of(parent.goals), strict=True))
        return tuple(
            dataclasses.replace(goal, name=known.get(goal.name, f"{goal.name}@{self.lives}"))
            for goal in goals
        )

    def _drop(self, state: State | None) -> None:
        """Remove one hold from a state; free a state without holds, with its hold on its parent."""
        while state is not None:
            state.holds -= 1
            if state.holds:
                return
            self._discard(state)
            state = state.parent

    def _discard(self, state: State) -> None:
        if state.ref is not None:
            self._there.pop(state.ref, None)
            self._throw(state.ref)
            state.ref = None

    def _throw(self, ref: StateRef) -> None:
        self._garbage.setdefault(ref.generation, []).append(ref)


def _lose(states: Iterable[State], step: str, detail: str) -> None:
    error = ReplayDiverged(step, detail)
    for state in states:
        state.lost = error


STRIKES = 2
"""The number of times one request may end the process."""
_LIVES_PER_REQUEST = 6
T = TypeVar("T")
Strike = tuple[str, ...]
"""A request, in a form equal for all states and processes."""


class SetupFailed(ReplError):  # noqa: N818 - named by what happened
    """The texts before the goal cannot be established. `refused`: by Lean's word, not by the process's end."""

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class TacticKilled:
    """The tactic ended the process at each try (crash, hang, or an answer outside the protocol)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """The tactic ran. A `state` without goals hints at a proof, and never is one."""

    state: State
    messages: tuple[Message, ...]
    has_sorry: bool
    has_unsafe: bool


Answer = Stepped | TacticFailed | TacticParseError | TacticKilled


class Session:
    """The states of one search. As a context manager it gives its process back."""

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
        """The number of processes so far, resets by others included; the first is 1."""
        return self._states.lives

    @property
    def replayed(self) -> int:
        """The number of tactics replayed to restore a state."""
        return self._states.replayed

    @property
    def calls(self) -> int:
        """The number of requests sent for this session so far, with replays and setups."""
        return self._calls + (0 if self._process is None else self._process.repl.calls - self._calls_before)

    @property
    def process_id(self) -> int | None:
        """The id of the process at hand, or None."""
        return None if self._process is None else self._process.repl.pid

    # ---- a search's requests

    async def ready(self) -> None:
        """Set up a process; the other calls do this by themselves.

        Raises:
            SetupFailed, ReplStartError, PoolClosed: no process can be had.
        """

        async def nothing(_: Repl, __: StateRef | None) -> None:
            return None

        await self._request(None, nothing)

    async def start(self, expr: str, *, timeout_s: float | None = None) -> State:
        """Open a goal for a closed statement; `ReplRefused` when it does not elaborate."""
        (state,) = await self._open(Origin(expr=expr, timeout_s=timeout_s))
        return state

    async def distil(self, text: str, *, timeout_s: float | None = None) -> tuple[State, ...]:
        """Make one state for each declaration of a text with sorries; its goals are the sorries'.

        Raises:
            ReplRefused: the text does not compile.
            ReplDied: it ended two processes.
            SetupFailed, ReplStartError, PoolClosed: no process can be had.
        """
        return await self._open(Origin(text=text, timeout_s=timeout_s))

    async def tactic(
        self, state: State, tactic: str, *, goal: int | None = None, timeout_s: float | None = None
    ) -> Answer:
        """Run a tactic on the state's first goal, or on the one with index `goal`.

        Raises:
            StateLost: the state was made again, which ended processes or came out differently.
            SetupFailed, ReplStartError, PoolClosed: no process can be had.
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
        """Return the number of goal states in the process."""

        async def count(repl: Repl, _: StateRef | None) -> int:
            await self._states.free(repl, all_of_them=True)
            return await repl.stat()

        return await self._request(None, count)

    def release(self, states: Iterable[State]) -> None:
        """Release states. Each is freed in the process soon, and replayed only for its descendants."""
        self._states.release(states)

    def park(self) -> None:
        """Offer the process to other sessions; its states stay until one needs it, and are replayed afterwards.

        Does nothing while a call runs.
        """
        if not self._lock.locked():
            self._detach(owner=self)

    def lending_s(self, replay_s: float) -> float | None:
        """Return the cost of giving the process up now, in seconds; `replay_s` is the cost of the state at hand.

        A waiter with the same setup leaves process and states as they are. Any other has the process brought
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
                    # One request, however many states are released.
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
        """Send a request to a process with the setup and the state, and to another one when it dies.

        `strike` identifies the request. After it ended its last process, `killed` answers it, or its error is raised.
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
                    # The first start tests the project; a later failure is one more death.
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
        """Return the state's id in the process at hand; raises the errors of `Replayer.bring`."""
        calls = repl.calls
        ref = None if state is None else await self._states.bring(state, repl)
        if repl.calls != calls and self._process is not None:
            # A replay does not count as use of the process, or a long one would wear it out by itself.
            self._process.paid_at_calls = repl.calls
        await self._states.free(repl)
        if self._process is not None:
            await self._process.free()
        return ref

    def _strike(self, strike: Callable[[], Strike] | None, error: ReplError) -> bool:
        """Count a death against a request; return whether it was its last."""
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
        """Return a process with the setup: the one at hand, or another if it is dead or worn."""
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
                # Half a setup cannot be undone.
                self._retire()
                raise
        return process.repl

    async def _establish(self, process: PooledRepl) -> None:
        """Bring a process from its setup to this session's."""
        began = time.monotonic()
        repl, have, wanted = process.repl, process.setup, self._setup
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
