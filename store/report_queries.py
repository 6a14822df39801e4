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


class JobTime(NamedTuple):
    """Jobs of one kind and state at their newest attempt: their seconds together, and the largest peak in bytes.

    `seconds` and `peak_rss_bytes` are None where no job has one.
    """

    kind: str
    simulated: bool
    state: str
    n: int
    seconds: float | None
    peak_rss_bytes: int | None


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


def newest_proofs(db: sqlite3.Connection, limit: int) -> list[ProofRow]:
    """Return the proofs found last, the newest first."""
    names = ", ".join(f'"{name}"' for name in columns(ProofRow))
    rows = db.execute(f"SELECT {names} FROM proofs ORDER BY found_at DESC, proof LIMIT ?", (limit,))
    return make_all(ProofRow, rows)


def job_times(db: sqlite3.Connection) -> list[JobTime]:
    """Add up what jobs took, by kind and state."""
    rows = db.execute(
        "SELECT kind, simulated, state, count(*), sum(seconds), max(peak_rss_bytes) FROM jobs "
        "GROUP BY kind, simulated, state ORDER BY kind, simulated, state"
    )
    return [
        JobTime(kind, bool(simulated), state, n, seconds, peak)
        for kind, simulated, state, n, seconds, peak in rows
    ]
