"""The reward from Lean: each completion is run on its goal, and rewarded by its outcome.

    reward = LeanReward(SourcePlaces(backend, project))
    row = {"problem": ["h : p\n⊢ p"], "path": ["Demo.lean"], "start": [(3, 1)]}
    reward(["exact h"], **row)      # [1.0]

A goal counts as closed when its theorem compiles with the tactic as its whole proof, in a text of its own: a REPL
without goals is only the hint to try. Texts the gate would refuse in a proof (sorry, native_decide, tactics that search
for a proof and are none) are refused here too, or the model would learn useless ones.

A tactic with goals left earns something only if those are closed: each by one of `FINISHERS`, the whole in a text that
compiles, and none of them closes the goal without the tactic. So `exfalso`, `by_contra h` and `have h : True :=
trivial` earn nothing: if they do not help, their goals stay open, and if a finisher closes it all the same, it needs no
such step.

An impossible judgement (a goal that its text does not give back, no process, no time left) is None, which TRL leaves
out of its means. Nothing a model writes raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pipeline.lean.client.errors import LimitReached, ReplDied, ReplError, ReplRefused, ReplStartError
from pipeline.lean.goal_text import goals_key
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import PoolClosed, ReplPool
from pipeline.lean.pool.session import Session, SetupFailed, State, Stepped
from pipeline.lean.source.forbidden import complaints
from pipeline.lean.tactic_text import read_tactic
from pipeline.loop_thread import LoopThread
from pipeline.models.errors import RewardError
from pipeline.models.tactics.goals import GoalContext, Places, Statement, statement

Outcome = Literal["closed", "progress", "open", "repeated", "failed", "no_tactic", "forbidden"]
FINISHERS = ("assumption", "trivial", "contradiction", "simp_all", "omega", "grind")
"""Tactics to close a step's remaining goals, in order; one unknown to the project's Lean closes nothing."""
_MOST_LEFT = 16
"""With more goals left than this, no finisher is tried."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


REWARDS: Mapping[Outcome, float] = {
    "closed": 1.0,  # the goal is proved
    "progress": 0.2,  # the tactic runs, and `FINISHERS` close all its goals, but not the goal alone
    "open": 0.0,  # it runs, and leaves other goals than its own
    "repeated": -0.1,  # it runs and leaves its very goal, perhaps with copies of hypotheses or beside others
    "failed": 0.0,  # Lean refuses it, or it ran into the time limit
    "no_tactic": -0.2,  # the text is none (see `tactic_text.read_tactic`)
    "forbidden": -0.5,  # it holds a sorry, or text the gate refuses in a proof
}


@dataclass(frozen=True, slots=True)
class CompletionRow:
    """A completion on its goal; `row` has the goal's path and position."""

    state: str
    completion: str
    row: Mapping[str, Any]


class LeanReward:
    """A reward function (see the module); `close` ends its processes."""

    __name__ = "lean"

    def __init__(
        self,
        places: Places,
        *,
        limits: PoolLimits | None = None,
        tactic_timeout_s: float = 10.0,
        batch_timeout_s: float = 300.0,
    ) -> None:
        """Args:
        places: of the goals.
        limits: of the pool of REPL processes.
        tactic_timeout_s: of one tactic; then it has failed.
        batch_timeout_s: of one call; completions not judged by then get None.
        """
        self._places = places
        self._limits = limits
        self._tactic_timeout_s = tactic_timeout_s
        self._batch_timeout_s = batch_timeout_s
        self._easy: dict[tuple[GoalContext, str], bool] = {}
        self._without: dict[tuple[GoalContext | None, str], str] = {}
        self._pool: ReplPool | None = None
        self._loop: LoopThread | None = None
        self._started = False

    def __call__(
        self, completions: Sequence[str], problem: Sequence[str] | None = None, **columns: Any
    ) -> list[float | None]:
        """Judge a batch.

        Args:
            completions: the texts.
            problem: each one's state.
            columns: the dataset's other columns ("path" and "start" are the goal's position), and TRL's own.

        Returns:
            the reward of each; None if it could not be judged.

        Raises:
            RewardError: Lean cannot be started at all.
            TypeError: the dataset has no column "problem".
        """
        if problem is None:
            raise TypeError('the reward from Lean needs the goals: the dataset has no column "problem"')
        rows = [
            {
                name: column[number]
                for name, column in columns.items()
                if name in ("path", "start", "url", "commit")
            }
            for number in range(len(completions))
        ]
        requests = [CompletionRow(*one) for one in zip(problem, completions, rows, strict=True)]
        verdicts = self.judge(requests)
        counted = Counter(one or "unjudged" for one in verdicts)
        if (log_metric := columns.get("log_metric")) is not None:
            for name in ("closed", "progress", "open", "unjudged"):
                log_metric(f"lean/{name}", counted[name] / max(1, len(verdicts)))
        return [None if one is None else REWARDS[one] for one in verdicts]

    def judge(self, asked: Sequence[CompletionRow]) -> list[Outcome | None]:
        """Judge completions together; None for an impossible judgement.

        Raises:
            RewardError: Lean cannot be started at all.
        """
        verdicts: list[Outcome | None] = [None] * len(asked)
        waiting: dict[tuple[GoalContext, str], dict[str, list[int]]] = {}
        for number, one in enumerate(asked):
            answer = read_tactic(one.completion)
            if answer.flaw is not None:
                verdicts[number] = "no_tactic"
            elif complaints(answer.tactic):
                verdicts[number] = "forbidden"
            elif (place := self._places(one.row)) is None:
                self._leave_out(None, one.state, "its theorem is not where the dataset says")
            elif (place, one.state) not in self._without:
                waiting.setdefault((place, one.state), {}).setdefault(answer.tactic, []).append(number)
        if waiting:
            for (goal, tactic), result in self._run(self._judged(waiting)).items():
                for number in waiting[goal][tactic]:
                    verdicts[number] = result
        return verdicts

    def close(self) -> None:
        """End the processes. A later use of the reward starts others."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        pool, self._pool = self._pool, None
        if pool is not None:
            loop.run(pool.close())
        loop.close()

    # ---- in the loop of its own

    async def _judged(
        self, waiting: Mapping[tuple[GoalContext, str], Mapping[str, Sequence[int]]]
    ) -> dict[tuple[tuple[GoalContext, str], str], Outcome]:
        """Judge the tactics of each goal in a session, all goals at once; unjudged ones are missing."""
        if self._pool is None:
            self._pool = ReplPool(self._limits)
        result: dict[tuple[tuple[GoalContext, str], str], Outcome] = {}
        tasks = [
            asyncio.create_task(self._judge_goal(goal, list(tactics), result))
            for goal, tactics in waiting.items()
        ]
        _, late = await asyncio.wait(tasks, timeout=self._batch_timeout_s)
        for task in late:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        if late:
            _log.warning("%d goals were not judged within %g s", len(late), self._batch_timeout_s)
        for error in ended:
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error
        return result

    async def _judge_goal(
        self,
        goal: tuple[GoalContext, str],
        tactics: Sequence[str],
        found: dict[tuple[tuple[GoalContext, str], str], Outcome],
    ) -> None:
        place, state = goal
        stated = statement(state)
        if stated is None:
            self._leave_out(place, state, "it cannot be written as a theorem")
            return
        assert self._pool is not None
        try:
            async with Session(self._pool, place.key, place.setup) as session:
                root = await self._open(session, place, stated, state)
                self._started = True
                if root is None:
                    return
                for tactic in tactics:
                    found[goal, tactic] = await self._try(session, place, stated, root, tactic)
        except SetupFailed as error:
            self._leave_out(place, state, f"Lean refuses the text before its theorem: {error}")
        except ReplStartError as error:
            if not self._started:
                raise RewardError(f"Lean cannot be started to reward anything: {error}") from error
            _log.warning("a goal was not judged: %s", error)
        except (ReplDied, PoolClosed) as error:
            _log.warning("a goal was not judged: %s", error)
        except ReplError as error:
            # For instance a state lost with its process; the earlier verdicts stay.
            _log.warning("not all of a goal was judged: %s", error)

    async def _open(
        self, session: Session, place: GoalContext, stated: Statement, state: str
    ) -> State | None:
        """Return the goal in the session; None, and a note of it, if Lean has another one or none."""
        try:
            roots = await session.distil(stated.text(place), timeout_s=self._tactic_timeout_s)
        except LimitReached:
            # A later attempt may have more time or memory.
            raise
        except ReplRefused as error:
            self._leave_out(place, state, f"Lean does not read it as it was printed: {error.desc}")
            return None
        if len(roots) != 1 or not stated.is_of(roots[0].goals):
            self._leave_out(place, state, "Lean reads another goal in it")
            return None
        return roots[0]

    async def _try(
        self, session: Session, place: GoalContext, stated: Statement, root: State, tactic: str
    ) -> Outcome:
        result = await session.tactic(root, tactic, timeout_s=self._tactic_timeout_s)
        if not isinstance(result, Stepped):
            return "failed"
        try:
            if result.has_sorry or result.has_unsafe:
                return "forbidden"
            before = goals_key(root.goals)
            if any(goals_key((goal,)) == before for goal in result.state.goals):
                return "repeated"
            if result.state.goals:
                return await self._left(session, place, stated, root, tactic, result.state)
        finally:
            session.release([result.state])
        return await self._compiled(session, place, stated, tactic)

    async def _compiled(self, session: Session, place: GoalContext, stated: Statement, proof: str) -> Outcome:
        """Judge tactics as the whole proof of the goal's theorem."""
        try:
            units = await session.process(stated.text(place, proof), timeout_s=self._tactic_timeout_s)
        except (ReplRefused, ReplDied):
            return "failed"
        if any(unit.errors for unit in units):
            return "failed"
        return "forbidden" if any(unit.uses_sorry for unit in units) else "closed"

    async def _left(
        self, session: Session, place: GoalContext, stated: Statement, root: State, tactic: str, state: State
    ) -> Outcome:
        """Judge a tactic by the fate of the goals in its state."""
        closing = await self._finished(session, state)
        if closing is None:
            return "open"
        if (place, stated.goal) not in self._easy:
            self._easy[place, stated.goal] = await self._finished(session, root) is not None
        if self._easy[place, stated.goal]:
            # What closes the rest closes the goal without it.
            return "open"
        whole = await self._compiled(session, place, stated, "\n".join((tactic, *closing)))
        return "progress" if whole == "closed" else "open"

    async def _finished(self, session: Session, state: State) -> tuple[str, ...] | None:
        """Return the finishers of a state's goals, one after the other; None if one goal stays open."""
        used: list[str] = []
        if len(state.goals) > _MOST_LEFT:
            return None
        items: list[State] = []
        try:
            while state.goals:
                for finisher in FINISHERS:
                    result = await session.tactic(state, finisher, timeout_s=self._tactic_timeout_s)
                    if not isinstance(result, Stepped):
                        continue
                    items.append(result.state)
                    wrong = result.has_sorry or result.has_unsafe
                    if not wrong and len(result.state.goals) < len(state.goals):
                        state = result.state
                        used.append(finisher)
                        break
                else:
                    return None
        finally:
            session.release(items)
        return tuple(used)

    # ---- what is known

    def _leave_out(self, place: GoalContext | None, state: str, why: str) -> None:
        if (place, state) not in self._without:
            self._without[place, state] = why
            _log.warning("no reward for a goal: %s; the goal is %r", why, state[:300])

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in a loop with the life of the processes, whatever loops the caller has."""
        if self._loop is None:
            self._loop = LoopThread("lean-reward")
        return self._loop.run(work)
