"""Requests of many clients go to a model together; a slow one holds up no one; who leaves is worked for no more."""

from __future__ import annotations

import fcntl
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pipeline.jobs.specs import EndpointSpec
from pipeline.models.tactics.generate import Generator
from pipeline.serve.spec import Limits, ModelSpec
from tests.support.chat_server import ChatServer, Says, Silence
from tests.support.serve import Served, make_saying, spec_of
from tests.support.tiny_models import make_tiny_retriever

CLIENTS = 12


class Held:
    """Keeps the model at its first batch until it is let go; notes how many prompts batches have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()
        real = Generator.complete

        def complete(generator: Generator, prompts: Sequence[Sequence[int]], *rest: Any, **named: Any) -> Any:
            self.sizes.append(len(prompts))
            self.begun.set()
            assert self.go.wait(30)
            return real(generator, prompts, *rest, **named)

        monkeypatch.setattr(Generator, "complete", complete)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("batch")
    make_saying(made / "said", {"simp": 1.0})
    make_tiny_retriever(made / "retriever", d_model=16, layers=1)
    return made


@pytest.fixture(scope="module")
def slow() -> Iterator[ChatServer]:
    with ChatServer([Silence(), Says("rfl")]) as server:
        yield server


@pytest.fixture(scope="module")
def quick() -> Iterator[ChatServer]:
    with ChatServer([Says("rfl")]) as server:
        yield server


@pytest.fixture(scope="module")
def mute() -> Iterator[socket.socket]:
    """An endpoint that takes connections, and leaves all else to the test."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        yield listener


@pytest.fixture(scope="module")
def served(folder: Path, slow: ChatServer, quick: ChatServer, mute: socket.socket) -> Iterator[Served]:
    def endpoint(name: str, url: str, **more: Any) -> ModelSpec:
        return ModelSpec(
            name,
            "endpoint",
            "org/model",
            candidates=1,
            endpoint=EndpointSpec(base_url=url, model="org/model", retries=0, **more),
        )

    spec = spec_of(
        folder,
        ModelSpec("said", "causal", str(folder / "said"), candidates=1, max_tokens=8),
        ModelSpec("retriever", "retriever", str(folder / "retriever")),
        endpoint("slow", slow.url),
        endpoint("paid", quick.url, ledger=folder / "ledger.jsonl"),
        endpoint("mute", f"http://127.0.0.1:{mute.getsockname()[1]}/v1"),
    )
    with Served(spec) as it:
        it.wait_ready()
        yield it


def generate(served: Served, state: str, name: str = "said") -> httpx2.Response:
    return served.client.post("/generate", json={"name": name, "input": state})


def together(served: Served, states: Sequence[str]) -> list[threading.Thread]:
    """Ask about each state, each from a client of its own."""
    clients = [threading.Thread(target=generate, args=(served, state)) for state in states]
    for one in clients:
        one.start()
    return clients


def inside(served: Served, name: str) -> float:
    """Return how many requests have a model now."""
    lines = served.client.get("/metrics").text.splitlines()
    label = f'everlean_serve_model_waiting_requests{{model="{name}"}} '
    return float(next((line.removeprefix(label) for line in lines if line.startswith(label)), "0"))


def wait_for(served: Served, count: int, name: str = "said") -> None:
    end = time.monotonic() + 30
    while (found := inside(served, name)) != count:
        assert time.monotonic() < end, f"{found} requests are inside, not {count}"
        time.sleep(0.02)


def test_what_clients_ask_while_the_model_works_is_its_next_batch(served: Served, held: Held) -> None:
    clients = together(served, ["⊢ first"])
    assert held.begun.wait(30)
    clients += together(served, [f"⊢ p {number}" for number in range(CLIENTS)])
    wait_for(served, CLIENTS + 1)
    held.go.set()
    for one in clients:
        one.join(30)
    assert held.sizes == [1, CLIENTS]


def test_one_at_a_time_where_the_order_says_so(folder: Path, held: Held) -> None:
    model = ModelSpec("said", "causal", str(folder / "said"), candidates=1, max_tokens=8)
    with Served(spec_of(folder / "alone", model, limits=Limits(batch=1))) as it:
        it.wait_ready()
        held.go.set()
        for one in together(it, ["⊢ a", "⊢ b", "⊢ c"]):
            one.join(30)
    assert held.sizes == [1, 1, 1]


def test_a_client_that_leaves_is_asked_about_no_more(served: Served, held: Held) -> None:
    first = together(served, ["⊢ first"])
    assert held.begun.wait(30)
    body = json.dumps({"name": "said", "input": "⊢ left"}).encode()
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        line.sendall(
            f"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        wait_for(served, 2)
    wait_for(served, 1)
    last = together(served, ["⊢ last"])
    wait_for(served, 2)
    held.go.set()
    for one in [*first, *last]:
        one.join(30)
    assert held.sizes == [1, 1], "the first's, and the last's alone"


def test_an_upstream_that_does_not_answer_holds_up_no_other_request(served: Served, slow: ChatServer) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        body = json.dumps({"name": "slow", "input": "⊢ p"}).encode()
        line.sendall(
            f"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        end = time.monotonic() + 30
        while not slow.requests:
            assert time.monotonic() < end
            time.sleep(0.01)
        # The first is not answered yet: neither another model's request waits for it nor one to the same endpoint.
        assert generate(served, "⊢ p").json()["outputs"][0]["output"] == "simp"
        assert generate(served, "⊢ p", "slow").json()["outputs"] == [{"output": "rfl", "score": 1.0}]


def test_a_ledger_that_another_user_holds_holds_up_no_other_request(served: Served, folder: Path) -> None:
    answers: list[httpx2.Response] = []
    with (folder / "ledger.jsonl").open("a") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        paid = threading.Thread(target=lambda: answers.append(generate(served, "⊢ p", "paid")))
        paid.start()
        wait_for(served, 1, "paid")
        assert generate(served, "⊢ p").json()["outputs"][0]["output"] == "simp"
        assert not answers
    paid.join(30)
    assert answers[0].json()["outputs"] == [{"output": "rfl", "score": 1.0}]
    written = [json.loads(line)["kind"] for line in (folder / "ledger.jsonl").read_text().splitlines()]
    assert written == ["reserved", "booked"]


def test_an_endpoint_is_not_kept_at_work_for_a_client_that_left(served: Served, mute: socket.socket) -> None:
    body = json.dumps({"name": "mute", "input": "⊢ p"}).encode()
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        line.sendall(
            f"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        upstream, _ = mute.accept()
        upstream.settimeout(30)
        assert upstream.recv(4) == b"POST"
    with upstream:
        while upstream.recv(65536):
            """What is left of the request; then the connection is closed, or this times out."""


def test_texts_are_encoded_together_and_each_gets_its_own_vector(served: Served) -> None:
    texts = ["⊢ p", "a much longer text than the other one", "⊢ q ∧ r"]

    def vector(text: str) -> list[float]:
        answer = served.client.post("/encode", json={"name": "retriever", "input": text})
        found: list[float] = answer.json()["outputs"]
        return found

    alone = [vector(text) for text in texts]
    found: dict[str, list[float]] = {}

    def one(text: str) -> None:
        found[text] = vector(text)

    clients = [threading.Thread(target=one, args=(text,)) for text in texts]
    for client in clients:
        client.start()
    for client in clients:
        client.join(30)
    for text, expected in zip(texts, alone, strict=True):
        assert found[text] == pytest.approx(expected, abs=1e-5)
