"""What is said of a proposed proof, and the name of its branch: nothing in a Lean name can call people or break out."""

from __future__ import annotations

import re

import pytest

from daemon.polling.git_process import is_branch_name
from daemon.results.pull_requests import Evidence, TargetState, branch_name, text_of
from store.view.rows import ProofRow

GROUND = TargetState("me", "o/n", True, "main", head="1" * 40)


def row(declaration: str, *, evidence: str = "no error") -> ProofRow:
    return ProofRow(
        proof="d0" * 8, sorry="5a" * 8, repository="github.com/o/n", branch="main", sha="a" * 40, path="A.lean",
        blob="b" * 40, byte_start=0, byte_end=5, declaration=declaration, declaration_text_hash="", replacement="rfl",
        tactics=["rfl"], prover="tactics", rung=0, toolchain="v4.21.0", simulated=False, state="verified",
        checks=[{"step": "compile", "verdict": "passed", "by": "lean", "evidence": evidence}],
        not_checked=[], axioms=[], grade="replayed_closure", kernel="leanchecker", checked_sha="1" * 40,
        checked_blob="b" * 40, checked_start=0, conditional_on=[], reason="", patch_sha256=None, pull_request_url=None,
        pull_request_at=None, found_at="", checked_at=None, job="",
    )  # fmt: skip


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
    assert re.fullmatch(r"unsorry/[A-Za-z0-9_.-]+-" + "d0" * 8, branch)


def test_a_name_calls_no_one_and_closes_no_issue() -> None:
    text = text_of(row("«fixes #1 @ada»"), GROUND, Evidence(None, "", ""))
    for outside in (text.title, text.message, re.sub(r"(`+).+?\1", "", text.body)):
        assert "@" not in outside
        assert "#" not in outside


def test_evidence_stays_in_its_code_span_and_is_cut() -> None:
    text = text_of(row("t", evidence="x ``` @ada\n# head " + "y" * 5000), GROUND, Evidence(None, "", ""))
    assert "````x ``` @ada # head y" in text.body
    assert len(text.body) < 3000


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    body = text_of(row("t"), GROUND, Evidence(None, "", "")).body
    for line in (
        "- Model: none",
        "- Seed: unknown",
        "- Cost: unknown",
        "- Lean toolchain: `unknown`",
        "- Axioms: none",
    ):
        assert line in body
