"""A semaphore for calls to other machines, in which a slow call loses its place.

A call holds a plain semaphore for as long as a stranger's server likes: a few slow servers would stop all
other calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A number of places, given in the order of the requests."""

    def __init__(self, places: int) -> None:
        self._places = asyncio.Semaphore(places)

    @asynccontextmanager
    async def one(self, *, patience_s: float) -> AsyncIterator[None]:
        """Wait for a place, and hold it for at most `patience_s`; the body goes on without it."""
        await self._places.acquire()
        held = True

        def give_up() -> None:
            nonlocal held
            if held:
                held = False
                self._places.release()

        over = asyncio.get_running_loop().call_later(patience_s, give_up)
        try:
            yield
        finally:
            over.cancel()
            give_up()
