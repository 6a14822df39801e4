"""What strangers may try on the daemon's own ports, as raw bytes over real sockets: numbers and webhooks.

The server for editors has the same in tests/serve/test_auth_limits.py, the control socket in test_peers.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.applications import Starlette

from daemon.http.metrics import metrics_route
from daemon.place.peers import LoopbackServer
from daemon.polling.webhooks import application_of
from daemon.state.clock import Allowance

SECRET = "the-secret-of-the-webhook"
GOOD = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
CHUNK = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
GARBAGE = [
    b"\x00\xff\x13garbage\r\n\r\n",
    b"GET /metrics\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 5 * 2**20 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1" + b"0" * 30 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
]
TRAVERSALS = [
    "/../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/metrics/../.git/config",
    "/metrics%00",
    "//x",
]
STRANGE_HOSTS = ["evil.example", "127.0.0.1.nip.io", "0.0.0.0", "[::]", "127.1"]


async def numbers() -> bytes:
    return b"everlean_up 1\n"


async def hint(_name: str, _number: int | None) -> list[str]:
    raise AssertionError("nothing here is signed")


APPLICATIONS: dict[str, Callable[[], Starlette]] = {
    "numbers": lambda: Starlette(routes=[metrics_route(numbers, public=lambda: False)]),
    "webhook": lambda: application_of(secret=lambda: SECRET, hint=hint, allowance=Allowance(10)),
}
each_listener = pytest.mark.parametrize("listener", sorted(APPLICATIONS))


def at(listener: str, work: Callable[[int], Awaitable[Any]]) -> Any:
    """Run `work` with the port of a listener."""

    async def go() -> Any:
        server = await LoopbackServer.start(APPLICATIONS[listener](), port=0, setting="test")
        try:
            return await asyncio.wait_for(work(server.port), 30)
        finally:
            await server.stop()

    return asyncio.run(go())


async def said(port: int, data: bytes) -> bytes:
    """Send, and return the answer to the end of the connection; b"" where it was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 25)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


@each_listener
def test_what_is_no_request_is_refused_with_one_line_and_the_next_is_answered(
    listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(port: int) -> list[int]:
        return [status(await said(port, data)) for _ in range(3) for data in GARBAGE] + [
            status(await said(port, GOOD))
        ]

    *refused, last = at(listener, work)
    assert set(refused) <= {0, 400, 404, 413, 415}, refused
    assert last == (200 if listener == "numbers" else 404)
    said_of_it = [record.getMessage() for record in caplog.records if record.name == "pipeline.connections"]
    assert len(said_of_it) <= 1
    assert not any("Exception" in line for line in said_of_it)


@each_listener
def test_no_path_leads_elsewhere(listener: str) -> None:
    async def work(port: int) -> list[int]:
        heads = [
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" for path in TRAVERSALS
        ]
        return [status(await said(port, head.encode())) for head in heads]

    assert set(at(listener, work)) == {404}


def test_numbers_are_for_who_names_this_machine() -> None:
    async def work(port: int) -> list[bytes]:
        heads = [
            f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n" for host in STRANGE_HOSTS
        ]
        return [await said(port, head.encode()) for head in heads]

    answers = at("numbers", work)
    assert {status(answer) for answer in answers} <= {400, 421}
    assert not any(b"everlean_up" in answer for answer in answers)


def test_no_page_of_another_origin_is_let_read_the_numbers() -> None:
    async def work(port: int) -> bytes:
        return await said(port, GOOD.replace(b"Host:", b"Origin: https://evil.example\r\nHost:"))

    assert b"access-control" not in at("numbers", work).lower()


@each_listener
def test_hundreds_of_half_heads_that_stay_shut_nobody_out(listener: str) -> None:
    async def work(port: int) -> int:
        lines = []
        for _ in range(200):
            line = socket.create_connection(("127.0.0.1", port))
            line.sendall(b"GET /metrics HTTP/1.1\r\nX-a")
            lines.append(line)
            await asyncio.sleep(0)
        try:
            return status(await asyncio.wait_for(said(port, GOOD), 5))
        finally:
            for line in lines:
                line.close()

    assert at(listener, work) == (200 if listener == "numbers" else 404)


@each_listener
def test_a_body_without_an_end_is_read_so_far_and_no_further(listener: str) -> None:
    async def work(port: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        path = b"/metrics" if listener == "numbers" else b"/"
        head = b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(b"POST " + path + head)
        sent = 0
        try:
            while sent < 300:
                writer.write(CHUNK)
                await writer.drain()
                sent += 1
        except ConnectionError:
            pass
        writer.close()
        reader.feed_eof()
        return sent

    assert at(listener, work) < 40, "MiB, what the kernel holds on the way included"


def test_json_of_a_hundred_thousand_levels_is_refused() -> None:
    async def work(port: int) -> bytes:
        body = b"[" * 100_000
        signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        return await said(
            port,
            b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
            + f"X-Hub-Signature-256: sha256={signature}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body,
        )

    assert status(at("webhook", work)) == 400


def test_five_hundred_requests_one_after_another_on_thirty_connections_are_all_answered() -> None:
    async def one(port: int) -> list[int]:
        return [status(await said(port, GOOD)) for _ in range(17)]

    async def work(port: int) -> list[list[int]]:
        return list(await asyncio.gather(*(one(port) for _ in range(30))))

    answers = [one for many in at("numbers", work) for one in many]
    assert (len(answers), set(answers)) == (510, {200})
