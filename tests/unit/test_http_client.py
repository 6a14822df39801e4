"""The HTTP client against servers that answer too slowly, too much, or nonsense."""

from __future__ import annotations

import asyncio
import ssl
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from pipeline.http_client import HttpClient, NoAnswerError, NotJsonError
from tests.support.hostile_server import CASES, HostileServer

SHORT_S, LONG_S = 0.4, 60.0
# What each comes to: the reason why there is no answer, or what is made of it.
ENDS = {
    "drips": "late",
    "drips_head": "late",
    "silent": "late",
    "endless": "too_long",
    "endless_head": "broken",
    "bomb": "too_long",
    "bombs_in_bomb": "broken",
    "behind_packed": "too_long",
    "other_packing": "broken",
    "cut_packed": "broken",
    "crumbs": "too_long",
    "deep": "no JSON",
    "wide": "no JSON",
    "pages": "JSON",
    "circle": "301",
    "cookie": "JSON",
    "cut": "broken",
    "no_http": "broken",
    "login_page": "no JSON",
    "null": "JSON",
    "good": "JSON",
}


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    with HostileServer() as server:
        yield server


async def _end(server: HostileServer, case: str, seconds: float) -> str:
    async with HttpClient(seconds=seconds) as client:
        try:
            answer = await client.call("GET", f"{server.url}/repos/o/{case}/refs")
            if answer.status != 200:
                return str(answer.status)
            answer.json()
        except NoAnswerError as error:
            return error.reason
        except NotJsonError:
            return "no JSON"
        return "JSON"


def test_the_table_has_each_case() -> None:
    assert ENDS.keys() == {*CASES, "good"}


@pytest.mark.parametrize(("case", "end"), ENDS.items())
def test_a_call_ends_in_time_and_takes_little_memory(server: HostileServer, case: str, end: str) -> None:
    tracemalloc.start()
    try:
        began = time.monotonic()
        assert asyncio.run(_end(server, case, SHORT_S if end == "late" else LONG_S)) == end
        # Tracing makes it slow; without a deadline it would take minutes, or never end.
        assert time.monotonic() - began < 20
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_a_call_may_have_less_time_than_the_client(server: HostileServer) -> None:
    async def ask() -> None:
        async with HttpClient(seconds=600) as client:
            await client.call("GET", f"{server.url}/repos/o/silent/refs", seconds=0.1)

    with pytest.raises(NoAnswerError, match=r"within 0\.1 s"):
        asyncio.run(ask())


def test_a_call_sends_nothing_that_an_earlier_answer_gave(server: HostileServer) -> None:
    async def ask() -> None:
        async with HttpClient(seconds=LONG_S) as client:
            for _ in range(2):
                await client.call("GET", f"{server.url}/repos/o/cookie/refs")

    server.cookies.clear()
    asyncio.run(ask())
    assert server.cookies == [None, None]


def test_a_proxy_that_cannot_be_used_is_said(monkeypatch: pytest.MonkeyPatch, server: HostileServer) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)

    async def ask() -> None:
        async with HttpClient(seconds=LONG_S) as client:
            await client.call("GET", f"{server.url}/repos/o/good/refs")

    with pytest.raises(NoAnswerError, match=r"cannot be reached.*(SOCKS|connect)"):
        asyncio.run(ask())


@pytest.mark.parametrize(("url", "checked"), [("https://127.0.0.1:9", True), ("http://127.0.0.1:9", False)])
def test_certificates_are_checked_wherever_there_are_any(
    monkeypatch: pytest.MonkeyPatch, url: str, checked: bool
) -> None:
    made: list[object] = []

    class Client(httpx2.AsyncClient):
        def __init__(self, **options: Any) -> None:
            made.append(options["verify"])
            super().__init__(**options)

    async def ask() -> None:
        async with HttpClient(seconds=5) as client:
            await client.call("GET", url)

    monkeypatch.setattr(httpx2, "AsyncClient", Client)
    with pytest.raises(NoAnswerError, match="cannot be reached"):
        asyncio.run(ask())
    verify = made[0]
    assert (isinstance(verify, ssl.SSLContext) and verify.verify_mode is ssl.CERT_REQUIRED) is checked
