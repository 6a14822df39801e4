"""What became of a job so far, and so whether it may be due: never tried, to be tried again, waiting, or settled."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from daemon.jumps import SET_S
from store.view.queries import basic as queries
from store.view.queries import jobs as job_queries


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
    """Answers for one plan. `next_retry_at` is the earliest time that a job which was asked about waits for.

    Args:
        waits_s: how long jobs that failed in this daemon's life still wait, by a clock that nobody sets; of others the
            time that was written down counts.
    """

    def __init__(
        self, view: sqlite3.Connection, *, now: datetime, waits_s: Mapping[str, float] | None = None
    ) -> None:
        self._view = view
        self._now = now
        self._waits_s = waits_s or {}
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
                ended_at = None if row.ended_at is None else datetime.fromisoformat(row.ended_at)
                if row.deterministic or row.retry_at is None:
                    return Standing("parked", attempt, row.deterministic, row.reason, ended_at)
                if (left_s := self._waits_s.get(identity)) is not None:
                    moment, ended_at = self._now + timedelta(seconds=left_s), None
                else:
                    moment = datetime.fromisoformat(row.retry_at)
                if self.has_come(moment, since=ended_at):
                    return Standing("ready", attempt)
                return Standing("waiting", attempt)
            case _:
                return Standing("ready", attempt)

    def failures(self, identity: str) -> int:
        """Return how many attempts of the job with this id have failed. Those that made way are none of them."""
        return job_queries.failures_of(self._view, job=identity)

    def has_come(self, moment: datetime, *, since: datetime | None = None) -> bool:
        """Say whether a moment has come; one that has not is waited for.

        Args:
            since: when the wait began. Where that is still to come, the clock was set back meanwhile: nobody can tell
                how much of the wait is over, and nobody waits until it is that late again.
        """
        if moment <= self._now:
            return True
        if since is not None and self._now + timedelta(seconds=SET_S) < since < moment:
            return True
        if self.next_retry_at is None or moment < self.next_retry_at:
            self.next_retry_at = moment
        return False
