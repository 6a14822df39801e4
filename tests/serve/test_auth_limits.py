"""Who may ask the server, and for how much: token, host, origin, body, queue, time; against a real socket."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from daemon.place.peers import LoopbackServer
from pipeline.endpoint.credentials import FOLDER
from pipeline.endpoint.errors import CredentialError
from pipeline.jobs.spec import KeyPlace
from pipeline.serve.app import guards
from pipeline.serve.auth import read_token
from pipeline.serve.limits import RETRY_AFTER_S, while_connected
from pipeline.serve.measures import Measures
from pipeline.serve.spec import LeanSpec, Limits, ServeSpec
from tests.support.ladder import ladder

NOWHERE = Path("/nowhere")
TOKEN = "s3cret-token"
LEAN = LeanSpec("none", "", "none", NOWHERE, NOWHERE, ladder(NOWHERE))
Answer = Callable[[Request], Awaitable[Response]]


def spec(*, limits: Limits | None = None, host: str = "127.0.0.1") -> ServeSpec:
    return ServeSpec(
        host, 0, NOWHERE, NOWHERE, NOWHERE, NOWHERE, (), LEAN, limits=limits or Limits(queue=2, seconds=60.0)
    )


@asynccontextmanager
async def served(
    answer: Answer, *, limits: Limits | None = None, token: str | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[httpx2.AsyncClient, Measures, int]]:
    """Serve one answer on some routes behind the guards; yield a client, the numbers and the port."""
    measures = Measures()
    application = Starlette(
        routes=[Route(path, answer, methods=["GET", "POST"]) for path in ("/", "/health", "/fill", "/check")],
        middleware=guards(spec(limits=limits, host=host), token=token, measures=measures),
    )
    server = await LoopbackServer.start(application, port=0, setting="test")
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=20) as client:
            yield client, measures, server.port
    finally:
        await server.stop()


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Have a test be run in an event loop."""

    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


async def length(request: Request) -> Response:
    return JSONResponse({"length": len(await request.body())})


async def raw(port: int, data: bytes, *, rest: list[bytes] | None = None) -> bytes:
    """Send bytes, and more one after another; return the answer to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    for part in rest or []:
        writer.write(part)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


async def counted(measures: Measures, what: bytes) -> None:
    for _ in range(12_000):
        if what in measures.text():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{what!r} is not in {measures.text().decode()}")


@in_a_loop
async def test_a_body_that_says_that_it_is_too_long_is_refused_and_read_so_far_that_the_answer_arrives() -> (
    None
):
    async with served(length, limits=Limits(body_bytes=1000)) as (client, _, _):
        assert (await client.post("/", content=b"x" * 1000)).json() == {"length": 1000}
        for size in (1001, 3_000_000):
            refused = await client.post("/", content=b"x" * size)
            assert refused.status_code == 413
            assert set(refused.json()) == {"error", "reason", "remedy", "detail"}
            assert "1000 bytes" in refused.json()["reason"]


@in_a_loop
async def test_a_body_in_chunks_that_says_no_length_is_refused_as_soon_as_it_is_too_long() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    async with served(length, limits=Limits(body_bytes=1000)) as (client, _, _):
        assert (await client.post("/", content=chunks())).status_code == 413


@in_a_loop
async def test_a_body_that_has_no_end_is_not_read_for_ever() -> None:
    async with served(length, limits=Limits(body_bytes=1000, seconds=60.0)) as (_, _, port):
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)

        async def without_end() -> None:
            while True:
                writer.write(chunk)
                await writer.drain()

        sending = asyncio.create_task(without_end())
        answer = await asyncio.wait_for(reader.readline(), 60)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 413")


@in_a_loop
async def test_who_waits_to_be_told_to_go_on_with_too_long_a_body_is_refused_before_it_is_sent() -> None:
    async with served(length, limits=Limits(body_bytes=1000)) as (_, _, port):
        answer = await raw(
            port,
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\nExpect: 100-continue\r\n\r\n",
        )
        assert answer.startswith(b"HTTP/1.1 413")


@in_a_loop
async def test_a_full_queue_refuses_with_retry_after_and_still_answers_what_costs_nothing() -> None:
    release = asyncio.Event()

    async def slow(request: Request) -> Response:
        if request.method == "POST":
            await release.wait()
        return JSONResponse({})

    async with served(slow, limits=Limits(queue=2)) as (client, measures, _):
        two = [asyncio.create_task(client.post("/", content=b"{}")) for _ in range(2)]
        await counted(measures, b"queue_requests 2.0")
        refused = await client.post("/", content=b"{}")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, str(RETRY_AFTER_S))
        assert (await client.get("/")).status_code == 200
        release.set()
        assert [(await one).status_code for one in two] == [200, 200]
        assert (await client.post("/", content=b"{}")).status_code == 200
        assert b"queue_requests 0.0" in measures.text()


@in_a_loop
async def test_slow_requests_to_lean_take_half_the_queue_at_most_and_the_rest_is_answered() -> None:
    release = asyncio.Event()

    async def slow(request: Request) -> Response:
        if request.url.path != "/":
            await release.wait()
        return JSONResponse({})

    async with served(slow, limits=Limits(queue=4)) as (client, measures, _):
        two = [asyncio.create_task(client.post(path, content=b"{}")) for path in ("/check", "/fill")]
        await counted(measures, b"queue_requests 2.0")
        for path in ("/check", "/fill"):
            refused = await client.post(path, content=b"{}")
            assert (refused.status_code, refused.json()["error"]) == (429, "queue_full")
            assert "Lean" in refused.json()["reason"]
        assert (await client.post("/", content=b"{}")).status_code == 200
        release.set()
        assert [(await one).status_code for one in two] == [200, 200]
        assert (await client.post("/check", content=b"{}")).status_code == 200


@in_a_loop
async def test_of_what_is_no_post_no_body_is_read_however_long_it_says_that_it_is() -> None:
    async with served(length, limits=Limits(body_bytes=1000), token=TOKEN) as (client, _, port):
        for size in (1, 900, 3_000_000):
            answer = await client.request("GET", "/health", content=b"x" * size)
            assert (answer.status_code, answer.json()) == (200, {"length": 0})
        for told in (b"0", b"99999999999"):
            head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + told + b"\r\n\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head)
            assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 200")
            writer.close()


@in_a_loop
async def test_an_answer_that_does_not_come_is_a_504_and_its_work_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def hangs(_: Request) -> Response:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with served(hangs, limits=Limits(seconds=1.0)) as (client, _, _):
        late = await client.post("/", content=b"{}")
        assert late.status_code == 504
        assert "after 1 s" in late.json()["reason"]
        assert cancelled.is_set()


def streaming(events: int, *, pause_s: float) -> Answer:
    """Return an answer of so many events, with a pause after each."""

    async def streams(_: Request) -> Response:
        async def made() -> AsyncIterator[bytes]:
            for number in range(events):
                yield f"data: {number}\n\n".encode()
                await asyncio.sleep(pause_s)

        return StreamingResponse(made(), media_type="text/event-stream")

    return streams


@in_a_loop
async def test_what_lean_works_on_has_a_time_of_its_own() -> None:
    async with served(streaming(4, pause_s=0.1), limits=Limits(seconds=0.1, lean_seconds=60.0)) as (
        client,
        _,
        _,
    ):
        text = (await client.post("/fill", content=b"{}")).text
        assert text.strip().split("\n\n") == [f"data: {number}" for number in range(4)]


@in_a_loop
async def test_a_stream_that_takes_too_long_ends_with_an_event() -> None:
    async with served(streaming(2, pause_s=60.0), limits=Limits(seconds=5.0, lean_seconds=2.0)) as (
        client,
        _,
        _,
    ):
        text = (await client.post("/fill", content=b"{}")).text
        *events, last = text.strip().split("\n\n")
        assert events == ["data: 0"]
        assert last.startswith("event: error\n")
        assert json.loads(last.partition("data: ")[2])["error"] == "timeout"


@in_a_loop
async def test_a_timeout_of_the_routes_own_is_not_taken_for_the_servers() -> None:
    async def own(_: Request) -> Response:
        raise TimeoutError("of an upstream")

    async with served(own) as (client, _, _):
        assert (await client.post("/", content=b"{}")).status_code == 500


@in_a_loop
async def test_a_client_that_leaves_has_its_work_cancelled_and_is_counted() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    async def answer(request: Request) -> Response:
        return JSONResponse({"said": await while_connected(request, work())})

    async with served(answer) as (_, measures, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        await asyncio.wait_for(begun.wait(), 60)
        writer.close()
        await asyncio.wait_for(cancelled.wait(), 60)
        await counted(measures, b'status="499"')


@in_a_loop
async def test_only_who_sends_the_token_is_answered() -> None:
    allowed = (f"Bearer {TOKEN}", f"bearer {TOKEN}")
    refused = (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer", TOKEN)

    async with served(length, token=TOKEN) as (client, _, _):
        for value in allowed:
            assert (await client.post("/", headers={"Authorization": value})).status_code == 200, value
        for sent in (*refused, None):
            answer = await client.post("/", headers={} if sent is None else {"Authorization": sent})
            assert answer.status_code == 401, sent
            said = "" if sent is None else ', error="invalid_token"'
            assert answer.headers["www-authenticate"] == f'Bearer realm="everlean"{said}'
            assert TOKEN not in answer.text
            assert set(answer.json()) == {"error", "reason", "remedy", "detail"}


@in_a_loop
async def test_two_tokens_are_none_and_bytes_that_are_no_text_are_refused() -> None:
    async with served(length, token=TOKEN) as (_, _, port):
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n"
        good = f"Authorization: Bearer {TOKEN}\r\n".encode()
        assert (await raw(port, head + good + b"\r\n")).startswith(b"HTTP/1.1 200")
        for bad in (good + b"Authorization: Bearer x\r\n", b"Authorization: Bearer \xff\xfe\r\n"):
            assert (await raw(port, head + bad + b"\r\n")).startswith(b"HTTP/1.1 401")


@in_a_loop
async def test_health_is_answered_without_the_token_and_nothing_else() -> None:
    async with served(length, token=TOKEN) as (client, _, _):
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/")).status_code == 401
        assert (await client.get("/health/../")).status_code == 401


@in_a_loop
async def test_a_name_that_a_browser_was_led_here_by_is_refused_where_only_this_machine_is_meant() -> None:
    async with served(length) as (client, _, _):
        for name in ("localhost", "127.0.0.1:23337", "[::1]", "LOCALHOST:1"):
            assert (await client.get("/", headers={"Host": name})).status_code == 200, name
        for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:23337"):
            assert (await client.get("/", headers={"Host": name})).status_code == 421, name
    async with served(length, host="0.0.0.0", token=TOKEN) as (client, _, _):
        headers = {"Host": "lean.example.org", "Authorization": f"Bearer {TOKEN}"}
        assert (await client.get("/", headers=headers)).status_code == 200


@in_a_loop
async def test_a_page_of_another_origin_can_ask_nothing_and_our_own_pages_can() -> None:
    async with served(length) as (client, _, port):
        ours = f"http://127.0.0.1:{port}"
        others = ("https://evil.example", "http://127.0.0.1:1", "null", "http://[")
        assert (await client.post("/", headers={"Origin": ours})).status_code == 200
        for other in others:
            assert (await client.post("/", headers={"Origin": other})).status_code == 403


def test_a_server_that_others_reach_does_not_start_without_a_token() -> None:
    with pytest.raises(CredentialError, match=r"0\.0\.0\.0.*token_file.*127\.0\.0\.1"):
        read_token(spec(host="0.0.0.0"), environment={})
    assert read_token(spec(host="127.0.0.1"), environment={}) is None


def test_the_token_is_the_credentials_else_the_files_else_the_variables(tmp_path: Path) -> None:
    folder, file = tmp_path / "credentials", tmp_path / "token"
    folder.mkdir()
    (folder / "c").write_text("of-the-credential\n")
    file.write_text("of-the-file\n")
    for path in (folder / "c", file):
        path.chmod(0o600)
    known = {FOLDER: str(folder), "V": "of-the-variable"}
    for place, expected in (
        (KeyPlace("c", "V", str(file)), "of-the-credential"),
        (KeyPlace("other", "V", str(file)), "of-the-file"),
        (KeyPlace("other", "V"), "of-the-variable"),
        (KeyPlace("other", "W"), None),
    ):
        assert read_token(replace(spec(), token=place), environment=known) == expected


@in_a_loop
async def test_requests_are_counted_by_route_and_a_client_can_make_no_new_names() -> None:
    async with served(length) as (client, measures, _):
        await client.post("/", content=b"x")
        await client.get("/made-up")
        await client.request("PURGE", "/also-made-up")
        families = {one.name: one for one in text_string_to_metric_families(measures.text().decode())}
        counted = {
            (sample.labels["method"], sample.labels["status"]): (sample.labels["route"], sample.value)
            for sample in families["everlean_serve_requests"].samples
            if sample.name.endswith("_total")
        }
        assert counted == {
            ("POST", "200"): ("/", 1.0),
            ("GET", "404"): ("none", 1.0),
            ("other", "404"): ("none", 1.0),
        }
