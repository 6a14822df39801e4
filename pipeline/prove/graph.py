"""The graph of a search: its states, by their rendered goals, and the queue of the open ones.

A state reached again is the same node; a better way to it replaces the old one, as long as no tactic was tried there.
The graph depends on its inputs and their order alone.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pipeline.endpoint.errors import Usage
from pipeline.lean.client.messages import Goal, Message, TacticParseError
from pipeline.lean.goal_text import ambiguous, as_lean_prints, goals_key, state_of
from pipeline.lean.pool.session import Answer, Session, State, Stepped, TacticKilled, canonical
from pipeline.lean.source.forbidden import complaints
from pipeline.lean.source.splice import Script, Step
from pipeline.lean.tactic_text import LONGEST, suggested
from pipeline.lean.tactic_text import Step as ProgressStep
from pipeline.prove.tree import Ended, NodeOutcome, Tree, TreeNode, TriedOutcome, TriedTactic
from store.text import counted, cut, one_line

# ---- A rung, as a search sees it


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tactic to try.

    Attributes:
        text: the whole tactic.
        template: the key of the memory of processes that cannot parse it.
        cost: addition to its step's priority; for rungs without probabilities.
        commits: whether its success loses nothing provable, so that the rest of the list can be skipped.
        log_probability: the model's, natural logarithm; 0 without a model.
    """

    text: str
    template: str
    cost: float = 0
    commits: bool = False
    log_probability: float = 0.0


@dataclass(frozen=True, slots=True)
class TacticRequest:
    """A request for tactics.

    Attributes:
        goals: the search's own open goals; the tactics are for the first.
        steps: the tactics from the root to this state, in order.
        seed: of the sampling for this state: a function of the search and the state.
    """

    goals: tuple[Goal, ...]
    steps: tuple[str, ...]
    seed: int

    @property
    def at_start(self) -> bool:
        return not self.steps


class Proposer(ABC):
    """A source of tactics, for several searches at once.

    Attributes:
        asked: states with requests for tactics.
        answered: states with an answer.
        cost: of its model so far.
    """

    asked: int = 0
    answered: int = 0
    cost: Usage = Usage()

    @abstractmethod
    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        """Return the candidates, best first. They are read lazily, so that `saw` takes effect meanwhile."""

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:  # noqa: B027 - most remember nothing
        """Note whether Lean could parse a tactic."""

    @property
    def reason(self) -> str:
        """Return its own failure, for people; "" for none."""
        return ""


class Remaining(Protocol):
    """A progress model, as a search sees it."""

    async def remaining(self, steps: Sequence[ProgressStep]) -> list[float]:
        """Return the number of steps still needed for a proof after each of these."""


# ---- Running a candidate on a state
# The text policy refuses a text before Lean sees it, at no cost. A failed tactic is not tried again on the same goal,
# in this search or another of the same declaration.


_REASON = 200


@dataclass(frozen=True, slots=True)
class TacticResult:
    """The result of a candidate.

    Attributes:
        tactic: the last tactic run: the suggestion replaces `exact?`.
        outcome: "step" if it ran; the graph turns some steps into "proved" and "repeated".
        reason: of a failure, in a line.
        goals: the search's own goals afterwards; () for a finished proof, and after a failure.
        first: index of the first of them in the state.
        state: the session's handle; None without one, or after its release.
        parsed: whether Lean could parse the candidate; None if Lean did not say.
    """

    tactic: str
    outcome: TriedOutcome
    reason: str = ""
    goals: tuple[Goal, ...] = ()
    first: int = 0
    state: State | None = None
    parsed: bool | None = None


Failures = dict[tuple[str, str], TacticResult]
"""Failed tactics by goal. Searches of one declaration may share it: a failure for one is a failure for all."""


def seen_by_tactics(goals: tuple[Goal, ...]) -> str:
    """Render the goals as a tactic sees them: the first with its names, and the others if they may share unknowns.

    Returns:
        "" if the text is ambiguous.
    """
    if ambiguous(goals):
        return ""
    first = canonical(goals[:1])
    return canonical(goals) if "?" in first else first


@dataclass(slots=True)
class TacticRunner:
    """Runs candidates for one search.

    Attributes:
        session: the search's.
        siblings: names of other searches' goals.
        timeout_s: of a tactic.
        failures: known failures.
        calls: tactics sent to Lean, with suggestions and without the session's replays.
    """

    session: Session
    siblings: frozenset[str]
    timeout_s: float
    failures: Failures
    calls: int = 0
    _seen: tuple[tuple[Goal, ...], str] = ((), "")
    """Of the last goals: all candidates of a state come one after the other."""
    _timed: int = 0
    _seconds: float = 0.0

    @property
    def mean_s(self) -> float:
        """The average seconds of a tactic on a ready process; 0 before the first."""
        return self._seconds / self._timed if self._timed else 0.0

    async def run(
        self, state: State, goals: tuple[Goal, ...], first: int, candidate: Candidate
    ) -> TacticResult:
        """Run a candidate.

        Raises:
            ReplError: as `Session.tactic`.
        """
        text = candidate.text
        if refused := _refused(text):
            return TacticResult(text, "failed", refused)
        if self._seen[0] is not goals:
            self._seen = (goals, seen_by_tactics(goals))
        if (known := self.failures.get((self._seen[1], text))) is not None:
            # Lean does not see it, so nothing new is known about its parsing.
            return dataclasses.replace(known, parsed=None)
        answer = await self._send(state, first, text)
        ran = self._read(text, answer)
        if ran.outcome == "step" and text.endswith("?") and isinstance(answer, Stepped):
            # The suggestion of `exact?` is the proof.
            self.session.release([answer.state])
            ran = await self._suggested(state, first, text, answer.messages)
        # Only for unambiguous goals; a killed process is no such failure.
        if self._seen[1] and ran.outcome in ("failed", "unparsed", "sorry"):
            self.failures[self._seen[1], text] = ran
        return ran

    async def _suggested(
        self, state: State, first: int, text: str, messages: Sequence[Message]
    ) -> TacticResult:
        suggestion = next((one_line(result) for one in messages if (result := suggested(one.data))), "")
        if not suggestion:
            return TacticResult(text, "failed", "it ran, and suggests nothing", parsed=True)
        if refused := _refused(suggestion):
            return TacticResult(
                suggestion, "failed", f"suggested by {text}: {refused}"[:_REASON], parsed=True
            )
        ran = self._read(suggestion, await self._send(state, first, suggestion))
        return dataclasses.replace(ran, parsed=True)

    async def _send(self, state: State, first: int, text: str) -> Answer:
        began, held = time.monotonic(), self.session.process_id is not None
        self.calls += 1
        answer = await self.session.tactic(state, text, goal=first or None, timeout_s=self.timeout_s)
        if held:
            self._timed += 1
            self._seconds += time.monotonic() - began
        return answer

    def _read(self, text: str, answer: Answer) -> TacticResult:
        if isinstance(answer, TacticKilled):
            return TacticResult(text, "killed", _line(answer.reason))
        if isinstance(answer, TacticParseError):
            return TacticResult(text, "unparsed", _line(answer.text), parsed=False)
        if not isinstance(answer, Stepped):
            return TacticResult(text, "failed", _line(answer.reason), parsed=True)
        if answer.has_sorry or answer.has_unsafe:
            self.session.release([answer.state])
            what = "a sorry" if answer.has_sorry else "unsafe code"
            return TacticResult(text, "sorry", f"it rests on {what}", parsed=True)
        own, at = self.own(answer.state.goals)
        return TacticResult(text, "step", goals=own, first=at, state=answer.state, parsed=True)

    def own(self, goals: Sequence[Goal]) -> tuple[tuple[Goal, ...], int]:
        """Return this search's own goals, and the index of the first of them in the state."""
        mine = [(at, goal) for at, goal in enumerate(goals) if goal.name not in self.siblings]
        return tuple(goal for _, goal in mine), mine[0][0] if mine else 0


def normalised(text: str) -> str:
    """Return a tactic with normalised white space, except for indentation, which Lean reads."""
    lines = [line for line in text.expandtabs(2).split("\n") if line.strip()]
    indents = [len(line) - len(line.lstrip()) for line in lines]
    # The first line's own indentation has no meaning.
    return "\n".join(
        " " * (indent if at else 0) + " ".join(line.split())
        for at, (line, indent) in enumerate(zip(lines, indents, strict=True))
    )


@functools.lru_cache(maxsize=4096)
def _refused(text: str) -> str:
    """Return the reason for refusing a text without Lean; "" for none. Curated tactics recur at every state."""
    if not text.strip():
        return "the text is empty"
    if len(text) > LONGEST:
        return f"the text has {len(text)} characters, and no tactic has more than {LONGEST}"
    # A search tactic may run, because its suggestion becomes part of the proof in its place.
    result = complaints(text.removesuffix("?"))
    return f"the text policy refuses {result[0]}"[:_REASON] if result else ""


def _line(text: str) -> str:
    return cut(one_line(text), _REASON)


# ---- The ranking of states: lower scores first
# Rung 0 adds steps so far, the last step's cost and open goals. A model's rung uses log-probabilities: BFS-Prover (Xin
# and others, arXiv:2502.03438) divides their sum by a power of the number of steps, so that deep proofs are not
# starved; here it is the square root. A progress model's estimate of the steps left is mixed in by a weight.


_GOAL_WEIGHT = 2


def by_steps(way: Edge) -> float:
    """Score by steps, cost and open goals, as rung 0 does. No progress model rates its steps."""
    return way.depth + way.cost + _GOAL_WEIGHT * len(way.goals)


@dataclass(frozen=True, slots=True)
class ModelScoring:
    """Scores by log-probability over the square root of the length.

    Attributes:
        progress_weight: share of the remaining steps in the score, 0..1; the rest is the model's. 0.5 weighs a
            remaining step like one nat of surprise.
    """

    progress_weight: float = 0.5

    def __call__(self, way: Edge) -> float:
        """Mix the two. NaN ranks last, like infinity: a broken model must not come first."""
        own, weight = (0.0 - way.log_probability) / math.sqrt(way.depth), self.progress_weight
        remaining = way.remaining
        mixed = own if remaining is None or not weight else (1 - weight) * own + weight * remaining
        return math.inf if math.isnan(mixed) or (remaining is not None and math.isinf(remaining)) else mixed


@dataclass(eq=False, slots=True)
class Node:
    """A state of the search.

    Attributes:
        goals: the search's own goals; () at the end of a proof.
        first: index of the first of them in the session's state.
        step: from the parent to here.
        opened: the number of goals on the way here, with the closed ones.
        state: the session's handle, if it has one now.
        texts: the tactics tried here, with normalised white space.
        fresh: unranked edges from here.
        settled: whether no further candidate need be tried here.
    """

    number: int
    goals: tuple[Goal, ...]
    key: str
    first: int = 0
    parent: Node | None = None
    step: Step | None = None
    depth: int = 0
    log_probability: float = 0.0
    opened: int = 1
    remaining: float | None = None
    score: float = 0.0
    state: State | None = None
    status: Literal["new", "open", "expanded", "lost", "proved"] = "open"
    version: int = 0
    tried: list[TriedTactic] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    fresh: list[Edge] = field(default_factory=list)
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

    def asked(self, seed: int) -> TacticRequest:
        """Return the request for tactics for this state."""
        return TacticRequest(self.goals, tuple(step.tactic for step in self.steps), seed)


@dataclass(eq=False, slots=True)
class Edge:
    """A step from a node to another, with the depth and the sum of log-probabilities there."""

    to: Node
    step: Step
    goals: tuple[Goal, ...]
    first: int
    depth: int
    cost: float
    log_probability: float
    state: State | None
    remaining: float | None = None


Scoring = Callable[[Edge], float]
"""Ranks the end of a step, lower first; infinite: last."""


class Graph:
    """The nodes of one search and the queue of its open ones."""

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
        """Put an open node into the queue."""
        node.status = "open"
        node.version += 1
        heapq.heappush(self._queue, (node.score, node.number, node.version))

    @property
    def any_open(self) -> bool:
        """Whether a node is left to expand."""
        while self._queue:
            _, number, version = self._queue[0]
            if (self.nodes[number].version, self.nodes[number].status) == (version, "open"):
                return True
            heapq.heappop(self._queue)
        return False

    def pop(self) -> Node:
        """Pop the next open node off the queue; there must be one (`any_open`)."""
        assert self.any_open
        self.expanded += 1
        return self.nodes[heapq.heappop(self._queue)[1]]

    def dropped(self) -> list[State]:
        """Return the states useless since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def took(self, node: Node, candidate: Candidate, ran: TacticResult) -> None:
        """Add the result of a candidate. A finished proof sets `proved`; other steps wait for `rank`."""
        node.texts |= {normalised(candidate.text), normalised(ran.tactic)}
        outcome, reason, to = ran.outcome, ran.reason, None
        self.killed += outcome == "killed"
        if outcome == "step":
            outcome, to = self._stepped(node, candidate, ran)
            # After a step to another state that loses nothing, no other candidate is needed.
            node.settled = (
                (candidate.commits and to != node.number)
                or outcome == "proved"
                or (outcome == "step" and _closed_cleanly(node.goals, ran.goals))
            )
        node.tried.append(TriedTactic(ran.tactic, outcome, reason, candidate.log_probability, to))

    def _stepped(self, node: Node, candidate: Candidate, ran: TacticResult) -> tuple[TriedOutcome, int]:
        step = Step(ran.tactic, len(node.goals), len(ran.goals))
        key = goals_key(ran.goals)
        # Ambiguous goals are the same state only on the same way: else a step without effect would repeat for ever.
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
        log_probability = node.log_probability + candidate.log_probability
        way = Edge(
            child, step, ran.goals, ran.first, node.depth + 1, candidate.cost, log_probability, ran.state
        )
        if not ran.goals:
            self._lead(node, way, math.nan)
            child.status, child.score = "proved", -math.inf
            self.proved = child
            if ran.state is not None:
                self._dropped.append(ran.state)
                child.state = None
            return "proved", child.number
        if not alone:
            self._by_key[key] = child
        # A node moves to a better way only before any tactic was tried on it: its edges belong to its former state.
        if child.status == "new" or (child.status == "open" and not child.texts and child is not node):
            node.fresh.append(way)
        elif ran.state is not None:
            self._dropped.append(ran.state)
        return ("step" if known is None else "repeated"), child.number

    def rank(self, node: Node, remaining: Sequence[float] | None) -> None:
        """Score the edges found from a node since the last call, with `remaining` for each, and queue the new nodes."""
        for at, way in enumerate(node.fresh):
            way.remaining = None if remaining is None else remaining[at]
            child, score = way.to, self._scoring(way)
            if child.status == "new" or (child.status == "open" and score < child.score):
                if child.state is not None:
                    self._dropped.append(child.state)
                self._lead(node, way, score)
                self.push(child)
            elif way.state is not None:
                self._dropped.append(way.state)
        node.fresh = []

    def close(self, node: Node, *, lost: bool = False) -> None:
        """Mark a node as expanded, or as lost with its process, and drop its state."""
        node.status = "lost" if lost else "expanded"
        if node.state is not None and node is not self.root:
            self._dropped.append(node.state)
            node.state = None

    def all_states(self) -> list[State]:
        """Return the states in use, without the root's, which belongs to the caller."""
        states = [node.state for node in self.nodes if node.state is not None and node is not self.root]
        waiting = [way.state for node in self.nodes for way in node.fresh if way.state is not None]
        return [*states, *waiting, *self.dropped()]

    def script(self) -> Script | None:
        """Return the proof, if any."""
        return None if self.proved is None else Script(self.proved.steps)

    def _lead(self, node: Node, way: Edge, score: float) -> None:
        child = way.to
        child.parent, child.step, child.depth = node, way.step, way.depth
        child.goals, child.first, child.state = way.goals, way.first, way.state
        child.log_probability, child.remaining, child.score = way.log_probability, way.remaining, score
        child.opened = node.opened + max(0, way.step.goals_after - way.step.goals_before)


def _closed_cleanly(before: tuple[Goal, ...], after: tuple[Goal, ...]) -> bool:
    """Return whether the first goal was closed and the others are unchanged: it needs no other candidate."""
    return state_of(after) == state_of(before[1:])


# ---- The recorded tree of a search, bounded in size, and its summary line


NODES = 1000
TRIED = 40
CHARACTERS = 2_000_000
"""Bounds of a tree: states, tactics of one state, characters of all texts. The rest is counted only."""

_TACTIC = 400
_GOALS = 2000
_TARGET = 120


def outline(graph: Graph, *, outcome: Ended, limit: str) -> Tree:
    """Return the search as a tree: the proof's way, and states in the order of discovery within the bounds."""
    outcomes = _outcomes(graph)
    proof = [] if graph.proved is None else graph.proved.way()
    kept: dict[int, TreeNode] = {}
    room = CHARACTERS
    for node in (*proof, *graph.nodes):
        for at in node.way():
            if at.status == "new" or at.number in kept:
                # An unranked edge leads to no state yet.
                continue
            if len(kept) >= NODES or (room <= 0 and at not in proof):
                continue
            kept[at.number] = result = _node(at, outcomes[at.number])
            room -= _size(result)
    numbers = sorted(kept)
    real = sum(node.status != "new" for node in graph.nodes)
    return Tree(
        outcome=outcome,
        limit=limit,
        best=best(graph),
        nodes=tuple(_without_dropped(kept[number], kept) for number in numbers),
        proof=tuple(node.number for node in proof),
        nodes_left_out=real - len(kept),
    )


def best(graph: Graph) -> str:
    """Return the progress in one line: the state with the fewest goals left, and of those the furthest."""
    if graph.proved is not None:
        return f"proved with {counted(graph.proved.depth, 'tactic')}"
    nearest = min((node for node in graph.nodes if node.status != "new"), key=_distance)
    left = len(nearest.goals)
    target = cut(one_line(nearest.goals[0].target), _TARGET)
    return f"{left} of {counted(nearest.opened, 'goal')} left after {counted(nearest.depth, 'tactic')}: ⊢ {target}"


def _distance(node: Node) -> tuple[float, ...]:
    remaining = math.inf if node.remaining is None or math.isnan(node.remaining) else node.remaining
    return (len(node.goals), -node.opened, remaining, -node.depth, node.number)


def _outcomes(graph: Graph) -> list[NodeOutcome]:
    """Return each state's outcome: proved if a proof can be reached from it, dead if no open state can."""
    before: list[list[int]] = [[] for _ in graph.nodes]
    for node in graph.nodes:
        for one in node.tried:
            if one.to is not None:
                before[one.to].append(node.number)
    proved = _reaching(before, (node.number for node in graph.nodes if node.status == "proved"))
    alive = _reaching(before, (node.number for node in graph.nodes if node.status in ("open", "lost", "new")))

    def of(node: Node) -> NodeOutcome:
        if node.number in proved:
            return "proved"
        if node.status == "expanded":
            return "expanded" if node.number in alive else "dead"
        return "lost" if node.status == "lost" else "open"

    return [of(node) for node in graph.nodes]


def _reaching(before: list[list[int]], ends: Iterable[int]) -> set[int]:
    """Return these nodes and all nodes with steps leading to them."""
    waiting = list(ends)
    result = set(waiting)
    while waiting:
        for number in before[waiting.pop()]:
            if number not in result:
                result.add(number)
                waiting.append(number)
    return result


def _node(node: Node, outcome: NodeOutcome) -> TreeNode:
    # Steps have precedence over failures.
    kept = sorted(range(len(node.tried)), key=lambda at: node.tried[at].to is None)[:TRIED]
    shown = [_cut(node.tried[at]) for at in sorted(kept)]
    return TreeNode(
        number=node.number,
        parent=None if node.parent is None else node.parent.number,
        tactic="" if node.step is None else cut(node.step.tactic, _TACTIC),
        goals=_goals(node),
        depth=node.depth,
        score=node.score,
        log_probability=node.log_probability,
        remaining=node.remaining,
        outcome=outcome,
        tried=tuple(shown),
        tried_left_out=len(node.tried) - len(shown),
    )


def _goals(node: Node) -> tuple[str, ...]:
    texts: list[str] = []
    room = _GOALS
    for at, goal in enumerate(node.goals):
        if room <= 0:
            texts.append(f"… and {len(node.goals) - at} more goals")
            break
        texts.append(cut(as_lean_prints(goal), room))
        room -= len(texts[-1])
    return tuple(texts)


def _cut(one: TriedTactic) -> TriedTactic:
    return TriedTactic(cut(one.tactic, _TACTIC), one.outcome, one.reason, one.log_probability, one.to)


def _without_dropped(node: TreeNode, kept: dict[int, TreeNode]) -> TreeNode:
    """Drop the tactics with dropped states as results; they count as left out."""
    tried = tuple(one for one in node.tried if one.to is None or one.to in kept)
    if len(tried) == len(node.tried):
        return node
    left_out = node.tried_left_out + len(node.tried) - len(tried)
    return dataclasses.replace(node, tried=tried, tried_left_out=left_out)


def _size(node: TreeNode) -> int:
    return (
        sum(map(len, node.goals))
        + len(node.tactic)
        + sum(len(one.tactic) + len(one.reason) + 80 for one in node.tried)
        + 200
    )
