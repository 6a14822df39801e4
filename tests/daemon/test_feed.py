"""GET /badge.svg and GET /feed.atom: read from the view, escaped, and only where the report is served."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx2
import pytest
from starlette.applications import Starlette

from daemon.http.feed import feed_routes
from store.sqlite import connect_readonly
from tests.support.state_folder import REPOSITORY, fill, make_folder

ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    folder = make_folder(tmp_path)
    fill(folder)
    folder.write()
    return folder.state / "database.db"


def get(database: Path, path: str, *, host: str = "localhost", served: bool = True) -> httpx2.Response:
    async def ask(question: Callable[[sqlite3.Connection], Any]) -> Any:
        with closing(connect_readonly(database)) as view:
            return question(view)

    application = Starlette(routes=feed_routes(ask, served=lambda: served, public=lambda: False))

    async def asked() -> httpx2.Response:
        transport = httpx2.ASGITransport(application)
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.get(path)

    return asyncio.run(asked())


def change(database: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as writable:
        writable.execute(statement, values)


def test_the_badge_counts_the_sorries_of_the_source(database: Path) -> None:
    with closing(connect_readonly(database)) as view:
        (count,) = view.execute("SELECT count(*) FROM sorries WHERE state IN ('open', 'verified')").fetchone()
    assert count > 0
    for path in (
        "/badge.svg",
        f"/badge.svg?repo={REPOSITORY}",
        f"/badge.svg?repo={REPOSITORY.split('/')[-1]}",
    ):
        answer = get(database, path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
        assert ET.fromstring(answer.content).attrib["aria-label"] == f"sorries: {count}"
    change(database, "UPDATE sorries SET state = 'filled'")
    assert "sorries: 0" in get(database, "/badge.svg").text


def test_the_feed_has_what_came_and_went_and_hostile_names_stay_text(database: Path) -> None:
    change(database, "UPDATE sorries SET declaration = ?", "<b>&\x1b[31m\u202ex")
    change(database, "DELETE FROM commits")  # so that nothing is what a branch began with
    answer = get(database, "/feed.atom")
    assert answer.headers["content-type"] == "application/atom+xml"
    top = ET.fromstring(answer.content)
    entries = top.findall(f"{ATOM}entry")
    assert entries
    titles = {entry.findtext(f"{ATOM}title") for entry in entries}
    assert "opened: <b>&�[31m�x" in titles
    ids = [entry.findtext(f"{ATOM}id") for entry in entries]
    assert len(set(ids)) == len(ids)
    again = ET.fromstring(get(database, f"/feed.atom?repo={REPOSITORY}").content)
    assert top.findtext(f"{ATOM}id") != again.findtext(f"{ATOM}id")


def test_what_several_branches_have_is_told_once_and_the_default_branch_s_before_others(
    database: Path,
) -> None:
    change(database, "DELETE FROM commits")
    before = get(database, "/feed.atom").text
    for table in ("branches", "sorries", "sorry_steps"):
        with closing(connect_readonly(database)) as view:
            columns = [f'"{row[1]}"' for row in view.execute(f"PRAGMA table_info({table})")]
        copied = ["'a branch'" if column == '"branch"' else column for column in columns]
        change(database, f"INSERT INTO {table} SELECT {', '.join(copied)} FROM {table}")
    assert before.count("<entry>") > 0
    assert get(database, "/feed.atom").text == before
    change(database, "UPDATE sorries SET sorry = 'f' || substr(sorry, 2) WHERE branch = 'a branch'")
    change(database, "UPDATE sorry_steps SET sorry = 'f' || substr(sorry, 2) WHERE branch = 'a branch'")
    assert get(database, "/feed.atom").text.count("<entry>") == 2 * before.count("<entry>")


def test_a_repository_that_is_not_watched_has_neither(database: Path) -> None:
    for path in ("/badge.svg?repo=<x>", "/feed.atom?repo=none"):
        answer = get(database, path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")
        assert "no repository is called" in answer.text


def test_other_names_of_this_machine_and_a_report_that_is_not_served_are_refused(database: Path) -> None:
    for path in ("/badge.svg", "/feed.atom"):
        assert get(database, path, host="evil.example").status_code == 421
        assert get(database, path, served=False).status_code == 404
