"""Turns of those who wait for others' machines: so many at once, and no place is kept by who is slow.

A plain lock or semaphore is held for as long as a stranger's server likes; with as many slow ones as there are places
nobody else would get one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """So many places, given in the order of asking."""

    def __init__(self, places: int) -> None:
        self._places = asyncio.Semaphore(places)

    @asynccontextmanager
    async def one(self, *, patience_s: float) -> AsyncIterator[None]:
        """Wait for a place. Who has had it for longer than `patience_s` goes on without it."""
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
