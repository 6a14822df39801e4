"""Where the numbers of `daemon.metrics` are fetched: GET /metrics on the control socket, and on TCP where that is set.

The TCP listener has that one route and nothing else. An address that cannot be had is a problem that `status` shows; it
is tried again, and stops nothing. A browser that was led here by somebody else's name (DNS rebinding) is refused, as
long as only this machine was meant to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import sqlite3
from collections.abc import Awaitable, Callable

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from daemon.ledger import StoreFailedError
from daemon.loopback import LoopbackServer, PortError
from daemon.metrics import CONTENT_TYPE
from daemon.settings import Settings
from daemon.settings_notify import address_of
from store.errors import LogError

PROBLEM = "metrics"
AGAIN_S = 60.0
_SETTING = "[metrics] listen"

log = structlog.get_logger("daemon.metrics")

Numbers = Callable[[], Awaitable[bytes]]
"""Returns the exposition."""


def metrics_route(numbers: Numbers, *, public: Callable[[], bool] = lambda: True) -> Route:
    """Return the route. Unless `public`, a request has to name this machine by a loopback address or as localhost."""

    async def metrics(request: Request) -> Response:
        if not public() and not _is_here(request.headers.get("host", "")):
            return PlainTextResponse(
                "ask for 127.0.0.1 or localhost, or set [metrics] public\n", status_code=421
            )
        try:
            return Response(await numbers(), media_type=CONTENT_TYPE)
        except (LogError, sqlite3.Error, StoreFailedError) as error:
            return PlainTextResponse(f"the numbers cannot be read: {error}\n", status_code=503)

    return Route("/metrics", metrics, methods=["GET"])


class MetricsListener:
    """The TCP listener, as the settings in force want it. `run` it in the background; `reload` has it look again.

    Args:
        problems: what is wrong, by a name of its own, for `status`.
    """

    def __init__(
        self, numbers: Numbers, *, settings: Callable[[], Settings], problems: dict[str, str]
    ) -> None:
        self._settings = settings
        self._problems = problems
        self._application = Starlette(
            routes=[metrics_route(numbers, public=lambda: self._settings().metrics.public)]
        )
        self._server: LoopbackServer | None = None
        self._listens = ""
        self._wake = asyncio.Event()

    @property
    def address(self) -> str:
        """Where it listens; "" where it does not."""
        return self._listens

    def reload(self) -> None:
        """Take new settings up."""
        self._wake.set()

    async def run(self) -> None:
        """Listen as the settings say, until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self._take_up(self._settings().metrics.listen)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_S):
                        await self._wake.wait()
        finally:
            await self._stop()

    async def _take_up(self, listen: str) -> None:
        if listen != self._listens:
            await self._stop()
        if not listen or self._server is not None:
            self._problems.pop(PROBLEM, None)
            return
        host, port = address_of(listen)
        try:
            self._server = await LoopbackServer.start(
                self._application, host=host, port=port, setting=_SETTING
            )
        except PortError as error:
            if self._problems.get(PROBLEM) != str(error):
                log.warning("metrics_not_listening", reason=str(error))
            self._problems[PROBLEM] = str(error)
            return
        self._listens = listen
        self._problems.pop(PROBLEM, None)
        log.info("metrics_listen", address=listen)

    async def _stop(self) -> None:
        if self._server is not None:
            # Forgotten only when it has ended: whoever is cancelled here comes back once more.
            await self._server.stop()
            self._server, self._listens = None, ""


def _is_here(host: str) -> bool:
    """Whether a Host header names this machine alone: a loopback address or localhost, with or without a port."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    name = name.removeprefix("[").removesuffix("]")
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
