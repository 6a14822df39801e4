"""Another checkpoint takes a model's place while requests go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pipeline.serve.app import CHECKPOINT
from pipeline.serve.models import ModelSlot
from pipeline.serve.retrieve import Premises
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import PROMOTED, ModelSpec, Provenance, RewardSpec, ServeSpec
from tests.support.events import REPOSITORY
from tests.support.serve import Promotions, Served, World, make_saying, premises, spec_of
from tests.support.tiny_models import make_tiny_classifier, make_tiny_retriever

FIRST, SECOND, BROKEN = "a" * 16, "b" * 16, "c" * 16
SAYS = {FIRST: "simp", SECOND: "rfl"}


class Quick:
    """A model that was loaded."""

    def __init__(self, checkpoint: str) -> None:
        self.provenance = Provenance(checkpoint)
        self.said: list[str] = []

    async def start(self) -> None:
        self.said.append("started")

    async def close(self) -> None:
        self.said.append("closed")


def test_the_model_before_is_closed_when_its_last_request_is_answered() -> None:
    async def work() -> None:
        slot: ModelSlot[Quick] = ModelSlot("m")
        before, after = Quick("1"), Quick("2")
        await slot.put(before)
        async with slot.use() as one, slot.use():
            await slot.put(after)
            assert one is before
            async with slot.use() as other:
                assert other is after, "a request from now on has the new one"
            await asyncio.sleep(0)
            assert before.said == ["started"]
        await asyncio.sleep(0.01)
        assert before.said == ["started", "closed"]
        assert after.said == ["started"]

    asyncio.run(work())


def test_a_place_without_a_model_says_why_and_when_to_come_again() -> None:
    async def work() -> None:
        slot: ModelSlot[Quick] = ModelSlot("m")
        slot.set_unavailable("waiting", "nothing was promoted")
        with pytest.raises(Problem, match="nothing was promoted") as told:
            async with slot.use():
                pass
        assert told.value.status == 503
        assert "Retry-After" in told.value.headers

    asyncio.run(work())


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ServeSpec:
    folder = tmp_path_factory.mktemp("swap")
    for checkpoint, tactic in SAYS.items():
        make_saying(folder / "models" / "tactics" / checkpoint, {tactic: 1.0})
    (folder / "models" / "tactics" / BROKEN).mkdir()
    return spec_of(folder, ModelSpec("tactics", "tactics", PROMOTED, candidates=1, max_tokens=8))


@pytest.fixture(scope="module")
def promotions(spec: ServeSpec) -> Iterator[Promotions]:
    with Promotions(spec) as made:
        yield made


def asked(client: httpx2.Client) -> httpx2.Response:
    return client.post("/generate", json={"name": "tactics", "input": "⊢ p"})


def stands(client: httpx2.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/models").json()["models"][0]
    return found


def wait_until(holds: Callable[[], bool], *, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def test_a_better_checkpoint_takes_over_without_a_dropped_request(
    spec: ServeSpec, promotions: Promotions
) -> None:
    with Served(spec) as it:
        client = it.client
        refused = asked(client)
        assert refused.status_code == 503, "nothing is promoted yet"
        promotions.promote("tactics", FIRST)
        it.wait_ready()
        answers: Counter[tuple[int, str, str]] = Counter()
        over = threading.Event()

        def hammer() -> None:
            while not over.is_set():
                answer = asked(client)
                tactic = answer.json()["outputs"][0]["output"] if answer.status_code == 200 else answer.text
                answers[answer.status_code, answer.headers.get(CHECKPOINT, ""), tactic] += 1

        clients = [threading.Thread(target=hammer) for _ in range(4)]
        for one in clients:
            one.start()
        wait_until(lambda: answers.total() >= 10)
        promotions.promote("tactics", SECOND)
        wait_until(lambda: answers[200, SECOND, "rfl"] >= 10)
        over.set()
        for one in clients:
            one.join()
        assert set(answers) == {(200, FIRST, "simp"), (200, SECOND, "rfl")}, (
            "each answer is of one model, and none is missing"
        )
        assert 'everlean_serve_swaps_total{model="tactics"} 1.0' in client.get("/metrics").text

        # One that cannot be loaded leaves the place as it is, and /models says so.
        promotions.promote("tactics", BROKEN)
        wait_until(lambda: BROKEN in stands(client)["reason"])
        assert stands(client)["loaded"]
        assert stands(client)["checkpoint"] == SECOND
        assert asked(client).json()["outputs"][0]["output"] == "rfl"

        # And going back is one promotion.
        promotions.promote("tactics", FIRST)
        wait_until(lambda: stands(client)["checkpoint"] == FIRST)
        assert stands(client)["reason"] == ""


def test_a_checkpoint_that_is_named_by_its_folder_is_known_for_what_it_is(tmp_path: Path) -> None:
    """Whatever it is named for: a model, a retriever's generator, or what `use_reward` asks."""
    models = tmp_path / "models"
    make_saying(models / "tactics" / FIRST, {"simp": 1.0})
    make_saying(models / "tactics" / SECOND, {"rfl": 1.0})
    make_tiny_classifier(models / "progress" / BROKEN, hidden=16, layers=1)
    make_tiny_retriever(tmp_path / "retriever", d_model=16, layers=1)
    (tmp_path / "link").symlink_to(models / "tactics" / FIRST)
    short: dict[str, Any] = {"candidates": 1, "max_tokens": 8}
    wanted = (
        ModelSpec("tactics", "tactics", str(tmp_path / "link"), **short),
        ModelSpec(
            "retrieving",
            "retrieval",
            str(tmp_path / "retriever"),
            generator=str(models / "tactics" / FIRST),
            **short,
        ),
        ModelSpec("unknown", "tactics", str(models / "tactics" / SECOND), **short),
    )
    progress = RewardSpec(str(models / "progress" / BROKEN), device="cpu")
    with Promotions(spec_of(tmp_path)) as promotions:
        promotions.promote("tactics", FIRST)
        promotions.promote("progress", BROKEN)

    def settled(it: Served) -> dict[str, Any]:
        wait_until(lambda: "loading" not in it.client.get("/ready").text)
        told = it.client.get("/models").json()
        return {one["name"]: one for one in [*told["models"], told["progress"]]}

    with Served(spec_of(tmp_path, *wanted, progress=progress)) as it:
        found = settled(it)
        assert [name for name, one in found.items() if one["loaded"]] == ["tactics", "retrieving", "progress"]
        assert "its provenance is unknown" in found["unknown"]["reason"]
        assert found["tactics"]["checkpoint"] == FIRST
        for name in ("tactics", "retrieving"):
            answer = it.client.post("/generate", json={"name": name, "input": "⊢ p"})
            assert answer.status_code == 200, answer.text


def test_a_better_retriever_takes_over_with_its_premises_and_without_a_dropped_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, {"Top.lean": "theorem t : True := trivial\n"})
    world.trace([premises("Top.lean", ["one", "two"])], sha=world.sha)
    spec = world.spec(ModelSpec("retriever", "retriever", PROMOTED))
    for number, checkpoint in enumerate((FIRST, SECOND)):
        make_tiny_retriever(spec.checkpoints / "retriever" / checkpoint, d_model=16, layers=1, seed=number)
    real = Premises._index_of

    def slowly(self: Premises, *asked: Any) -> Any:
        time.sleep(1.0)
        return real(self, *asked)

    monkeypatch.setattr(Premises, "_index_of", slowly)
    with Promotions(spec) as promotions:
        promotions.promote("retriever", FIRST)
        with Served(spec) as it:
            it.wait_ready()
            it.app.state.workspace.premises._patience_s = 0.1

            def retrieved() -> tuple[int, str]:
                body = {"goal": "⊢ p", "repository": REPOSITORY, "file": "Top.lean", "position": {"line": 9}}
                answer = it.client.post("/retrieve", json=body)
                return answer.status_code, answer.json().get("checkpoint", answer.text)

            assert retrieved()[0] == 503, "they are being embedded"
            wait_until(lambda: retrieved() == (200, FIRST))
            answers: set[tuple[int, str]] = set()
            promotions.promote("retriever", SECOND)

            def another() -> bool:
                answers.add(retrieved())
                return len(answers) > 1

            wait_until(another)
            assert answers == {(200, FIRST), (200, SECOND)}
