"""Best-first search over the goal states of one session.

A node is a state (`graph.py`); its candidates come from a rung's proposer and act on its first goal. States whose goals
read the same are one state. The search is deterministic: equal scores go in the order of discovery, and the sampling
for a state depends on the seed and the state alone. A state is freed after its expansion. A state without goals is only
a candidate: the caller tries it in the source. The session replaces a dead process; a state lost for good is skipped,
and then the search never claims to have tried everything.

Searches share only their arguments: the searches of one job run side by side on one event loop, each with its own
session, and may share a proposer.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pipeline.jobs.specs import Budget, Lemma
from pipeline.lean.goal_text import state_of
from pipeline.lean.pool.session import Session, State, StateLost
from pipeline.lean.tactic_text import Step as ProgressStep
from pipeline.prove.effort import Effort
from pipeline.prove.graph import (
    Failures,
    Graph,
    Node,
    Proposer,
    Remaining,
    Scoring,
    TacticRunner,
    by_steps,
    normalised,
    outline,
)
from pipeline.prove.tree import Ended

Limit = Literal["", "nodes", "seconds", "calls"]
T = TypeVar("T")

_FIRST_LOOK_S = 0.002
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class SearchMethod:
    """The way to search a goal.

    Attributes:
        proposer: of tactics; other searches may use it meanwhile.
        scoring: ranks the states; None: rung 0's.
        remaining: a progress model, if any, with one request for each expansion.
        seed: of the proposer's sampling.
        negate: whether to try the negation after a search without a proof.
        lemmas: to cite in a second search after one without a proof.
    """

    proposer: Proposer
    scoring: Scoring | None = None
    remaining: Remaining | None = None
    seed: int = 0
    negate: bool = False
    lemmas: Sequence[Lemma] = ()


@dataclass(slots=True)
class Search:
    """One search for a proof of one goal among those of a state; the state's other goals are left alone.

    Attributes:
        session: for exclusive use while the search runs.
        method: of searching.
        budget: of this search.
        failures: of earlier searches of the declaration, and of this one.
    """

    session: Session
    method: SearchMethod
    budget: Budget
    failures: Failures = field(default_factory=dict)
    _lost: StateLost | None = field(default=None, init=False)
    _graph: Graph = field(init=False)
    _trying: TacticRunner = field(init=False)
    _began: float = field(default=0.0, init=False)

    async def run(self, state: State, *, goal: int = 0) -> Effort:
        """Search for a proof of the state's goal with this index; it has a script exactly when it is "found".

        Raises:
            StateLost: everything is tried but the successors of a state lost with its process.
            ReplError: no process can be started, or none gets as far as the state (see `Session`).
            Exception: any error of the proposer or the progress model.
        """
        self._began, calls = time.monotonic(), self.session.calls
        siblings = frozenset(other.name for at, other in enumerate(state.goals) if at != goal)
        self._trying = TacticRunner(self.session, siblings, self.budget.tactic_timeout_s, self.failures)
        self._graph = Graph((state.goals[goal],), self.method.scoring or by_steps, first=goal, state=state)
        try:
            limit = await self._loop()
        finally:
            # The root belongs to the caller, who may search its other goals.
            self.session.release(self._graph.all_states())
        graph = self._graph
        outcome: Ended = "found" if graph.proved else "budget" if limit else "exhausted"
        if outcome == "exhausted" and self._lost is not None:
            raise self._lost
        for node in graph.nodes:
            # The tree also has the steps left unranked at the end.
            graph.rank(node, None)
        tree = outline(graph, outcome=outcome, limit=limit)
        return Effort(
            outcome,
            best=tree.best,
            goals_left=tree.goals_left,
            nodes=graph.expanded,
            repl_calls=self.session.calls - calls,
            seconds=time.monotonic() - self._began,
            killed=graph.killed,
            tree=tree,
            script=graph.script(),
        )

    @property
    def calls(self) -> int:
        """The number of tactics sent to Lean, as the budget counts them."""
        return self._trying.calls

    async def _loop(self) -> Limit:
        """Expand one state after the other; return the limit that ended the search, "" for a proof or no state left."""
        while self._graph.proved is None and self._graph.any_open:
            if self._graph.expanded >= self.budget.nodes:
                return "nodes"
            if limit := self._over():
                return limit
            node = self._graph.pop()
            if limit := await self._expand(node):
                # Not exhausted: the untried candidates are still open.
                self._graph.push(node)
                return limit
        return ""

    def _over(self) -> Limit:
        """Return the limit reached, if any."""
        if self._left_s() <= 0:
            return "seconds"
        calls = self.budget.calls
        return "calls" if calls is not None and self._trying.calls >= calls else ""

    def _left_s(self) -> float:
        return self.budget.seconds - (time.monotonic() - self._began)

    # ---- one state

    async def _expand(self, node: Node) -> Limit:
        """Try the candidates on the node's first goal; return the limit that cut it short, if any."""
        lost = False
        try:
            if limit := await self._try_all(node):
                return limit
        except StateLost as error:
            self._lost, lost = error, True
        if self._graph.proved is not None:
            return ""
        remaining: list[float] | None = None
        if self.method.remaining is not None and node.fresh:
            remaining = await self._wait_for(self.method.remaining.remaining(_progress_steps(node)), node)
            if remaining is None:
                return "seconds"
            if len(remaining) != len(node.fresh):
                raise ValueError(
                    f"the progress model gave {len(remaining)} numbers for {len(node.fresh)} steps"
                )
        self._graph.rank(node, remaining)
        self._graph.close(node, lost=lost)
        self.session.release(self._graph.dropped())
        return ""

    async def _try_all(self, node: Node) -> Limit:
        asked = node.asked(derived_seed(self.method.seed, node.key))
        candidates = await self._wait_for(self.method.proposer.propose(asked), node)
        if candidates is None:
            return "seconds"
        for candidate in candidates:
            if normalised(candidate.text) in node.texts:
                continue
            if limit := self._over():
                return limit
            assert node.state is not None, "an open node has its state"
            ran = await self._trying.run(node.state, node.goals, node.first, candidate)
            if ran.parsed is not None:
                self.method.proposer.saw(candidate, parsed=ran.parsed)
            self._graph.took(node, candidate, ran)
            self.session.release(self._graph.dropped())
            if node.settled:
                break
        return ""

    # ---- waiting for a model

    async def _wait_for(self, asked: Awaitable[T], node: Node) -> T | None:
        """Wait for an answer, and lend the process to other searches meanwhile; None: if time is up.

        If resuming costs a replay, the process is lent only after a wait as long as the replay: at worst this is twice
        the cost of the better choice.
        """
        thinking = asyncio.ensure_future(asked)
        began, look, parked = time.monotonic(), _FIRST_LOOK_S, False
        try:
            # An immediate answer needs no parking.
            await asyncio.wait({thinking}, timeout=0)
            while not thinking.done():
                left = self._left_s()
                if left <= 0:
                    return None
                cost = None if parked else self.session.lending_s((node.depth + 1) * self._trying.mean_s)
                if cost is not None and time.monotonic() - began >= cost:
                    self.session.park()
                    parked = True
                await asyncio.wait({thinking}, timeout=left if parked else min(left, look))
                look = min(2 * look, _LOOK_S)
            return thinking.result()
        finally:
            if not thinking.done():
                thinking.cancel()
                await asyncio.wait({thinking})


def derived_seed(seed: int, key: str) -> int:
    """Return the seed for a state, 0 to 2^32 - 1: the same in every process."""
    return int.from_bytes(hashlib.sha256(f"{seed}\n{key}".encode()).digest()[:4], "big")


def _progress_steps(node: Node) -> list[ProgressStep]:
    goal = state_of(node.goals)
    prefix = "\n".join(step.tactic for step in node.steps)
    return [ProgressStep(goal, way.step.tactic, prefix) for way in node.fresh]
