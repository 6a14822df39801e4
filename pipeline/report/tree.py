"""A search tree for people: as text for a terminal, as an SVG drawing for the report, and as a page of its own.

Control characters in the words of Lean and of models are replaced before a terminal or a browser can act on them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.report.charts import safe
from store.text import and_more, counted, cut, one_line, printable

if TYPE_CHECKING:
    from pipeline.prove.tree import NodeOutcome, Tree, TreeNode, TriedTactic

DRAWN = 300
"""So many states are drawn; the list has all that the tree has."""
_COLUMNS, _INDENT, _DEEPEST, _FAILED = 100, 2, 24, 6
"""Of the text: its width, an indentation, the largest one, and the failed tactics that are named."""
_WIDE, _HIGH, _RIGHT, _DOWN, _EDGE, _LETTERS = 184, 44, 36, 12, 12, 23
"""Of the drawing: a box, the room between boxes and around all, and the letters on a line of a box."""
_MARKS: dict[NodeOutcome, str] = {"proved": "✓", "expanded": "→", "dead": "✗", "open": "○", "lost": "?"}
_MEANING: dict[NodeOutcome, str] = {
    "proved": "a proof goes through it",
    "expanded": "tried, and something open comes after it",
    "dead": "tried, and nothing open is left after it",
    "open": "not tried, or not to the end",
    "lost": "it went down with its process",
}


def legend() -> list[tuple[str, str, str]]:
    """Return mark, name and meaning of each outcome of a state."""
    return [(mark, outcome, _MEANING[outcome]) for outcome, mark in _MARKS.items()]


# ---- as text


def text(tree: Tree, *, width: int = _COLUMNS) -> str:
    """Return the tree as lines of at most `width` columns, the proof's way marked with `*`."""
    proof = set(tree.proof)
    lines = [
        *_wrapped(_headline(tree), width),
        *_wrapped(
            f"{totals(tree)}. Each: number, tactic, [state, score], its first goal. Further in: after the one above; "
            "└ the only one after it." + (" * marks the proof." if proof else ""),
            width,
        ),
        "",
    ]
    children: dict[int | None, list[TreeNode]] = {}
    for node in tree.nodes:
        children.setdefault(node.parent, []).append(node)
    waiting = [(node, 0, False) for node in children.get(None, ())]
    while waiting:
        node, indent, alone = waiting.pop()
        before = " " * min(indent, _DEEPEST) + ("└ " if alone else "")
        lines += _node_lines(node, "*" if node.number in proof else " ", before, width)
        below = children.get(node.number, [])
        # A line of states that have no brothers does not wander to the right.
        further = indent if len(below) == 1 else indent + _INDENT * (2 if alone else 1)
        waiting += [(child, further, len(below) == 1) for child in reversed(below)]
    if tree.nodes_left_out:
        lines += ["", f"{tree.nodes_left_out} more states are left out."]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _ended(tree: Tree) -> str:
    """Describe how the search ended."""
    if tree.outcome == "found":
        return "Proof found"
    if tree.outcome == "exhausted":
        return "No proof: nothing is left to try"
    return f"Stopped by its budget of {tree.limit}" if tree.limit else "Stopped by its budget"


def totals(tree: Tree) -> str:
    """Count states and tactics, what is left out included."""
    states = len(tree.nodes) + tree.nodes_left_out
    tactics = sum(len(node.tried) + node.tried_left_out for node in tree.nodes)
    kinds = Counter(node.outcome for node in tree.nodes)
    kinds_said = ", ".join(f"{kinds[outcome]} {outcome}" for outcome in _MEANING if kinds[outcome])
    return f"{counted(states, 'state')} ({kinds_said}), {counted(tactics, 'tactic')} tried"


def _headline(tree: Tree) -> str:
    return f"{_ended(tree)}. {tree.best[:1].upper()}{tree.best[1:]}"


def _node_lines(node: TreeNode, mark: str, before: str, width: int) -> list[str]:
    head = f"{mark} {before}{node.number}"
    facts: list[str] = [node.outcome]
    if math.isfinite(node.score) and node.parent is not None:
        facts.append(f"{node.score:.4g}")
    if node.log_probability:
        facts.append(f"log p {node.log_probability:.3g}")
    if node.remaining is not None:
        facts.append(f"{node.remaining:.3g} steps left")
    tail = f"  [{', '.join(facts)}]"
    tactic = _line(node.tactic) if node.parent is not None else "the goal"
    lines = [f"{head} {cut(tactic, max(8, width - len(head) - 1 - len(tail)))}{tail}"]
    below = f"{mark}{' ' * len(head)}"
    if node.goals:
        more = f"  (+{len(node.goals) - 1} more)" if len(node.goals) > 1 else ""
        lines.append(below + cut(_target(node.goals[0]), max(8, width - len(below) - len(more))) + more)
    elif node.outcome == "proved":
        lines.append(f"{below}no goals")
    failed = [one for one in node.tried if one.to is None]
    if failed or node.tried_left_out:
        lines.append(below + cut(_failed(failed, node.tried_left_out), max(8, width - len(below))))
    return lines


def _failed(failed: list[TriedTactic], left_out: int) -> str:
    shown = ", ".join(cut(_line(one.tactic), 24) for one in failed[:_FAILED])
    rest = len(failed[_FAILED:]) + left_out
    if not shown:
        return f"{rest} more tried"
    return f"in vain: {shown}" + and_more(rest)


def _target(goal: str) -> str:
    """Return the goal's last part on one line: what is to be shown."""
    at = goal.rfind("⊢")
    return _line(goal[at:] if at >= 0 else goal)


def _line(words: str) -> str:
    """Return text on one line, without what a terminal would act on."""
    return printable(" ⏎ ".join(line.strip() for line in words.splitlines() if line.strip()))


def _wrapped(words: str, width: int) -> list[str]:
    lines = [""]
    for word in _line(words).split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = cut(f"{lines[-1]} {word}".strip(), width)
    return lines


# ---- as a drawing


@dataclass(frozen=True, slots=True)
class Drawing:
    """The tree as one picture, and the states that it shows, by number."""

    svg: str
    states: tuple[TreeNode, ...]


@dataclass(frozen=True, slots=True)
class _Box:
    node: TreeNode
    x: int
    y: int
    width: int = _WIDE
    height: int = _HIGH

    @property
    def name(self) -> str:
        return self.node.tactic if self.node.parent is not None else "the goal"

    @property
    def goals(self) -> str:
        return "\n\n".join(self.node.goals) or "no goals"

    @property
    def brief(self) -> str:
        """Return the target of the first goal on one line."""
        goals = self.node.goals
        if not goals:
            return "no goals"
        more = f"+{len(goals) - 1} " if len(goals) > 1 else ""
        return more + one_line(goals[0][max(goals[0].rfind("⊢"), 0) :])

    def is_right_of(self, width: int) -> bool:
        """Return whether a card that begins here would leave a map of this width."""
        return self.x > width // 2 and self.x > 2 * _WIDE


def drawing(tree: Tree, *, name: str, most: int = DRAWN) -> Drawing:
    """Return the picture alone, of at most so many states, the proof's way first; `name` is its accessible name."""
    boxes = _laid_out(_chosen(tree, most))
    svg = _svg(boxes, set(tree.proof), f'role="img" aria-label="{safe(name)}"')
    shown = tuple(sorted((box.node for box in boxes), key=lambda node: node.number))
    return Drawing(f'<div class="map">{svg}</div>', shown)


def html(tree: Tree, *, title: str = "Search tree") -> str:
    """Return a whole page: a picture of the tree with each state's goals, and all of it again as a list."""
    # Templates are loaded for a page alone: the text needs none.
    from pipeline.report.html import environment

    boxes = _laid_out(_chosen(tree, DRAWN))
    width, height = _extent(boxes)
    by_number = {node.number: node for node in tree.nodes}
    return environment().get_template("tree.html").render(
        title=title,
        headline=_headline(tree),
        counted=totals(tree),
        tree=tree,
        states=len(tree.nodes) + tree.nodes_left_out,
        tactics="\n".join(by_number[number].tactic for number in tree.proof[1:]),
        proof=set(tree.proof),
        legend=legend(),
        boxes=boxes,
        width=width,
        height=height,
        svg=_svg(boxes, set(tree.proof), 'aria-hidden="true"'),
    )  # fmt: skip


def _chosen(tree: Tree, most: int) -> list[TreeNode]:
    """Return at most so many states to draw: the proof's way, then by number, none without its parent."""
    by_number = {node.number: node for node in tree.nodes}
    chosen: dict[int, TreeNode] = {}
    # What once had too long a way to it has one for good: whatever is chosen of it takes as much of the room. Without
    # this memory a deep tree would be climbed from each of its states.
    refused: set[int] = set()
    for number in (*tree.proof, *by_number):
        way: list[TreeNode] = []
        at: int | None = number
        while at is not None and at not in chosen:
            if at in refused or len(chosen) + len(way) >= most:
                refused.add(number)
                break
            way.append(by_number[at])
            at = by_number[at].parent
        else:
            chosen.update((node.number, node) for node in reversed(way))
    on_way = set(tree.proof)
    return sorted(chosen.values(), key=lambda node: (node.number not in on_way, node.number))


def _laid_out(nodes: list[TreeNode]) -> list[_Box]:
    """Place boxes: the depth to the right, a row for each end, a state in the row of its first child."""
    children: dict[int | None, list[TreeNode]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node)
    boxes: list[_Box] = []
    row = -1
    waiting = [(node, 0, True) for node in children.get(None, ())]
    while waiting:
        node, column, new_row = waiting.pop()
        row += new_row
        boxes.append(_Box(node, _EDGE + column * (_WIDE + _RIGHT), _EDGE + row * (_HIGH + _DOWN)))
        below = [(child, column + 1, at > 0) for at, child in enumerate(children.get(node.number, ()))]
        waiting += reversed(below)
    return boxes


def _extent(boxes: list[_Box]) -> tuple[int, int]:
    return max(box.x for box in boxes) + _WIDE + _EDGE, max(box.y for box in boxes) + _HIGH + _EDGE


def _svg(boxes: list[_Box], proof: set[int], described: str) -> str:
    """Return the boxes and what joins them; `described` has the attributes of its role and name."""
    width, height = _extent(boxes)
    at = {box.node.number: box for box in boxes}
    edges, shapes = [], []
    for box in boxes:
        node = box.node
        way = node.number in proof
        if node.parent is not None:
            start = at[node.parent]
            x, y, end = start.x + _WIDE, start.y + _HIGH // 2, box.y + _HIGH // 2
            css = ' class="way"' if way else ""
            edges.append(f'<path{css} d="M{x} {y}H{box.x - _RIGHT // 2}V{end}H{box.x}"/>')
        head = safe(cut(f"{node.number} {one_line(box.name)}", _LETTERS - 2))
        shapes.append(
            f'<g class="{node.outcome}{" way" if way else ""}"><rect x="{box.x}" y="{box.y}" width="{_WIDE}" '
            f'height="{_HIGH}" rx="6"/><text x="{box.x + 8}" y="{box.y + 18}">{head}</text>'
            f'<text x="{box.x + _WIDE - 8}" y="{box.y + 18}" text-anchor="end">{_MARKS[node.outcome]}</text>'
            f'<text class="goal" x="{box.x + 8}" y="{box.y + 35}">{safe(cut(box.brief, _LETTERS))}</text></g>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {described} width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{"".join(edges)}{"".join(shapes)}</svg>'
    )
