"""LeanCopilot's protocol, byte for byte, over a real socket."""

from __future__ import annotations

import json
import math
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pipeline.lean.tactic_text import Step
from pipeline.models.progress.model import ProgressModel
from tests.support.serve import Served

STATE = "n : ℕ\n⊢ gcd n n = n"
# What Lean's `(toJson req).pretty` makes of `GeneratorRequest` and of `EnencoderRequest`: names from the last to the
# first, a space after colons and commas, and no escape but those that JSON asks for.
GENERATOR = '{"prefix": "", "name": "said", "input": "n : ℕ\\n⊢ gcd n n = n"}'.encode()
ENCODER = '{"name": "retriever", "input": "n : ℕ\\n⊢ gcd n n = n"}'.encode()


def sent(served: Served, path: str, body: bytes, *, more: bytes = b"") -> tuple[bytes, Any]:
    """Send a body with the headers that curl sends for LeanCopilot; return the head of the answer and its JSON."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost:{served.port}\r\nUser-Agent: curl/8.5.0\r\n"
        f"accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as line:
        line.sendall(head + more + b"\r\n" + body)
        got = b""
        while b"\r\n\r\n" not in got or got.startswith(b"HTTP/1.1 100"):
            got = _without_100(got + line.recv(65536))
        answered, _, data = got.partition(b"\r\n\r\n")
        length = int(
            next(row.split(b":")[1] for row in answered.lower().split(b"\r\n") if b"content-length" in row)
        )
        while len(data) < length:
            data += line.recv(65536)
    return answered, json.loads(data)


def _without_100(got: bytes) -> bytes:
    return got.partition(b"\r\n\r\n")[2] if got.startswith(b"HTTP/1.1 100") and b"\r\n\r\n" in got else got


def post(served: Served, path: str, **body: Any) -> httpx2.Response:
    return served.client.post(path, json=body)


def test_what_lean_s_external_generator_sends_is_answered_with_what_it_reads(served: Served) -> None:
    head, answer = sent(served, "/generate", GENERATOR)
    assert head.startswith(b"HTTP/1.1 200")
    assert b"content-type: application/json" in head.lower()
    assert set(answer) == {"outputs"}
    assert [set(one) for one in answer["outputs"]] == [{"output", "score"}] * 2, (
        "what is absent is absent, not null"
    )
    assert [one["output"] for one in answer["outputs"]] == ["simp", "rfl"]
    assert [one["score"] for one in answer["outputs"]] == pytest.approx([0.6, 0.4], abs=1e-3)


def test_what_lean_s_external_encoder_sends_is_answered_with_what_it_reads(served: Served) -> None:
    head, answer = sent(served, "/encode", ENCODER)
    assert head.startswith(b"HTTP/1.1 200")
    assert set(answer) == {"outputs"}
    assert len(answer["outputs"]) == 16
    assert math.hypot(*answer["outputs"]) == pytest.approx(1.0, abs=1e-5)


def test_curl_itself_as_lean_runs_it_gets_the_same(served: Served, provide: Callable[[str], Path]) -> None:
    curl = provide("curl")
    url = f"http://localhost:{served.port}/generate"
    headers = ["-H", "accept: application/json", "-H", "Content-Type: application/json"]
    ended = subprocess.run(
        [curl, "-X", "POST", url, *headers, "-d", GENERATOR.decode()], capture_output=True, timeout=30
    )
    assert ended.returncode == 0
    assert json.loads(ended.stdout) == sent(served, "/generate", GENERATOR)[1]


def test_a_long_state_that_curl_asks_leave_to_send_is_answered(served: Served) -> None:
    body = json.dumps({"prefix": "", "name": "said", "input": "h : p\n" * 9000 + "⊢ p"}).encode()
    head, answer = sent(served, "/generate", body, more=b"Expect: 100-continue\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert [one["output"] for one in answer["outputs"]] == ["simp", "rfl"]


@pytest.mark.parametrize(
    "more", [{}, {"prefix": None}, {"prefix": ""}, {"use_reward": False}, {"unknown": 1}]
)
def test_the_prefix_may_be_left_out_null_or_empty(served: Served, more: dict[str, Any]) -> None:
    answer = post(served, "/generate", name="said", input=STATE, **more)
    assert [one["output"] for one in answer.json()["outputs"]] == ["simp", "rfl"]


def test_tactics_begin_with_the_prefix_and_are_whole(served: Served) -> None:
    answer = post(served, "/generate", name="said", input=STATE, prefix="rf").json()
    assert answer["outputs"][0]["output"] == "rfl"
    assert answer["outputs"][0]["score"] == pytest.approx(1.0, abs=1e-3), (
        "the probability of what follows the prefix"
    )
    assert all(one["output"].startswith("rf") for one in answer["outputs"])
    assert all(0 <= one["score"] <= 1 for one in answer["outputs"]), "Aesop refuses others"


def test_a_prefix_with_white_space_around_it_is_the_beginning_that_is_meant(served: Served) -> None:
    answer = post(served, "/generate", name="said", input=STATE, prefix=" r").json()
    assert answer["outputs"][0]["output"] == "rfl"


def test_with_use_reward_score_and_reward_are_minus_the_steps_that_remain(
    served: Served, tmp_path: Path
) -> None:
    answer = post(served, "/generate", name="said", input=STATE, prefix="", use_reward=True).json()
    plain = post(served, "/generate", name="said", input=STATE).json()
    progress = served.app.state.serving.spec.progress
    model = ProgressModel(progress.source, device="cpu")
    for one in answer["outputs"]:
        assert set(one) == {"output", "score", "model_score", "steps_remaining", "reward"}
        steps = model.predict([Step(STATE, one["output"])])[0]
        assert one["steps_remaining"] == pytest.approx(steps, abs=1e-4)
        assert one["score"] == one["reward"] == -one["steps_remaining"]
    assert {one["output"]: one["model_score"] for one in answer["outputs"]} == {
        one["output"]: one["score"] for one in plain["outputs"]
    }
    assert answer["outputs"] == sorted(answer["outputs"], key=lambda one: -one["score"])


def test_the_same_request_gets_the_same_answer(served: Served) -> None:
    assert sent(served, "/generate", GENERATOR)[1] == sent(served, "/generate", GENERATOR)[1]
