"""A search tree as text: it marks the proof, and fits its width whatever is in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemon.cli import search_tree
from pipeline.prove.tree import Tree, TreeNode, TriedTactic

HOSTILE = (
    '</pre></td><script>alert("x")</script><img src=x onerror=y>&amp;\x1b[2J\u202e\x00 \' onmouseover="x" ]]>'
)


def node(number: int, parent: int | None, tactic: str = "t", *goals: str, outcome: str = "open") -> TreeNode:
    return TreeNode(number, parent, tactic, goals, min(number, 1), 2.5, -1.25, 3.0, outcome)  # type: ignore[arg-type]


def proved(tactic: str = "intro h") -> Tree:
    tried = (TriedTactic("omega", "failed", "not arithmetic"), TriedTactic(tactic, "step", "", -1.25, 1))
    nodes = (
        replace(node(0, None, "", "p : Prop\n⊢ p → p", outcome="proved"), tried=tried),
        node(1, 0, tactic, "p : Prop\nh : p\n⊢ p", outcome="proved"),
        node(2, 1, "exact h", outcome="proved"),
        node(3, 0, "skip", "p : Prop\n⊢ p → p", outcome="dead"),
    )
    return Tree("found", "", "proved with 2 tactics", nodes, (0, 1, 2))


def hostile() -> Tree:
    tried = (TriedTactic(HOSTILE, "failed", HOSTILE), TriedTactic(HOSTILE, "step", HOSTILE, 0, 1))
    root = replace(node(0, None, "", HOSTILE), tried=tried)
    return Tree("budget", "nodes", HOSTILE, (root, node(1, 0, HOSTILE, HOSTILE, HOSTILE)))


def deep(number: int) -> Tree:
    steps = (node(at, at - 1, f"step {at} " * 9, "⊢ goal") for at in range(1, number))
    return Tree("budget", "seconds", "far", (node(0, None, "", "⊢ goal"), *steps))


def fanned(number: int, width: int) -> Tree:
    return Tree("budget", "", "", (node(0, None), *(node(at, (at - 1) // width) for at in range(1, number))))


def test_the_text_marks_the_proof_and_nothing_else() -> None:
    text = search_tree.text(replace(proved(), nodes_left_out=4))
    lines = text.splitlines()
    assert lines[0] == "Proof found. Proved with 2 tactics"
    assert "*   └ 2 exact h  [proved, 2.5, log p -1.25, 3 steps left]" in lines
    assert [line[0] for line in lines if "skip" in line] == [" "]
    assert "in vain: omega" in text
    assert "4 more states are left out." in lines


@pytest.mark.parametrize("tree", [deep(400), hostile(), proved(), fanned(300, 2)])
def test_the_text_fits_its_width_and_moves_no_terminal(tree: Tree) -> None:
    text = search_tree.text(tree)
    assert max(map(len, text.splitlines())) <= 100
    assert not [char for char in text if char != "\n" and not char.isprintable()]


def test_the_text_says_why_the_search_ended() -> None:
    assert search_tree.text(deep(2)).startswith("Stopped by its budget of seconds. Far")
    gone = replace(deep(2), outcome="exhausted", limit="")
    assert search_tree.text(gone).startswith("No proof: nothing is left to try.")
