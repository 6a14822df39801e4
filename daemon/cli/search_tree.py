"""A search tree as text for a terminal.

Control characters in the words of Lean and of models are replaced before a terminal can act on them.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from store.text import and_more, counted, cut, printable

if TYPE_CHECKING:
    from pipeline.prove.tree import NodeOutcome, Tree, TreeNode, TriedTactic

_COLUMNS, _INDENT, _DEEPEST, _FAILED = 100, 2, 24, 6
"""The text's width, an indentation, the largest one, and the most failed tactics named."""
_OUTCOMES: tuple[NodeOutcome, ...] = ("proved", "expanded", "dead", "open", "lost")


def text(tree: Tree, *, width: int = _COLUMNS) -> str:
    """Return the tree as lines of at most `width` columns, the proof's way marked with `*`."""
    proof = set(tree.proof)
    lines = [
        *_wrapped(_headline(tree), width),
        *_wrapped(
            f"{_totals(tree)}. Each: number, tactic, [state, score], its first goal. Further in: after the one above; "
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
        # A line of states without brothers does not wander to the right.
        further = indent if len(below) == 1 else indent + _INDENT * (2 if alone else 1)
        waiting += [(child, further, len(below) == 1) for child in reversed(below)]
    if tree.nodes_left_out:
        lines += ["", f"{tree.nodes_left_out} more states are left out."]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _ended(tree: Tree) -> str:
    """Describe the end of the search."""
    if tree.outcome == "found":
        return "Proof found"
    if tree.outcome == "exhausted":
        return "No proof: nothing is left to try"
    return f"Stopped by its budget of {tree.limit}" if tree.limit else "Stopped by its budget"


def _totals(tree: Tree) -> str:
    """Count states and tactics, including those left out."""
    states = len(tree.nodes) + tree.nodes_left_out
    tactics = sum(len(node.tried) + node.tried_left_out for node in tree.nodes)
    kinds = Counter(node.outcome for node in tree.nodes)
    kinds_said = ", ".join(f"{kinds[outcome]} {outcome}" for outcome in _OUTCOMES if kinds[outcome])
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
    tactics = ", ".join(cut(_line(one.tactic), 24) for one in failed[:_FAILED])
    rest = len(failed[_FAILED:]) + left_out
    if not tactics:
        return f"{rest} more tried"
    return f"in vain: {tactics}" + and_more(rest)


def _target(goal: str) -> str:
    """Return the goal's conclusion on one line."""
    at = goal.rfind("⊢")
    return _line(goal[at:] if at >= 0 else goal)


def _line(words: str) -> str:
    """Return text on one line, without characters that a terminal would act on."""
    return printable(" ⏎ ".join(line.strip() for line in words.splitlines() if line.strip()))


def _wrapped(words: str, width: int) -> list[str]:
    lines = [""]
    for word in _line(words).split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = cut(f"{lines[-1]} {word}".strip(), width)
    return lines
