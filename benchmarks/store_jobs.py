"""Jobs' records of their work, for `benchmarks/store_history.py`: attempts, proofs and their verdicts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from store.domain.identity import proof_id, short_hash
from store.events.base import EventBody
from store.events.jobs import JobFailed, JobStarted, JobSucceeded
from store.events.places import SorryPlace
from store.events.proofs import (
    AttemptFinished,
    CheckedVersion,
    ProofChecked,
    ProofFound,
    ProofRejected,
    ProofVerified,
)
from tests.support.events import ALL_PASSED, CHECKS, PATCH, digest

FOUND = 0.05
FAILED = 0.02

Event = tuple[str, EventBody]
"""A stream, and an event of it."""


class At(NamedTuple):
    """The commit of a job."""

    repository: str
    sha: str

    @property
    def stream(self) -> str:
        return f"repository:{self.repository}"


def prove(at: At, sorries: Sequence[tuple[str, SorryPlace]], rng: random.Random) -> list[Event]:
    """Return the events of one job for these sorries; a job of its own checks each proof."""
    job = f"prove-{short_hash(at.sha, sorries[0][0], str(len(sorries)))}"
    events: list[Event] = [(f"job:{job}", started(at, job, "prove"))]
    checks: list[Event] = []
    for sorry, place in sorries:
        result = rng.random() < FOUND
        if result:
            checks += _proof_events(at, sorry, place, job, events, rng)
        attempt = AttemptFinished(
            repository=at.repository,
            branch="main",
            sha=at.sha,
            sorry=sorry,
            blob=place.blob,
            prover="tactics",
            rung=0,
            model="",
            seed=0,
            budget="60s/200n/10s/pantograph",
            outcome="found" if result else rng.choice(["exhausted", "exhausted", "budget", "unsupported"]),
            detail="",
            nodes=rng.randrange(200),
            repl_calls=rng.randrange(400),
            seconds=round(rng.random() * 60, 3),
            best="",
            goals_left=None,
            prompt_tokens=0,
            completion_tokens=0,
            usd=None,
            tree=None,
            job=job,
        )
        events.append((at.stream, attempt))
    if rng.random() < FAILED:
        end: EventBody = JobFailed(
            job=job,
            attempt=1,
            reason="crashed",
            message="the REPL ended with 137",
            remedy="give the job more memory",
            deterministic=False,
            retry_at=datetime(2026, 1, 1, tzinfo=UTC),
            seconds=12.5,
            peak_rss_bytes=3 << 30,
        )
    else:
        end = succeeded(job, 41.0, {"found": 0, "exhausted": len(sorries)})
    return [*events, (f"job:{job}", end), *checks]


def _proof_events(
    at: At, sorry: str, place: SorryPlace, job: str, events: list[Event], rng: random.Random
) -> list[Event]:
    text = f"simpa using {place.declaration}_aux"
    proof = proof_id(sorry, place.blob, text)
    stream = f"proof:{proof}"
    body = ProofFound(
        proof=proof,
        sorry=sorry,
        repository=at.repository,
        branch="main",
        sha=at.sha,
        path=place.path,
        blob=place.blob,
        byte_start=place.byte_start,
        byte_end=place.byte_end,
        declaration=place.declaration,
        declaration_text_hash=short_hash(place.declaration, text),
        replacement=text,
        parts=(),
        tactics=(text,),
        prover="tactics",
        rung=0,
        toolchain="leanprover/lean4:v4.29.1",
        job=job,
    )
    events.append((stream, body))
    check = f"check-{proof}"
    common = {"proof": proof, "sorry": sorry, "job": check}
    outcome = rng.random()
    verdict: EventBody
    if outcome < 0.7:
        verdict = ProofVerified(
            **common,
            checks=ALL_PASSED,
            not_checked=("kernel",),
            axioms=("propext",),
            grade="L0",
            kernel="",
            version=CheckedVersion(sha=at.sha, blob=place.blob, byte_start=place.byte_start),
            patch=digest(PATCH),
            toolchain=body.toolchain,
            material=None,
        )
    elif outcome < 0.9:
        verdict = ProofChecked(
            **common, checks=CHECKS, not_checked=("axioms",), disagreement="", patch=digest(PATCH)
        )
    else:
        verdict = ProofRejected(
            **common,
            step="axioms",
            reason="it rests on sorryAx",
            checks=CHECKS,
            conditional_on=("0" * 16,),
        )
    return [
        (f"job:{check}", started(at, check, "check")),
        (stream, verdict),
        (f"job:{check}", succeeded(check, 8.0, {"verdict": verdict.type})),
    ]


def started(at: At, job: str, kind: str) -> JobStarted:
    return JobStarted(
        job=job,
        kind=kind,
        attempt=1,
        repository=at.repository,
        branch="main",
        sha=at.sha,
        describes=f"{kind} of main at {at.sha[:9]}",
    )


def succeeded(job: str, seconds: float, summary: dict[str, Any]) -> JobSucceeded:
    return JobSucceeded(job=job, attempt=1, seconds=seconds, peak_rss_bytes=96 << 20, summary=summary)
