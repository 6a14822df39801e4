"""Whatever the simulator had a part in is never verified: by no verdict, no answer and no flag."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from pydantic import TypeAdapter, ValidationError

from pipeline.gate.patch import RefusedPatchError, is_simulated_patch, refuse_simulated
from pipeline.lean.backend import LeanBackend
from store.events.proofs import ProofVerified
from tests.support.gate import Case, GateProject, Lean

HONEST = Case("exact ⟨h.2, h.1⟩")
COMBINATIONS = [
    combination
    for combination in itertools.product(("credulous", "simulator", "none"), (True, False))
    if combination != ("credulous", False)
]


@pytest.mark.parametrize(("lean", "simulated"), COMBINATIONS)
def test_only_a_real_lean_s_proof_by_a_real_lean_is_verified(
    court: GateProject, lean: Lean, simulated: bool
) -> None:
    verdict = court.candidate(HONEST, lean=lean, simulated=simulated)
    assert "axioms" in verdict.not_checked
    assert verdict.simulated is (simulated or lean == "simulator")
    patch = (court.folder / "job" / "staging" / verdict.patch.sha256).read_bytes()
    assert is_simulated_patch(patch) is verdict.simulated
    if verdict.simulated:
        with pytest.raises(RefusedPatchError):
            refuse_simulated(patch)


def test_the_same_proof_by_a_real_lean_is_verified(court: GateProject) -> None:
    court.verified(HONEST, simulated=False)


@pytest.mark.parametrize("kind", ["pantograph", "none", "simulator"])
@pytest.mark.parametrize("simulated", [True, False])
def test_a_backend_cannot_say_that_the_simulator_is_real(
    kind: str, simulated: bool, court: GateProject
) -> None:
    raw = {**dataclasses.asdict(court.backend("simulator")), "kind": kind, "simulated": simulated}
    read = TypeAdapter(LeanBackend).validate_python
    if simulated == (kind == "simulator"):
        assert read(raw).simulated is simulated
    else:
        with pytest.raises(ValueError, match="simulated"):
            read(raw)


def test_the_event_of_a_verified_proof_cannot_be_simulated(court: GateProject) -> None:
    verdict = court.verified(HONEST)
    with pytest.raises(ValidationError):
        ProofVerified.model_validate({**verdict.model_dump(), "simulated": True})
