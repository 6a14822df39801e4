"""The states that a search has reached, by their rendered goals, and which of them comes next.

A state reached again is the same node; on a better way it moves there, as long as nothing was tried on it. What is
decided here follows from what is put in and in which order, and from nothing else: a search that is gone on with
(`journal.py`) puts the same in and stands where it stood.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipeline.lean.client.messages import Goal
from pipeline.lean.goal_text import ambiguous, goals_key
from pipeline.lean.pool.states import State
from pipeline.lean.source.splice import Script, Step
from pipeline.prove.proposing import Asked, Candidate
from pipeline.prove.scoring import Reached, Scoring
from pipeline.prove.tree import Tried, TriedOutcome
from pipeline.prove.trying import Ran, normalised


@dataclass(eq=False, slots=True)
class Node:
    """A state of the search.

    Attributes:
        goals: the search's own goals; () where a proof ended here.
        first: index of the first of them in the session's state.
        step: what led here from the parent.
        cost: of the candidate that led here.
        opened: how many goals there have been on the way here, those that are closed counted.
        state: the session's handle, where there is one at the moment.
        texts: the tactics tried here, white space normalised.
        answered: what the proposer said, where that is a sequence and is kept.
        fresh: ways found from here that are not ranked yet.
        settled: nothing more is to be tried here, though the way on is not ranked yet.
    """

    number: int
    goals: tuple[Goal, ...]
    key: str
    first: int = 0
    parent: Node | None = None
    step: Step | None = None
    depth: int = 0
    cost: float = 0
    log_probability: float = 0.0
    opened: int = 1
    remaining: float | None = None
    score: float = 0.0
    state: State | None = None
    status: Literal["new", "open", "expanded", "lost", "proved"] = "open"
    version: int = 0
    tried: list[Tried] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    answered: Sequence[Candidate] | None = None
    fresh: list[Way] = field(default_factory=list)
    settled: bool = False

    def way(self) -> list[Node]:
        """Return the nodes from the root to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(node.step for node in self.way() if node.step is not None)

    def asked(self, seed: int) -> Asked:
        """Return what a proposer is told of this state."""
        return Asked(self.goals, tuple(step.tactic for step in self.steps), seed)


@dataclass(frozen=True, slots=True)
class Way:
    """A step found from a node to another."""

    to: Node
    step: Step
    goals: tuple[Goal, ...]
    first: int
    cost: float
    log_probability: float
    state: State | None


class Graph:
    """The nodes of one search and the queue of those that are open."""

    def __init__(self, goals: tuple[Goal, ...], scoring: Scoring, *, first: int, state: State) -> None:
        self.root = Node(0, goals, goals_key(goals), first=first, state=state)
        self.nodes = [self.root]
        self.proved: Node | None = None
        self.expanded = 0
        self.killed = 0
        self._scoring = scoring
        self._by_key = {self.root.key: self.root}
        self._queue: list[tuple[float, int, int]] = []
        self._dropped: list[State] = []
        self.push(self.root)

    def push(self, node: Node) -> None:
        """Put an open node into the queue, at its place."""
        node.status = "open"
        node.version += 1
        heapq.heappush(self._queue, (node.score, node.number, node.version))

    @property
    def any_open(self) -> bool:
        """Say whether a node is left to expand."""
        while self._queue:
            _, number, version = self._queue[0]
            if (self.nodes[number].version, self.nodes[number].status) == (version, "open"):
                return True
            heapq.heappop(self._queue)
        return False

    def pop(self) -> Node:
        """Take the open node that comes next out of the queue; there must be one (`any_open`)."""
        assert self.any_open
        self.expanded += 1
        return self.nodes[heapq.heappop(self._queue)[1]]

    def dropped(self) -> list[State]:
        """Return the states that are of no more use since this was last asked."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def took(self, node: Node, candidate: Candidate, ran: Ran) -> None:
        """Note what came of a candidate. A finished proof makes `proved`; what leads on waits for `rank`."""
        node.texts |= {normalised(candidate.text), normalised(ran.tactic)}
        outcome, reason, to = ran.outcome, ran.reason, None
        self.killed += outcome == "killed"
        if outcome == "step":
            outcome, to = self._stepped(node, candidate, ran)
            # A step that loses nothing and leads to another state leaves nothing to do here.
            node.settled = (
                (candidate.commits and to != node.number)
                or outcome == "proved"
                or (outcome == "step" and _closed_cleanly(node.goals, ran.goals))
            )
        node.tried.append(Tried(ran.tactic, outcome, reason, candidate.log_probability, to))

    def _stepped(self, node: Node, candidate: Candidate, ran: Ran) -> tuple[TriedOutcome, int]:
        step = Step(ran.tactic, len(node.goals), len(ran.goals))
        key = goals_key(ran.goals)
        # What reads the same and may differ is one only with what it came from: or a step that does nothing would
        # lead on for ever.
        alone = ambiguous(ran.goals)
        known = (
            next((one for one in node.way() if one.key == key), None)
            if alone or not ran.goals
            else self._by_key.get(key)
        )
        if known is None:
            child = Node(len(self.nodes), ran.goals, key, score=math.inf, status="new")
            self.nodes.append(child)
        else:
            child = known
        way = Way(child, step, ran.goals, ran.first, candidate.cost, candidate.log_probability, ran.state)
        if not ran.goals:
            self._lead(node, way, math.nan, None)
            child.status, child.score = "proved", -math.inf
            self.proved = child
            if ran.state is not None:
                self._dropped.append(ran.state)
                child.state = None
            return "proved", child.number
        if not alone:
            self._by_key[key] = child
        # Nothing may have been tried on what moves: what was found from there was found from the state that it had.
        if child.status == "new" or (child.status == "open" and not child.texts and child is not node):
            node.fresh.append(way)
        elif ran.state is not None:
            self._dropped.append(ran.state)
        return ("step" if known is None else "repeated"), child.number

    def rank(self, node: Node, remaining: Sequence[float] | None) -> None:
        """Score the ways found from a node since this was last called, `remaining` for each, and queue what is new."""
        for at, way in enumerate(node.fresh):
            left = None if remaining is None else remaining[at]
            child = way.to
            score = self._scoring.score(
                Reached(
                    depth=node.depth + 1,
                    goals=len(way.goals),
                    cost=way.cost,
                    log_probability=node.log_probability + way.log_probability,
                    remaining=left,
                )
            )
            if child.status == "new" or (child.status == "open" and score < child.score):
                if child.state is not None:
                    self._dropped.append(child.state)
                self._lead(node, way, score, left)
                self.push(child)
            elif way.state is not None:
                self._dropped.append(way.state)
        node.fresh = []

    def close(self, node: Node, *, lost: bool = False) -> None:
        """Take note that a node is expanded, or went down on the way; its state is of no more use."""
        node.status = "lost" if lost else "expanded"
        if node.state is not None and node is not self.root:
            self._dropped.append(node.state)
            node.state = None

    def all_states(self) -> list[State]:
        """Return the states that are still held, but for the root's, which is the caller's."""
        held = [node.state for node in self.nodes if node.state is not None and node is not self.root]
        waiting = [way.state for node in self.nodes for way in node.fresh if way.state is not None]
        return [*held, *waiting, *self.dropped()]

    def script(self) -> Script | None:
        """Return the proof, where one is found."""
        return None if self.proved is None else Script(self.proved.steps)

    def _lead(self, node: Node, way: Way, score: float, remaining: float | None) -> None:
        child = way.to
        child.parent, child.step, child.depth = node, way.step, node.depth + 1
        child.goals, child.first, child.state = way.goals, way.first, way.state
        child.cost = way.cost
        child.log_probability = node.log_probability + way.log_probability
        child.opened = node.opened + max(0, way.step.goals_after - way.step.goals_before)
        child.score, child.remaining = score, remaining


def _closed_cleanly(before: tuple[Goal, ...], after: tuple[Goal, ...]) -> bool:
    """Say whether the first goal was closed and the others are as they were: nothing else need be tried on it."""
    return tuple(goal.render() for goal in after) == tuple(goal.render() for goal in before[1:])
