"""GitHub's webhooks over real sockets: what is heeded, what is refused, and that a hint is no more than a hint."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from daemon.polling.webhooks import (
    MOST_BODY_BYTES,
    PROBLEM,
    Webhooks,
    application_of,
    named,
    signed,
)
from daemon.settings import Settings
from daemon.state.clock import Allowance
from daemon.state.context import Problems
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.github import GitHubServer

SECRET = "the-secret-of-the-webhook"
PUSH = {"ref": "refs/heads/main", "repository": {"full_name": "owner/name", "id": 42}}


def sign(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Heard:
    """What the daemon was asked for."""

    def __init__(self) -> None:
        self.hints: list[tuple[str, int | None]] = []

    async def hint(self, name: str, number: int | None) -> Sequence[str]:
        self.hints.append((name, number))
        return [f"github.com/{name}"]


def asked(heard: Heard, work: Callable[[httpx2.AsyncClient], Awaitable[Any]], *, most: int = 1000) -> Any:
    """Run `work` with a client of the application."""

    async def go() -> Any:
        application = application_of(secret=lambda: SECRET, hint=heard.hint, allowance=Allowance(most))
        transport = httpx2.ASGITransport(app=application)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await work(client)

    return asyncio.run(go())


def deliver(
    heard: Heard,
    body: bytes | None = None,
    *,
    event: str = "push",
    signature: str | None = "",
    content_type: str = "application/json",
) -> httpx2.Response:
    body = json.dumps(PUSH).encode() if body is None else body
    headers = {b"X-GitHub-Event": event.encode(), b"Content-Type": content_type.encode()}
    if signature is not None:
        headers[b"X-Hub-Signature-256"] = (signature or sign(body)).encode()

    async def work(client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.post("/", content=body, headers=list(headers.items()))

    answer: httpx2.Response = asked(heard, work)
    return answer


def test_a_signed_push_is_a_hint_about_its_repository() -> None:
    heard = Heard()
    answer = deliver(heard)
    assert (answer.status_code, answer.json()) == (202, {"polling": ["github.com/owner/name"]})
    assert heard.hints == [("owner/name", 42)]


def test_githubs_ping_is_answered_and_asks_for_nothing() -> None:
    heard = Heard()
    assert deliver(heard, event="ping").status_code == 200
    assert heard.hints == []


@pytest.mark.parametrize(
    ("signature", "status"),
    [
        (None, 400),
        ("sha256=" + "0" * 64, 401),
        ("sha256=", 401),
        ("sha1=" + "0" * 40, 401),
        (sign(json.dumps(PUSH).encode(), "another secret"), 401),
        (sign(b"another body"), 401),
        ("sha256=é", 401),
    ],
)
def test_without_the_right_signature_nothing_is_heeded(signature: str | None, status: int) -> None:
    heard = Heard()
    assert deliver(heard, signature=signature).status_code == status
    assert heard.hints == []


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert signed(b"x", sign(b"x"), secret=SECRET)
    assert not signed(b"x", "sha256=" + "0" * 64, secret=SECRET)
    assert len(compared) == 2


def test_an_empty_secret_signs_nothing() -> None:
    assert not signed(b"x", sign(b"x", ""), secret="")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"no json", 400),
        (b"[" * 100_000, 400),
        (b'"x"', 202),
        (b'{"repository": {"full_name": 3}}', 202),
        (b'{"repository": {"full_name": "a/b/c"}}', 202),
        (b'{"zen": "Keep it logically awesome."}', 202),
    ],
)
def test_what_names_no_repository_asks_for_nothing(body: bytes, status: int) -> None:
    heard = Heard()
    assert deliver(heard, body).status_code == status
    assert heard.hints == []


def test_a_body_that_is_too_long_is_not_read() -> None:
    heard = Heard()
    assert deliver(heard, b" " * (MOST_BODY_BYTES + 1)).status_code == 413
    assert heard.hints == []

    async def chunked(client: httpx2.AsyncClient) -> int:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b" " * 65536

        headers = {"Content-Type": "application/json", "X-Hub-Signature-256": "sha256="}
        return (await client.post("/", content=endless(), headers=headers)).status_code

    assert asked(heard, chunked) == 413


def test_forms_are_refused_with_what_to_choose_instead() -> None:
    answer = deliver(Heard(), content_type="application/x-www-form-urlencoded")
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]


def test_too_many_in_a_minute_are_refused_and_a_minute_later_they_are_not() -> None:
    heard = Heard()
    statuses: list[int] = []
    body = json.dumps(PUSH).encode()

    async def work(client: httpx2.AsyncClient) -> None:
        headers = {"Content-Type": "application/json", "X-Hub-Signature-256": sign(body)}
        answers = [await client.post("/", content=body, headers=headers) for _ in range(5)]
        statuses.extend(answer.status_code for answer in answers)

    asked(heard, work, most=3)
    assert statuses == [202, 202, 202, 429, 429]
    clock = [0.0]
    allowance = Allowance(60, elapsed=lambda: clock[0])
    assert sum(allowance.take() for _ in range(100)) == 60
    clock[0] = 10.0
    assert sum(allowance.take() for _ in range(100)) == 10


def test_who_has_no_secret_uses_up_nobody_s_allowance_and_writes_one_line_a_minute() -> None:
    heard = Heard()
    body = json.dumps(PUSH).encode()

    async def work(client: httpx2.AsyncClient) -> list[int]:
        forged = {"Content-Type": "application/json", "X-Hub-Signature-256": "sha256=0"}
        unsigned = [(await client.post("/", content=body, headers=forged)).status_code for _ in range(130)]
        assert set(unsigned) == {401}
        headers = {**forged, "X-Hub-Signature-256": sign(body)}
        return [(await client.post("/", content=body, headers=headers)).status_code for _ in range(2)]

    with capture_logs() as lines:
        assert asked(heard, work, most=1) == [202, 429]
    assert [line["event"] for line in lines].count("webhook_refused") == 1


def test_a_name_that_is_none_is_not_taken() -> None:
    assert named({"repository": {"full_name": "a/b\n", "id": "7"}}) == (None, None)
    assert named({"repository": {"full_name": "a/" + "b" * 300, "id": 7}}) == (None, 7)


# --- the listener ---------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.delenv("EVERLEAN_WEBHOOK_SECRET", raising=False)
    return Deployment(tmp_path)


def write(deployment: Deployment, *, port: int, secret: bool = True, more: str = "") -> Settings:
    file = deployment.folder / "webhook-secret"
    file.write_text(f"{SECRET}\n", encoding="ascii")
    file.chmod(0o600)
    named_file = f'webhook_secret_file = "{file}"\n' if secret else ""
    return deployment.write(repos=[], extra=f"[github]\nwebhook_port = {port}\n{named_file}{more}")


@asynccontextmanager
async def listening(settings: Settings, problems: Problems, heard: Heard) -> AsyncIterator[Webhooks]:
    webhooks = Webhooks(hint=heard.hint, problems=problems)
    await webhooks.take_up(settings)
    try:
        yield webhooks
    finally:
        await webhooks.stop()


async def test_nothing_listens_unless_the_configuration_says_so(deployment: Deployment) -> None:
    async with listening(deployment.write(repos=[]), Problems(), Heard()) as webhooks:
        port = webhooks.port
    assert port is None


async def test_without_a_secret_nothing_listens_and_status_says_what_to_do(deployment: Deployment) -> None:
    problems = Problems()
    port = free_port()
    async with listening(write(deployment, port=port, secret=False), problems, Heard()) as webhooks:
        before = webhooks.port
        assert "webhook_secret_file" in problems.get(PROBLEM)
        await webhooks.take_up(write(deployment, port=port))
        result = before, webhooks.port
    assert result == (None, port)
    assert problems.texts() == []


def test_a_port_that_is_taken_is_a_problem_that_stops_nothing(deployment: Deployment) -> None:
    problems = Problems()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        settings = write(deployment, port=other.getsockname()[1])

        async def go() -> int | None:
            async with listening(settings, problems, Heard()) as webhooks:
                return webhooks.port

        assert asyncio.run(go()) is None
    assert "choose another port" in problems.get(PROBLEM)


async def test_a_delivery_over_a_socket_and_a_reload_that_closes_the_port(deployment: Deployment) -> None:
    heard, body = Heard(), json.dumps(PUSH).encode()
    headers = {"Content-Type": "application/json", "X-Hub-Signature-256": sign(body)}
    port = free_port()
    async with (
        listening(write(deployment, port=port), Problems(), heard) as webhooks,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        status = (await client.post("/", content=body, headers=headers)).status_code
        assert (await client.get("/")).status_code == 405
        assert (await client.post("/other", content=body, headers=headers)).status_code == 404
        await webhooks.take_up(deployment.write(repos=[]))
        with pytest.raises(httpx2.ConnectError):
            await client.post("/", content=body, headers=headers)
    assert status == 202
    assert heard.hints == [("owner/name", 42)]


@pytest.mark.slow
def test_a_webhook_has_the_whole_daemon_poll_long_before_it_is_due(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    port = free_port()
    with GitHubServer() as github:
        github.add("remotes/demo", remote.path)
        file = deployment.folder / "webhook-secret"
        file.write_text(SECRET, encoding="ascii")
        file.chmod(0o600)
        deployment.write(
            repos=[remote.path],
            extra=f'[github]\napi_url = "{github.url}"\nwebhook_port = {port}\nwebhook_secret_file = "{file}"\n',
        )
        with deployment.daemon() as process:
            deployment.wait_for(lambda: len(deployment.events("commit_observed")) == 1, what="the first poll")
            remote.commit("second")
            body = json.dumps({"repository": {"full_name": "remotes/demo"}}).encode()
            headers = {"Content-Type": "application/json", "X-Hub-Signature-256": sign(body)}
            answer = httpx2.post(f"http://127.0.0.1:{port}/", content=body, headers=headers)
            assert answer.json() == {"polling": ["local/remotes/demo"]}
            deployment.wait_for(
                lambda: len(deployment.events("commit_observed")) == 2, what="the poll", seconds=40
            )
            process.terminate()
            assert process.wait(timeout=20) == 0
    assert SECRET not in deployment.log()
