"""Clocks for due work that only go forward: the wall clock may be set back an hour, and a laptop may
sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from daemon.place.answers import ToldJump


def elapsed_s() -> float:
    """Return seconds since the machine's start, asleep or awake; `time.monotonic` leaves out the time
    asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Allowance:
    """A limit per minute, and the same limit at once."""

    def __init__(self, most: int, *, elapsed: Callable[[], float] = elapsed_s) -> None:
        self._most = float(most)
        self._left = self._most
        self._elapsed = elapsed
        self._at = elapsed()

    def take(self, number: int = 1) -> bool:
        """Use up part of the limit, if it is left. For more than the whole limit, the whole limit
        suffices."""
        if self.wait_s(number) > 0:
            return False
        self._left -= number
        return True

    def wait_s(self, number: int = 1) -> float:
        """Return the seconds until this much is left; 0 if it is."""
        now = self._elapsed()
        self._left = min(self._most, self._left + (now - self._at) * self._most / 60.0)
        self._at = now
        return max(0.0, (min(number, self._most) - self._left) * 60.0 / self._most)


# ---- Steps of the wall clock and sleep of the machine, noticed by comparing the kernel's clocks
# Deadlines of jobs run on the monotonic clock, which is never set and stands still while the machine sleeps:
# a job keeps its remaining time while a laptop is closed. Due work is counted by `elapsed_s`. Only recorded
# times of day, as quiet hours or an earlier daemon's waits, need the wall clock; so the plan is made anew
# after a jump, and `status` reports it for an hour.


SET_S = 30.0
"""A smaller step is the normal correction of a clock."""
_SLEPT_S = 10.0
_TOLD_FOR_S = 3600.0


@dataclass(frozen=True, slots=True)
class ClockJump:
    """A change between two readings, in seconds: the step of the wall clock (back: negative) and the time
    asleep."""

    set_s: float
    slept_s: float
    noticed_at: datetime


class ClockWatch:
    """Compares the clocks. Call `look` in each turn of the loop."""

    def __init__(
        self,
        *,
        wall: Callable[[], float] | None = None,
        awake: Callable[[], float] | None = None,
        always: Callable[[], float] = elapsed_s,
    ) -> None:
        # Looked up here and not when the module is loaded, so a test can have a whole process's clocks jump.
        self._wall = wall or time.time
        self._awake = awake or time.monotonic
        self._always = always
        self._last: ClockJump | None = None
        self._told_until_s = 0.0
        self._offset_s, self._asleep_s = self._compare()

    def look(self) -> ClockJump | None:
        """Return the jump since the last look, or None."""
        offset_s, asleep_s = self._compare()
        set_s, slept_s = offset_s - self._offset_s, asleep_s - self._asleep_s
        if abs(set_s) < SET_S and slept_s < _SLEPT_S:
            return None
        self._offset_s, self._asleep_s = offset_s, asleep_s
        jump = ClockJump(
            set_s=set_s if abs(set_s) >= SET_S else 0.0,
            slept_s=slept_s if slept_s >= _SLEPT_S else 0.0,
            noticed_at=datetime.now(UTC),
        )
        self._last, self._told_until_s = jump, self._awake() + _TOLD_FOR_S
        return jump

    def lately(self) -> ToldJump | None:
        """Return the last jump, for people, for an hour after it was noticed."""
        if self._last is None or self._awake() > self._told_until_s:
            return None
        noticed_at = self._last.noticed_at.isoformat(timespec="seconds")
        return ToldJump(round(self._last.set_s), round(self._last.slept_s), noticed_at)

    def _compare(self) -> tuple[float, float]:
        """Return the wall clock's offset from the monotonic one, and the machine's total time asleep."""
        always_s = self._always()
        return self._wall() - always_s, always_s - self._awake()
