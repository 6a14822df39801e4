"""The court of the trap suite: each trap goes through the whole check job, before several Leans.

`refused` holds for every trap that the text or the shape of a proof gives away: the gate refuses it at the step that
is named, though a Lean says yes to it, and also where there is the simulator or no Lean. What could pass for a proof
and is none (a citation of itself, `hint`) is refused where no Lean judges, and left to one that does (`left_to_lean`).
A trap that only Lean can see is put before a Lean that answers as the real one does (`refused_by_lean`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from store.events.proofs import ProofRejected
from tests.support.gate import Case, GateProject, Refused

_said_yes: set[tuple[str, str]] = set()
"""What a Lean without rules has verified in this run."""


@pytest.fixture
def court(tmp_path: Path) -> GateProject:
    return GateProject(tmp_path)


@pytest.fixture
def refused(court: GateProject) -> Refused:
    """Return how the gate refuses a case at `step` before a Lean that says yes, after trying the other Leans too."""

    def hold(case: Case, *, step: str) -> ProofRejected:
        court.rejected(case, step=step, lean="simulator")
        court.rejected(case, step=step, lean="none")
        return court.rejected(case, step=step, lean="credulous")

    return hold


@pytest.fixture
def left_to_lean(court: GateProject) -> Refused:
    """Return how the gate refuses a case at `step` where no real Lean judges; where one does, it is Lean's to say.

    The Lean without rules says yes. With the case's rules it answers as the real one does, and refuses.
    """

    def hold(case: Case, *, step: str) -> ProofRejected:
        court.verified(dataclasses.replace(case, rules=()))
        court.rejected(case, step=step, lean="simulator")
        return court.rejected(case, step=step, lean="none")

    return hold


@pytest.fixture
def refused_by_lean(court: GateProject) -> Refused:
    """Return how the gate refuses a case at `step` when Lean answers as the real one would.

    The same text passes when Lean says yes to everything, so the refusal is Lean's; the simulator never verifies it.
    """

    def hold(case: Case, *, step: str) -> ProofRejected:
        if (case.proof, case.file) not in _said_yes:
            court.verified(dataclasses.replace(case, rules=()))
            _said_yes.add((case.proof, case.file))
        return court.rejected(case, step=step)

    return hold
