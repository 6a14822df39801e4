"""Time that only goes forward, for what is due: the wall clock may be set back an hour, and a laptop may sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from daemon.place.answers import ToldJump


def elapsed_s() -> float:
    """Return seconds since the machine started, those that it slept included, as `time.monotonic` does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Allowance:
    """So many in a minute, and no more at once than that."""

    def __init__(self, most: int, *, elapsed: Callable[[], float] = elapsed_s) -> None:
        self._most = float(most)
        self._left = self._most
        self._elapsed = elapsed
        self._at = elapsed()

    def take(self, number: int = 1) -> bool:
        """Use up so much of the limit, if it is left. Where that alone is more than the limit, all of it is enough."""
        if self.wait_s(number) > 0:
            return False
        self._left -= number
        return True

    def wait_s(self, number: int = 1) -> float:
        """Return the seconds until so much is left; 0 where it is."""
        now = self._elapsed()
        self._left = min(self._most, self._left + (now - self._at) * self._most / 60.0)
        self._at = now
        return max(0.0, (min(number, self._most) - self._left) * 60.0 / self._most)


# ---- Notices that the wall clock was set, and that the machine slept
# By comparing the kernel's clocks now and then.
# Deadlines of jobs run on the monotonic clock, which neither is set nor runs while the machine sleeps: a job that was
# under way when a laptop was closed has its time left when it is opened. What is due is counted by `elapsed_s`.
# Only a time of day that was written down, as quiet hours or what an earlier daemon left waiting, is asked of the
# wall clock; so the plan is made anew after a jump, and `status` reports it for an hour.


SET_S = 30.0
"""Less than this is a clock being kept in time."""
_SLEPT_S = 10.0
_TOLD_FOR_S = 3600.0


@dataclass(frozen=True, slots=True)
class ClockJump:
    """A change between two readings, in seconds: the step of the wall clock (back: negative) and the time asleep."""

    set_s: float
    slept_s: float
    noticed_at: datetime


class ClockWatch:
    """Compares the clocks. `look` belongs into each turn of the loop."""

    def __init__(
        self,
        *,
        wall: Callable[[], float] | None = None,
        awake: Callable[[], float] | None = None,
        always: Callable[[], float] = elapsed_s,
    ) -> None:
        # Looked up here and not when the module is loaded, so that a test can have a whole process's clocks jump.
        self._wall = wall or time.time
        self._awake = awake or time.monotonic
        self._always = always
        self._last: ClockJump | None = None
        self._told_until_s = 0.0
        self._offset_s, self._asleep_s = self._compare()

    def look(self) -> ClockJump | None:
        """Return what happened since the last look; None where nothing did."""
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
