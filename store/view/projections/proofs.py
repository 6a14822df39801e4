"""Attempts, proofs and verdicts."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from store.events.proofs import (
    AttemptFinished,
    ClosureJudged,
    ProofChecked,
    ProofDoubted,
    ProofFound,
    ProofRejected,
    ProofVerified,
    PullRequestOpened,
)
from store.log.envelope import StoredEvent
from store.view.projections.rows import as_json, upsert
from store.view.projections.sorries import proof_falls, proof_stands

REQUIRED = frozenset(("text", "shape", "compile", "axioms", "statement"))
"""The required steps of the gate for any verified proof."""
LEAN_S = frozenset(("compile", "axioms"))
NOT_LEAN = frozenset(("scanner", "nobody"))

_JUDGED = "checked_at = ?, checked_job = ?, checks_json = ?"


def attempt_finished(db: sqlite3.Connection, event: StoredEvent, body: AttemptFinished) -> None:
    """Record an attempt, under the key that must change before the next."""
    upsert(
        db,
        "attempts",
        key={
            "sorry": body.sorry,
            "blob": body.blob,
            "prover": body.prover,
            "rung": body.rung,
            "model": body.model,
            "budget": body.budget,
        },
        values={
            "repository": body.repository,
            "branch": body.branch,
            "sha": body.sha,
            "outcome": body.outcome,
            "detail": body.detail,
            "nodes": body.nodes,
            "repl_calls": body.repl_calls,
            "seconds": body.seconds,
            "seed": body.seed,
            "best": body.best,
            "goals_left": body.goals_left,
            "prompt_tokens": body.prompt_tokens,
            "completion_tokens": body.completion_tokens,
            "usd": body.usd,
            "tree_sha256": None if body.tree is None else body.tree.sha256,
            "job": body.job,
            "recorded_at": event.recorded_at,
        },
        once={},
    )


def proof_found(db: sqlite3.Connection, event: StoredEvent, body: ProofFound) -> None:
    """Add a candidate. The same text found again for the same version of the file is the same proof."""
    if _lookup(db, body.proof) is None:
        proof_judged(db, verdict="found")
    upsert(
        db,
        "proofs",
        key={"proof": body.proof},
        values={},
        once={
            name: getattr(body, name)
            for name in ProofFound.model_fields
            if name not in {"proof", "parts", "tactics"}
        }
        | {
            "parts_json": as_json(body.parts),
            "tactics_json": as_json(body.tactics),
            "state": "candidate",
            "checks_json": "[]",
            "not_checked_json": "[]",
            "axioms_json": "[]",
            "grade": "",
            "kernel": "",
            "judge": "",
            "rests_on_sha256": None,
            "statement": "",
            "lean_statement": "",
            "not_in_header_json": None,
            "speaks_of_json": "[]",
            "speaks_of_more": 0,
            "doubts_json": "[]",
            "checked_sha": body.sha,
            "checked_blob": body.blob,
            "checked_start": body.byte_start,
            "conditional_on_json": "[]",
            "reason": "",
            "found_at": event.recorded_at,
        },
    )


def proof_checked(db: sqlite3.Connection, event: StoredEvent, body: ProofChecked) -> None:
    """Keep the proof a candidate, with its checks and the missing ones; an earlier verdict stays.

    Unless kernels disagree now: then it is a candidate again, whoever accepted it before.
    """
    before = _lookup(db, body.proof)
    if before is not None and before.state == "candidate" and before.checked_at is None:
        proof_judged(db, verdict="checked")
    if body.disagreement and before is not None and before.state == "verified":
        detail = f"proof {body.proof} is in doubt: {body.disagreement}"
        proof_falls(db, event, proof=body.proof, detail=detail)
        db.execute(
            "UPDATE proofs SET state = 'candidate', grade = '', kernel = '' WHERE proof = ?", (body.proof,)
        )
    db.execute(
        f"UPDATE proofs SET {_JUDGED}, not_checked_json = ?, patch_sha256 = ?, reason = ?, doubts_json = ? "
        "WHERE proof = ? AND state = 'candidate'",
        (
            *_verdict_columns(event, body),
            as_json(body.not_checked),
            body.patch.sha256,
            body.disagreement,
            as_json((body.disagreement.partition(":")[0],) if body.disagreement else ()),
            body.proof,
        ),
    )


def why_not_verified(body: ProofVerified) -> str | None:
    """Return why the event's own checks do not support it; None if every required one passed, Lean's by Lean."""
    for check in body.checks:
        if check.verdict == "failed":
            return f"the check {check.step} failed"
        if check.verdict == "not_checked" and check.step in REQUIRED:
            return f"the check {check.step} was not made"
        if check.step in LEAN_S and check.verdict == "passed" and check.by in NOT_LEAN:
            return f"the check {check.step} was made by the {check.by} and not by Lean"
    missing = REQUIRED - {check.step for check in body.checks if check.verdict == "passed"}
    return f"no check of {', '.join(sorted(missing))}" if missing else None


def proof_verified(db: sqlite3.Connection, event: StoredEvent, body: ProofVerified) -> None:
    """Mark it and its sorry as verified.

    A rejected proof cannot be, whatever an event says; nor one without a required check.
    """
    if why_not_verified(body) is not None:
        return
    before = _lookup(db, body.proof)
    statement, lean, missing, below, more = (
        ("", "", None, [], 0) if body.material is None else body.material.statement_parts
    )
    changed = db.execute(
        f"UPDATE proofs SET {_JUDGED}, state = 'verified', reason = '', not_checked_json = ?, axioms_json = ?, "
        "grade = ?, kernel = ?, judge = ?, doubts_json = '[]', "
        "statement = ?, lean_statement = ?, not_in_header_json = ?, speaks_of_json = ?, speaks_of_more = ?, "
        "checked_sha = ?, checked_blob = ?, checked_start = ?, conditional_on_json = '[]', patch_sha256 = ? "
        "WHERE proof = ? AND sorry = ? AND state IN ('candidate', 'verified')",
        (
            *_verdict_columns(event, body),
            as_json(body.not_checked),
            as_json(body.axioms),
            body.grade,
            body.kernel,
            body.toolchain,
            statement,
            lean,
            None if missing is None else as_json(missing),
            as_json(below),
            more,
            body.version.sha,
            body.version.blob,
            body.version.byte_start,
            body.patch.sha256,
            body.proof,
            body.sorry,
        ),
    ).rowcount
    if changed:
        if before is not None and before.state != "verified":
            proof_judged(db, verdict="verified")
        axioms = ", ".join(body.axioms) or "no axioms"
        proof_stands(db, event, proof=body.proof, detail=f"proof {body.proof} ({axioms})")


def proof_rejected(db: sqlite3.Connection, event: StoredEvent, body: ProofRejected) -> None:
    """Record the reason, or the other sorries below it; its sorry is open again if it counted.

    Its patch, if any, is no longer on offer.
    """
    reason = f"{body.step}: {body.reason}"
    before = _lookup(db, body.proof)
    if before is not None and before.state not in ("rejected", "conditional"):
        proof_judged(db, verdict="rejected")
    proof_falls(db, event, proof=body.proof, detail=f"proof {body.proof} was rejected: {reason}")
    db.execute(
        f"UPDATE proofs SET {_JUDGED}, state = ?, reason = ?, conditional_on_json = ?, patch_sha256 = NULL, "
        "doubts_json = '[]' "
        "WHERE proof = ?",
        (
            *_verdict_columns(event, body),
            "conditional" if body.conditional_on else "rejected",
            reason,
            as_json(body.conditional_on),
            body.proof,
        ),
    )


def proof_doubted(db: sqlite3.Connection, _event: StoredEvent, body: ProofDoubted) -> None:
    """Record the doubt on a job's verdict, if it is still the last."""
    db.execute(
        "UPDATE proofs SET doubts_json = ? WHERE proof = ? AND state = 'verified' AND checked_job = ?",
        (as_json(body.advisories), body.proof, body.job),
    )


def closure_judged(db: sqlite3.Connection, event: StoredEvent, body: ClosureJudged) -> None:
    """Keep the constants below a proof, the kernels' acceptances, and the first check with each."""
    db.execute(
        "UPDATE proofs SET rests_on_sha256 = ? WHERE proof = ? AND checked_job = ?",
        (body.rests_on.sha256, body.proof, body.job),
    )
    about = (body.toolchain, body.repository, body.sha, body.job, event.seq)
    db.executemany(
        "INSERT INTO accepted (key, kernel, what, toolchain, repository, sha, job, seq) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [(one.key, one.kernel, one.what, *about) for one in body.accepted],
    )


def pull_request_opened(db: sqlite3.Connection, event: StoredEvent, body: PullRequestOpened) -> None:
    """Record a proof's pull request; an unknown proof changes nothing."""
    db.execute(
        "UPDATE proofs SET pull_request_url = ?, pull_request_at = ? WHERE proof = ? AND repository = ?",
        (body.url, event.recorded_at, body.proof, body.repository),
    )


class _Known(NamedTuple):
    state: str
    checked_at: str | None


def _lookup(db: sqlite3.Connection, proof: str) -> _Known | None:
    row = db.execute("SELECT state, checked_at FROM proofs WHERE proof = ?", (proof,)).fetchone()
    return None if row is None else _Known(row[0], row[1])


def _verdict_columns(
    event: StoredEvent, body: ProofChecked | ProofVerified | ProofRejected
) -> tuple[str, str, str]:
    return (event.recorded_at, body.job, as_json([check.model_dump(mode="json") for check in body.checks]))


def proof_judged(db: sqlite3.Connection, *, verdict: str) -> None:
    """Count a proof's new verdict."""
    db.execute(
        "INSERT INTO proof_tallies (verdict, n) VALUES (?, 1) ON CONFLICT (verdict) DO UPDATE SET n = n + 1",
        (verdict,),
    )
