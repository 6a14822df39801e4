"""What only the living daemon says of jobs: how far those are that run, and which wait to begin."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobProgress:
    done: int = 0
    total: int = 0
    note: str = ""

    @property
    def count(self) -> str:
        """Return "3/10", or the number alone where there is no total."""
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
    """for what, or null"""

    @property
    def text(self) -> str:
        """Return what it will do, and what it waits for."""
        return self.describes + (f"; waits: {self.waits}" if self.waits else "")
