"""Serve the report: GET /report and the pages below it, each made by a process and kept for a while.

A request while its page is being made waits for that one, within a limit; so a browser reloaded over and over
costs one process a minute, and the event loop nothing but the waiting. A failure is kept like a page, only
shorter. One process runs at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from daemon.place.paths import Paths
from pipeline.jobs.child import hold_to, job_environment
from pipeline.loopback import names_this_machine
from pipeline.report import FIRST, NO_SUCH_PAGE, POLICY
from store.documents.problems import Problem

PATIENCE_S = 120.0
EVERY_S = 60.0
"""The age of a page after which the next reader gets a new one: it takes seconds to make."""
FAILED_S = 10.0
"""The time for which a failure is reported again before the next try."""
MOST_KEPT = 16
"""The most pages kept; the one made first goes first."""
MOST_WAITING = 8
"""The most requests waiting for a page; each holds one of the listener's connections, which /metrics needs
too."""
MEMORY_BYTES = 2**31
"""Of the process that makes it, private."""
_HEADERS = {
    "content-security-policy": f"{POLICY}; frame-ancestors 'none'",
    "cache-control": "private, no-cache",  # kept, and asked about each time
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_NAME = re.compile(r"[A-Za-z0-9.-]{1,120}\.html")

log = structlog.get_logger("daemon.report")


class ReportError(Exception):
    """The page cannot be made, for the reason in the message."""


class NoSuchPageError(ReportError):
    """The report has no page of this name."""


@dataclass(frozen=True, slots=True)
class RenderedReport:
    """A page, its ETag, and the time of its making (`time.monotonic`)."""

    html: bytes
    etag: str
    at: float


@dataclass(frozen=True, slots=True)
class _Failed:
    """The reason for a missing page, and the time of the failure (`time.monotonic`)."""

    error: ReportError
    at: float


Page = Callable[[str], Awaitable[RenderedReport]]
"""Returns the page with this name."""


class ReportPage:
    """Makes the pages, one at a time. Call `now` on the event loop.

    Args:
        paths: those of the state and of the view.
        problems: returns those of the status.
    """

    def __init__(self, paths: Paths, problems: Callable[[], Awaitable[Sequence[Problem]]]) -> None:
        self._problems = problems
        self._paths = paths
        self._known: dict[str, RenderedReport | _Failed] = {}
        self._making: dict[str, asyncio.Task[RenderedReport]] = {}
        self._one = asyncio.Lock()
        self._waiting = 0

    async def now(self, name: str = FIRST) -> RenderedReport:
        """Return a page, made anew if the last one is too old.

        Raises:
            NoSuchPageError: the report has none of this name.
            ReportError: it cannot be made, could not a moment ago, or too many wait for one.
        """
        if name not in self._making:
            now = time.monotonic()
            last = self._known.get(name)
            if isinstance(last, RenderedReport) and now - last.at < EVERY_S:
                return last
            if isinstance(last, _Failed) and now - last.at < FAILED_S:
                raise last.error
        if self._waiting >= MOST_WAITING:
            raise ReportError(f"{self._waiting} wait for it already; ask again in a few seconds")
        if name not in self._making:
            self._making[name] = asyncio.create_task(self._make(name), name="report")
            self._making[name].add_done_callback(partial(self._finish, name))
        self._waiting += 1
        try:
            # A request that gives up does not take it away from the others.
            return await asyncio.shield(self._making[name])
        finally:
            self._waiting -= 1

    def _finish(self, name: str, task: asyncio.Task[RenderedReport]) -> None:
        del self._making[name]
        self._known.pop(name, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            if not isinstance(error, NoSuchPageError):
                log.warning("report_failed", page=name, reason=str(error))
            failure = (
                error if isinstance(error, ReportError) else ReportError(str(error) or type(error).__name__)
            )
            self._known[name] = _Failed(failure, time.monotonic())
        else:
            self._known[name] = task.result()
        while len(self._known) > MOST_KEPT:
            del self._known[next(iter(self._known))]

    async def _make(self, name: str) -> RenderedReport:
        async with self._one:
            began = time.monotonic()
            html = await self._printed(name)
            log.debug("report_made", page=name, bytes=len(html), seconds=round(time.monotonic() - began, 3))
        return RenderedReport(html, f'"{hashlib.sha256(html).hexdigest()[:32]}"', time.monotonic())

    async def _printed(self, name: str) -> bytes:
        problems = json.dumps([asdict(one) for one in await self._problems()]).encode()
        try:
            process = await asyncio.create_subprocess_exec(
                # -P: the working directory is no place to import from.
                sys.executable, "-P", "-m", "pipeline.report",
                str(self._paths.database_db), str(self._paths.events_db), str(self._paths.mirrors), name,
                stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True,
                env=job_environment(self._paths.runtime / "report", visible=""),
            )  # fmt: skip
        except OSError as error:
            raise ReportError(f"its process cannot be started: {error.strerror or error}") from error
        try:
            hold_to(process.pid, memory_bytes=MEMORY_BYTES)
            async with asyncio.timeout(PATIENCE_S):
                html, stderr = await process.communicate(problems)
        except TimeoutError as error:
            raise ReportError(
                f"it was not made within {PATIENCE_S:g} s; `everlean report` makes it too"
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            why = stderr.decode(errors="replace").strip().rpartition("\n")[2]
            if process.returncode == NO_SUCH_PAGE:
                raise NoSuchPageError(why)
            raise ReportError(why or f"its process ended with status {process.returncode}")
        return html


def report_routes(
    page: Page, *, served: Callable[[], bool] = lambda: True, public: Callable[[], bool] = lambda: True
) -> list[Route]:
    """Return the routes, which answer 404 unless `served`. Unless `public`, as in `metrics_route`."""

    async def report(request: Request) -> Response:
        if not served():
            return PlainTextResponse("not served here; set [report] serve\n", status_code=404)
        if not public() and not names_this_machine(request.headers.get("host", "")):
            return PlainTextResponse(
                "ask for 127.0.0.1 or localhost, or set [metrics] public\n", status_code=421
            )
        name = request.path_params.get("page", FIRST)
        try:
            if not _NAME.fullmatch(name):
                raise NoSuchPageError("no page of the report has such a name")
            result = await page(name)
        except NoSuchPageError as error:
            return PlainTextResponse(f"{error}; look at /report\n", status_code=404)
        except ReportError as error:
            again = {"retry-after": f"{FAILED_S:.0f}"}
            return PlainTextResponse(f"the report cannot be made: {error}\n", status_code=503, headers=again)
        headers = {**_HEADERS, "etag": result.etag}
        if _has(request.headers.get("if-none-match", ""), result.etag):
            return Response(status_code=304, headers=headers)
        return Response(result.html, media_type="text/html; charset=utf-8", headers=headers)

    return [Route(path, report, methods=["GET"]) for path in ("/report", "/report/{page}")]


def _has(tags: str, etag: str) -> bool:
    """Return whether an If-None-Match names this page."""
    etags = [tag.strip().removeprefix("W/") for tag in tags.split(",")]
    return etag in etags or "*" in etags
