"""Where no toolchain judges, nothing is verified: neither by a program that speaks Lean's protocol nor by nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.gate.verdict import SCANNER
from tests.support.gate import Case, GateProject
from tests.support.lean import scripted
from tests.support.lean.credulous import TOOLCHAIN

HONEST = Case("exact ⟨h.2, h.1⟩")


@pytest.mark.parametrize("searched_by", ["a program that stands in for a REPL", "nobody"])
def test_an_honest_proof_is_a_candidate_at_best_where_no_toolchain_judges(
    court: GateProject, monkeypatch: pytest.MonkeyPatch, searched_by: str
) -> None:
    if searched_by == "nobody":
        verdict = court.candidate(HONEST, lean="none")
    else:
        says_its_version = replace(scripted.backend(), toolchain=TOOLCHAIN)
        monkeypatch.setattr(court, "backend", lambda _: says_its_version)
        verdict = court.candidate(HONEST)
    assert {"compile", "axioms", "kernel"} <= set(verdict.not_checked)
    assert {check.by for check in verdict.checks} <= {SCANNER, "nobody"}, "no one else is said to have judged"
    patch = (court.folder / "job" / "staging" / verdict.patch.sha256).read_text(encoding="utf-8")
    assert patch.startswith("A candidate for a proof of ")
    assert "not verified" in patch.splitlines()[0]
