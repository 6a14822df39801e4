"""The questions about the work itself: what is paused and triggered, and how much time kinds of jobs took."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass

from store.view.rows import columns


@dataclass(frozen=True, slots=True)
class PauseRow:
    """A sort of work that is paused, by whom, why ("" where nobody said), and since when."""

    work: str
    by: str
    reason: str
    since: str


@dataclass(frozen=True, slots=True)
class TriggerRow:
    """The newest wish for a sort of work in a repository.

    `job` is the first that began after it, None before; `ended` is why none had to, None otherwise.
    """

    work: str
    repository: str
    seq: int
    by: str
    triggered_at: str
    job: str | None
    ended: str | None

    @property
    def waits(self) -> bool:
        """Return whether work is left for the trigger."""
        return self.job is None and self.ended is None


def pauses(db: sqlite3.Connection) -> list[PauseRow]:
    """Return what is paused, by name."""
    rows = db.execute(f"SELECT {', '.join(columns(PauseRow))} FROM pauses ORDER BY work")
    return [PauseRow(*row) for row in rows]


def triggers(db: sqlite3.Connection) -> list[TriggerRow]:
    """Return the newest trigger of each work and repository, the oldest first."""
    rows = db.execute(f"SELECT {', '.join(columns(TriggerRow))} FROM triggers ORDER BY seq")
    return [TriggerRow(*row) for row in rows]


def failures_of(db: sqlite3.Connection, *, job: str) -> int:
    """Return how many attempts of a job have failed; those that made way or were cut off are none of them."""
    found = db.execute("SELECT count(*) FROM job_attempts WHERE job = ? AND outcome = 'failed'", (job,))
    return int(found.fetchone()[0])


def seconds_of_kinds(db: sqlite3.Connection, kinds: Collection[str], *, since: str, now: str) -> float:
    """Return how long attempts of these kinds ran between two moments (UTC, as the log writes them), in seconds.

    An attempt without an end is still running.
    """
    names = {f"kind{number}": kind for number, kind in enumerate(kinds)}
    (seconds,) = db.execute(
        "SELECT coalesce(sum(max(0.0, julianday(coalesce(ended_at, :now)) - julianday(max(started_at, :since)))), 0.0)"
        f" * 86400.0 FROM job_attempts WHERE kind IN ({', '.join(f':{name}' for name in names)})"
        " AND (ended_at IS NULL OR ended_at > :since)",
        {"now": now, "since": since, **names},
    ).fetchone()
    return float(seconds)
