"""What is said of a proposed proof, and the name of its branch: nothing in a Lean name can call people or break out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from daemon.polling.git_process import is_branch_name
from daemon.results.pull_requests import TargetState, branch_name, text_of
from store.documents.document import of_row
from store.documents.proofs import Proof
from tests.support.events import proof_row

GROUND = TargetState("me", "o/n", True, "main", head="1" * 40)


def row(declaration: str, *, evidence: str = "no error") -> Proof:
    checks = [{"step": "compile", "verdict": "passed", "by": "lean", "evidence": evidence}]
    result = proof_row(declaration=declaration, checks=checks)
    return of_row(Proof, result, label="", stale=None, verdict="accepted", why="", attempt=None)


@pytest.mark.parametrize(
    "name",
    [
        "Demo.one",
        "«fixes #1 @ada»",
        "a..b.lock",
        "Δ",
        "«-x ~^:?*[ »",
        "A" * 500,
        "…/../x",
    ],
)
def test_every_declaration_has_a_branch_that_git_takes_and_only_this_proof_has(name: str) -> None:
    branch = branch_name(row(name))
    assert is_branch_name(branch)
    assert re.fullmatch(r"everlean/[A-Za-z0-9_.-]+-" + "d0" * 8, branch)


def test_a_name_calls_no_one_and_closes_no_issue() -> None:
    text = text_of(row("«fixes #1 @ada»"), GROUND)
    for outside in (text.title, text.message, re.sub(r"(`+).+?\1", "", text.body)):
        assert "@" not in outside
        assert "#" not in outside


def test_evidence_stays_in_its_code_span_and_is_cut() -> None:
    text = text_of(row("t", evidence="x ``` @ada\n# head " + "y" * 5000), GROUND)
    assert "````x ``` @ada # head y" in text.body
    assert len(text.body) < 3000


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    body = text_of(row("t"), GROUND).body
    for line in (
        "- seed: `unknown`",
        "- took: `unknown`",
        "- Lean: `v4.21.0`",
        "- axioms: `none`",
    ):
        assert line in body


def test_a_pull_request_of_a_proof_in_doubt_says_so_in_its_text_and_its_commit() -> None:
    text = text_of(replace(row("t"), doubts=["lean4#14576"]), GROUND)
    assert "IN DOUBT: lean4#14576" in text.message
    assert "- IN DOUBT: lean4#14576. Every kernel that vouches for it has a known fault" in text.body
    assert "IN DOUBT" not in text_of(row("t"), GROUND).body
