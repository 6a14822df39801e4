"""Serve GET /badge.svg, the number of sorries, and GET /feed.atom, their changes, to others.

With `?repo=` of one watched repository, by its key or a unique part of it. Both are read from the view, and
made anew only if it has changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar
from xml.etree import ElementTree as ET

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pipeline.loopback import names_this_machine
from store.documents.lookup import UnresolvedError, one_of
from store.documents.news import describe_news
from store.domain.identity import event_id
from store.errors import LogError
from store.log.envelope import utc_text
from store.text import printable
from store.view import queries, report_queries
from store.view.counts import NO_SORRIES, added_up, elsewhere_text, sorry_counts

DAYS, MOST_ENTRIES = 14, 100
"""The feed's length in days, and its most entries: the newest."""
MOST_KEPT = 64
_HEADERS = {
    "cache-control": "no-cache",  # a forge's proxy would show an old number for hours
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}
_LETTER, _EDGE = 7, 12
"""Widths in pixels, of a letter at most and beside the text."""

Answer = TypeVar("Answer")


class Ask(Protocol):
    """Asks the view (`StoreService.ask`)."""

    def __call__(self, question: Callable[[sqlite3.Connection], Answer], /) -> Awaitable[Answer]: ...


def badge(database: sqlite3.Connection, repository: str | None) -> bytes:
    """Return a picture with the number of the sorries in the source; its label adds those on other
    branches."""
    result = sorry_counts(database)
    number = added_up(result.values()) if repository is None else result.get(repository, NO_SORRIES)
    left, right = "sorries", f"{number.in_source:,}"
    label = f"{left}: {right}{elsewhere_text(number.elsewhere)}"
    widths = [_EDGE + _LETTER * len(text) for text in (left, right)]
    colour = "#2b7a3d" if number.in_source == 0 else "#8a5a00"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths)}" height="20" role="img" '
        f'aria-label="{label}"><rect width="{widths[0]}" height="20" fill="#444"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="20" fill="{colour}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,sans-serif" font-size="11">'
        f'<text x="{widths[0] / 2}" y="14">{left}</text>'
        f'<text x="{widths[0] + widths[1] / 2}" y="14">{right}</text></g></svg>\n'
    ).encode()


def feed(database: sqlite3.Connection, repository: str | None) -> bytes:
    """Return an Atom feed (RFC 4287) of the sorries' changes; a branch's first sorries are no news."""
    since = utc_text(datetime.now(UTC) - timedelta(days=DAYS))
    turns = [
        one
        for one in report_queries.turns_since(database, since, every_branch=True)
        if not one.first_read and repository in (None, one.repository)
    ][:MOST_ENTRIES]
    news = describe_news(database, turns)
    top = ET.Element("feed", xmlns="http://www.w3.org/2005/Atom")
    _add(top, "id", f"urn:uuid:{event_id('feed', repository or '')}")
    _add(top, "title", f"sorries of {repository or 'all watched repositories'}")
    _add(top, "updated", max((one.at for one in news), default=since))
    _add(ET.SubElement(top, "author"), "name", "everlean")
    for one in news:
        sorry, entry = one.sorry, ET.SubElement(top, "entry")
        about = (sorry.repository, sorry.branch, sorry.sorry, one.what, one.at)
        _add(entry, "id", f"urn:uuid:{event_id('feed', *about)}")
        _add(entry, "title", f"{one.text}: {sorry.declaration}")
        _add(entry, "updated", one.at)
        if one.by:
            _add(ET.SubElement(entry, "author"), "name", one.by)
        _add(entry, "summary", f"{sorry.path}:{sorry.line} in {sorry.repository} ({sorry.branch})")
        if sorry.url:
            ET.SubElement(entry, "link", href=sorry.url)
    text: bytes = ET.tostring(top, encoding="utf-8", xml_declaration=True)
    return text


def _add(parent: ET.Element, name: str, text: str) -> None:
    """Add a text; XML has no place for control characters, and one that reverses text could fake it."""
    ET.SubElement(parent, name).text = printable(text)


def feed_routes(
    ask: Ask, *, served: Callable[[], bool] = lambda: True, public: Callable[[], bool] = lambda: True
) -> list[Route]:
    """Return the routes; `served` and `public` as in `report_routes`."""
    result: dict[tuple[str, str | None], tuple[int, bytes]] = {}

    def route(path: str, make: Callable[[sqlite3.Connection, str | None], bytes], media_type: str) -> Route:
        def current(database: sqlite3.Connection, name: str | None) -> tuple[int, bytes]:
            repository, position = _meant(database, name), queries.position(database)
            entry = result.get((path, repository))
            if entry is None or entry[0] != position:
                entry = result[path, repository] = position, make(database, repository)
                if len(result) > MOST_KEPT:
                    del result[next(iter(result))]
            return entry

        async def answer(request: Request) -> Response:
            if not served():
                return PlainTextResponse("not served here; set [report] serve\n", status_code=404)
            if not public() and not names_this_machine(request.headers.get("host", "")):
                return PlainTextResponse(
                    "ask for 127.0.0.1 or localhost, or set [metrics] public\n", status_code=421
                )
            name = request.query_params.get("repo")
            try:
                position, content = await ask(lambda database: current(database, name))
            except UnresolvedError as error:
                return PlainTextResponse(f"{error}\n", status_code=404)
            except (LogError, sqlite3.Error) as error:
                return PlainTextResponse(f"the view cannot be read: {error}\n", status_code=503)
            return Response(content, media_type=media_type, headers={**_HEADERS, "etag": f'"{position}"'})

        return Route(path, answer, methods=["GET"])

    return [
        route("/badge.svg", badge, "image/svg+xml"),
        route("/feed.atom", feed, "application/atom+xml"),
    ]


def _meant(database: sqlite3.Connection, name: str | None) -> str | None:
    if name is None:
        return None
    keys = [one.repository for one in queries.repositories(database, watched_only=True)]
    return one_of(keys, name, lists="everlean repos")
