"""The court of the trap suite: each trap goes through the whole check job, before a Lean that says yes and before none.

`refused` holds for every trap that the text or the shape of a proof gives away: the gate refuses it at the step that
is named, though a Lean says yes to it, and also where there is no Lean. What could pass for a proof and is none (a
citation of itself, `hint`) is Lean's to judge (`left_to_lean`). A trap that
only Lean can see is put before Lean 4.35.0 itself (`lean`), or where its library cannot say it before a Lean that
answers as the real one does (`refused_by_lean`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from pipeline.gate import lake_checks
from store.events.proofs import ProofRejected
from tests.support.gate import Case, GateProject, Refused, does_not_compile
from tests.support.lean.real_gate import FIRST_MODULE, RealGate

_said_yes: set[tuple[str, str]] = set()
"""What a Lean without rules has verified in this run."""


@pytest.fixture
def court(tmp_path: Path) -> GateProject:
    return GateProject(tmp_path)


@pytest.fixture
def strict(real_lean: Path, tmp_path: Path) -> RealGate:
    return RealGate(tmp_path)


@pytest.fixture
def lean(strict: RealGate, monkeypatch: pytest.MonkeyPatch) -> RealGate:
    """One that takes our library for Lean's own, so that every other question is seen."""
    monkeypatch.setattr(lake_checks, "FIRST_MODULE", FIRST_MODULE)
    return strict


@pytest.fixture
def refused(court: GateProject) -> Refused:
    """Return how the gate refuses a case at `step` before a Lean that says yes, after trying none."""

    def hold(case: Case, *, step: str) -> ProofRejected:
        court.rejected(case, step=step, lean="none")
        return court.rejected(case, step=step)

    return hold


@pytest.fixture
def left_to_lean(court: GateProject) -> Callable[[Case], None]:
    """Return how a case is put before the gate, which asks Lean whether it is a proof."""

    def hold(case: Case) -> None:
        with patch.object(lake_checks, "findings", does_not_compile):
            assert court.rejected(case, step="compile").reason == "does not compile"

    return hold


@pytest.fixture
def refused_by_lean(court: GateProject) -> Refused:
    """Return how the gate refuses a case at `step` when Lean answers as the real one would.

    The same text passes when Lean says yes to everything, so the refusal is Lean's.
    """

    def hold(case: Case, *, step: str) -> ProofRejected:
        if (case.proof, case.file) not in _said_yes:
            court.verified(dataclasses.replace(case, rules=()))
            _said_yes.add((case.proof, case.file))
        return court.rejected(case, step=step)

    return hold
