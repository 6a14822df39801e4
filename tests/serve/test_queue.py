"""Half of the queue for one model or for Lean, over HTTP: what hangs leaves the rest of the server to the others."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.specs import EndpointSpec
from pipeline.serve.limits import RETRY_AFTER_S
from pipeline.serve.spec import Limits, ModelSpec
from tests.support.chat_server import ChatServer, Says, Silence
from tests.support.events import REPOSITORY
from tests.support.lean.scripted import write_repl
from tests.support.serve import Served, World, post, premises, streamed
from tests.support.tiny_models import make_tiny_retriever

SOURCE = "theorem same (p : Prop) (h : p) : p := by\n  sorry\n"
HALF = 2
CHECK = {"repository": REPOSITORY, "path": "A.lean", "proof": "exact h"}
RETRIEVE = {"repository": REPOSITORY, "file": "A.lean", "goal": "⊢ p", "position": {"line": 9}}
_PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("world"), {"A.lean": SOURCE})
    world.trace([premises("A.lean", ["one", "two"])], sha=world.sha)
    return world


@pytest.fixture(scope="module")
def hanging() -> Iterator[ChatServer]:
    """An endpoint that takes every request and answers none."""
    with ChatServer([Silence()]) as server:
        yield server


@pytest.fixture(scope="module")
def quick() -> Iterator[ChatServer]:
    with ChatServer([Says("rfl")]) as server:
        yield server


@pytest.fixture(scope="module")
def served(world: World, hanging: ChatServer, quick: ChatServer) -> Iterator[Served]:
    retriever = make_tiny_retriever(world.folder / "retriever", d_model=16, layers=1)
    spec = world.spec(
        endpoint("hanging", hanging),
        endpoint("quick", quick),
        ModelSpec("retriever", "retriever", str(retriever)),
        limits=Limits(queue=2 * HALF),
    )
    with Served(spec) as it:
        it.wait_ready()
        yield it


def endpoint(name: str, server: ChatServer) -> ModelSpec:
    return ModelSpec(
        name,
        "endpoint",
        "org/model",
        candidates=1,
        endpoint=EndpointSpec(base_url=server.url, model="org/model", retries=0),
    )


def generate(served: Served, name: str) -> tuple[int, Any]:
    return post(served.port, "/generate", {"name": name, "input": "⊢ p"})


def asking(served: Served, name: str) -> socket.socket:
    """Ask a model, and wait for no answer."""
    body = json.dumps({"name": name, "input": "⊢ p"}).encode()
    line = socket.create_connection(("127.0.0.1", served.port), timeout=_PATIENCE_S)
    line.sendall(
        f"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return line


def inside(served: Served, name: str) -> int:
    """Return how many requests have a model now."""
    label = f'everlean_serve_model_waiting_requests{{model="{name}"}} '
    lines = served.client.get("/metrics").text.splitlines()
    return int(float(next((line.removeprefix(label) for line in lines if line.startswith(label)), "0")))


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_an_endpoint_that_hangs_takes_half_of_the_queue_and_all_else_is_answered(
    served: Served, hanging: ChatServer
) -> None:
    with ExitStack() as clients:
        lines = [clients.enter_context(asking(served, "hanging")) for _ in range(HALF)]
        wait_until(lambda: inside(served, "hanging") == HALF, "both are at the endpoint")
        wait_until(lambda: len(hanging.requests) == HALF, "which has heard them")
        refused = served.client.post("/generate", json={"name": "hanging", "input": "⊢ p"})
        assert (refused.status_code, refused.json()["error"]) == (429, "queue_full")
        assert refused.headers["retry-after"] == str(RETRY_AFTER_S)
        assert 'the model "hanging"' in refused.json()["reason"]
        assert generate(served, "quick") == (200, {"outputs": [{"output": "rfl", "score": 1.0}]})
        status, found = post(served.port, "/retrieve", RETRIEVE)
        assert (status, {one["full_name"] for one in found["premises"]}) == (200, {"one", "two"})
        status, verdict = post(served.port, "/check", CHECK)
        assert (status, verdict["verdict"]) == (200, "unknown"), (
            "there is no Lean, and the gate's other checks pass"
        )
        assert inside(served, "hanging") == HALF, "none of it waited for the endpoint"
        lines[0].close()
        wait_until(lambda: inside(served, "hanging") == HALF - 1, "who left has given the place back")
        clients.enter_context(asking(served, "hanging"))
        wait_until(lambda: len(hanging.requests) == HALF + 1, "the next one's request goes to the endpoint")
        assert inside(served, "hanging") == HALF
    wait_until(lambda: inside(served, "hanging") == 0, "all have left")


def test_a_lean_that_hangs_takes_half_of_the_queue_and_models_go_on(
    world: World, quick: ChatServer, tmp_path: Path
) -> None:
    repl = write_repl(tmp_path / "repl", faults={"hang": 1.0})
    spec = world.spec(endpoint("quick", quick), repl=repl, limits=Limits(queue=2, lean_processes=1))
    spec = replace(spec, lean=replace(spec.lean, scratch=tmp_path / "scratch"))
    fill = {"repository": REPOSITORY, "path": "A.lean"}
    with Served(spec) as it:
        it.wait_ready()
        with streamed(it.port, "/fill", fill) as events:
            assert next(name for name, _ in events if name) == "begun"
            for path, body in (("/check", CHECK), ("/fill", fill)):
                refused = it.client.post(path, json=body)
                assert (refused.status_code, refused.headers["retry-after"]) == (429, str(RETRY_AFTER_S))
                assert "Lean" in refused.json()["reason"]
            assert generate(it, "quick")[0] == 200
        wait_until(
            lambda: b"queue_requests 0.0" in it.client.get("/metrics").content, "who left has given Lean back"
        )
        with streamed(it.port, "/fill", {**fill, "path": "None.lean"}) as events:
            assert [data["error"] for name, data in events if name == "error"] == ["unknown_file"], (
                "it is taken"
            )
