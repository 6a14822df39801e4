"""The client against an endpoint on a real socket, which behaves well or badly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest

from pipeline.endpoint.address import requests_url
from pipeline.endpoint.client import LONGEST_ANSWER_BYTES, Chat, ChatClient
from pipeline.endpoint.dialect import Ask
from pipeline.endpoint.errors import EndpointError, SpendingCapError, SpendingError
from pipeline.endpoint.spending import file_of
from pipeline.jobs.specs import EndpointSpec
from tests.support.chat_server import ChatServer, Fails, PassingTime, Reply, Says, Sends, Silence
from tests.support.spending import spent_usd

T = TypeVar("T")
KEY = "sk-very-secret-0123456789"
VARIABLE = "EVERLEAN_KEY_OF_TESTS"
ASK = Ask([{"role": "user", "content": "⊢ p"}], max_tokens=64, temperature=0.6, seed=7)


@pytest.fixture
def time() -> PassingTime:
    return PassingTime()


def endpoint(server: ChatServer, *, retries: int = 2, timeout_s: float = 5.0) -> EndpointSpec:
    return EndpointSpec(base_url=server.url, model="org/model", retries=retries, timeout_s=timeout_s)


def priced(server: ChatServer, ledger: Path, **changes: Any) -> EndpointSpec:
    prices = {"usd_per_million_prompt": 1.0, "usd_per_million_completion": 10.0, "cap_usd": 1.0}
    return endpoint(server).model_copy(update={**prices, "ledger": ledger, **changes})


def asked(
    time: PassingTime,
    server: ChatServer,
    use: Callable[[ChatClient], Awaitable[T]],
    *,
    key: str | None = None,
    where: EndpointSpec | None = None,
) -> T:
    spec = (where or endpoint(server)).model_copy(update={"key_variable": VARIABLE})

    async def main() -> T:
        async with ChatClient(
            spec, concurrency=2, sleep=time.sleep, clock=time.clock, now=time.now
        ) as client:
            return await use(client)

    with mock.patch.dict(os.environ, {VARIABLE: key or ""}):
        return asyncio.run(main())


def complete(
    time: PassingTime, *script: Reply, count: int = 1, several: str = "taken"
) -> tuple[Chat, ChatServer]:
    with ChatServer(script, several=several) as server:
        return asked(time, server, lambda client: client.complete(ASK, count=count)), server


def refused(time: PassingTime, *script: Reply, timeout_s: float = 5.0) -> tuple[EndpointError, int]:
    with ChatServer(script) as server:
        where = endpoint(server, timeout_s=timeout_s)
        with pytest.raises(EndpointError) as raised:
            asked(time, server, lambda client: client.complete(ASK), where=where)
        return raised.value, len(server.requests)


def test_an_answer_comes_with_its_tokens(time: PassingTime) -> None:
    chat, server = complete(time, Says("by simp", usage=(12, 3)))
    assert chat.texts == ("by simp",)
    assert (chat.usage.prompt_tokens, chat.usage.completion_tokens) == (12, 3)
    assert chat.usage.usd is None
    assert server.requests[0].body == {
        "model": "org/model",
        "messages": [{"role": "user", "content": "⊢ p"}],
        "max_tokens": 64,
        "temperature": 0.6,
        "seed": 7,
    }
    assert server.requests[0].authorization is None


def test_a_key_is_sent_as_a_bearer_token(time: PassingTime) -> None:
    with ChatServer(key=KEY) as server:
        chat = asked(time, server, lambda client: client.complete(ASK), key=KEY)
    assert chat.texts == ("rfl",)


def test_several_answers_are_one_request_where_the_endpoint_gives_them(time: PassingTime) -> None:
    chat, server = complete(time, Says(["a", "b", "c"]), count=3)
    assert chat.texts == ("a", "b", "c")
    assert [one.body.get("n") for one in server.requests] == [3]


@pytest.mark.parametrize("several", ["ignored", "refused"])
def test_several_answers_are_asked_for_one_by_one_where_it_must_be(time: PassingTime, several: str) -> None:
    with ChatServer([Says(["a", "b", "c"])], several=several) as server:

        async def twice(client: ChatClient) -> tuple[Chat, Chat]:
            return await client.complete(ASK, count=3), await client.complete(ASK, count=3)

        first, second = asked(time, server, twice)
    assert sorted(first.texts) == sorted(second.texts) == ["a", "b", "c"]
    bodies = [one.body for one in server.requests]
    assert [body.get("n") for body in bodies].count(3) == 1, (
        "it is asked for several once, and then never again"
    )
    # The same seed would draw the same answer.
    assert sorted(body["seed"] for body in bodies[-3:]) == [7, 8, 9]


def test_a_parameter_that_the_endpoint_does_not_take_is_left_out_from_then_on(time: PassingTime) -> None:
    text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    script: list[Reply] = [
        Fails(400, text, "max_tokens"),
        Fails(400, "'temperature' does not support 0.6 with this model.", "temperature"),
        Sends(b'[{"error": {"code": 400, "message": "Unknown name \\"seed\\": Cannot find field."}}]', 400),
        Says("ok"),
    ]
    with ChatServer(script) as server:

        async def twice(client: ChatClient) -> Chat:
            await client.complete(ASK)
            return await client.complete(ASK)

        assert asked(time, server, twice).texts == ("ok",)
    for one in server.requests[3:]:
        assert set(one.body) == {"model", "messages", "max_completion_tokens"}
    assert len(server.requests) == 5
    assert time.slept == []


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
def test_an_overloaded_endpoint_is_asked_again_after_a_while_that_doubles(
    time: PassingTime, status: int
) -> None:
    chat, server = complete(time, Fails(status), Fails(status), Says("at last"))
    assert chat.texts == ("at last",)
    assert len(server.requests) == 3
    assert time.slept == [1.0, 2.0]


def test_it_is_left_alone_for_as_long_as_it_asks(time: PassingTime) -> None:
    chat, _ = complete(time, Fails(429, retry_after="17"), Says("at last"))
    assert chat.texts == ("at last",)
    assert time.seconds == 17


def test_a_caller_without_the_time_to_wait_hears_of_it_at_once(time: PassingTime) -> None:
    with (
        ChatServer([Fails(429, retry_after="17")]) as server,
        pytest.raises(EndpointError, match="no time is left"),
    ):
        asked(time, server, lambda client: client.complete(ASK, seconds=10))
    assert time.slept == []


@pytest.mark.parametrize("said", ["soon", "Sun, 01 Mar 2026 12:00:17 GMT"])
def test_a_retry_after_that_is_no_number_counts_as_none(time: PassingTime, said: str) -> None:
    complete(time, Fails(503, retry_after=said), Says("at last"))
    assert time.slept == [1.0]


def test_an_endpoint_that_wants_to_be_left_alone_for_hours_is_given_up(time: PassingTime) -> None:
    error, requests = refused(time, Fails(429, retry_after="7200"))
    assert error.reason == "overloaded"
    assert "left alone for 7200 s" in str(error)
    assert (requests, time.slept) == (1, [])


def test_what_stays_overloaded_is_given_up_after_the_retries(time: PassingTime) -> None:
    error, requests = refused(time, Fails(500, "out of cheese"))
    assert (error.reason, requests) == ("overloaded", 3)
    assert "out of cheese" in str(error)
    assert "asked 3 times" in str(error)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Fails(400, "context too long"), "bad_request"),
        (Fails(401), "auth_failed"),
        (Fails(402, "You have exceeded your monthly included credits"), "no_credit"),
        (Fails(403), "forbidden"),
        (Fails(404, "model not found"), "no_such_model"),
        (Fails(418), "bad_request"),
        (
            Sends(b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}', 429),
            "no_credit",
        ),
        (Sends(b"<html><head><title>Log in</title></head></html>"), "not_understood"),
        (Sends(b'{"choices": ['), "not_understood"),
        (Sends(b"\xff\xfe\x00"), "not_understood"),
        (Sends(b"[" * 100_000), "not_understood"),
        (Sends(b'{"choices": []}'), "not_understood"),
        (Sends(b'{"error": "the model is loading"}'), "not_understood"),
        (Sends(b"x" * 3000), "not_understood"),
    ],
)
def test_what_no_waiting_mends_is_said_at_once(time: PassingTime, reply: Reply, reason: str) -> None:
    error, requests = refused(time, reply)
    assert error.reason == reason
    assert requests == 1
    assert str(error).count("Remedy: ") == 1
    assert len(str(error)) < 700


def test_html_with_a_gateway_s_status_is_an_overload(time: PassingTime) -> None:
    error, requests = refused(time, Sends(b"<html><h1>502 Bad Gateway</h1></html>", 502))
    assert error.reason == "overloaded"
    assert "a page (502 Bad Gateway)" in str(error)
    assert requests == 3


def test_an_answer_of_any_length_is_not_read_to_its_end(time: PassingTime) -> None:
    error, _ = refused(time, Sends(b"{" + b" " * (LONGEST_ANSWER_BYTES + 300_000)))
    assert f"more than {LONGEST_ANSWER_BYTES} bytes" in str(error)
    assert error.usage.completion_tokens == 64


def test_an_endpoint_that_never_answers_is_given_up(time: PassingTime) -> None:
    error, requests = refused(time, Silence(), timeout_s=1.0)
    assert (error.reason, requests) == ("timeout", 3)
    # It may have written an answer each time, to be paid for.
    assert error.usage.completion_tokens == 3 * 64


def test_a_connection_that_breaks_is_made_again(time: PassingTime) -> None:
    chat, _ = complete(time, Silence(hangs_up=True), Says("at last"))
    assert chat.texts == ("at last",)
    assert chat.usage.completion_tokens > 64


def test_an_endpoint_that_is_not_there_says_so(time: PassingTime) -> None:
    with ChatServer() as server:
        where = endpoint(server)
    with pytest.raises(EndpointError, match="cannot be reached") as raised:
        asked(time, server, lambda client: client.complete(ASK), where=where)
    assert raised.value.reason == "unreachable"
    assert raised.value.usage.completion_tokens == 0


def test_no_try_begins_that_the_caller_has_no_time_for(time: PassingTime) -> None:
    with ChatServer([Fails(503)]) as server, pytest.raises(EndpointError, match="no time is left"):
        asked(time, server, lambda client: client.complete(ASK, seconds=1.5))
    assert len(server.requests) == 2


def test_a_redirect_to_what_is_no_address_is_one_all_the_same(time: PassingTime) -> None:
    error, _ = refused(time, Fails(302, location="https://[nowhere"))
    assert error.reason == "redirected"
    assert "another address" in str(error)


def test_a_redirect_does_not_get_the_key(time: PassingTime) -> None:
    with (
        ChatServer(key=KEY) as other,
        ChatServer([Fails(307, location=f"{other.url}/chat/completions")]) as server,
        pytest.raises(EndpointError, match=r"redirects to 127.0.0.1:\d+") as raised,
    ):
        asked(time, server, lambda client: client.complete(ASK), key=KEY)
    assert raised.value.reason == "redirected"
    assert other.requests == []


@pytest.mark.parametrize(
    ("reply", "flaw"),
    [
        (Says("by si", finish="length"), "cut_off"),
        (Says(""), "empty"),
        (Says(" \n\t"), "empty"),
        (Says("x", message={"content": None}), "empty"),
        (Says("x", message={"content": 7}), "empty"),
        (Says("x", message={"content": None, "refusal": "I cannot"}), "refused"),
        (Says("x", finish="content_filter"), "refused"),
    ],
)
def test_an_answer_that_is_of_no_use_says_why(time: PassingTime, reply: Says, flaw: str) -> None:
    chat, _ = complete(time, reply)
    assert chat.texts == ()
    assert chat.left_out == {flaw: 1}


def test_content_in_parts_is_put_together(time: PassingTime) -> None:
    parts = [{"type": "text", "text": "by "}, {"type": "image"}, {"type": "text", "text": "simp"}, None]
    chat, _ = complete(time, Says("", message={"content": parts}))
    assert chat.texts == ("by simp",)


def test_tokens_of_thought_count_though_only_the_total_has_them(time: PassingTime) -> None:
    chat, _ = complete(time, Says("by simp", usage=(20, 198), total=623))
    assert (chat.usage.prompt_tokens, chat.usage.completion_tokens) == (20, 603)


@pytest.mark.parametrize(
    "usage",
    [
        b"null",
        b'{"prompt_tokens": -1}',
        b'"many"',
        b'{"prompt_tokens": "9"}',
        b'{"prompt_tokens": true, "completion_tokens": true}',
        b'{"prompt_tokens": 1, "completion_tokens": 1' + 400 * b"0" + b"}",
        b'{"prompt_tokens": 9000000000000000000, "completion_tokens": 1}',
    ],
)
def test_an_endpoint_that_does_not_count_is_taken_at_the_worst(time: PassingTime, usage: bytes) -> None:
    body = b'{"choices": [{"message": {"content": "rfl"}}], "usage": ' + usage + b"}"
    chat, _ = complete(time, Sends(body, content_type="application/json"))
    assert chat.usage.completion_tokens == 64
    assert chat.usage.prompt_tokens >= len("⊢ p".encode())


@pytest.mark.parametrize(
    ("script", "paid"),
    [
        ([Fails(429), Fails(400, "'seed' is unknown"), Says("x")], [False, False, True]),
        ([Fails(504), Says("x")], [True, True]),
        ([Silence(hangs_up=True), Says("x")], [True, True]),
        ([Sends(b"<html>")], [True]),
        ([Fails(401)], [False]),
    ],
)
def test_each_request_is_reserved_before_and_settled_after_it(
    time: PassingTime, tmp_path: Path, script: list[Reply], paid: list[bool]
) -> None:
    ledger = tmp_path / "ledger.jsonl"
    with ChatServer(script) as server, contextlib.suppress(EndpointError):
        asked(time, server, lambda client: client.complete(ASK), where=priced(server, ledger))
    lines = file_of(ledger, time.now().date().isoformat()).read_text().splitlines()
    result = [json.loads(line) for line in lines]
    assert [one["kind"] for one in result] == ["reserved", "booked"] * len(paid)
    assert [one["usd"] > 0 for one in result[1::2]] == paid


def test_a_request_that_is_called_back_counts_as_paid_for(time: PassingTime, tmp_path: Path) -> None:
    async def call_back(client: ChatClient) -> None:
        asking = asyncio.create_task(client.complete(ASK))
        while not server.requests:  # noqa: ASYNC110 - the server is a thread of its own
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    with ChatServer([Silence()]) as server:
        asked(time, server, call_back, where=priced(server, tmp_path / "l"))
    assert spent_usd(tmp_path / "l", time.now().date().isoformat()) > 64 * 10.0 / 1_000_000


def test_a_cap_that_is_reached_asks_nothing_more(time: PassingTime, tmp_path: Path) -> None:
    async def until_refused(client: ChatClient) -> None:
        while True:
            await client.complete(ASK)

    # 64 tokens are reserved each time, 40 are used: after one answer there is no room for another.
    with ChatServer([Says("x", usage=(1, 40))]) as server:
        where = priced(server, tmp_path / "l", usd_per_million_prompt=0.0, cap_usd=0.001)
        with pytest.raises(SpendingCapError):
            asked(time, server, until_refused, where=where)
    assert len(server.requests) == 1


def test_the_answers_that_came_are_kept_when_a_later_one_fails(time: PassingTime) -> None:
    replies: dict[int, Reply] = {7: Says("first"), 8: Fails(400, "no more")}
    with ChatServer(lambda body: replies[body["seed"]], several="ignored") as server:
        chat = asked(time, server, lambda client: client.complete(ASK, count=2))
    assert chat.texts == ("first",)
    assert "no more" in chat.missing


def test_no_more_requests_are_under_way_than_allowed(time: PassingTime) -> None:
    under_way, most = 0, 0
    with ChatServer([Says("x")], several="ignored") as server:

        async def count(client: ChatClient) -> None:
            send = client._sent

            async def sent(*args: object) -> object:
                nonlocal under_way, most
                under_way += 1
                most = max(most, under_way)
                try:
                    return await send(*args)  # type: ignore[arg-type]
                finally:
                    under_way -= 1

            client._sent = sent  # type: ignore[assignment, method-assign]
            await client.complete(ASK, count=6)

        asked(time, server, count)
    assert len(server.requests) == 6
    assert most == 2


@pytest.mark.parametrize(
    "reply", [Fails(401), Fails(400, f"bad key {KEY}"), Sends(KEY.encode()), Silence(hangs_up=True)]
)
def test_the_key_is_in_no_error_and_in_no_log(
    time: PassingTime, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ChatServer([reply]) as server, pytest.raises(EndpointError) as raised:
        asked(time, server, lambda client: client.complete(ASK), key=KEY)
    text = "".join(traceback.format_exception(raised.value)) + repr(raised.value.__dict__)
    assert KEY not in text
    assert KEY not in caplog.text
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None, "the HTTP library's errors hold the request with its headers"


@pytest.mark.parametrize(
    ("base_url", "said"),
    [
        ("router.huggingface.co/v1", "must be an https URL"),
        ("https://me:secret@host/v1", "more than a host"),
        ("https://host/v1?key=secret", "more than a host"),
        ("https://host:port/v1", "no valid URL"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(base_url: str, said: str) -> None:
    with pytest.raises(EndpointError, match=said) as raised:
        ChatClient(EndpointSpec(base_url=base_url, model="m"))
    assert "secret" not in str(raised.value)


def test_a_key_is_not_sent_unencrypted_except_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = EndpointSpec(base_url="http://gpu.example.org:8000/v1", model="m", key_variable=VARIABLE)
    ChatClient(elsewhere)
    monkeypatch.setenv(VARIABLE, KEY)
    ChatClient(elsewhere.model_copy(update={"base_url": "http://127.0.0.1:8000/v1"}))
    with pytest.raises(EndpointError, match="unencrypted"):
        ChatClient(elsewhere)


def test_the_whole_address_may_be_given() -> None:
    # LeanDojo-v2's constant is one.
    whole = "https://router.huggingface.co/v1/chat/completions"
    assert requests_url(whole) == requests_url("https://router.huggingface.co/v1/") == whole


def test_a_cap_without_prices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpendingError, match="no prices are set"):
        ChatClient(EndpointSpec(base_url="https://host/v1", model="m", cap_usd=1.0, ledger=tmp_path / "l"))
