"""When a job that failed is tried again: later and later, counted on a clock that nobody sets.

The time is in the log too (`retry_at`), for people and for the daemon that comes after this one: that is a time of day,
which a clock that is set would move. While this daemon lives, its own count holds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from daemon.clock import elapsed_s
from daemon.settings.schema import Jobs

_LONGEST_BACKOFF_S = 3600.0
_FORGOTTEN_AFTER_S = 86400.0
"""A job that was not begun for so long after its time is not due for another reason; `retry_at` will do for it."""


class Retries:
    """The waits of one daemon's failed jobs, by the job's id."""

    def __init__(
        self, *, dice: random.Random | None = None, elapsed: Callable[[], float] = elapsed_s
    ) -> None:
        self._dice = dice or random.Random()  # noqa: S311 - jitter, not cryptography
        self._elapsed = elapsed
        self._due: dict[str, float] = {}

    def after(self, job: str, *, failures: int, limits: Jobs) -> datetime | None:
        """Have a job wait after so many failures; return until when by the wall clock, None where it was the last."""
        if failures >= limits.max_attempts:
            return None
        wait_s = min(limits.retry_base_s * 2.0 ** (failures - 1), _LONGEST_BACKOFF_S)
        wait_s *= self._dice.uniform(0.8, 1.2)
        self._due[job] = self._elapsed() + wait_s
        return datetime.now(UTC) + timedelta(seconds=wait_s)

    def begun(self, job: str) -> None:
        """Forget the wait of a job that begins."""
        self._due.pop(job, None)

    def waits_s(self) -> dict[str, float]:
        """Return how long each still waits, in seconds; 0 and less: no longer."""
        now = self._elapsed()
        self._due = {job: due for job, due in self._due.items() if now - due < _FORGOTTEN_AFTER_S}
        return {job: due - now for job, due in self._due.items()}
