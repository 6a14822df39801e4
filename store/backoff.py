"""Exponential back-off: the wait of a failure before its next try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow by `factor` with each failure in a row, from `first_s` to `longest_s`.

    Attributes:
        jitter: the share by which a wait is shorter or longer at most, to spread simultaneous failures; it
            takes dice.
    """

    first_s: float
    longest_s: float
    factor: float = 2.0
    jitter: float = 0.0

    def wait_s(self, failures: int, dice: Random | None = None) -> float:
        """Return the seconds to wait after this number of failures in a row, at least one."""
        # A wait reaches the longest before a hundred doublings; a float overflows after a thousand.
        wait_s = min(self.first_s * self.factor ** min(max(failures - 1, 0), 100), self.longest_s)
        return wait_s if dice is None else wait_s * dice.uniform(1 - self.jitter, 1 + self.jitter)
