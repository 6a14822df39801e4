"""How many connections a listener keeps, and how long a client may owe bytes; real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from pipeline.connections import BoundedProtocol, Bounds, OnceAMinute, Sparing, bounded
from pipeline.serve.limits import bounded_for
from pipeline.serve.spec import Limits

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
PATIENCE_S = 20.0
WORK_S = 0.6
QUICK = Bounds(most=3, most_each=3, head_s=0.3, body_s=0.3, idle_s=0.3, drained_bytes=1000)
PATIENT = Bounds(most=3, most_each=3)


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer slowly; at /early before the body came, at /large with more than any buffer holds."""
    large = scope["path"] == "/large"
    if scope["path"] != "/early":
        while (message := await receive())["type"] == "http.request" and message.get("more_body"):
            pass
        if not large:
            await asyncio.sleep(WORK_S)
    body = b"x" * (64 * 2**20 if large else 2)
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


class Listening:
    def __init__(self, port: int, state: ServerState) -> None:
        self.port = port
        self.state = state

    async def open(self, address: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))


@asynccontextmanager
async def listening(bounds: Bounds) -> AsyncIterator[Listening]:
    config = uvicorn.Config(hello, log_config=None, lifespan="off", timeout_keep_alive=60)
    config.load()
    state = ServerState()
    protocol = bounded(bounds)
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config, state, {}), "127.0.0.1", 0
    )
    try:
        yield Listening(server.sockets[0].getsockname()[1], state)
    finally:
        server.close()
        for connection in list(state.connections):
            assert isinstance(connection, BoundedProtocol)
            connection.drop()
        await asyncio.sleep(0)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(HEAD + b"\r\n")
    answer = await reader.readuntil(b"\r\n\r\n")
    return answer + await reader.readexactly(2)


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the other side closes; return whether it said nothing before."""
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
    except ConnectionResetError:
        return True


async def left(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def test_a_head_that_does_not_come_or_does_not_end_closes_the_connection() -> None:
    async def main() -> None:
        async with listening(QUICK) as at:
            lines = [await at.open() for _ in range(2)]
            lines[1][1].write(HEAD)
            for reader, writer in lines:
                assert await closed(reader)
                await left(writer)

    run(main())


def test_a_head_that_comes_letter_by_letter_has_no_more_time() -> None:
    async def main() -> None:
        async with listening(QUICK) as at:
            reader, writer = await at.open()

            async def slowly() -> None:
                writer.write(HEAD)
                while True:
                    writer.write(b"X-A: b\r\n")
                    await asyncio.sleep(0.02)

            sending = asyncio.create_task(slowly())
            assert await closed(reader)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await left(writer)

    run(main())


def test_a_body_that_does_not_come_or_comes_letter_by_letter_closes_the_connection() -> None:
    async def main() -> None:
        async with listening(QUICK) as at:
            lines = [await at.open() for _ in range(2)]
            for _, writer in lines:
                writer.write(POST)
            for _ in range(4):
                await asyncio.sleep(0.05)
                lines[1][1].write(b"x")
            for reader, writer in lines:
                assert await closed(reader)
                await left(writer)

    run(main())


def test_an_answer_that_nobody_reads_closes_the_connection() -> None:
    async def main() -> None:
        async with listening(QUICK) as at:
            _, writer = await at.open()
            writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            while not at.state.connections:  # noqa: ASYNC110 - uvicorn has no event
                await asyncio.sleep(0.01)
            while at.state.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await left(writer)

    run(main())


def test_a_body_that_the_answer_did_not_wait_for_is_not_read_without_an_end() -> None:
    async def main() -> None:
        async with listening(PATIENT) as at, listening(QUICK) as narrow:
            for one, kept in ((at, True), (narrow, False)):
                reader, writer = await one.open()
                head = b"POST /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n"
                writer.write(head)
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                await reader.readexactly(2)
                writer.write(b"x" * 2000)
                if kept:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(reader.read(1), 0.15)
                else:
                    assert await closed(reader)
                await left(writer)

    run(main())


def test_an_answer_may_take_longer_and_the_next_head_has_its_own_time() -> None:
    async def main() -> None:
        async with listening(QUICK) as at:
            reader, writer = await at.open()
            for _ in range(2):
                assert (await ask(reader, writer)).endswith(b"xx"), "its work takes longer"
            writer.write(HEAD)
            assert await closed(reader)
            await left(writer)

    run(main())


def test_a_connection_too_many_is_closed_where_all_the_others_are_being_answered() -> None:
    async def main() -> None:
        async with listening(PATIENT) as at:
            lines = [await at.open() for _ in range(3)]
            asking = [asyncio.create_task(ask(*line)) for line in lines]
            await asyncio.sleep(0.1)
            reader, writer = await at.open()
            assert await closed(reader)
            assert all(answer.endswith(b"xx") for answer in await asyncio.gather(*asking))
            for _, one in [*lines, (reader, writer)]:
                await left(one)

    run(main())


def test_a_connection_too_many_takes_the_place_of_the_one_that_has_owed_bytes_the_longest() -> None:
    async def main() -> None:
        async with listening(PATIENT) as at:
            silent = [await at.open() for _ in range(3)]
            silent[1][1].write(HEAD)
            silent[2][1].write(POST)
            await asyncio.sleep(0.05)
            lines = []
            for first, _ in silent:
                lines.append(await at.open())
                assert (await ask(*lines[-1])).endswith(b"xx")
                assert await closed(first)
            assert len(at.state.connections) == 3
            for _, writer in [*silent, *lines]:
                await left(writer)

    run(main())


def test_one_peer_does_not_have_the_room_of_all() -> None:
    async def main() -> None:
        async with listening(Bounds(most=4, most_each=2)) as at:
            others = [await at.open("127.0.0.2") for _ in range(2)]
            many = [await at.open() for _ in range(5)]
            await asyncio.sleep(0.05)
            assert len(at.state.connections) == 4
            assert [await closed(reader) for reader, _ in many[:3]] == [True] * 3
            answers = await asyncio.gather(*(ask(*line) for line in [*others, *many[3:]]))
            assert len(answers) == 4
            for _, writer in [*others, *many]:
                await left(writer)

    run(main())


def test_there_are_connections_for_whoever_the_queue_refuses() -> None:
    assert bounded_for(Limits(queue=1)).bounds.most == 1024
    assert bounded_for(Limits(queue=1000)).bounds.most == 2000


def test_a_flood_writes_one_line_a_minute_with_how_many_were_left_out() -> None:
    clock = [0.0]
    sparing = Sparing(clock=lambda: clock[0])
    assert [sparing.line("a") for _ in range(100)] == [0, *[None] * 99]
    assert sparing.line("b") == 0
    clock[0] = 60.0
    assert (sparing.line("a"), sparing.line("b")) == (99, 0)
    for key in range(10_000):
        sparing.line(key)
    assert len(sparing._last) <= 256
    log, said = logging.getLogger("tests.flood"), []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    log.addHandler(Kept())
    log.addFilter(OnceAMinute())
    for _ in range(1000):
        log.warning("a flood")
    assert said == ["a flood"]
