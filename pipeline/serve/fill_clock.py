"""The seconds of a search, counted from where it is at work."""

from __future__ import annotations

import asyncio


class Clock:
    """So many seconds, which run from `start` on; before, a job only gets ready. For the loop that it is made on.

    Attributes:
        limit: a context that ends by TimeoutError when they are over.
    """

    def __init__(self, seconds: float) -> None:
        self.limit = asyncio.timeout(None)
        self._seconds = seconds
        self._began: float | None = None

    def start(self) -> None:
        """Let them run, inside of `limit`; again is nothing."""
        if self._began is None:
            self._began = asyncio.get_running_loop().time()
            self.limit.reschedule(self._began + self._seconds)

    @property
    def left_s(self) -> float:
        """How many are left, at most 0 where none are."""
        if self.limit.expired():
            return 0.0
        if self._began is None:
            return self._seconds
        return self._seconds - (asyncio.get_running_loop().time() - self._began)
