"""What is told of a proof: its verdict in a word, why, and its state for people."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from store.documents.proofs import describe_proofs, worth
from tests.support.events import proof_row
from tests.support.views import empty_view

CHECKED: dict[str, Any] = {"checked_at": "2026-11-28T00:00:00Z"}
JUDGED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"state": "candidate", "checked_at": None}, "waiting", "the gate has not judged it yet", "candidate"),
    (
        {"state": "candidate", "not_checked": ["kernel"], **CHECKED},
        "unknown",
        "could not be checked: kernel",
        "candidate",
    ),
    (
        {"state": "conditional", "reason": "axioms: rests on B.b", **CHECKED},
        "rejected",
        "axioms: rests on B.b",
        "conditional",
    ),
    (
        {"state": "rejected", "reason": "compile: no", "grade": "L1", **CHECKED},
        "rejected",
        "compile: no",
        "rejected",
    ),
    (
        {"state": "verified", "grade": "L1", **CHECKED},
        "accepted",
        "",
        "verified, L1: kernel replayed all",
    ),
    (
        {"state": "verified", "grade": "L2", "doubts": ["lean4#1"], **CHECKED},
        "accepted",
        "",
        "verified, L2: all kernels of its Lean accept it, IN DOUBT: lean4#1",
    ),
    (
        {
            "state": "candidate",
            "reason": "kernels do not agree: a refuses, b accepts",
            "doubts": ["kernels do not agree"],
            **CHECKED,
        },
        "unknown",
        "kernels do not agree: a refuses, b accepts",
        "candidate, IN DOUBT: kernels do not agree",
    ),
]


@pytest.mark.parametrize(("about", "verdict", "why", "label"), JUDGED)
def test_a_proof_has_its_verdict_why_and_its_state_in_words(
    about: dict[str, Any], verdict: str, why: str, label: str
) -> None:
    view = empty_view()
    view.row_factory = sqlite3.Row
    row = proof_row(**{"reason": "", "doubts": [], "grade": "", **about})
    (found,) = describe_proofs(view, [row])
    assert (found.verdict, found.why, found.label) == (verdict, why, label)


def test_a_verified_proof_is_worth_most_and_of_two_the_one_that_a_kernel_replayed() -> None:
    rows = [
        proof_row(proof=name, state=state, grade=grade)
        for name, state, grade in (
            ("whole", "verified", "L1"),
            ("none", "verified", "L0"),
            ("waits", "candidate", ""),
            ("on another", "conditional", ""),
            ("no", "rejected", ""),
        )
    ]
    assert [row.proof for row in sorted(rows, key=worth, reverse=True)] == [row.proof for row in rows]
