"""`everlean proofs tree`, and what `everlean sorries show` tells of attempts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pipeline.prove.tree import Tree, TreeNode, TriedTactic
from store.events.base import BlobRef
from store.events.proofs import AttemptFinished, ProofFound
from tests.support.state_folder import (
    OTHER_SORRY,
    PROOF,
    REPOSITORY,
    SORRY,
    StateFolder,
)
from tests.support.verbs import hold_to_schema

TREE = Tree(
    outcome="found",
    limit="",
    best="proved in 1 step",
    nodes=(
        TreeNode(
            0, None, "", ("p : Prop\n⊢ p → p",), 0, 0.0, 0.0, None, "proved",
            tried=(TriedTactic("rfl", "failed", "no"), TriedTactic("intro <h>", "step", to=1)),
        ),
        TreeNode(1, 0, "intro <h>", (), 1, 1.5, -0.5, None, "proved"),
    ),
    proof=(0, 1),
)  # fmt: skip


def attempt(tree: BlobRef | None, **changes: Any) -> AttemptFinished:
    body = {
        "repository": REPOSITORY, "branch": "main", "sha": "a" * 40, "sorry": SORRY, "blob": "b" * 40,
        "prover": "tactics", "rung": 0, "model": "", "seed": 0, "budget": "60s", "outcome": "error",
        "detail": "no goal", "best": "", "goals_left": None, "nodes": 7, "repl_calls": 9, "seconds": 0.5,
        "prompt_tokens": 0, "completion_tokens": 0, "usd": None, "tree": tree, "job": "prove-1",
    }  # fmt: skip
    return AttemptFinished.model_validate(body | changes)


@pytest.fixture
def tried(filled: StateFolder) -> StateFolder:
    """The sorry was tried twice: in vain and without a tree, then by a model that found the proof."""
    stream = f"repository:{REPOSITORY}"
    result = {
        "prover": "generator", "rung": 2, "model": "tactics-3", "outcome": "found", "detail": "", "best": TREE.best,
        "goals_left": 0, "prompt_tokens": 900, "completion_tokens": 100, "usd": 0.0125,
    }  # fmt: skip
    filled.add(stream, attempt(None))
    filled.write()
    tree = filled.blob(json.dumps(TREE.as_json()).encode())
    filled.add(stream, attempt(tree, **result))
    filled.add(stream, attempt(tree, sorry=OTHER_SORRY, outcome="exhausted", detail="all tried"))
    proof = {
        "proof": "e0" * 8, "sorry": SORRY, "path": "Demo.lean", "byte_start": 0, "byte_end": 5, "declaration": "Demo.t",
        "declaration_text_hash": "t", "replacement": "by intro h", "parts": [], "tactics": ["intro h"], "toolchain": "",
    }  # fmt: skip
    shared = attempt(tree, **result).model_dump(
        include={"repository", "branch", "sha", "blob", "prover", "rung", "job"}
    )
    filled.add("proof:" + "e0" * 8, ProofFound.model_validate(proof | shared))
    filled.write()
    return filled


def test_a_search_is_shown_for_a_proof_and_for_the_newest_attempt_on_a_sorry(tried: StateFolder) -> None:
    for which in ("e0e0", SORRY):
        answer = tried.everlean("proofs", "tree", which)
        assert answer.code == 0, answer.err
        assert "generator tactics-3, rung 2, attempt 2" in answer.out
        assert "roved in 1 step" in answer.out
        assert "intro <h>" in answer.out
    document = tried.everlean("proofs", "tree", "e0e0", "--json").json
    assert (document["proof"], document["sorry"], document["attempt"]["number"]) == ("e0" * 8, SORRY, 2)
    assert Tree.from_json(document["tree"]) == TREE
    hold_to_schema("proofs tree", document)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([SORRY, "--attempt", "1"], "(tactics, rung 0) kept no tree; it ended with error: no goal"),
        ([SORRY, "--attempt", "3"], "has no attempt 3, it has 2"),
        (["e0e0", "--attempt", "1"], "--attempt is for a sorry's id"),
        (["zz"], "no proof and no sorry has an id"),
        (["5"], "the beginning of several sorry ids"),
        ([PROOF], "no attempt of job"),
    ],
)
def test_what_has_no_tree_says_why(tried: StateFolder, arguments: list[str], said: str) -> None:
    answer = tried.everlean("proofs", "tree", *arguments)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err


def test_a_sorry_says_what_was_tried_how_far_it_got_and_what_it_cost(tried: StateFolder) -> None:
    text = tried.everlean("sorries", "show", SORRY).out
    assert re.search(r"1  tactics, rung 0  error .*\n +why +no goal\n", text)
    assert re.search(r"2  generator tactics-3, rung 2  found ", text)
    assert "proved in 1 step" in text
    assert "7 nodes, 9 REPL calls, 0.5s, 1,000 tokens, $0.0125" in text
    assert "--attempt N" in text
    (row,) = [line for line in tried.everlean("sorries", "--all").out.splitlines() if SORRY[:8] in line]
    assert "2x, rung 2: found" in row
    assert "1x, rung 0: exhausted" in tried.everlean("sorries", "--all").out
    document = tried.everlean("sorries", "show", SORRY, "--json").json
    hold_to_schema("sorries show", document)
    newest = document["attempts"][1]
    assert (newest["model"], newest["goals_left"], newest["usd"]) == ("tactics-3", 0, 0.0125)
