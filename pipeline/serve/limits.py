"""Bounds before a route is reached: connections, body, requests at once, time; work ends with its client.

    413   the body is longer than `Limits.body_bytes`, said beforehand or not; of what is no POST none is read
    429   as many requests as `Limits.queue` are worked on or wait, or half as many (`share`) ask one model, or Lean, so
          that what is slow leaves room for the rest; Retry-After says when to come again
    504   there is no answer after `Limits.seconds`, or `lean_seconds` where Lean works on it; a stream that has
          begun ends with an event `error`

Cheap requests (GET) are outside the queue: a full server still reports that it is full.

`pipeline.connections` limits the number of connections and their time to send a request.

A client's work is cancelled when it leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.connections import BoundedProtocol, Bounds, bounded
from pipeline.serve.schemas import Problem, problem_response
from pipeline.serve.spec import Limits

LEANS = frozenset({"/check", "/fill"})
"""The routes with work for Lean."""
RETRY_AFTER_S = 1
_DRAINED_BYTES = 8 * 2**20
"""Maximum read of a body that is too long: a client that is still sending may not read the response."""


def share(limits: Limits) -> int:
    """Return how many of the requests inside may be for one model, or for Lean."""
    return (limits.queue + 1) // 2


def full(reason: str) -> Problem:
    """Return the problem of a request to a full queue."""
    return Problem(
        429,
        "queue_full",
        reason,
        f"come again after {RETRY_AFTER_S} s",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


class BodyLimit:
    """Reads the body, and hands it on in one piece."""

    def __init__(self, app: ASGIApp, *, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Only POST requests queue, so the bodies of others are neither read nor kept.
        body: bytes | None = b""
        if scope["method"] == "POST":
            body = await self._read(Headers(scope=scope), receive, self._most_bytes)
        if body is None:
            refusal = Problem(
                413,
                "body_too_large",
                f"the body has more than {self._most_bytes} bytes",
                "send less",
                headers={"Connection": "close"},
            )
            await problem_response(refusal)(scope, receive, send)
            return
        unread = [body]

        async def again() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await receive()

        await self._app(scope, again, send)

    async def _read(self, headers: Headers, receive: Receive, most_bytes: int) -> bytes | None:
        """Return the body, None where it is too long."""
        length = headers.get("content-length", "")
        too_long = length.isdecimal() and (len(length) > 18 or int(length) > most_bytes)
        # A client that expects 100-continue has sent nothing yet.
        if too_long and ("expect" in headers or len(length) > 18 or int(length) > _DRAINED_BYTES):
            return None
        parts: list[bytes] = []
        read = 0
        more = True
        while more and read <= _DRAINED_BYTES:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part, more = message.get("body", b""), message.get("more_body", False)
            read += len(part)
            too_long = too_long or read > most_bytes
            if too_long:
                parts.clear()
            else:
                parts.append(part)
        return None if too_long else b"".join(parts)


class QueueLimit:
    """Limits the requests inside, and those for Lean among them. `inside` gets each new number of requests."""

    def __init__(self, app: ASGIApp, *, most: int, most_lean: int, inside: Callable[[int], None]) -> None:
        self._app = app
        self._most = most
        self._most_lean = most_lean
        self._inside = 0
        self._leans = 0
        self._told = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        by_lean = scope["path"] in LEANS
        refusal = self._refusal(by_lean=by_lean)
        if refusal is not None:
            await problem_response(refusal)(scope, receive, send)
            return
        self._moved(1, by_lean=by_lean)
        try:
            await self._app(scope, receive, send)
        finally:
            self._moved(-1, by_lean=by_lean)

    def _refusal(self, *, by_lean: bool) -> Problem | None:
        if self._inside >= self._most:
            return full(f"{self._inside} requests are worked on or wait, and no more are taken")
        if by_lean and self._leans >= self._most_lean:
            return full(f"{self._leans} requests have Lean at work or wait for it, and it takes no more")
        return None

    def _moved(self, by: int, *, by_lean: bool) -> None:
        self._inside += by
        self._leans += by if by_lean else 0
        self._told(self._inside)


class TimeLimit:
    """Ends slow requests."""

    def __init__(self, app: ASGIApp, *, seconds: float, lean_seconds: float) -> None:
        self._app = app
        self._seconds = seconds
        self._lean_seconds = lean_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, streams = False, False

        async def sending(message: Message) -> None:
            nonlocal began, streams
            if message["type"] == "http.response.start":
                kind = Headers(raw=message["headers"]).get("content-type", "")
                began, streams = True, kind.startswith("text/event-stream")
            await send(message)

        by_lean = scope["path"] in LEANS
        limit = asyncio.timeout(self._lean_seconds if by_lean else self._seconds)
        try:
            async with limit:
                await self._app(scope, receive, sending)
        except TimeoutError:
            if not limit.expired() or (began and not streams):
                raise
            late = self._late(by_lean=by_lean)
            if streams:
                last = f"event: error\ndata: {late.body().model_dump_json()}\n\n".encode()
                await send({"type": "http.response.body", "body": last, "more_body": False})
            else:
                await problem_response(late)(scope, receive, send)

    def _late(self, *, by_lean: bool) -> Problem:
        seconds = self._lean_seconds if by_lean else self._seconds
        return Problem(
            504,
            "timeout",
            f"there is no answer after {seconds:g} s",
            "ask for less",
        )


_AT_LEAST = 1024


def bounded_for(limits: Limits) -> type[BoundedProtocol]:
    """Return the protocol with the limits: enough connections for the queue, and for refusals.

    One peer may have all but a few: an editor's machine, or a proxy, speaks for many.
    """
    most = max(_AT_LEAST, 2 * limits.queue)
    return bounded(Bounds(most=most, most_each=most * 3 // 4))


T = TypeVar("T")


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of the work; cancel it when the client leaves, or when this call is cancelled.

    The request's body must have been read: the next message is the client's end.

    Raises:
        ClientDisconnect: the client has left; the work has ended.
        Exception: the work's own.
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
            leaving.exception()  # reported above, or later than the response


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
