"""How many connections there may be, and how long a head may take; real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from pipeline.serve.limits import BoundedProtocol, bounded
from pipeline.serve.spec import Limits

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
PATIENCE_S = 20.0


async def hello(_: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await asyncio.sleep(1.0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@asynccontextmanager
async def listening(*, head_s: float = 0.5) -> AsyncIterator[int]:
    class Short(BoundedProtocol):
        most = 3

    Short.head_s = head_s
    config = uvicorn.Config(hello, log_config=None, lifespan="off", timeout_keep_alive=60)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Short(config, state, {}), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.shutdown()


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


def test_a_head_that_does_not_come_or_does_not_end_closes_the_connection() -> None:
    async def main() -> None:
        async with listening() as port:
            for sent in (b"", HEAD):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                assert await closed(reader)
                await left(writer)

    asyncio.run(main())


def test_a_head_that_comes_letter_by_letter_has_no_more_time() -> None:
    async def main() -> None:
        async with listening() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)

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

    asyncio.run(main())


def test_an_answer_may_take_longer_and_the_next_head_has_its_own_time() -> None:
    async def main() -> None:
        async with listening() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):
                assert (await ask(reader, writer)).endswith(b"hi"), "its work takes twice a head's time"
            writer.write(HEAD)
            assert await closed(reader)
            await left(writer)

    asyncio.run(main())


def test_a_connection_too_many_is_closed_and_those_that_are_there_go_on() -> None:
    async def main() -> None:
        async with listening(head_s=PATIENCE_S) as port:
            lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            asking = [asyncio.create_task(ask(*line)) for line in lines]
            await asyncio.sleep(0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await closed(reader)
            assert all(answer.endswith(b"hi") for answer in await asyncio.gather(*asking))
            for _, one in [*lines, (reader, writer)]:
                await left(one)

    asyncio.run(main())


def test_there_are_connections_for_whoever_the_queue_refuses() -> None:
    assert bounded(Limits(queue=1)).most == 512
    assert bounded(Limits(queue=1000)).most == 2000
