"""The search behind one proof: its steps with the goals that each left, its tree, and the tree's states in a table."""

from __future__ import annotations

from pipeline.prove.tree import Tree, TreeNode
from pipeline.report import tree as search_tree
from pipeline.report.html import SIMULATED, Value, paragraph, shortened, table

MOST_CHARACTERS = 1 << 20
"""Characters that the trees of a page take together, with the one that goes beyond it."""
_MOST_DRAWN = 40
_LONGEST_GOAL = 600


def tree_section(tree: Tree, *, proof: str, simulated: bool) -> str:
    """Return the HTML of a search; `proof` is the proof's id, by which the command line shows all of it."""
    mark = f"{SIMULATED}: " if simulated else ""
    by_number = {node.number: node for node in tree.nodes}
    steps = [by_number[number] for number in tree.proof]
    drawn = search_tree.drawing(
        tree,
        name=f"{mark}search tree of proof {proof}: {search_tree.counted(tree)}; the table has them",
        most=_MOST_DRAWN,
    )
    states = len(tree.nodes) + tree.nodes_left_out
    shown = len(drawn.states)
    more = f"; {shown} are shown, `unsorry proofs tree {proof}` has all" if states > shown else ""
    return (
        _steps(steps, mark)
        + paragraph(f"{search_tree.counted(tree)}{more}.", dim=True)
        + f'<figure class="scroll tree" tabindex="0" role="group" aria-label="Search tree of proof {proof}">'
        f"{drawn.svg}</figure>"
        + table(
            f"{mark}States of the search, proof {proof}",
            ("State", "Outcome", "Tactic", "From state", "Goals"),
            [_state(node, on_way=node.number in tree.proof) for node in drawn.states],
            long=("Tactic", "Goals"),
            folded=True,
        )
    )


def _steps(steps: list[TreeNode], mark: str) -> str:
    if not steps:
        return ""
    rows: list[tuple[Value, ...]] = [
        (str(number), node.tactic or "the goal", _goals(node))
        for number, node in enumerate(steps[: _MOST_DRAWN + 1])
    ]
    part = f", the first {_MOST_DRAWN} of {len(steps) - 1:,}" if len(rows) < len(steps) else ""
    return table(
        f"{mark}The proof step by step{part}",
        ("Step", "Tactic", "Goals after it"),
        rows,
        long=("Tactic", "Goals after it"),
        folded=False,
    )


def _state(node: TreeNode, *, on_way: bool) -> tuple[Value, ...]:
    return (
        f"{node.number}{', on the way of the proof' if on_way else ''}",
        node.outcome,
        node.tactic or "the goal",
        "none" if node.parent is None else str(node.parent),
        _goals(node),
    )


def _goals(node: TreeNode) -> str:
    return shortened("\n\n".join(node.goals), _LONGEST_GOAL) if node.goals else "no goals left"
