"""Time that only goes forward, for what is due: the wall clock may be set back an hour, and a laptop may sleep."""

from __future__ import annotations

import time


def elapsed_s() -> float:
    """Return seconds since the machine started, those that it slept included, as `time.monotonic` does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
