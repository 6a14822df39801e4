"""A search tree for people: as text for a terminal, and as an SVG drawing with a table for a page.

Control characters in what Lean and models wrote are replaced before a terminal or a browser can act on them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.prove.tree import NodeOutcome, Tree, TreeNode, Tried
from pipeline.report.charts import cut, safe
from pipeline.report.policy import POLICY
from pipeline.report.style import CSS

DRAWN = 300
"""So many states are drawn; the list has all that the tree has."""

_WIDE, _HIGH, _RIGHT, _DOWN, _EDGE = 184, 44, 36, 12, 12
_LETTERS = 23
_MARKS: dict[NodeOutcome, str] = {"proved": "✓", "expanded": "→", "dead": "✗", "open": "○", "lost": "?"}

PICTURE_STYLE = """
.legend li{display:inline-block;margin-right:1.2rem}.legend{padding:0}
.map text{font:12px ui-monospace,monospace;fill:var(--ink)}.map .goal{fill:var(--dim)}
.map rect{fill:var(--paper);stroke:var(--dim);stroke-width:1}.map path{fill:none;stroke:var(--dim)}
.map .open rect{stroke-dasharray:5 3}.map .lost rect{stroke-dasharray:1 3}.map .dead rect{fill:var(--soft)}
.map .way rect{stroke:var(--good);stroke-width:3;fill:var(--glow)}.map path.way{stroke:var(--good);stroke-width:3}
:root{--good:#00714f;--glow:#e3f5ee}
@media screen and (prefers-color-scheme:dark){:root{--good:#4fd1a5;--glow:#12382c}}
"""
"""What a page needs that shows a `drawing`, beside the report's own style."""

_STYLE = """
.map{position:relative;margin:0 0 11rem}.map svg{display:block;position:absolute;border:0;border-radius:0}
.scroll{border:1px solid var(--rule);border-radius:.5rem}
.map a{position:absolute;display:block;border-radius:6px}
.map .card{display:none;position:absolute;top:100%;z-index:3;width:26rem;max-width:80vw;color:var(--ink);
background:var(--paper);border:1px solid var(--ink);border-radius:.4rem;padding:.4rem .6rem;font-size:.85rem}
.map .card.left{right:0}.map a:hover .card,.map a:focus .card{display:block}.map a:hover,.map a:focus{z-index:4}
.map .card b{display:block}.card span{display:block;white-space:pre-wrap;font:12px/1.4 ui-monospace,monospace;
max-height:8rem;overflow:auto}
.state{border-top:1px solid var(--rule);margin:0;padding:.6rem 0}.state:target{background:var(--warn)}
.state h3{margin:0}.state.way h3::before{content:"★ ";color:var(--good)}.state p{margin:.2rem 0}
ol.states{list-style:none;padding:0}
code{font:.85rem ui-monospace,monospace;white-space:pre-wrap}
"""


@dataclass(frozen=True, slots=True)
class Drawing:
    """The tree as one picture, for a page with `PICTURE_STYLE`, and the states that it shows, by number."""

    svg: str
    states: tuple[TreeNode, ...]


@dataclass(frozen=True, slots=True)
class _Box:
    node: TreeNode
    x: int
    y: int


def page(tree: Tree, *, title: str, headline: str, counted: str, meaning: Mapping[NodeOutcome, str]) -> str:
    """Return the page.

    Args:
        tree: the tree.
        title: of the page.
        headline: how the search ended and how far it got.
        counted: states and tactics, in words.
        meaning: what each outcome of a state means.
    """
    boxes = _laid_out(_chosen(tree, DRAWN))
    drawn = (
        f'<p class="dim">The picture shows {len(boxes)} of {len(tree.nodes) + tree.nodes_left_out} states.</p>'
        if len(boxes) < len(tree.nodes) + tree.nodes_left_out
        else ""
    )
    left_out = f"<p>{tree.nodes_left_out} more states are left out.</p>" if tree.nodes_left_out else ""
    proof = set(tree.proof)
    states = "".join(_state(node, way=node.number in proof) for node in tree.nodes)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{safe(title)}</title><style>{CSS}{PICTURE_STYLE}{_STYLE}</style></head><body>"
        f'<a class="skip" href="#states">Skip the picture</a><header><h1>{safe(title)}</h1>'
        f"<p>{safe(headline)}</p><p>{safe(counted)}.</p></header><main>{_proof(tree)}"
        '<section aria-labelledby="picture"><h2 id="picture">The tree</h2>'
        "<p>From left to right, one tactic after the other. A state's goals show where it is pointed at or reached by "
        "the keyboard; following it leads to its entry below. A thick line is the proof.</p>"
        f"{legend(meaning)}{drawn}{_picture(boxes, proof)}</section>"
        '<section aria-labelledby="states"><h2 id="states" tabindex="-1">All states</h2>'
        f'<ol class="states">{states}</ol>{left_out}</section></main></body></html>\n'
    )


def drawing(tree: Tree, *, name: str, most: int = DRAWN) -> Drawing:
    """Return the picture alone, of at most so many states, the proof's way first; `name` is its accessible name."""
    boxes = _laid_out(_chosen(tree, most))
    svg, _, _ = _svg(boxes, set(tree.proof), f'role="img" aria-label="{safe(name)}"')
    return Drawing(
        f'<div class="map">{svg}</div>',
        tuple(sorted((box.node for box in boxes), key=lambda node: node.number)),
    )


def legend(meaning: Mapping[NodeOutcome, str]) -> str:
    """Return what the marks of the states mean, as a list."""
    items = "".join(
        f"<li>{_MARKS[outcome]} <strong>{outcome}</strong>: {safe(meaning[outcome])}</li>"
        for outcome in _MARKS
    )
    return f'<ul class="legend">{items}</ul>'


def _proof(tree: Tree) -> str:
    if not tree.proof:
        return ""
    by_number = {node.number: node for node in tree.nodes}
    tactics = "\n".join(safe(by_number[number].tactic) for number in tree.proof[1:])
    return f'<section aria-labelledby="proof"><h2 id="proof">The proof</h2><pre>{tactics}</pre></section>'


# ---- the picture


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


def _picture(boxes: list[_Box], proof: set[int]) -> str:
    svg, width, height = _svg(boxes, proof, 'aria-hidden="true"')
    cards = "".join(_card(box, width) for box in boxes)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Picture of the tree">'
        f'<div class="map" style="width:{width}px;height:{height}px">{svg}{cards}</div></div>'
    )


def _svg(boxes: list[_Box], proof: set[int], told: str) -> tuple[str, int, int]:
    """Return the boxes and what joins them, and how wide and high that is; `told` is its role and name."""
    width = max(box.x for box in boxes) + _WIDE + _EDGE
    height = max(box.y for box in boxes) + _HIGH + _EDGE
    at = {box.node.number: box for box in boxes}
    edges, shapes = [], []
    for box in boxes:
        node = box.node
        way = node.number in proof
        if node.parent is not None:
            start = at[node.parent]
            x, y = start.x + _WIDE, start.y + _HIGH // 2
            end = box.y + _HIGH // 2
            bend = box.x - _RIGHT // 2
            edges.append(f'<path{_css("way" if way else "")} d="M{x} {y}H{bend}V{end}H{box.x}"/>')
        shapes.append(
            f'<g class="{node.outcome}{" way" if way else ""}"><rect x="{box.x}" y="{box.y}" width="{_WIDE}" '
            f'height="{_HIGH}" rx="6"/>{_words(box, 18, f"{node.number} {_line(_name(node))}", "", _LETTERS - 2)}'
            f'<text x="{box.x + _WIDE - 8}" y="{box.y + 18}" text-anchor="end">{_MARKS[node.outcome]}</text>'
            f"{_words(box, 35, _brief(node), 'goal', _LETTERS)}</g>"
        )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {told} width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{"".join(edges)}{"".join(shapes)}</svg>'
    )
    return svg, width, height


def _card(box: _Box, width: int) -> str:
    node = box.node
    side = " left" if box.x > width // 2 and box.x > 2 * _WIDE else ""
    return (
        f'<a href="#s{node.number}" style="left:{box.x}px;top:{box.y}px;width:{_WIDE}px;height:{_HIGH}px" '
        f'aria-label="{safe(f"State {node.number}, {node.outcome}: {_name(node)}. {_brief(node)}")}">'
        f'<span class="card{side}"><b>{safe(_heading(node))}</b><span>{_goals(node)}</span></span></a>'
    )


def _name(node: TreeNode) -> str:
    return node.tactic if node.parent is not None else "the goal"


def _words(box: _Box, down: int, words: str, css: str, most: int) -> str:
    return f'<text{_css(css)} x="{box.x + 8}" y="{box.y + down}">{safe(cut(words, most))}</text>'


def _css(name: str) -> str:
    return f' class="{name}"' if name else ""


# ---- the list


def _state(node: TreeNode, *, way: bool) -> str:
    come = ""
    if node.parent is not None:
        come = f'<p>By <code>{safe(node.tactic)}</code> from <a href="#s{node.parent}">state {node.parent}</a>.</p>'
    facts = [f"depth {node.depth}", f"score {_number(node.score)}"]
    if node.log_probability:
        facts.append(f"log-probability {_number(node.log_probability)}")
    if node.remaining is not None:
        facts.append(f"{_number(node.remaining)} steps left, by the progress model")
    goals = f"<pre>{_goals(node)}</pre>" if node.goals else "<p>No goals are left.</p>"
    tried = ""
    if node.tried or node.tried_left_out:
        rows = "".join(_row(one) for one in node.tried)
        more = f"<p>{node.tried_left_out} more are left out.</p>" if node.tried_left_out else ""
        tried = (
            f"<details><summary>{len(node.tried) + node.tried_left_out} tactics tried</summary>"
            '<div class="scroll"><table><thead><tr><th scope="col">Tactic</th><th scope="col">Came to</th>'
            '<th scope="col">Log-probability</th><th scope="col">Why</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div>{more}</details>"
        )
    return (
        f'<li class="state{" way" if way else ""}" id="s{node.number}"><h3>{safe(_heading(node))}'
        f"{', on the way of the proof' if way else ''}</h3>{come}{goals}"
        f'<p class="dim">{safe(", ".join(facts))}</p>{tried}</li>'
    )


def _row(one: Tried) -> str:
    came = f'<a href="#s{one.to}">{one.outcome}: state {one.to}</a>' if one.to is not None else one.outcome
    likely = _number(one.log_probability) if one.log_probability else ""
    return (
        f'<tr><td><code>{safe(one.tactic)}</code></td><td>{came}</td><td class="n">{likely}</td>'
        f'<td class="long">{safe(one.reason)}</td></tr>'
    )


def _heading(node: TreeNode) -> str:
    return f"State {node.number}: {node.outcome}"


def _goals(node: TreeNode) -> str:
    return safe("\n\n".join(node.goals)) if node.goals else "no goals"


def _brief(node: TreeNode) -> str:
    if not node.goals:
        return "no goals"
    at = node.goals[0].rfind("⊢")
    more = f"+{len(node.goals) - 1} " if len(node.goals) > 1 else ""
    return more + _line(node.goals[0][max(at, 0) :])


def _line(words: str) -> str:
    return " ".join(words.split())


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else str(value).replace("inf", "∞")


# ---- drawing


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
    tactic = _treeview_line(node.tactic) if node.parent is not None else "the goal"
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
    shown = ", ".join(_cut(_treeview_line(one.tactic), 24) for one in failed[:_FAILED])
    rest = len(failed[_FAILED:]) + left_out
    if not shown:
        return f"{rest} more tried"
    return f"in vain: {shown}" + (f" and {rest} more" if rest else "")


def _target(goal: str) -> str:
    """Return the goal's last part on one line: what is to be shown."""
    at = goal.rfind("⊢")
    return _treeview_line(goal[at:] if at >= 0 else goal)


def _treeview_line(words: str) -> str:
    """Return text on one line, without what a terminal would act on."""
    joined = " ⏎ ".join(line.strip() for line in words.splitlines() if line.strip())
    return "".join(char if char.isprintable() else "\ufffd" for char in joined)


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def _wrapped(words: str, width: int) -> list[str]:
    lines = [""]
    for word in _treeview_line(words).split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = _cut(f"{lines[-1]} {word}".strip(), width)
    return lines


def _plural(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
