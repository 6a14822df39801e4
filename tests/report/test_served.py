"""GET /report: made by a process of its own, once for all who ask, kept for a while, and only for this machine."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from daemon.http import report_page
from daemon.http.metrics import MetricsListener
from daemon.http.report_page import MEMORY_BYTES, MOST_KEPT, MOST_WAITING, ReportError, ReportPage
from daemon.place.paths import Paths, paths_from_config
from daemon.settings import Settings, parse
from daemon.state.context import Context
from pipeline.report import __main__ as printing
from store.documents.problems import Problem
from store.view import tables

Started = list[Any]


async def no_problems() -> list[Problem]:
    return []


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A state folder with an empty view in it."""
    config = tmp_path / "config.toml"
    config.write_text('[daemon]\nstate_dir = "state"\n', encoding="utf-8")
    found = paths_from_config(config)
    found.state.mkdir()
    with closing(sqlite3.connect(found.database_db, isolation_level=None)) as database:
        tables.create(database)
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The processes that were started to make a page."""
    found: Started = []
    start = asyncio.create_subprocess_exec

    async def noted(*arguments: Any, **options: Any) -> Any:
        found.append(await start(*arguments, **options))
        return found[-1]

    monkeypatch.setattr("daemon.http.report_page.asyncio.create_subprocess_exec", noted)
    return found


def instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have this shell script make the page."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr("daemon.http.report_page.sys.executable", str(program))


async def test_the_page_is_made_once_for_all_who_ask_and_kept_until_it_is_too_old(
    paths: Paths, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ReportPage(paths, no_problems)
    together = await asyncio.gather(*(page.now() for _ in range(5)))
    assert b"Nothing is recorded yet" in together[0].html
    assert {id(one) for one in together} == {id(await page.now())}
    assert len(started) == 1
    monkeypatch.setattr(report_page, "EVERY_S", 0.0)
    await page.now()
    assert len(started) == 2


async def test_who_gives_up_waiting_does_not_take_the_page_from_the_others(
    paths: Paths, started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(tmp_path, monkeypatch, "sleep 0.3; echo made")
    page = ReportPage(paths, no_problems)
    left, stays = asyncio.create_task(page.now()), asyncio.create_task(page.now())
    await asyncio.sleep(0.05)
    left.cancel()
    assert (await stays).html == b"made\n"
    assert len(started) == 1


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo first >&2; echo 'the view cannot be read: gone' >&2; exit 1",
            "^the view cannot be read: gone$",
        ),
        ("exit 3", "ended with status 3"),
        ("exec sleep 60", "not made within 0.2 s; `everlean report`"),
    ],
)
async def test_a_page_that_cannot_be_made_is_an_error_with_its_reason_and_leaves_no_process(
    script: str, said: str, paths: Paths, started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(tmp_path, monkeypatch, script)
    monkeypatch.setattr(report_page, "PATIENCE_S", 0.2 if "sleep" in script else 60.0)
    page = ReportPage(paths, no_problems)
    with pytest.raises(ReportError, match=said):
        await page.now()
    assert started[0].returncode is not None
    instead(tmp_path, monkeypatch, "echo made")
    with pytest.raises(ReportError, match=said):
        await page.now()
    assert len(started) == 1, "for a while the reason is told again, and nothing is started"
    monkeypatch.setattr(report_page, "FAILED_S", 0.0)
    monkeypatch.setattr(report_page, "PATIENCE_S", 60.0)
    assert (await page.now()).html == b"made\n", "then it is tried again"


async def test_only_so_many_wait_and_the_next_is_told_so_at_once(
    paths: Paths, started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = tmp_path / "held"
    instead(tmp_path, monkeypatch, f"while [ ! -e {held} ]; do sleep 0.05; done; echo made")
    page = ReportPage(paths, no_problems)
    waiting = [asyncio.create_task(page.now()) for _ in range(MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(ReportError, match=f"^{MOST_WAITING} wait for it already"):
        await page.now()
    waiting.pop().cancel()
    await asyncio.sleep(0)
    waiting.append(asyncio.create_task(page.now()))
    await asyncio.sleep(0)
    held.touch()
    assert {made.html for made in await asyncio.gather(*waiting)} == {b"made\n"}
    assert len(started) == 1


def test_its_process_may_take_so_much_memory_and_no_more(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kib = MEMORY_BYTES >> 10
    instead(tmp_path, monkeypatch, f'until [ "$(ulimit -d)" = {kib} ]; do sleep 0.01; done; echo held')
    monkeypatch.setattr(report_page, "PATIENCE_S", 10.0)
    assert asyncio.run(ReportPage(paths, no_problems).now()).html == b"held\n"


def test_a_page_that_takes_more_than_that_is_an_error_in_words(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def large(*_arguments: Any, **_options: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(printing, "render", large)
    monkeypatch.setattr("sys.stdin", io.StringIO("[]"))
    assert printing.main(*map(str, (paths.database_db, paths.events_db, paths.mirrors))) == 1
    assert "MiB that it may; `everlean report` makes it without limit" in capsys.readouterr().err


def test_its_process_makes_no_page_for_a_daemon_that_is_gone(paths: Paths) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.report", *map(str, (paths.database_db, paths.events_db, paths.mirrors))],
        env={**os.environ, "EVERLEAN_DAEMON_PID": "1"}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (143, b"")


async def test_without_a_view_the_reason_says_what_to_do(paths: Paths) -> None:
    paths.database_db.unlink()
    with pytest.raises(ReportError, match=r"no such database; start the daemon"):
        await ReportPage(paths, no_problems).now()


async def test_each_page_is_kept_by_its_name_and_only_so_many_are(
    paths: Paths, started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(tmp_path, monkeypatch, 'eval "echo \\${$#}"')
    page = ReportPage(paths, no_problems)
    names = [f"sorries-{number}.html" for number in range(MOST_KEPT + 1)]
    assert [(await page.now(name)).html.decode() for name in names] == [f"{name}\n" for name in names]
    await page.now(names[-1])
    assert len(started) == len(names)
    await page.now(names[0])
    assert len(started) == len(names) + 1, "the first had gone"


# --- over HTTP -----------------------------------------------------------------------------------------------------


def of(root: Path, port: int, *, serve: bool = True, public: bool = False) -> Settings:
    text = (
        f'[metrics]\nlisten = "127.0.0.1:{port}"\npublic = {str(public).lower()}\n'
        f"[report]\nserve = {str(serve).lower()}\n"
    )
    return parse(text.encode(), path=root / "config.toml")


def listening(
    tmp_path: Path, paths: Paths, talk: Callable[[httpx2.AsyncClient, Callable[..., None]], Awaitable[None]]
) -> None:
    """Run the listener, and have `talk` speak with it; the second argument changes the settings."""

    async def numbers() -> bytes:
        return b"everlean_problems 0\n"

    async def run() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        context = Context(of(tmp_path, port))

        def change(**changes: bool) -> None:
            context.settings = of(tmp_path, port, **changes)

        page = ReportPage(paths, no_problems)
        listener = MetricsListener(numbers, context, report=page.now)
        await listener.take_up()
        try:
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                await talk(client, change)
        finally:
            await listener.stop()

    asyncio.run(asyncio.wait_for(run(), timeout=60))


def test_it_is_served_where_it_is_wanted_read_only_and_to_this_machine_alone(
    tmp_path: Path, paths: Paths
) -> None:
    async def talk(client: httpx2.AsyncClient, change: Callable[..., None]) -> None:
        answer = await client.get("/report")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "Nothing is recorded yet" in answer.text
        assert (await client.head("/report")).content == b""
        again = await client.get("/report/index.html")
        assert (again.status_code, again.headers["x-content-type-options"]) == (200, "nosniff")
        for name in ("other.html", "%00.html", "-h", "..%2Fevents.db"):
            assert (await client.get(f"/report/{name}")).status_code == 404, name
        for method in ("POST", "PUT", "DELETE"):
            assert (await client.request(method, "/report")).status_code == 405
        for host in ("evil.example", "127.0.0.1.evil.example", ""):
            assert (await client.get("/report", headers={"host": host})).status_code == 421
        change(public=True)
        assert (await client.get("/report", headers={"host": "box.example"})).status_code == 200
        assert 'href="/metrics"' in (first := (await client.get("/")).text)
        assert 'href="/report"' in first
        change(serve=False)
        assert "/report" not in (await client.get("/")).text
        refused = await client.get("/report")
        assert (refused.status_code, "[report] serve" in refused.text) == (404, True)

    listening(tmp_path, paths, talk)


def test_a_browser_that_has_the_page_is_told_so_in_a_few_bytes(tmp_path: Path, paths: Paths) -> None:
    async def talk(client: httpx2.AsyncClient, _change: Callable[..., None]) -> None:
        tag = (await client.get("/report")).headers["etag"]
        for named in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            answer = await client.get("/report", headers={"if-none-match": named})
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        for named in ('"other"', tag.strip('"'), ""):
            assert (await client.get("/report", headers={"if-none-match": named})).status_code == 200

    listening(tmp_path, paths, talk)


def test_while_a_page_is_made_the_numbers_are_answered_and_a_failure_is_a_503(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = tmp_path / "held"
    instead(
        tmp_path,
        monkeypatch,
        f"while [ ! -e {held} ]; do sleep 0.05; done; echo 'the disk is gone' >&2; exit 1",
    )

    async def talk(client: httpx2.AsyncClient, _change: Callable[..., None]) -> None:
        waiting = asyncio.create_task(client.get("/report"))
        for _ in range(3):
            assert (await client.get("/metrics")).status_code == 200
        assert not waiting.done()
        held.touch()
        answer = await waiting
        assert (answer.status_code, answer.text) == (503, "the report cannot be made: the disk is gone\n")
        assert answer.headers["retry-after"] == "10"

    listening(tmp_path, paths, talk)
