"""What a scrape costs on a large view, and how the numbers are fetched: over TCP on this machine alone."""

from __future__ import annotations

import re
import socket
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from xml.etree import ElementTree as ET

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from daemon.health.status_report import collect
from daemon.http.metrics import CONTENT_TYPE, PROBLEM, LiveNumbers, MetricsListener, exposition
from daemon.place.instance import find_instance
from daemon.settings import Settings, parse
from daemon.state.context import Context
from store.errors import DatabaseIOError
from store.sqlite import connect_readonly
from store.view import report_queries, tables
from tests.support.daemon.deployment import Deployment

REPOSITORIES, SORRIES, JOBS, PROOFS = 500, 50_000, 200_000, 50_000
BUDGET_S = 0.05
PATIENCE_S = 60.0

LIVE = LiveNumbers(
    now=datetime.now(UTC),
    version="0.1.0",
    started_at=datetime.now(UTC),
    lean="none",
    problems={},
    log_position=10**6,
    waiting={},
    gpus=(),
    quotas={},
    requests={f"o/r{number}": number for number in range(REPOSITORIES)},
    cache_bytes=0,
    cache_limit_bytes=0,
    notification_failures={},
)


def large_view(path: Path) -> None:
    """A view of years: 500 repositories, 50,000 sorries and proofs, 200,000 jobs."""
    now = datetime.now(UTC).isoformat()
    keys = [f"github.com/o/r{number}" for number in range(REPOSITORIES)]
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        tables.create(database)
        database.execute("BEGIN")

        def fill(table: str, rows: list[dict[str, object]]) -> None:
            names = [column[1] for column in database.execute(f"PRAGMA table_info({table})") if column[3]]
            kinds = {column[1]: column[2] for column in database.execute(f"PRAGMA table_info({table})")}
            unsaid = {name: "" if kinds[name] == "TEXT" else 0 for name in names}
            whole = [{**unsaid, **row} for row in rows]
            columns = list(whole[0])
            quoted = ", ".join(f'"{name}"' for name in columns)
            database.executemany(
                f"INSERT INTO {table} ({quoted}) VALUES ({', '.join('?' * len(columns))})",
                [tuple(row[name] for name in columns) for row in whole],
            )

        fill("repositories", [{"repository": key, "watched": 1, "enabled": 1, "state": "ok"} for key in keys])
        fill("branches", [{"repository": key, "branch": "main", "state": "live"} for key in keys])
        fill("poll_states", [{"repository": key, "checked_at": now, "next_due_at": now} for key in keys])
        fill(
            "tallies",
            [{"repository": key, "branch": "main", "kind": "theorem", "declarations": 9} for key in keys],
        )
        states = ("open", "open", "filled", "removed")
        fill("sorries", [
            {"repository": keys[n % REPOSITORIES], "branch": "main", "sorry": f"{n:016x}", "state": states[n % 4],
             "statement": "x" * 200}
            for n in range(SORRIES)
        ])  # fmt: skip
        fill("jobs", [
            {"job": f"scan-{n:016x}", "kind": "scan", "state": "failed" if n % 50 == 0 else "succeeded",
             "started_at": now, "message": "x" * 100}
            for n in range(JOBS)
        ])  # fmt: skip
        fill("proofs", [
            {"proof": f"{n:016x}", "sorry": f"{n:016x}", "state": "verified", "checks_json": "x" * 500}
            for n in range(PROOFS)
        ])  # fmt: skip
        fill("job_tallies", [
            {"kind": "scan", "outcome": "succeeded", "bucket": bucket, "n": 9, "seconds": 1.0}
            for bucket in range(9)
        ])  # fmt: skip
        database.execute("COMMIT")


@pytest.mark.slow
def test_a_scrape_of_a_large_view_takes_less_than_50_ms(tmp_path: Path) -> None:
    path = tmp_path / "database.db"
    large_view(path)
    took = []
    with closing(connect_readonly(path)) as database:
        for _ in range(9):
            started = time.perf_counter()
            text = exposition(report_queries.numbers(database), LIVE)
            took.append(time.perf_counter() - started)
    assert text.count(b"\n") > 4000
    # The best of nine is what it needs; the others also measure what else this machine is doing.
    assert min(took) < BUDGET_S, took


def test_no_question_of_a_scrape_reads_a_growing_table_row_by_row() -> None:
    growing = "jobs|proofs|attempts|sorries|declarations|files|commits|sorry_steps|job_attempts|theorems|evaluations"
    requests: list[str] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        tables.create(database)
        database.set_trace_callback(requests.append)
        report_queries.numbers(database)
        database.set_trace_callback(None)
        plans = [
            (statement, step[3])
            for statement in requests
            for step in database.execute(f"EXPLAIN QUERY PLAN {statement}")
        ]
    scans = [
        (step, statement)
        for statement, step in plans
        if re.match(rf"SCAN ({growing})\b", step) and "USING COVERING INDEX" not in step
    ]
    assert len(requests) >= 10
    assert scans == []


# --- the listener ----------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def of(root: Path, listen: str, *, public: bool = False) -> Settings:
    text = f'[metrics]\nlisten = "{listen}"\npublic = {str(public).lower()}\n'
    return parse(text.encode(), path=root / "config.toml")


async def numbers() -> bytes:
    return b"everlean_problems 0\n"


async def test_the_listener_has_the_numbers_and_nothing_else_and_only_for_this_machine(
    tmp_path: Path,
) -> None:
    port = free_port()
    settings = of(tmp_path, f"127.0.0.1:{port}")
    context = Context(settings)
    listener = MetricsListener(numbers, context)
    await listener.take_up()
    try:
        assert listener.address == f"127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            answer = await client.get("/metrics")
            assert (answer.status_code, answer.content) == (200, b"everlean_problems 0\n")
            assert answer.headers["content-type"] == CONTENT_TYPE
            for host in (f"localhost:{port}", "localhost", "[::1]", f"[::1]:{port}"):
                assert (await client.get("/metrics", headers={"host": host})).status_code == 200
            for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
                assert (await client.get("/metrics", headers={"host": host})).status_code == 421, host
            for route in ("/status", "/health", "/retry"):
                assert (await client.get(route)).status_code == 404
            assert (await client.post("/metrics")).status_code == 405
            context.settings = of(tmp_path, f"127.0.0.1:{port}", public=True)
            assert (await client.get("/metrics", headers={"host": "box.example"})).status_code == 200
    finally:
        await listener.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()


async def test_a_view_that_cannot_be_read_is_a_503_with_the_reason(tmp_path: Path) -> None:
    async def broken() -> bytes:
        raise DatabaseIOError("database.db: the disk is gone")

    port = free_port()
    settings = of(tmp_path, f"127.0.0.1:{port}")
    listener = MetricsListener(broken, Context(settings))
    await listener.take_up()
    try:
        assert listener.address == f"127.0.0.1:{port}"
        async with httpx2.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.1:{port}/metrics")
        assert answer.status_code == 503
        assert "the disk is gone" in answer.text
    finally:
        await listener.stop()


async def test_a_taken_port_is_a_problem_until_it_is_free_and_a_reload_moves_the_listener(
    tmp_path: Path,
) -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = int(squatter.getsockname()[1])
        context = Context(of(tmp_path, f"127.0.0.1:{port}"))
        listener = MetricsListener(numbers, context)
        await listener.take_up()
        assert f"[metrics] listen: 127.0.0.1:{port} cannot be listened on" in context.problems.get(PROBLEM)
    try:
        await listener.take_up()
        assert listener.address == f"127.0.0.1:{port}"
        assert context.problems.texts() == []
        other = free_port()
        context.settings = of(tmp_path, f"127.0.0.1:{other}")
        await listener.take_up()
        assert listener.address == f"127.0.0.1:{other}"
        context.settings = of(tmp_path, "")
        await listener.take_up()
        assert listener.address == ""
    finally:
        await listener.stop()


def test_the_whole_daemon_gives_its_numbers_on_its_socket_and_on_tcp(tmp_path: Path) -> None:
    deployment, port = Deployment(tmp_path), free_port()
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : 1 = 1 := sorry\n"})
    settings = deployment.write(
        repos=[remote.path], extra=f'[metrics]\nlisten = "127.0.0.1:{port}"\n[report]\nserve = true\n'
    )
    with deployment.daemon():
        deployment.wait_for(
            lambda: deployment.events("commit_scanned"), what="the commit to be scanned", seconds=PATIENCE_S
        )
        deployment.wait_for(
            lambda: deployment.events("job_succeeded"), what="the job's end", seconds=PATIENCE_S
        )
        deployment.wait_for(
            lambda: "metrics_listen" in deployment.log(), what="the listener", seconds=PATIENCE_S
        )
        unix = httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(settings.paths.socket)), timeout=PATIENCE_S
        )
        with unix, httpx2.Client(timeout=PATIENCE_S) as tcp:
            texts = [
                unix.get("http://everlean/metrics").text,
                tcp.get(f"http://127.0.0.1:{port}/metrics").text,
            ]
            problems = unix.get("http://everlean/health").json()["problems"]
            status = collect(find_instance(deployment.config))
            pages = [unix.get("http://everlean/report"), tcp.get(f"http://127.0.0.1:{port}/report")]
            badge, feed = (tcp.get(f"http://127.0.0.1:{port}/{name}") for name in ("badge.svg", "feed.atom"))
    listed = [(one.severity, one.code) for one in status.problems]
    assert ("warning", "no_lean") in listed
    assert [(one["severity"], one["code"]) for one in problems] == listed
    assert [page.status_code for page in pages] == [200, 200]
    assert "1 sorry is open in 1 watched repository" in pages[1].text
    assert pages[0].content == pages[1].content, "made once, for both"
    shown = re.sub(r"<[^>]+>", "", unescape(pages[1].text))
    for one in status.problems:
        assert f"{one.severity}: {one.text}" in shown
    assert (badge.headers["content-type"], "sorries: 1" in badge.text) == ("image/svg+xml", True)
    assert feed.headers["content-type"] == "application/atom+xml"
    assert ET.fromstring(feed.content).tag == "{http://www.w3.org/2005/Atom}feed"
    for text in texts:
        result = {family.name: family for family in text_string_to_metric_families(text)}
        numbers = {sample.labels["severity"]: sample.value for sample in result["everlean_problems"].samples}
        assert numbers == {
            severity: sum(one.severity == severity for one in status.problems)
            for severity in ("error", "warning")
        }
        key = settings.repos[0].key
        sorries = {sample.labels["state"]: sample.value for sample in result["everlean_sorries"].samples}
        assert sorries == {"open": 1, "verified": 0, "filled": 0, "removed": 0}
        (age,) = result["everlean_repository_poll_age_seconds"].samples
        assert age.labels["repository"] == key
        assert 0 <= age.value < 120
        ends = {
            (sample.labels["kind"], sample.labels["outcome"]): sample.value
            for sample in result["everlean_job_ends"].samples
        }
        assert ends["scan", "succeeded"] == 1
        assert result["everlean_view_lag_events"].samples[0].value == 0
        assert time.time() - result["everlean_start_time_seconds"].samples[0].value < 120
