"""Tell from a job's history whether it may be due: untried, to retry, waiting, or settled."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from daemon.settings.schema import Jobs
from daemon.state.clock import SET_S, elapsed_s
from store.backoff import Backoff
from store.view import queries


@dataclass(frozen=True, slots=True)
class Readiness:
    """A job's standing: ready (perhaps again), waiting until a time, or settled for good.

    `attempt` is the number of the next attempt; of a running or finished job, the last one's. `reason` and
    `ended_at` are the reason and time of a parked job's last failure.
    """

    state: Literal["ready", "waiting", "running", "done", "parked"]
    attempt: int
    deterministic: bool = False
    reason: str = ""
    ended_at: datetime | None = None


class ReadinessOfJobs:
    """The readiness of jobs for one plan. `next_retry_at`: the earliest time an answer may change.

    Args:
        waits_s: the remaining waits of jobs that failed in this daemon's life, by the monotonic clock; for
            others the recorded time counts.
    """

    def __init__(
        self, view: sqlite3.Connection, *, now: datetime, waits_s: Mapping[str, float] | None = None
    ) -> None:
        self._view = view
        self._now = now
        self._waits_s = waits_s or {}
        self.next_retry_at: datetime | None = None

    def of(self, identity: str) -> Readiness:
        """Return the standing of the job with this id."""
        row = next((row for row in queries.jobs_by_prefix(self._view, identity) if row.job == identity), None)
        if row is None:
            return Readiness("ready", 1)
        attempt = row.attempt + 1
        match row.state:
            case "running":
                return Readiness("running", row.attempt)
            case "cancelled":
                # It was cancelled. Deterministic: it is not tried in parts either.
                return Readiness("parked", attempt, deterministic=True, reason=row.reason)
            case "succeeded":
                # It ended well and its work is still undone: another run would end the same way.
                return Readiness("done", row.attempt)
            case "failed":
                ended_at = None if row.ended_at is None else datetime.fromisoformat(row.ended_at)
                if row.deterministic or row.retry_at is None:
                    return Readiness("parked", attempt, row.deterministic, row.reason, ended_at)
                if (left_s := self._waits_s.get(identity)) is not None:
                    moment, ended_at = self._now + timedelta(seconds=left_s), None
                else:
                    moment = datetime.fromisoformat(row.retry_at)
                if self.has_come(moment, since=ended_at):
                    return Readiness("ready", attempt)
                return Readiness("waiting", attempt)
            case _:
                return Readiness("ready", attempt)

    def failures(self, identity: str) -> int:
        """Return the number of failed attempts of the job with this id. Preempted attempts do not count."""
        return queries.failures_of(self._view, job=identity)

    def has_come(self, moment: datetime, *, since: datetime | None = None) -> bool:
        """Return whether a moment has come; if not, its coming counts as a wait.

        Args:
            since: the start of the wait. If it is in the future, the clock was set back meanwhile: the
                remaining wait is unknown, and the job does not wait for that time again.
        """
        if moment <= self._now:
            return True
        if since is not None and self._now + timedelta(seconds=SET_S) < since < moment:
            self._look_again(since)
            return True
        self._look_again(moment)
        return False

    def _look_again(self, moment: datetime) -> None:
        if self.next_retry_at is None or moment < self.next_retry_at:
            self.next_retry_at = moment


# ---- The retries of failed jobs: later and later, counted on the monotonic clock
# The time is in the log too (`retry_at`), for people and for the next daemon: a time of day, which moves with
# the clock. While this daemon lives, its own count holds.


_LONGEST_BACKOFF_S = 3600.0
"""The first wait is a setting, `[jobs] retry_base`."""
_FORGOTTEN_AFTER_S = 86400.0
"""A job not begun this long after its time is not due for another reason; then `retry_at` suffices."""


class Retries:
    """The waits of one daemon's failed jobs, and the number of times in a row that their nodes were lost, by
    job id."""

    def __init__(
        self, *, dice: random.Random | None = None, elapsed: Callable[[], float] = elapsed_s
    ) -> None:
        self._dice = dice or random.Random()  # noqa: S311 - jitter, not cryptography
        self._elapsed = elapsed
        self._due: dict[str, float] = {}
        self._lost: dict[str, int] = {}

    def lost(self, job: str, *, limits: Jobs) -> int:
        """Count another attempt in a row lost with its node; return the number once it reaches the limit,
        else 0."""
        self._lost[job] = self._lost.get(job, 0) + 1
        return self._lost.pop(job) if self._lost[job] >= limits.max_attempts else 0

    def not_lost(self, job: str) -> None:
        """Begin that count anew: an attempt of the job ended in another way."""
        self._lost.pop(job, None)

    def after(self, job: str, *, failures: int, limits: Jobs) -> datetime | None:
        """Delay a job after a failure; return the wait's end by the wall clock, None after its last
        attempt."""
        if failures >= limits.max_attempts:
            return None
        wait_s = Backoff(limits.retry_base_s, _LONGEST_BACKOFF_S, jitter=0.2).wait_s(failures, self._dice)
        self._due[job] = self._elapsed() + wait_s
        return datetime.now(UTC) + timedelta(seconds=wait_s)

    def begun(self, job: str) -> None:
        """Forget the wait of a beginning job."""
        self._due.pop(job, None)

    def waits_s(self) -> dict[str, float]:
        """Return the remaining wait of each, in seconds; 0 or less: over."""
        now = self._elapsed()
        self._due = {job: due for job, due in self._due.items() if now - due < _FORGOTTEN_AFTER_S}
        return {job: due - now for job, due in self._due.items()}
