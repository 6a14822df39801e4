"""Where no Lean judges, nothing is verified: neither by a program that speaks its protocol nor by nobody."""

from __future__ import annotations

import pytest

from pipeline.gate.verdict import SCANNER
from tests.support.gate import Case, GateProject, Lean

HONEST = Case("exact ⟨h.2, h.1⟩")


@pytest.mark.parametrize("lean", ["simulator", "none"])
def test_an_honest_proof_is_a_candidate_at_best_where_no_toolchain_judges(
    court: GateProject, lean: Lean
) -> None:
    verdict = court.candidate(HONEST, lean=lean)
    assert "axioms" in verdict.not_checked
    assert {check.by for check in verdict.checks} <= {SCANNER, lean, "nobody"}, (
        "no one else is said to have judged"
    )
    patch = (court.folder / "job" / "staging" / verdict.patch.sha256).read_text(encoding="utf-8")
    assert patch.startswith("A candidate for a proof of ")
    assert "not verified" in patch.splitlines()[0]


def test_the_same_proof_by_a_real_lean_is_verified(court: GateProject) -> None:
    court.verified(HONEST)
