"""What became of a job so far, and so whether it may be due: never tried, to be tried again, waiting, or settled."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from store import queries


@dataclass(frozen=True, slots=True)
class Standing:
    """A job's standing: ready (perhaps again), waiting until a time, or settled for good.

    `attempt` is the number of the next attempt; of a running or finished job, that of the last. `reason` is what the
    last failure of a parked one goes by, `ended_at` the time of it.
    """

    state: Literal["ready", "waiting", "running", "done", "parked"]
    attempt: int
    deterministic: bool = False
    reason: str = ""
    ended_at: datetime | None = None


class Standings:
    """Answers for one plan. `next_retry_at` is the earliest time that a job which was asked about waits for."""

    def __init__(self, view: sqlite3.Connection, *, now: datetime) -> None:
        self._view = view
        self._now = now
        self.next_retry_at: datetime | None = None

    def of(self, identity: str) -> Standing:
        """Return the standing of the job with this id."""
        row = next((row for row in queries.jobs_by_prefix(self._view, identity) if row.job == identity), None)
        if row is None:
            return Standing("ready", 1)
        attempt = row.attempt + 1
        match row.state:
            case "running":
                return Standing("running", row.attempt)
            case "cancelled":
                # Somebody does not want it. Deterministic: it is not tried in parts either.
                return Standing("parked", attempt, deterministic=True, reason=row.reason)
            case "succeeded":
                # It ended well and its work is still undone: running it again would not end otherwise.
                return Standing("done", row.attempt)
            case "failed":
                if row.deterministic or row.retry_at is None:
                    ended_at = None if row.ended_at is None else datetime.fromisoformat(row.ended_at)
                    return Standing("parked", attempt, row.deterministic, row.reason, ended_at)
                if self.has_come(datetime.fromisoformat(row.retry_at)):
                    return Standing("ready", attempt)
                return Standing("waiting", attempt)
            case _:
                return Standing("ready", attempt)

    def has_come(self, moment: datetime) -> bool:
        """Say whether a moment has come; one that has not is waited for."""
        if moment <= self._now:
            return True
        if self.next_retry_at is None or moment < self.next_retry_at:
            self.next_retry_at = moment
        return False
