"""A search tree for people: as text for a terminal, and as one page of HTML that needs nothing but itself.

What Lean and models wrote is shown and never obeyed: characters that a terminal or a browser would act on are replaced.
"""

from __future__ import annotations

import math
from collections import Counter

from pipeline.prove.tree import NodeOutcome, Tree, TreeNode, Tried
from pipeline.prove.treepage import page

WIDTH = 100
_INDENT = 2
_DEEPEST = 24
_FAILED = 6

MEANING: dict[NodeOutcome, str] = {
    "proved": "a proof goes through it",
    "expanded": "tried, and something open comes after it",
    "dead": "tried, and nothing open is left after it",
    "open": "not tried, or not to the end",
    "lost": "it went down with its process",
}


def text(tree: Tree, *, width: int = WIDTH) -> str:
    """Return the tree as lines of at most `width` columns, the proof's way marked with `*`."""
    proof = set(tree.proof)
    lines = [
        *_wrapped(_headline(tree), width),
        *_wrapped(
            f"{counted(tree)}. Each: number, tactic, [state, score], its first goal. Further in: after the one above; "
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


def html(tree: Tree, *, title: str = "Search tree") -> str:
    """Return a whole page: a picture of the tree with each state's goals, and all of it again as a list."""
    return page(tree, title=title, headline=_headline(tree), counted=counted(tree), meaning=MEANING)


def ended(tree: Tree) -> str:
    """Say how the search ended, in words."""
    if tree.outcome == "found":
        return "Proof found"
    if tree.outcome == "exhausted":
        return "No proof: nothing is left to try"
    return f"Stopped by its budget of {tree.limit}" if tree.limit else "Stopped by its budget"


def counted(tree: Tree) -> str:
    """Count states and tactics, what is left out included."""
    states = len(tree.nodes) + tree.nodes_left_out
    tactics = sum(len(node.tried) + node.tried_left_out for node in tree.nodes)
    kinds = Counter(node.outcome for node in tree.nodes)
    told = ", ".join(f"{kinds[outcome]} {outcome}" for outcome in MEANING if kinds[outcome])
    return f"{_plural(states, 'state')} ({told}), {_plural(tactics, 'tactic')} tried"


def _headline(tree: Tree) -> str:
    return f"{ended(tree)}. {tree.best[:1].upper()}{tree.best[1:]}"


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
    lines = [f"{head} {_cut(tactic, max(8, width - len(head) - 1 - len(tail)))}{tail}"]
    below = f"{mark}{' ' * len(head)}"
    if node.goals:
        more = f"  (+{len(node.goals) - 1} more)" if len(node.goals) > 1 else ""
        lines.append(below + _cut(_target(node.goals[0]), max(8, width - len(below) - len(more))) + more)
    elif node.outcome == "proved":
        lines.append(f"{below}no goals")
    failed = [one for one in node.tried if one.to is None]
    if failed or node.tried_left_out:
        lines.append(below + _cut(_failed(failed, node.tried_left_out), max(8, width - len(below))))
    return lines


def _failed(failed: list[Tried], left_out: int) -> str:
    shown = ", ".join(_cut(_line(one.tactic), 24) for one in failed[:_FAILED])
    rest = len(failed[_FAILED:]) + left_out
    if not shown:
        return f"{rest} more tried"
    return f"in vain: {shown}" + (f" and {rest} more" if rest else "")


def _target(goal: str) -> str:
    """Return the goal's last part on one line: what is to be shown."""
    at = goal.rfind("⊢")
    return _line(goal[at:] if at >= 0 else goal)


def _line(words: str) -> str:
    """Return text on one line, without what a terminal would act on."""
    joined = " ⏎ ".join(line.strip() for line in words.splitlines() if line.strip())
    return "".join(char if char.isprintable() else "\ufffd" for char in joined)


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def _wrapped(words: str, width: int) -> list[str]:
    lines = [""]
    for word in _line(words).split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = _cut(f"{lines[-1]} {word}".strip(), width)
    return lines


def _plural(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
