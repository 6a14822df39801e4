"""The states that a search has reached, by their rendered goals, and which of them comes next.

A state reached again is the same node; on a better way it moves there, as long as nothing was tried on it. What is
decided here follows from what is put in and in which order, and from nothing else: a search that is gone on with
(`journal.py`) puts the same in and stands where it stood.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pipeline.lean.client.messages import Goal, Message, TacticParseError, render_goals
from pipeline.lean.goal_text import ambiguous, goals_key
from pipeline.lean.pool.session import Answer, Session, State, Stepped, TacticKilled, canonical
from pipeline.lean.source.forbidden import complaints
from pipeline.lean.source.splice import Script, Step
from pipeline.models.progress.steps import Step as ProgressStep
from pipeline.models.tactics.requests import LONGEST
from pipeline.prove.tree import Ended, NodeOutcome, Tree, TreeNode, TriedOutcome, TriedTactic

# ---- What a search asks its rung for
# Tactics to try on goals, and how many steps a proof still needs after one.


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tactic to try.

    Attributes:
        text: the tactic, whole.
        template: what is remembered as unknown to a process that cannot parse it.
        cost: what a step with it adds to a priority; for rungs that know no probabilities.
        commits: when it succeeds nothing that was provable is lost, so the rest of the list need not be tried.
        log_probability: the model's, natural logarithm; 0 where there is no model.
        tokens: how many tokens that is of.
    """

    text: str
    template: str
    cost: float = 0
    commits: bool = False
    log_probability: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class TacticRequest:
    """The state of a search at a request for tactics.

    Attributes:
        goals: the search's own open goals; the tactics are for the first.
        steps: the tactics that led here from the root, in order.
        seed: of what is drawn for this state; the same state of the same search has the same.
    """

    goals: tuple[Goal, ...]
    steps: tuple[str, ...]
    seed: int

    @property
    def at_start(self) -> bool:
        return not self.steps


class Proposer(Protocol):
    """A rung's way to tactics. May be asked by several searches at once."""

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        """Return what to try, best first. It is read lazily: what `saw` teaches meanwhile may already count."""

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:
        """Hear whether Lean could parse a tactic at all."""


class Remaining(Protocol):
    """A progress model as a search asks it."""

    async def remaining(self, steps: Sequence[ProgressStep]) -> list[float]:
        """Return how many steps a proof still needs after each of these."""


# ---- One candidate on one state, up to what it comes to. Whatever the text is, there is an answer
# The text policy is asked before Lean: what may not stand in a proof costs no request. What failed on a goal is
# remembered, so that it is not tried on it again, in this search or in another of the same declaration.


_SUGGESTION = re.compile(r"Try this:\s*(?:\[apply\]\s*)?(.+)", re.DOTALL)
_REASON = 200


@dataclass(frozen=True, slots=True)
class TacticResult:
    """The outcome of a candidate.

    Attributes:
        tactic: what was run last: `exact?` makes way for what it suggests.
        outcome: "step" where it ran, whatever is left then; "proved" and "repeated" are for the search to say.
        reason: why not, in a line.
        goals: the search's own goals afterwards; () for a finished proof, and where it did not run.
        first: index of the first of them in the state.
        state: the session's handle; None where there is none, or none any more.
        parsed: whether Lean could parse the candidate; None where Lean did not say.
    """

    tactic: str
    outcome: TriedOutcome
    reason: str = ""
    goals: tuple[Goal, ...] = ()
    first: int = 0
    state: State | None = None
    parsed: bool | None = None


class Failures:
    """Failed tactics by goal. Searches of one declaration may share it: a failure for one is a failure for all."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str], TacticResult] = {}

    def known(self, seen: str, tactic: str) -> TacticResult | None:
        return self._failed.get((seen, tactic))

    def note(self, seen: str, tactic: str, ran: TacticResult) -> None:
        """Remember what failed; what ran or ended a process is left alone, and what may be read in two ways."""
        if seen and ran.outcome in ("failed", "unparsed", "sorry"):
            self._failed[seen, tactic] = ran


def seen_by_tactics(goals: tuple[Goal, ...]) -> str:
    """Render what a tactic sees: the first goal, names and all, and the others where they may share unknowns.

    "" where that may be read in two ways.
    """
    if ambiguous(goals):
        return ""
    first = canonical(goals[:1])
    return canonical(goals) if "?" in first else first


class TacticRunner:
    """Tries candidates for one search.

    Attributes:
        calls: tactics that were sent to Lean, what was suggested by others counted; the session's replays are not.
    """

    def __init__(
        self,
        session: Session,
        *,
        siblings: frozenset[str],
        timeout_s: float,
        failures: Failures,
    ) -> None:
        self._session = session
        self._siblings = siblings
        self._timeout_s = timeout_s
        self._failures = failures
        # Of the goals at hand: all candidates of a state come one after the other.
        self._seen: tuple[tuple[Goal, ...], str] = ((), "")
        self.calls = 0
        self._timed = 0
        self._seconds = 0.0

    @property
    def mean_s(self) -> float:
        """Seconds that a tactic took, on average over those for which a process was at hand; 0 before the first."""
        return self._seconds / self._timed if self._timed else 0.0

    async def run(
        self, state: State, goals: tuple[Goal, ...], first: int, candidate: Candidate
    ) -> TacticResult:
        """Try a candidate.

        Raises:
            ReplError: as `Session.tactic`.
        """
        text = candidate.text
        if refused := _refused(text):
            return TacticResult(text, "failed", refused)
        if self._seen[0] is not goals:
            self._seen = (goals, seen_by_tactics(goals))
        if (known := self._failures.known(self._seen[1], text)) is not None:
            # Lean is not asked, so it says nothing new about what it can parse.
            return dataclasses.replace(known, parsed=None)
        answer = await self._send(state, first, text)
        ran = self._read(text, answer)
        if ran.outcome == "step" and text.endswith("?") and isinstance(answer, Stepped):
            # `exact?` found something: what it suggests is the proof, not the looking for it.
            self._session.release([answer.state])
            ran = await self._suggested(state, first, text, answer.messages)
        self._failures.note(self._seen[1], text, ran)
        return ran

    async def _suggested(
        self, state: State, first: int, text: str, messages: Sequence[Message]
    ) -> TacticResult:
        suggestion = _suggestion(messages)
        if suggestion is None:
            return TacticResult(text, "failed", "it ran, and suggests nothing", parsed=True)
        if refused := _refused(suggestion):
            return TacticResult(
                suggestion, "failed", f"suggested by {text}: {refused}"[:_REASON], parsed=True
            )
        ran = self._read(suggestion, await self._send(state, first, suggestion))
        return dataclasses.replace(ran, parsed=True)

    async def again(self, state: State, first: int, tactic: str) -> Answer:
        """Run a tactic that succeeded before, with patience: the machine may be busier than it was."""
        return await self._session.tactic(state, tactic, goal=first or None, timeout_s=self._timeout_s * 3)

    async def _send(self, state: State, first: int, text: str) -> Answer:
        began, held = time.monotonic(), self._session.process_id is not None
        self.calls += 1
        answer = await self._session.tactic(state, text, goal=first or None, timeout_s=self._timeout_s)
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
            self._session.release([answer.state])
            what = "a sorry" if answer.has_sorry else "unsafe code"
            return TacticResult(text, "sorry", f"it rests on {what}", parsed=True)
        own, at = self.own(answer.state.goals)
        return TacticResult(text, "step", goals=own, first=at, state=answer.state, parsed=True)

    def own(self, goals: Sequence[Goal]) -> tuple[tuple[Goal, ...], int]:
        """Return the goals that belong to this search, and the index of the first of them in the state."""
        mine = [(at, goal) for at, goal in enumerate(goals) if goal.name not in self._siblings]
        return tuple(goal for _, goal in mine), mine[0][0] if mine else 0


def normalised(text: str) -> str:
    """Return a tactic with its white space as one would write it; indentation, which Lean reads, stays."""
    lines = [line for line in text.expandtabs(2).split("\n") if line.strip()]
    indents = [len(line) - len(line.lstrip()) for line in lines]
    # The first line's own indentation says nothing.
    return "\n".join(
        " " * (indent if at else 0) + " ".join(line.split())
        for at, (line, indent) in enumerate(zip(lines, indents, strict=True))
    )


@functools.lru_cache(maxsize=4096)
def _refused(text: str) -> str:
    """Return why a text is not even tried; "" where it is. The curated tactics come again at every state."""
    if not text.strip():
        return "the text is empty"
    if len(text) > LONGEST:
        return f"the text has {len(text)} characters, and no tactic has more than {LONGEST}"
    # What looks for a proof may be run, because not it but what it finds becomes part of the proof.
    found = complaints(text.removesuffix("?"))
    return f"the text policy refuses {found[0]}"[:_REASON] if found else ""


def _suggestion(messages: Sequence[Message]) -> str | None:
    for message in messages:
        found = _SUGGESTION.search(message.data)
        if found:
            lines = [line for line in found.group(1).splitlines() if line.strip()]
            return " ".join(line.strip() for line in lines) if lines else None
    return None


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON else line[: _REASON - 1] + "…"


# ---- Which state of a search comes next: lower scores first
# Rung 0 counts: steps so far, the last step's cost, open goals. A model's rung goes by what the model thinks of the
# steps: BFS-Prover (Xin and others, arXiv:2502.03438) divides the sum of their log-probabilities by L^alpha, L their
# number, so that deep proofs are not starved; alpha 0 is the plain sum, 1 the mean. A progress model's word, how many
# steps are left, is mixed in by a weight.


_GOAL_WEIGHT = 2


@dataclass(frozen=True, slots=True)
class ReachedState:
    """A state as a score sees it, on the way that is scored.

    Attributes:
        depth: steps from the root, at least 1.
        goals: how many are open.
        cost: the last candidate's (`Candidate.cost`).
        log_probability: the sum over the steps; natural logarithm.
        remaining: steps that a proof still needs, where a progress model was asked.
    """

    depth: int
    goals: int
    cost: float
    log_probability: float
    remaining: float | None = None


class Scoring(Protocol):
    """The ranking of states. Equal scorings print the same (`repr`): a search is not resumed under another."""

    def score(self, reached: ReachedState) -> float:
        """Return the score, lower first; infinite: last."""


@dataclass(frozen=True, slots=True)
class StepScoring:
    """Rung 0's: steps, cost and open goals. `progress_weight` as in `ModelScoring`."""

    progress_weight: float = 0.5

    def __post_init__(self) -> None:
        _check_weight(self.progress_weight)

    def score(self, reached: ReachedState) -> float:
        counted = reached.depth + reached.cost + _GOAL_WEIGHT * reached.goals
        return _blended(counted, reached.remaining, self.progress_weight)


@dataclass(frozen=True, slots=True)
class ModelScoring:
    """By log-probability, normalised by length.

    Attributes:
        alpha: exponent of the length, 0..1.
        progress_weight: share of the remaining steps in the score, 0..1; the rest is the model's. 0.5 weighs one step
            left like one nat of surprise.
    """

    alpha: float = 0.5
    progress_weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"scoring: alpha is {self.alpha}; it must be between 0 and 1")
        _check_weight(self.progress_weight)

    def score(self, reached: ReachedState) -> float:
        normalised = (0.0 - reached.log_probability) / reached.depth**self.alpha
        return _blended(normalised, reached.remaining, self.progress_weight)


def _blended(own: float, remaining: float | None, weight: float) -> float:
    """Mix the two. What is not a number ranks last, like what is infinite: a broken model must not come first."""
    mixed = own if remaining is None or not weight else (1 - weight) * own + weight * remaining
    return math.inf if math.isnan(mixed) or (remaining is not None and math.isinf(remaining)) else mixed


def _check_weight(weight: float) -> None:
    if not 0 <= weight <= 1:
        raise ValueError(f"scoring: progress_weight is {weight}; it must be between 0 and 1")


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
    tried: list[TriedTactic] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    answered: Sequence[Candidate] | None = None
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
        """Return what a proposer is told of this state."""
        return TacticRequest(self.goals, tuple(step.tactic for step in self.steps), seed)


@dataclass(frozen=True, slots=True)
class Edge:
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

    def took(self, node: Node, candidate: Candidate, ran: TacticResult) -> None:
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
        node.tried.append(TriedTactic(ran.tactic, outcome, reason, candidate.log_probability, to))

    def _stepped(self, node: Node, candidate: Candidate, ran: TacticResult) -> tuple[TriedOutcome, int]:
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
        way = Edge(child, step, ran.goals, ran.first, candidate.cost, candidate.log_probability, ran.state)
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
                ReachedState(
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

    def _lead(self, node: Node, way: Edge, score: float, remaining: float | None) -> None:
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


# ---- From a search's graph to the tree that is kept of it, bounded in size, and to the line that says how far it got


NODES = 1000
TRIED = 40
CHARACTERS = 2_000_000
"""Bounds of a tree: states, tactics of one state, characters of all texts. What is over is counted, not kept."""

_TACTIC = 400
_GOALS = 2000
_TARGET = 120


def outline(graph: Graph, *, outcome: Ended, limit: str) -> Tree:
    """Return the search as a tree: the proof's way first, then states in the order of discovery while there is room."""
    outcomes = _outcomes(graph)
    proof = [] if graph.proved is None else graph.proved.way()
    kept: dict[int, TreeNode] = {}
    room = CHARACTERS
    for node in (*proof, *graph.nodes):
        for at in node.way():
            if at.status == "new" or at.number in kept:
                # A way that was found and not ranked yet is no state yet.
                continue
            if len(kept) >= NODES or (room <= 0 and at not in proof):
                continue
            kept[at.number] = made = _node(at, outcomes[at.number])
            room -= _size(made)
    numbers = sorted(kept)
    real = sum(node.status != "new" for node in graph.nodes)
    return Tree(
        outcome=outcome,
        limit=limit,
        best=best(graph),
        nodes=tuple(_without_strangers(kept[number], kept) for number in numbers),
        proof=tuple(node.number for node in proof),
        nodes_left_out=real - len(kept),
    )


def best(graph: Graph) -> str:
    """Say in one line how far the search got: the state with the fewest goals left, of those the furthest."""
    if graph.proved is not None:
        return f"proved with {_counted(graph.proved.depth, 'tactic')}"
    nearest = min((node for node in graph.nodes if node.status != "new"), key=_distance)
    left = len(nearest.goals)
    target = " ".join(nearest.goals[0].target.render().split())
    if len(target) > _TARGET:
        target = target[: _TARGET - 1] + "…"
    return f"{left} of {_counted(nearest.opened, 'goal')} left after {_counted(nearest.depth, 'tactic')}: ⊢ {target}"


def _distance(node: Node) -> tuple[float, ...]:
    remaining = math.inf if node.remaining is None or math.isnan(node.remaining) else node.remaining
    return (len(node.goals), -node.opened, remaining, -node.depth, node.number)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _outcomes(graph: Graph) -> list[NodeOutcome]:
    """Say of each state what it is worth: proved where a proof can be reached from it, dead where nothing open can."""
    before: list[list[int]] = [[] for _ in graph.nodes]
    for node in graph.nodes:
        for one in node.tried:
            if one.to is not None:
                before[one.to].append(node.number)
    proved = _reaching(before, (node.number for node in graph.nodes if node.status == "proved"))
    alive = _reaching(before, (node.number for node in graph.nodes if node.status in ("open", "lost", "new")))
    outcomes: list[NodeOutcome] = []
    for node in graph.nodes:
        if node.number in proved:
            outcomes.append("proved")
        elif node.status == "lost":
            outcomes.append("lost")
        elif node.status == "expanded":
            outcomes.append("expanded" if node.number in alive else "dead")
        else:
            outcomes.append("open")
    return outcomes


def _reaching(before: list[list[int]], ends: Iterable[int]) -> set[int]:
    """Return these nodes and those from which a step, or several, lead to one of them."""
    waiting = list(ends)
    found = set(waiting)
    while waiting:
        for number in before[waiting.pop()]:
            if number not in found:
                found.add(number)
                waiting.append(number)
    return found


def _node(node: Node, outcome: NodeOutcome) -> TreeNode:
    # What led somewhere is kept before what failed.
    led = [one for one in node.tried if one.to is not None][:TRIED]
    room = TRIED - len(led)
    shown: list[TriedTactic] = []
    for one in node.tried:
        if one in led:
            shown.append(_cut(one))
        elif one.to is None and room:
            room -= 1
            shown.append(_cut(one))
    return TreeNode(
        number=node.number,
        parent=None if node.parent is None else node.parent.number,
        tactic="" if node.step is None else shortened(node.step.tactic, _TACTIC),
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
        texts.append(shortened(render_goals((goal,)).strip("\n"), room))
        room -= len(texts[-1])
    return tuple(texts)


def _cut(one: TriedTactic) -> TriedTactic:
    return TriedTactic(shortened(one.tactic, _TACTIC), one.outcome, one.reason, one.log_probability, one.to)


def _without_strangers(node: TreeNode, kept: dict[int, TreeNode]) -> TreeNode:
    """Drop the tried tactics that led to states which are not kept; they count as left out."""
    tried = tuple(one for one in node.tried if one.to is None or one.to in kept)
    if len(tried) == len(node.tried):
        return node
    return TreeNode(
        node.number, node.parent, node.tactic, node.goals, node.depth, node.score, node.log_probability,
        node.remaining, node.outcome, tried, node.tried_left_out + len(node.tried) - len(tried),
    )  # fmt: skip


def _size(node: TreeNode) -> int:
    return (
        sum(map(len, node.goals))
        + len(node.tactic)
        + sum(len(one.tactic) + len(one.reason) + 80 for one in node.tried)
        + 200
    )


def shortened(text: str, most: int) -> str:
    """Return the text, cut where it is longer than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
