"""The states of one session across processes: brings back those whose process is gone, frees those let go of.

A state is brought back by making its root again and running the tactics that led to it, in whatever process is at
hand; each must lead to the goals that it led to before. States on the way are kept in the process for as long as
something below them is wanted. A process that other sessions use as well is left as they found it: what lies there is
freed state by state. Which process that is, and what happens when it dies of it, is `session.py`'s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from pipeline.lean.client.errors import ReplRefused, ReplSuspect
from pipeline.lean.client.messages import Goal, StateRef, TacticOk, TacticParseError
from pipeline.lean.client.repl import Repl
from pipeline.lean.pool.states import Origin, ReplayDiverged, State, canonical, difference, names_of

_PATIENCE = 3.0
_FREE_AT = 32


class Replayer:
    """Keeps the states of a session.

    Attributes:
        lives: how many processes (or resets of one) there have been; the first is 1.
        replayed: how many tactics were run again.
    """

    def __init__(self) -> None:
        self.lives = 0
        self.replayed = 0
        self._generation = 0
        self._there: dict[StateRef, State] = {}
        self._garbage: dict[int, list[StateRef]] = {}

    def enter(self, repl: Repl) -> None:
        """Take note of the process that is at hand from now on."""
        if repl.generation != self._generation:
            self._generation = repl.generation
            self.lives += 1

    async def open(self, origin: Origin, repl: Repl) -> tuple[State, ...]:
        """Make the root states; raises what the process raises."""
        made = await origin.make(repl)
        origin.states = tuple(
            State(self._named(goals, None), ref=ref, names=names_of(goals), origin=origin)
            for ref, goals in made
        )
        self._there.update(zip((ref for ref, _ in made), origin.states, strict=True))
        return origin.states

    def child(
        self, parent: State, result: TacticOk, tactic: str, *, site: int | None, timeout_s: float | None
    ) -> State:
        """Return the state that a tactic has just led to."""
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
        """Return the state's id in this process, replaying what leads to it where it is not there.

        Raises:
            StateLost: it came out otherwise, now or before.
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
        """Let go of states; one that was let go of already is left alone."""
        for state in states:
            if not state.released:
                state.released = True
                self._discard(state)
                self._drop(state)

    async def free(self, repl: Repl, *, all_of_them: bool = False) -> None:
        """Delete in the process what was let go of, once it is worth a request."""
        garbage = self._garbage.get(repl.generation, ())
        if len(garbage) >= _FREE_AT or (all_of_them and garbage):
            await repl.goal_delete(self._garbage.pop(repl.generation))

    def leave(self) -> dict[int, list[StateRef]]:
        """Let go of everything; return what lies where, by the generation of its process."""
        left, self._garbage = self._garbage, {}
        for ref, state in self._there.items():
            state.ref = None
            left.setdefault(ref.generation, []).append(ref)
        self._there = {}
        return left

    async def _remake(self, origin: Origin, repl: Repl) -> None:
        try:
            made = await origin.make(repl)
        except ReplSuspect:
            raise
        except ReplRefused as error:
            _lose(origin.states, origin.step, str(error))
            return
        if len(made) != len(origin.states):
            for ref, _ in made:
                self._throw(ref)
            _lose(origin.states, origin.step, f"{len(origin.states)} goal states before, {len(made)} now")
            return
        for state, (ref, goals) in zip(origin.states, made, strict=True):
            if state.holds and (state.ref is None or state.ref.generation != repl.generation):
                self._rebind(state, ref, goals, origin.step)
            else:
                self._throw(ref)

    async def _step_again(self, state: State, repl: Repl) -> None:
        parent = state.parent
        assert parent is not None
        assert parent.ref is not None
        self.replayed += 1
        # The machine may be busier than it was; what was quick enough once shall not fail for that.
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
            # Where it lay before, it is of no more use: it is looked for in one process only.
            self._discard(state)
            state.ref, state.names = ref, names_of(goals)
            self._there[ref] = state
        else:
            self._throw(ref)
            _lose((state,), step, f"the goals are not what they were: {difference(before, now)}")

    def _named(self, goals: tuple[Goal, ...], parent: State | None) -> tuple[Goal, ...]:
        """Name the goals so that the same name means the same goal in all the processes of this session."""
        if self.lives <= 1:
            return goals
        known = {} if parent is None else dict(zip(parent.names, names_of(parent.goals), strict=True))
        return tuple(
            dataclasses.replace(goal, name=known.get(goal.name, f"{goal.name}@{self.lives}"))
            for goal in goals
        )

    def _drop(self, state: State | None) -> None:
        """Take one hold off a state; what nobody holds is freed, and its parent's hold goes with it."""
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
