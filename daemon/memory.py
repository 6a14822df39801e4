"""Keep the idle daemon small: glibc holds on to what a large scan's parsing freed, one heap for each thread.

With glibc only; other C libraries have neither the two calls nor the habit.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h


def use_one_heap() -> None:
    """Have all threads share one heap. The daemon's threads hardly ever allocate at the same time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Hand freed pages back to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
