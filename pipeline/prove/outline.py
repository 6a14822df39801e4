"""From a search's graph to the tree that is kept of it, bounded in size, and to the line that says how far it got."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pipeline.lean.client.messages import render_goals
from pipeline.prove.graph import Graph, Node
from pipeline.prove.tree import Ended, NodeOutcome, Tree, TreeNode, Tried

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
    shown: list[Tried] = []
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


def _cut(one: Tried) -> Tried:
    return Tried(shortened(one.tactic, _TACTIC), one.outcome, one.reason, one.log_probability, one.to)


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
