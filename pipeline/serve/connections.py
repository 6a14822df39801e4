"""How many connections there may be, and how long one may take to say what it wants: before any route or token.

uvicorn waits for a request's head for ever, and takes any number of connections. Here a connection is closed that has
sent no whole head after `HEAD_S` (uvicorn's own timer, between two requests, is for one that sends nothing at all), and
one that comes when there are as many as there may be.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from pipeline.serve.order import Limits

HEAD_S = 10.0
_AT_LEAST = 512


class BoundedProtocol(H11Protocol):
    """A connection; `most` of them at once, `head_s` for each head."""

    most = _AT_LEAST
    head_s = HEAD_S
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
            return
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # What comes after an answer is a head too, or the rest of a body that nobody reads.
        if self._is_between_requests:
            if self._head_timer is None and not self.transport.is_closing():
                self._wait_for_head()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_s, self._head_is_late)

    def _head_is_late(self) -> None:
        if self._is_between_requests:
            self.timeout_keep_alive_handler()

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def bounded(limits: Limits) -> type[BoundedProtocol]:
    """Return the protocol that holds the limits: connections enough for the queue, and for who is refused by it."""

    class Bounded(BoundedProtocol):
        most = max(_AT_LEAST, 2 * limits.queue)

    return Bounded
