"""Work for a client that is still there: when it leaves, its work is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return what the work returns; cancel it when the client leaves, or when this is cancelled itself.

    The request's body must have been read: what comes after it is the client's end.

    Raises:
        ClientDisconnect: the client has left; the work has ended.
        Exception: what the work raised.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            leaving.result()
            raise ClientDisconnect
        return working.result()
    finally:
        for one in (working, leaving):
            one.cancel()
        await asyncio.wait({working, leaving})
        if leaving.done() and not leaving.cancelled():
            leaving.exception()  # it was told above, or came after the answer


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
