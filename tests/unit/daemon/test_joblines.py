"""What a child may make the daemon record about proofs, and what it may not, whatever it prints."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from daemon.jobs.due import DueJob
from daemon.jobs.runner import _can_wait
from pipeline.jobs.kinds import Kind
from pipeline.jobs.lines import BadLineError, Batch, parse_line
from pipeline.jobs.spec import Spec
from pipeline.jobs.specs import Candidate, CheckSpec, SorryToProve
from pipeline.lean.backend import LeanBackend
from store.domain.identity import proof_id
from store.events.base import BlobRef, EventBody
from tests.support.events import (
    REPOSITORY,
    attempt,
    closure_judged,
    declaration,
    place,
    proof_checked,
    proof_found,
    proof_rejected,
    proof_verified,
    scanned,
    sha,
)
from tests.support.specs import search_spec

SORRY = "0123456789abcdef"
SCAN = scanned("A.lean", [declaration("a")], with_sorry=["a"])
SPOT = place(SCAN, SCAN.sorries[0], blob=sha("blob"))


def real(body: Any) -> Any:
    """Return a found proof under the id that it must have."""
    return body.model_copy(update={"proof": proof_id(body.sorry, body.blob, body.replacement, body.parts)})


FOUND = real(proof_found(SORRY, SPOT, commit=sha(1)))
ITS_LEAN = LeanBackend("pantograph", ("repl",), "a Lean", FOUND.toolchain, sandbox="none")
"""What a verdict has to name as the Lean that judged."""
SPECS: dict[str, Spec] = {
    "check": CheckSpec(lean=ITS_LEAN, proof=FOUND),
    "prove": search_spec(SorryToProve(SORRY, "A.lean", SPOT.blob, 0, 5, "a", "theorem", 0), sha=FOUND.sha),
}


JUDGED = [proof_verified(FOUND), proof_checked(FOUND), proof_rejected(FOUND), closure_judged(FOUND)]


def due(kind: Kind) -> DueJob:
    return DueJob(
        job=f"{kind}-0000000000000000",
        kind=kind,
        attempt=1,
        lane=kind,
        repository=REPOSITORY,
        branch=FOUND.branch,
        sha=FOUND.sha,
        describes=kind,
        spec=SPECS[kind],
    )


def said(
    kind: Kind,
    *bodies: EventBody,
) -> Batch:
    events = [
        {
            "stream": f"repository:{REPOSITORY}",
            "event_id": str(UUID(int=uuid4().int)),
            "type": body.type,
            "schema_version": body.schema_version,
            "data": body.model_dump(mode="json"),
        }
        for body in (body.model_copy(update={"job": f"{kind}-0000000000000000"}) for body in bodies)
    ]
    line = parse_line(json.dumps({"line": "events", "events": events}).encode(), job=due(kind))
    assert isinstance(line, Batch)
    return line


def test_what_the_jobs_are_for_is_taken() -> None:
    assert said("prove", FOUND, attempt(SORRY, SPOT, commit=sha(1))).events
    for body in JUDGED:
        assert said("check", body).events


def test_only_failed_attempts_that_cost_no_money_may_wait_to_be_recorded() -> None:
    failed = attempt(SORRY, SPOT, commit=sha(1), outcome="exhausted")
    assert _can_wait(said("prove", failed))
    assert not _can_wait(said("prove", failed.model_copy(update={"usd": 0.01})))
    for outcome in ("found", "disproved"):
        other = attempt(SORRY, SPOT, commit=sha(1), outcome=outcome)
        assert not _can_wait(said("prove", failed, other))
    assert not _can_wait(said("prove", failed, FOUND))


@pytest.mark.parametrize("body", JUDGED)
def test_a_prover_judges_nothing(body: EventBody) -> None:
    with pytest.raises(BadLineError, match="may not record"):
        said("prove", body)


@pytest.mark.parametrize("body", JUDGED)
@pytest.mark.parametrize("change", [{"proof": "another"}, {"sorry": "fedcba9876543210"}])
def test_a_checker_judges_its_own_proof_only(body: EventBody, change: dict[str, str]) -> None:
    with pytest.raises(BadLineError, match="not the one that the job was given"):
        said("check", body.model_copy(update=change))


def test_a_checker_judges_what_is_recorded_with_the_same_text_for_the_declaration_s_other_sorries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = real(FOUND.model_copy(update={"sorry": "fedcba9876543210"}))
    with pytest.raises(BadLineError, match="not the one that the job was given"):
        said("check", proof_verified(FOUND), proof_verified(other))
    spec = CheckSpec(lean=ITS_LEAN, proof=FOUND, alike=(Candidate(proof=other),))
    monkeypatch.setitem(SPECS, "check", spec)
    assert said("check", proof_verified(FOUND), proof_verified(other)).events


@pytest.mark.parametrize("change", [{"sorry": "fedcba9876543210"}, {"blob": sha("other")}])
def test_a_prover_finds_proofs_of_the_sorries_that_it_was_given(change: dict[str, str]) -> None:
    for body in (real(FOUND.model_copy(update=change)), attempt(SORRY, SPOT, commit=sha(1))):
        with pytest.raises(BadLineError, match="none that the job was given"):
            said("prove", body.model_copy(update=change))


@pytest.mark.parametrize(
    "change", [{"prover": "generator"}, {"rung": 2}, {"model": "m"}, {"seed": 1}, {"budget": "large"}]
)
def test_a_prover_speaks_of_itself_as_it_was_started(change: dict[str, Any]) -> None:
    finished = attempt(SORRY, SPOT, commit=sha(1))
    with pytest.raises(BadLineError, match=f"{next(iter(change))} is "):
        said("prove", finished.model_copy(update=change))


def test_a_prover_may_cite_the_tree_of_its_search() -> None:
    tree = BlobRef(sha256="7" * 64, size_bytes=12)
    finished = attempt(SORRY, SPOT, commit=sha(1)).model_copy(update={"tree": tree})
    assert said("prove", finished).cites == {"7" * 64}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prompt_tokens": 10**30}, "more than a table can hold"),
        ({"nodes": -(2**63) - 1}, "more than a table can hold"),
        ({"seconds": -1.0}, "less than nothing"),
        ({"completion_tokens": -1}, "less than nothing"),
        ({"usd": -0.01}, "less than nothing"),
    ],
)
def test_an_attempt_took_what_can_be_counted(change: dict[str, Any], why: str) -> None:
    with pytest.raises(BadLineError, match=why):
        said("prove", attempt(SORRY, SPOT, commit=sha(1)).model_copy(update=change))


def test_a_proof_goes_by_the_id_of_its_text() -> None:
    with pytest.raises(BadLineError, match="not the id of this replacement"):
        said("prove", FOUND.model_copy(update={"replacement": "by omega"}))


@pytest.mark.parametrize("step", ["text", "shape", "compile", "axioms", "statement"])
def test_nothing_is_verified_without_every_required_check(step: str) -> None:
    whole = proof_verified(FOUND)
    fewer = tuple(check for check in whole.checks if check.step != step)
    with pytest.raises(BadLineError, match=f"no check of {step}"):
        said("check", whole.model_copy(update={"checks": fewer}))


@pytest.mark.parametrize("by", ["scanner", "nobody"])
@pytest.mark.parametrize("step", ["compile", "axioms"])
def test_what_lean_must_judge_no_one_else_does(step: str, by: str) -> None:
    whole = proof_verified(FOUND)
    checks = tuple(one.model_copy(update={"by": by}) if one.step == step else one for one in whole.checks)
    with pytest.raises(BadLineError, match="not by Lean"):
        said("check", whole.model_copy(update={"checks": checks}))


def test_a_job_without_lean_verifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPECS, "check", CheckSpec(lean=replace(ITS_LEAN, kind="none"), proof=FOUND))
    assert said("check", proof_checked(FOUND)).events
    for body in (proof_verified(FOUND), closure_judged(FOUND)):
        with pytest.raises(BadLineError, match="no Lean that could verify it"):
            said("check", body)


@pytest.mark.parametrize("body", [proof_verified(FOUND), closure_judged(FOUND)])
def test_what_another_lean_said_is_not_taken(body: EventBody) -> None:
    with pytest.raises(BadLineError, match="the job was given another Lean"):
        said("check", body.model_copy(update={"toolchain": "leanprover/lean4:v4.34.9"}))
