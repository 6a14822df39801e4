"""The living daemon's facts on jobs: the progress of running ones, and the waiting ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobProgress:
    done: int = 0
    total: int = 0
    note: str = ""

    @property
    def count(self) -> str:
        """Return "3/10", or the number alone without a total."""
        return f"{self.done}/{self.total}" if self.total else str(self.done)

    @property
    def text(self) -> str:
        """Return "3/10 Basic.lean"."""
        return f"{self.count} {self.note}".strip()


@dataclass(frozen=True, slots=True)
class QueuedJob:
    job: str
    kind: str
    describes: str
    waits: str | None
    """for a reason, or null"""

    @property
    def text(self) -> str:
        """Return its work, and the reason for waiting."""
        return self.describes + (f"; waits: {self.waits}" if self.waits else "")
