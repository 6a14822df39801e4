"""The report's questions: over all sorrys, proofs and jobs at once, so counted in SQL and read without their texts.

Read-only and light, like `store.queries`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from store.queries import on_watched_branch
from store.rows import ProofRow, columns, make_all


class Turn(NamedTuple):
    """A step at which a sorry came or went: "opened", "reopened", "filled" or "removed"; `detail` is the step's."""

    repository: str
    branch: str
    sorry: str
    step: str
    recorded_at: str
    detail: str


class SorryCount(NamedTuple):
    """How many sorrys of a repository's watched branches are in one state."""

    repository: str
    state: str
    n: int


class ProofVerdict(NamedTuple):
    """How many proofs have this state and, where they were rejected, this reason."""

    state: str
    simulated: bool
    reason: str
    n: int


class JobCount(NamedTuple):
    """Jobs of one kind and state at their newest attempt, and the largest peak in bytes; None where none has one."""

    kind: str
    simulated: bool
    state: str
    n: int
    peak_rss_bytes: int | None


class Ran(NamedTuple):
    """Attempts that ended: of one kind, on one sort of device, all begun and ended on one day each; or a single one.

    `device` is "gpu", "cpu", or "unknown" where nothing recorded tells. `began` is the first one's beginning, `ended`
    the last one's end, `seconds` what they took together by the clock.
    """

    kind: str
    simulated: bool
    device: str
    began: str
    ended: str
    n: int
    seconds: float


class Searches(NamedTuple):
    """What one prover with one model tried: attempts by how they ended, seconds, tokens, and what it cost.

    `priced` of the attempts have a price; `usd` is None where none has.
    """

    prover: str
    rung: int
    model: str
    simulated: bool
    attempts: int
    found: int
    disproved: int
    seconds: float
    tokens: int
    priced: int
    usd: float | None


def turns(db: sqlite3.Connection) -> Iterator[Turn]:
    """Yield the comings and goings of the sorrys of watched branches, in the log's order."""
    rows = db.execute(
        "SELECT repository, branch, sorry, step, recorded_at, detail FROM sorry_steps "
        "WHERE step IN ('opened', 'reopened', 'filled', 'removed') "
        f"AND {on_watched_branch('sorry_steps')} ORDER BY seq, repository, branch"
    )
    return (Turn(*row) for row in rows)


def sorry_counts(db: sqlite3.Connection) -> list[SorryCount]:
    """Count sorrys by repository and state, on watched branches only."""
    by_branch = (
        "SELECT repository, branch, state, count(*) AS n FROM sorries GROUP BY repository, branch, state"
    )
    rows = db.execute(
        f"SELECT repository, state, sum(n) FROM ({by_branch}) AS counted WHERE {on_watched_branch('counted')} "
        "GROUP BY repository, state ORDER BY repository, state"
    )
    return [SorryCount(*row) for row in rows]


def proof_verdicts(db: sqlite3.Connection) -> list[ProofVerdict]:
    """Count proofs by state and reason, the most frequent first."""
    rows = db.execute(
        "SELECT state, simulated, reason, count(*) FROM proofs GROUP BY state, simulated, reason "
        "ORDER BY count(*) DESC, state, simulated, reason"
    )
    return [ProofVerdict(state, bool(simulated), reason, n) for state, simulated, reason, n in rows]


def newest_proofs(db: sqlite3.Connection, limit: int, *, verified: bool) -> list[ProofRow]:
    """Return the proofs found last, the newest first: those that Lean verified, or all others."""
    names = ", ".join(f'"{name}"' for name in columns(ProofRow))
    rows = db.execute(
        f"SELECT {names} FROM proofs WHERE state {'=' if verified else '<>'} 'verified' "
        "ORDER BY found_at DESC, proof LIMIT ?",
        (limit,),
    )
    return make_all(ProofRow, rows)


def searches(db: sqlite3.Connection) -> list[Searches]:
    """Add up what was tried on sorrys, by prover and model, the lowest rung first."""
    rows = db.execute(
        "SELECT prover, rung, model, simulated, count(*), sum(outcome = 'found'), sum(outcome = 'disproved'), "
        "sum(seconds), sum(prompt_tokens + completion_tokens), count(usd), sum(usd) FROM attempts "
        "GROUP BY prover, rung, model, simulated ORDER BY simulated, rung, prover, model"
    )
    return [
        Searches(prover, rung, model, bool(simulated), *counted)
        for prover, rung, model, simulated, *counted in rows
    ]


def job_counts(db: sqlite3.Connection) -> list[JobCount]:
    """Count jobs by kind and state."""
    rows = db.execute(
        "SELECT kind, simulated, state, count(*), max(peak_rss_bytes) FROM jobs "
        "GROUP BY kind, simulated, state ORDER BY kind, simulated, state"
    )
    return [JobCount(kind, bool(simulated), state, n, peak) for kind, simulated, state, n, peak in rows]


def ran(db: sqlite3.Connection) -> list[Ran]:
    """Add up what attempts took, by kind, device and day; one that went on past midnight stands by itself.

    What trained says on what it did, by its checkpoint. What reads or checks alone has no use for a GPU, nor has a
    search by the list of tactics or by somebody else's machine. Of the rest nothing is recorded.
    """
    return [Ran(kind, bool(simulated), *rest) for kind, simulated, *rest in db.execute(_RAN)]


_RAN = """
WITH learned AS (SELECT job, max(device LIKE 'cuda%') AS gpu FROM checkpoints GROUP BY job),
  searched AS (SELECT job, max(rung NOT IN (0, 4)) AS model FROM attempts GROUP BY job)
SELECT a.kind, j.simulated,
  CASE WHEN a.kind IN ('scan', 'build', 'trace', 'check') OR learned.gpu = 0 OR searched.model = 0 THEN 'cpu'
    WHEN learned.gpu = 1 THEN 'gpu' ELSE 'unknown' END AS device,
  min(a.started_at), max(a.ended_at), count(*),
  sum(max(0.0, julianday(a.ended_at) - julianday(a.started_at))) * 86400.0
FROM job_attempts AS a CROSS JOIN jobs AS j ON j.job = a.job
  LEFT JOIN learned ON learned.job = a.job LEFT JOIN searched ON searched.job = a.job
WHERE a.ended_at IS NOT NULL
GROUP BY a.kind, j.simulated, device, substr(a.started_at, 1, 10),
  CASE WHEN substr(a.started_at, 1, 10) = substr(a.ended_at, 1, 10) THEN '' ELSE a.job || ' ' || a.attempt END
ORDER BY a.kind, j.simulated, device, min(a.started_at)
"""
