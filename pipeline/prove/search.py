"""Best-first search over the goal states of one session.

A node is a state; its candidates come from the ladder and act on its first goal. States whose goals read the
same are one state. Deterministic: equal priorities go in the order of discovery. A state is freed as soon as it
has been expanded. What ends with no goals is a candidate, nothing more: the caller tries it in the source. That a
process dies on the way is the session's business; a state that it cannot bring back is passed over, and then the
search never says that it has tried everything.
"""

from __future__ import annotations

import heapq
import itertools
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipeline.lean.client.messages import Goal, Message, TacticFailed, TacticParseError
from pipeline.lean.pool.session import Answer, Session, Stepped, TacticKilled
from pipeline.lean.pool.states import State, StateLost
from pipeline.prove.script import Script, Step
from pipeline.prove.tactics import Candidate, Ladder

Outcome = Literal["found", "exhausted", "budget"]

_WORD = re.compile(r"[^\W\d][\w'.!?₀-₉]*")
_SUGGESTION = re.compile(r"Try this:\s*(?:\[apply\]\s*)?(.+)", re.DOTALL)
_GOAL_WEIGHT = 2


@dataclass(frozen=True, slots=True)
class Budget:
    """Where a search for one sorry ends: so many states expanded, so many seconds, so long a tactic."""

    nodes: int
    seconds: float
    tactic_timeout_s: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """How a search ended. `script` is there exactly when `outcome` is "found"."""

    outcome: Outcome
    script: Script | None
    nodes: int
    repl_calls: int
    seconds: float
    killed: int = 0
    """How many tactics ended the Lean process each time they were tried; they count as failed."""


@dataclass(order=True, slots=True)
class _Node:
    priority: int
    number: int
    state: State = field(compare=False)
    goals: tuple[Goal, ...] = field(compare=False)
    first: int = field(compare=False)
    depth: int = field(compare=False)
    steps: tuple[Step, ...] = field(compare=False)


class Search:
    """One search for a proof of one goal among those of a state; the state's other goals are left alone."""

    def __init__(self, session: Session, ladder: Ladder, *, budget: Budget) -> None:
        self._session = session
        self._ladder = ladder
        self._budget = budget
        self._counter = itertools.count()
        self._queue: list[_Node] = []
        self._seen: set[str] = set()
        self._siblings: frozenset[str] = frozenset()
        self._nodes = 0
        self._killed = 0
        self._lost: StateLost | None = None

    async def run(self, state: State, *, goal: int = 0) -> SearchResult:
        """Search for a proof of the state's goal with this index.

        Raises:
            StateLost: all is tried but what comes after a state that was lost with its process.
            ReplError: there is no process to be had, or none gets as far as the state (see `Session`).
        """
        started, calls = time.monotonic(), self._session.calls
        self._siblings = frozenset(other.name for at, other in enumerate(state.goals) if at != goal)
        root = _Node(0, next(self._counter), state, (state.goals[goal],), goal, 0, ())
        self._seen.add(_key(root.goals))
        self._queue = [root]
        outcome: Outcome = "exhausted"
        script: Script | None = None
        while self._queue:
            if self._nodes >= self._budget.nodes or time.monotonic() - started >= self._budget.seconds:
                outcome = "budget"
                break
            node = heapq.heappop(self._queue)
            self._nodes += 1
            found = None
            try:
                found = await self._expand(node, deadline=started + self._budget.seconds)
            except StateLost as lost:
                self._lost = lost
            if node is not root:
                self._session.release([node.state])
            if found is not None:
                outcome, script = "found", Script(found)
                break
        # The root belongs to the caller, who may search its other goals.
        self._session.release(node.state for node in self._queue if node is not root)
        if outcome == "exhausted" and self._lost is not None:
            raise self._lost
        return SearchResult(
            outcome,
            script,
            self._nodes,
            self._session.calls - calls,
            time.monotonic() - started,
            self._killed,
        )

    async def _expand(self, node: _Node, *, deadline: float) -> tuple[Step, ...] | None:
        """Try the ladder on the node's first goal; return the steps of a finished proof."""
        for candidate in self._ladder.candidates(node.goals[0], at_start=node.depth == 0):
            if time.monotonic() >= deadline:
                # Not exhausted: put back what was not tried, so that the loop ends by its budget.
                heapq.heappush(self._queue, node)
                return None
            candidate, result = await self._try(node, candidate)
            if not isinstance(result, Stepped):
                continue
            own, first = self._own(result.state.goals)
            steps = (*node.steps, Step(candidate.text, len(node.goals), len(own)))
            if not own:
                self._session.release([result.state])
                return steps
            key = _key(own)
            if key in self._seen:
                self._session.release([result.state])
                # A step that loses nothing and leads to a known state leaves nothing to do here.
                if candidate.commits:
                    return None
                continue
            self._seen.add(key)
            priority = node.depth + 1 + candidate.cost + _GOAL_WEIGHT * len(own)
            child = _Node(priority, next(self._counter), result.state, own, first, node.depth + 1, steps)
            heapq.heappush(self._queue, child)
            if candidate.commits or _closed_cleanly(node.goals, own):
                return None
        return None

    async def _try(self, node: _Node, candidate: Candidate) -> tuple[Candidate, Answer]:
        result = await self._tactic(node, candidate.text)
        if isinstance(result, TacticKilled):
            self._killed += 1
            return candidate, result
        self._ladder.saw(candidate, parsed=not isinstance(result, TacticParseError))
        if not isinstance(result, Stepped):
            return candidate, result
        if result.has_sorry or result.has_unsafe:
            self._session.release([result.state])
            return candidate, TacticFailed(result.messages)
        if not candidate.text.endswith("?"):
            return candidate, result
        # `exact?` found something: what it suggests is the proof, not the looking for it.
        self._session.release([result.state])
        suggestion = _suggested(result.messages)
        if suggestion is None:
            return candidate, TacticFailed(result.messages)
        found = await self._tactic(node, suggestion)
        if isinstance(found, Stepped) and (found.has_sorry or found.has_unsafe):
            self._session.release([found.state])
            found = TacticFailed(found.messages)
        return Candidate(suggestion, candidate.template), found

    async def _tactic(self, node: _Node, text: str) -> Answer:
        goal = node.first or None
        return await self._session.tactic(
            node.state, text, goal=goal, timeout_s=self._budget.tactic_timeout_s
        )

    def _own(self, goals: Sequence[Goal]) -> tuple[tuple[Goal, ...], int]:
        """Return the goals that belong to this search, and the index of the first of them in the state."""
        mine = [(at, goal) for at, goal in enumerate(goals) if goal.name not in self._siblings]
        return tuple(goal for _, goal in mine), mine[0][0] if mine else 0


def _closed_cleanly(before: tuple[Goal, ...], after: tuple[Goal, ...]) -> bool:
    """Say whether the first goal was closed and the others are as they were: nothing else need be tried on it."""
    return tuple(goal.render() for goal in after) == tuple(goal.render() for goal in before[1:])


def _key(goals: tuple[Goal, ...]) -> str:
    """Render goals so that states that differ only in names and copies of hypotheses are one."""
    return "\n\n".join(_goal_key(goal) for goal in goals)


def _goal_key(goal: Goal) -> str:
    target = goal.target.render()
    types = [("" if variable.type is None else variable.type.render()) for variable in goal.vars]
    mentioned = set(_WORD.findall(" ".join([target, *types])))
    # A dotted word mentions its first part too: `h.left` mentions `h`.
    mentioned |= {word.split(".")[0] for word in mentioned}
    lines = []
    for variable, text in zip(goal.vars, types, strict=True):
        value = "" if variable.value is None else f" := {variable.value.render()}"
        named = variable.user_name in mentioned or value
        lines.append(f"{variable.user_name} : {text}{value}" if named else text)
    return "\n".join(dict.fromkeys(sorted(lines))) + f"\n⊢ {target}"


def _suggested(messages: Sequence[Message]) -> str | None:
    for message in messages:
        found = _SUGGESTION.search(message.data)
        if found:
            lines = [line for line in found.group(1).splitlines() if line.strip()]
            return " ".join(line.strip() for line in lines) if lines else None
    return None
