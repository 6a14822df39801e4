"""Requests of many clients go to a model together, and take half of the queue at most; a slow one holds up no one; who
leaves is worked for no more."""

from __future__ import annotations

import fcntl
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pipeline.endpoint.spending import file_of
from pipeline.jobs.specs import EndpointSpec
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.requests import Prompt
from pipeline.serve.limits import RETRY_AFTER_S
from pipeline.serve.spec import Limits, ModelSpec
from tests.support.chat_server import ChatServer, Says, Silence
from tests.support.events import REPOSITORY
from tests.support.serve import Served, World, make_saying, post, premises, spec_of
from tests.support.tiny_models import make_tiny_retriever

CLIENTS = 5
HALF = CLIENTS + 1
"""Of the queue."""


class Held:
    """Keeps the model at its first batch until it is let go; notes how many prompts batches have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()
        real = Generator.complete

        def complete(generator: Generator, prompts: Sequence[Prompt], *rest: Any, **named: Any) -> Any:
            self.sizes.append(len(prompts))
            self.begun.set()
            assert self.go.wait(30)
            return real(generator, prompts, *rest, **named)

        monkeypatch.setattr(Generator, "complete", complete)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("batch"), {"A.lean": "theorem same : True := by\n  sorry\n"})
    world.trace([premises("A.lean", ["one", "two"])], sha=world.sha)
    make_saying(world.folder / "said", {"simp": 1.0})
    make_tiny_retriever(world.folder / "retriever", d_model=16, layers=1)
    return world


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
def hanging() -> Iterator[ChatServer]:
    """An endpoint that takes every request and answers none."""
    with ChatServer([Silence()]) as server:
        yield server


@pytest.fixture(scope="module")
def served(
    world: World, slow: ChatServer, quick: ChatServer, hanging: ChatServer, mute: socket.socket
) -> Iterator[Served]:
    def endpoint(name: str, url: str, **more: Any) -> ModelSpec:
        return ModelSpec(
            name,
            "endpoint",
            "org/model",
            candidates=1,
            endpoint=EndpointSpec(base_url=url, model="org/model", retries=0, **more),
        )

    folder = world.folder
    spec = world.spec(
        ModelSpec("said", "tactics", str(folder / "said"), candidates=1, max_tokens=8),
        ModelSpec("retriever", "retriever", str(folder / "retriever")),
        endpoint("slow", slow.url),
        endpoint("paid", quick.url, ledger=folder / "ledger.jsonl"),
        endpoint("hanging", hanging.url),
        endpoint("mute", f"http://127.0.0.1:{mute.getsockname()[1]}/v1"),
        limits=Limits(queue=2 * HALF),
    )
    with Served(spec) as it:
        it.wait_ready()
        yield it


def generate(served: Served, state: str, name: str = "said") -> httpx2.Response:
    return served.client.post("/generate", json={"name": name, "input": state})


def asking(served: Served, name: str) -> socket.socket:
    """Ask a model, and wait for no answer."""
    body = json.dumps({"name": name, "input": "⊢ p"}).encode()
    line = socket.create_connection(("127.0.0.1", served.port))
    line.sendall(
        f"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return line


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
    wait_until(lambda: inside(served, name) == count, f"{count} requests are inside")


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, what
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


def test_one_at_a_time_where_the_order_says_so(world: World, held: Held, tmp_path: Path) -> None:
    model = ModelSpec("said", "tactics", str(world.folder / "said"), candidates=1, max_tokens=8)
    with Served(spec_of(tmp_path, model, limits=Limits(batch=1))) as it:
        it.wait_ready()
        held.go.set()
        for one in together(it, ["⊢ a", "⊢ b", "⊢ c"]):
            one.join(30)
    assert held.sizes == [1, 1, 1]


def test_a_client_that_leaves_is_asked_about_no_more(served: Served, held: Held) -> None:
    first = together(served, ["⊢ first"])
    assert held.begun.wait(30)
    with asking(served, "said"):
        wait_for(served, 2)
    wait_for(served, 1)
    last = together(served, ["⊢ last"])
    wait_for(served, 2)
    held.go.set()
    for one in [*first, *last]:
        one.join(30)
    assert held.sizes == [1, 1], "the first's, and the last's alone"


def test_an_upstream_that_does_not_answer_holds_up_no_other_request(served: Served, slow: ChatServer) -> None:
    with asking(served, "slow"):
        wait_until(lambda: bool(slow.requests), "it is at the endpoint")
        # The first is not answered yet: neither another model's request waits for it nor one to the same endpoint.
        assert generate(served, "⊢ p").json()["outputs"][0]["output"] == "simp"
        assert generate(served, "⊢ p", "slow").json()["outputs"] == [{"output": "rfl", "score": 1.0}]


def test_a_ledger_that_another_user_holds_holds_up_no_other_request(served: Served, world: World) -> None:
    answers: list[httpx2.Response] = []
    day = file_of(world.folder / "ledger.jsonl", f"{datetime.now(UTC):%Y-%m-%d}")
    with day.open("a") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        paid = threading.Thread(target=lambda: answers.append(generate(served, "⊢ p", "paid")))
        paid.start()
        wait_for(served, 1, "paid")
        assert generate(served, "⊢ p").json()["outputs"][0]["output"] == "simp"
        assert not answers
    paid.join(30)
    assert answers[0].json()["outputs"] == [{"output": "rfl", "score": 1.0}]
    written = [json.loads(line)["kind"] for line in day.read_text().splitlines()]
    assert written == ["reserved", "booked"]


def test_an_endpoint_is_not_kept_at_work_for_a_client_that_left(served: Served, mute: socket.socket) -> None:
    with asking(served, "mute"):
        upstream, _ = mute.accept()
        upstream.settimeout(30)
        assert upstream.recv(4) == b"POST"
    with upstream:
        while upstream.recv(65536):
            """What is left of the request; then the connection is closed, or this times out."""


def test_an_endpoint_that_hangs_takes_half_of_the_queue_and_all_else_is_answered(
    served: Served, hanging: ChatServer
) -> None:
    with ExitStack() as clients:
        lines = [clients.enter_context(asking(served, "hanging")) for _ in range(HALF)]
        wait_for(served, HALF, "hanging")
        wait_until(lambda: len(hanging.requests) == HALF, "which has heard them")
        refused = generate(served, "⊢ p", "hanging")
        assert (refused.status_code, refused.json()["error"]) == (429, "queue_full")
        assert refused.headers["retry-after"] == str(RETRY_AFTER_S)
        assert 'the model "hanging"' in refused.json()["reason"]
        assert generate(served, "⊢ p", "paid").json() == {"outputs": [{"output": "rfl", "score": 1.0}]}
        goal = {"repository": REPOSITORY, "file": "A.lean", "goal": "⊢ p", "position": {"line": 9}}
        status, found = post(served.port, "/retrieve", goal)
        assert (status, {one["full_name"] for one in found["premises"]}) == (200, {"one", "two"})
        check = {"repository": REPOSITORY, "path": "A.lean", "proof": "trivial"}
        status, verdict = post(served.port, "/check", check)
        assert (status, verdict["verdict"]) == (200, "unknown"), (
            "there is no Lean, and the gate's rest passes"
        )
        assert inside(served, "hanging") == HALF, "none of it waited for the endpoint"
        lines[0].close()
        wait_for(served, HALF - 1, "hanging")
        clients.enter_context(asking(served, "hanging"))
        wait_until(lambda: len(hanging.requests) == HALF + 1, "the place that was given back is taken")
    wait_for(served, 0, "hanging")


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
