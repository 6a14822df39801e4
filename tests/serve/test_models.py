"""Models by name: every kind, what is said of them, and how one that cannot be had leaves the others alone."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    T5EncoderModel,
)

from pipeline.jobs.specs import EndpointSpec
from pipeline.models.retriever.index import load_retriever
from pipeline.models.tactics.generate import Generator, load_generator
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.requests import Decoding, Request, Suggestion, Suggestions
from pipeline.serve.engines import LoadedRetriever, RetrievalGenerator, Terms
from pipeline.serve.measures import Measures
from pipeline.serve.spec import PROMOTED, Limits, ModelSpec, Provenance
from tests.support.chat_server import ChatServer, Fails, Says
from tests.support.serve import Served, make_saying, spec_of
from tests.support.tiny_models import make_tiny_classifier, make_tiny_retriever, make_tiny_seq2seq

STATE = "n : ℕ\n⊢ gcd n n = n"
REFUSALS = {"poor": Fails(402, "no credit"), "odd": Fails(400, "nothing of the kind")}
KEY, VARIABLE = "the-key-of-the-endpoint", "EVERLEAN_TEST_KEY"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    make_saying(made / "said", {"simp": 1.0})
    make_tiny_seq2seq(made / "seq2seq", d_model=32, layers=1)
    make_tiny_classifier(made / "bert", hidden=16, layers=1)
    make_tiny_retriever(made / "t5", d_model=16, layers=1)
    return made


@pytest.fixture(scope="module")
def chat() -> Iterator[ChatServer]:
    def reply(body: Any) -> Says | Fails:
        asked = body["messages"][-1]["content"]
        fails = next((one for word, one in REFUSALS.items() if word in asked), None)
        return fails or Says(["simp", "rfl", "simp"])

    with ChatServer(reply, key=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def served(folder: Path, chat: ChatServer) -> Iterator[Served]:
    def here(name: str, kind: Any, source: str) -> ModelSpec:
        return ModelSpec(name, kind, str(folder / source), candidates=2, max_tokens=16)

    spec = spec_of(
        folder,
        here("said", "tactics", "said"),
        here("seq2seq", "tactics", "seq2seq"),
        here("bert", "encoder", "bert"),
        here("t5", "encoder", "t5"),
        here("missing", "tactics", "nowhere"),
        ModelSpec("promoted", "retriever", PROMOTED),
        ModelSpec(
            "retrieving",
            "retrieval",
            str(folder / "t5"),
            generator=str(folder / "said"),
            candidates=1,
            max_tokens=16,
        ),
        ModelSpec(
            "endpoint",
            "endpoint",
            "org/model",
            candidates=3,
            endpoint=EndpointSpec(base_url=chat.url, model="org/model", key_variable=VARIABLE, retries=0),
        ),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, KEY)
        with Served(spec) as it:
            it.wait_ready()
            yield it


def generate(served: Served, **body: Any) -> httpx2.Response:
    return served.client.post("/generate", json={"input": STATE, **body})


def told(answer: httpx2.Response) -> dict[str, str]:
    found: dict[str, str] = answer.json()
    assert set(found) == {"error", "reason", "remedy", "detail"}
    assert found["detail"] == f"{found['reason']}; {found['remedy']}"
    return found


def test_models_that_cannot_be_loaded_take_no_other_along_and_say_why(served: Served) -> None:
    found = {one["name"]: one for one in served.client.get("/models").json()["models"]}
    assert {name: one["state"] for name, one in found.items()} == {
        "said": "loaded",
        "seq2seq": "loaded",
        "bert": "loaded",
        "t5": "loaded",
        "missing": "failed",
        "promoted": "waiting",
        "retrieving": "loaded",
        "endpoint": "loaded",
    }
    assert "nowhere" in found["missing"]["reason"]
    assert "database.db" in found["promoted"]["reason"]
    assert generate(served, name="said").json()["outputs"][0]["output"] == "simp"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"name": "nobody"}, 404, "said, seq2seq"),
        ({"name": "t5"}, 409, "generates no tactics"),
        ({"name": "missing"}, 503, "nowhere"),
        ({"name": "said", "use_reward": True}, 400, "LEANPROGRESS_MODEL"),
        ({"name": "said", "prefix": "x" * 100}, 409, "100 tokens"),
        ({"name": "said", "input": ""}, 422, "input"),
        ({"name": "said", "input": " \n"}, 422, "input"),
        ({"name": "said", "input": 1}, 422, "input"),
        ({"name": "said", "use_reward": "yes"}, 422, "use_reward"),
        ({"name": "said", "prefix": ["rw"]}, 422, "prefix"),
    ],
)
def test_what_cannot_be_answered_is_told_with_a_remedy(
    served: Served, body: dict[str, Any], status: int, says: str
) -> None:
    answer = generate(served, **body)
    assert answer.status_code == status
    assert says in told(answer)["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"name": "said", "input": "\\ud800"}', 422),
        (b"[" * 50_000, 400),
        (b'{"name"', 422),
        (b"\xff\xfe", 422),
        (b"", 422),
    ],
)
def test_bytes_that_are_no_request_are_refused(served: Served, body: bytes, status: int) -> None:
    answer = served.client.post("/generate", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    told(answer)


@pytest.mark.parametrize("state", ["p " * 5_000, "\x00\x01\x1f\u202e\ufffd <|im_end|></s><a> ⊢ \U0001f600"])
@pytest.mark.parametrize("name", ["said", "seq2seq"])
def test_any_state_is_answered(served: Served, name: str, state: str) -> None:
    answer = served.client.post("/generate", json={"name": name, "input": state})
    assert answer.status_code == 200
    assert all(math.isfinite(one["score"]) for one in answer.json()["outputs"])
    assert served.client.post("/encode", json={"name": "t5", "input": state}).status_code == 200


def test_a_generator_with_retrieval_is_shown_the_premises_that_are_found(
    served: Served, folder: Path
) -> None:
    shown: list[tuple[str, ...]] = []
    wanted: list[tuple[str, str, int]] = []

    class Noting(Generator):
        def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
            shown.extend(request.premises for request in requests)
            return super().suggest(requests)

    async def nearest(retriever: LoadedRetriever, state: str, k: int) -> tuple[str, ...]:
        wanted.append((retriever.checkpoint, state, k))
        return ("theorem <a>Nat.gcd_self</a> : gcd n n = n",)

    async def work() -> Sequence[Suggestion]:
        terms = Terms(Provenance("a" * 16), Limits(), Measures())
        model = RetrievalGenerator(
            "m",
            Noting(load_model(folder / "said")),
            Decoding(1, max_tokens=8),
            terms,
            retriever=LoadedRetriever("m", load_retriever(folder / "t5", device="cpu"), terms),
            nearest=nearest,
        )
        await model.start()
        try:
            return await model.tactics(STATE, "")
        finally:
            await model.close()

    assert [one.tactic for one in asyncio.run(work())] == ["simp"]
    assert shown == [("theorem <a>Nat.gcd_self</a> : gcd n n = n",)]
    assert wanted == [("a" * 16, STATE, 10)]
    assert generate(served, name="retrieving").json()["outputs"][0]["output"] == "simp", "and without any"


def test_an_encoder_gives_the_mean_over_the_tokens(served: Served, folder: Path) -> None:
    def vector(name: str) -> Any:
        return served.client.post("/encode", json={"name": name, "input": STATE}).json()["outputs"]

    with torch.no_grad():
        t5 = T5EncoderModel.from_pretrained(folder / "t5")
        ids = AutoTokenizer.from_pretrained(folder / "t5")(STATE, return_tensors="pt").input_ids
        assert vector("t5") == pytest.approx(t5(ids).last_hidden_state.mean(dim=1)[0].tolist(), abs=1e-5)
        bert = BertForSequenceClassification.from_pretrained(folder / "bert").bert.train(False)
        ids = AutoTokenizer.from_pretrained(folder / "bert")(STATE, return_tensors="pt").input_ids
        assert vector("bert") == pytest.approx(bert(ids).last_hidden_state.mean(dim=1)[0].tolist(), abs=1e-5)


def test_requests_with_different_prefixes_get_each_their_own_answer(folder: Path) -> None:
    generator = load_generator(folder / "said", device="cpu")
    asked = [
        Request(STATE, decoding=Decoding(1, max_tokens=8, prefix=prefix)) for prefix in ("", "s", "", "si")
    ]
    assert [one.tactics[0].tactic for one in generator.suggest(asked)] == ["simp"] * 4


def test_an_endpoint_is_sent_its_key_and_its_tactics_are_scored_by_how_often_it_suggests_them(
    served: Served, chat: ChatServer
) -> None:
    answer = generate(served, name="endpoint").json()
    assert chat.requests[-1].authorization == f"Bearer {KEY}"
    assert answer["outputs"] == [
        {"output": "simp", "score": pytest.approx(2 / 3)},
        {"output": "rfl", "score": pytest.approx(1 / 3)},
    ]


def test_an_endpoint_is_told_the_prefix_and_other_answers_are_left_out(
    served: Served, chat: ChatServer
) -> None:
    answer = generate(served, name="endpoint", prefix="rf").json()
    assert [one["output"] for one in answer["outputs"]] == ["rfl"]
    assert chat.requests[-1].body["messages"][-1]["content"].endswith("The tactic has to begin with: rf")


@pytest.mark.parametrize(
    ("word", "status", "error"), [("poor", 503, "endpoint_no_credit"), ("odd", 502, "endpoint_bad_request")]
)
def test_an_endpoint_that_refuses_is_the_upstream_s_failure(
    served: Served, word: str, status: int, error: str
) -> None:
    answer = generate(served, name="endpoint", input=f"⊢ {word}")
    assert (answer.status_code, told(answer)["error"]) == (status, error)
    assert REFUSALS[word].message in told(answer)["reason"]


def test_a_server_without_a_model_that_is_there_is_not_ready(folder: Path) -> None:
    with Served(spec_of(folder / "other", ModelSpec("missing", "tactics", str(folder / "nowhere")))) as it:
        while "loading" in it.client.get("/ready").text:
            time.sleep(0.02)
        with pytest.raises(TimeoutError, match="missing is failed"):
            it.wait_ready(seconds=1.0)
        answer = it.client.get("/ready")
        assert "nowhere" not in answer.text, "it is answered without a token, and a path is nobody's business"
        assert "nowhere" in it.client.get("/models").text
        assert answer.status_code == 503
        assert answer.json()["models"] == {"missing": "failed"}
        assert it.client.get("/health").json()["status"] == "ok"


WITH_A_THREAD_THAT_DOES_NOT_END = """
import asyncio, runpy, time
from pipeline.serve import app
from pipeline.serve.models import Registry

real = Registry.__aenter__

async def entered(registry):
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
    return await real(registry)

Registry.__aenter__ = entered
runpy.run_module("pipeline.serve", run_name="__main__")
"""


def test_the_process_says_where_it_listens_and_ends_when_told_whatever_a_thread_still_does(
    tmp_path: Path,
) -> None:
    spec = tmp_path / "spec.json"
    spec_of(tmp_path).write(spec)
    with subprocess.Popen(
        [sys.executable, "-c", WITH_A_THREAD_THAT_DOES_NOT_END, str(spec)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        where = json.loads(process.stdout.readline())["listening"]
        answer = httpx2.get(f"http://{where['host']}:{where['port']}/health", trust_env=False, timeout=60)
        assert answer.status_code == 200
        process.terminate()
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, said


def test_the_process_tells_in_one_line_why_it_cannot_start(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pipeline.serve", str(tmp_path / "none.json")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith("everlean serve: ")
    assert "none.json" in ended.stderr
