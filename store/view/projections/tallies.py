"""Counters: how often what came to an end, so that no one has to count the rows of years.

Each counts an event once, and only goes up; a rebuild gives the same numbers.
"""

from __future__ import annotations

import bisect
import sqlite3

JOB_BOUNDS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""The upper ends of the intervals in which the durations of jobs are counted; the last interval has none.

Other ones need another `store.view.schema.PROJECTION_VERSION`.
"""

UNTIMED = -1
"""The interval of an attempt that no one timed to its end."""


def job_ended(db: sqlite3.Connection, *, job: str, outcome: str, seconds: float | None) -> None:
    """Count an attempt, by the kind of its job."""
    bucket = UNTIMED if seconds is None else bisect.bisect_left(JOB_BOUNDS_S, seconds)
    db.execute(
        "INSERT INTO job_tallies (kind, outcome, simulated, bucket, n, seconds) "
        "SELECT kind, ?, simulated, ?, 1, ? FROM jobs WHERE job = ? "
        "ON CONFLICT (kind, outcome, simulated, bucket) DO UPDATE SET n = n + 1, seconds = seconds + excluded.seconds",
        (outcome, bucket, seconds or 0.0, job),
    )


def proof_judged(db: sqlite3.Connection, *, verdict: str, simulated: bool) -> None:
    """Count a verdict on a proof that it did not have before."""
    db.execute(
        "INSERT INTO proof_tallies (verdict, simulated, n) VALUES (?, ?, 1) "
        "ON CONFLICT (verdict, simulated) DO UPDATE SET n = n + 1",
        (verdict, int(simulated)),
    )
