"""Hold an HTTP listener's connections within bounds: their number, their peers, and the time for each to send or take
bytes.

The same for every listener: the control socket, the daemon's ports, the server for editors. uvicorn waits forever for a
head and a body, keeps an unread answer, and takes any number of connections. Here the client has `head_s` for a whole
head, `body_s` for a whole body, and `idle_s` to read an answer. When one peer, or all together, reach the limit, a
further connection replaces the one that has owed bytes the longest; if none owes any, the new one is closed. So silent
connections shut out nobody.

Also limits log lines about a flood: one a minute, with the number left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from types import FrameType

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

_KEYS = 256
"""A flood must not fill this memory."""


class Sparing:
    """Decides which of many similar events get a log line: the first, and then one a minute."""

    def __init__(self, every_s: float = 60.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._last: dict[Hashable, float] = {}
        self._left_out: dict[Hashable, int] = {}

    def line(self, key: Hashable) -> int | None:
        """Return the number of similar events left out since the last line; None to leave this one out too."""
        now = self._clock()
        if key in self._last and now - self._last[key] < self._every_s:
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return None
        if len(self._last) >= _KEYS:
            self._last.clear()
            self._left_out.clear()
        self._last[key] = now
        return self._left_out.pop(key, 0)


class OnceAMinute(logging.Filter):
    """Lets each message of the standard library's logging pass once a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._sparing = Sparing()

    def filter(self, record: logging.LogRecord) -> bool:
        left_out = self._sparing.line((record.name, str(record.msg)))
        if left_out:
            record.msg = f"{record.msg} ({left_out} more like this were not logged)"
        return left_out is not None


_log = logging.getLogger(__name__)
_log.addFilter(OnceAMinute())


@dataclass(frozen=True, slots=True)
class Bounds:
    """`most` connections of all peers together, `most_each` of one; seconds for the client's debts.

    `drained_bytes`: the maximum read of a body after its answer.
    """

    most: int = 128
    most_each: int = 64
    head_s: float = 10.0
    body_s: float = 30.0
    idle_s: float = 30.0
    drained_bytes: int = 8 * 2**20


class BoundedProtocol(H11Protocol):
    """A connection within `bounds`."""

    bounds = Bounds()
    peer: Hashable = ""
    shares = True
    """Whether it counts towards all peers' limit; if not, only its own peer's limit holds."""
    dropped = False
    owes_since = 0.0
    _owes: tuple[str, object] | None = None
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _drained = 0

    def who(self, transport: asyncio.Transport) -> tuple[Hashable, bool]:
        """Return the connection's peer, and whether it `shares`. OSError: the peer is unknown, and the connection is
        closed.
        """
        address = transport.get_extra_info("peername")
        return (address[0] if isinstance(address, tuple) else ""), True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = _log
        try:
            self.peer, self.shares = self.who(transport)
        except OSError as error:
            _log.warning("a connection whose peer is not known was closed: %s", error)
            self.drop()
            return
        self._make_room()
        self._settle()

    def data_received(self, data: bytes) -> None:
        if self._answered and self.conn.their_state is h11.SEND_BODY:
            self._drained += len(data)
            if self._drained > self.bounds.drained_bytes:
                self.drop()
                return
        super().data_received(data)
        self._settle()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._settle()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        if self.cycle is not None and not self.cycle.response_complete:
            # A body that breaks off in the middle: the handler is told, and its answer goes nowhere.
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._settle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.bounds.idle_s, self.drop)
        self.owes_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("_unread")

    def connection_lost(self, exc: Exception | None) -> None:
        self.dropped = True
        self._stop("_unread")
        self._stop("_deadline")
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close it at once; unsent bytes are lost."""
        self.dropped = True
        self.transport.abort()

    @property
    def owes(self) -> bool:
        """Whether the client still has to send or read something."""
        return self._deadline is not None or self._unread is not None

    @property
    def _answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> None:
        others = [
            one
            for one in self.connections
            if isinstance(one, BoundedProtocol) and one is not self and not one.dropped
        ]
        crowd = [one for one in others if one.peer == self.peer]
        if len(crowd) < self.bounds.most_each:
            crowd = [one for one in others if one.shares]
            if not self.shares or len(crowd) < self.bounds.most:
                return
        owing = [one for one in crowd if one.owes]
        _log.warning("more connections than are kept; those that wait the longest are closed")
        (min(owing, key=lambda one: one.owes_since) if owing else self).drop()

    def _settle(self) -> None:
        """Give the client its time for a new debt; an old debt keeps its deadline."""
        owes, seconds = self._debt()
        if owes == self._owes:
            return
        self._stop("_deadline")
        self._owes = owes
        if owes is not None:
            self._drained = 0
            self.owes_since = self.loop.time()
            self._deadline = self.loop.call_later(seconds, self.drop)

    def _debt(self) -> tuple[tuple[str, object] | None, float]:
        if self.dropped:
            return None, 0.0
        if self.transport.is_closing():
            return ("its end", self.cycle), self.bounds.idle_s
        if self._answered:
            # Another head, or the rest of a body after its answer.
            return ("a head", self.cycle), self.bounds.head_s
        if self.cycle.more_body:
            return ("a body", self.cycle), self.bounds.body_s
        return None, 0.0

    def _stop(self, name: str) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)


def bounded(bounds: Bounds) -> type[BoundedProtocol]:
    """Return the protocol within these bounds."""
    return type("Bounded", (BoundedProtocol,), {"bounds": bounds})


class Server(uvicorn.Server):
    """uvicorn's server, with signals left to the process's own handlers.

    It ticks once a second, where uvicorn ticks ten times even while idle, and wakes at once for `end` and signals.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ends = asyncio.Event()

    def end(self) -> None:
        """Finish the answers under way, and close."""
        self.should_exit = True
        self._ends.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """See uvicorn: a signal ends it, a second one at once."""
        super().handle_exit(sig, frame)
        self._ends.set()

    async def main_loop(self) -> None:
        """See uvicorn: until the end is requested."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._ends.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ServingError(Exception):
    """The server ended during its start."""


class Serving:
    """An application served from a listening socket. Made with `start`, ended with `stop`."""

    def __init__(self, server: Server, task: asyncio.Task[None]) -> None:
        self._server = server
        self._task = task

    @classmethod
    async def start(
        cls,
        application: ASGIApp,
        listener: socket.socket,
        *,
        protocol: type[BoundedProtocol] = BoundedProtocol,
        keep_alive_s: int = 5,
        name: str = "http",
    ) -> Serving:
        """Serve on the running loop.

        Raises:
            ServingError: the server ended at once.
        """
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=protocol,
            ws="none",
            loop="none",
            timeout_keep_alive=keep_alive_s,
            timeout_graceful_shutdown=2,
            server_header=False,
        )
        server = Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]), name=name)
        while not server.started:
            if task.done():
                await task
                raise ServingError("its server ended while it started")
            await asyncio.sleep(0.01)
        return cls(server, task)

    @property
    def serves(self) -> bool:
        """Return whether it still answers requests."""
        return not self._task.done()

    async def stop(self) -> None:
        """Finish the answers under way, and close."""
        self._server.end()
        done, _ = await asyncio.wait({self._task}, timeout=5)
        if not done:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
