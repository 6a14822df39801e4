"""Where the numbers of `daemon.metrics` are fetched: GET /metrics on the control socket, and on TCP where that is set.

The TCP listener has that one route and, where the settings say so, GET /report (`daemon.report_page`). An address that
cannot be had is a problem that `status` shows; it is tried again, and stops nothing. A browser that was led here by
somebody else's name (DNS rebinding) is refused, as long as only this machine was meant to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from daemon.exposition import CONTENT_TYPE
from daemon.ledger import StoreFailedError
from daemon.loopback import LoopbackServer, PortError
from daemon.report_page import Page, report_route
from daemon.settings import Settings
from daemon.settings.schema import address_of
from pipeline.here import names_this_machine
from store.log.errors import LogError

PROBLEM = "metrics"
AGAIN_S = 60.0
_SETTING = "[metrics] listen"

log = structlog.get_logger("daemon.metrics")

Numbers = Callable[[], Awaitable[bytes]]
"""Returns the exposition."""


def metrics_route(numbers: Numbers, *, public: Callable[[], bool] = lambda: True) -> Route:
    """Return the route. Unless `public`, a request has to name this machine by a loopback address or as localhost."""

    async def metrics(request: Request) -> Response:
        if not public() and not names_this_machine(request.headers.get("host", "")):
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
        report: returns the page that is served where [report] says so; None: there is none.
    """

    def __init__(
        self,
        numbers: Numbers,
        *,
        settings: Callable[[], Settings],
        problems: dict[str, str],
        report: Page | None = None,
    ) -> None:
        self._settings = settings
        self._problems = problems
        routes = [metrics_route(numbers, public=self._public)]
        if report is not None:
            routes.append(report_route(report, served=self._serves_report, public=self._public))
        self._application = Starlette(routes=routes)
        self._server: LoopbackServer | None = None
        self._listens = ""
        self._wake = asyncio.Event()

    def _public(self) -> bool:
        return self._settings().metrics.public

    def _serves_report(self) -> bool:
        return self._settings().report.serve

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
