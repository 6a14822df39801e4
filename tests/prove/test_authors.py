"""Who writes whole proofs: an endpoint on a real socket, and a tiny model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.endpoint.client import ChatClient
from pipeline.endpoint.errors import Usage
from pipeline.jobs.specs import EndpointSpec
from pipeline.models.tactics.generate import Generator, load_generator
from pipeline.models.tactics.requests import Completion, Prompt
from pipeline.prove.authors import EndpointModel, HFAuthor
from pipeline.prove.whole_proof import AuthorAnswers, FailedProof, WholeAsk
from tests.support.chat_server import ChatServer, Fails, PassingTime, Reply, Says
from tests.support.prove import asked

STATED = "theorem t (p : Prop) : p → p := by\n  sorry\n"
ASK = asked(
    f"import Mathlib\n\nlemma helper : True := trivial\n{STATED}",
    goal="p : Prop\n⊢ p → p",
    earlier=(FailedProof("by\n  simp", ("at `simp`: simp made no progress",)),),
    count=2,
    seed=3,
)


def written(*script: Reply, ask: WholeAsk = ASK, **part: Any) -> tuple[AuthorAnswers, ChatServer]:
    with ChatServer(script) as server:

        async def main() -> AuthorAnswers:
            async with ChatClient(
                EndpointSpec(base_url=server.url, model="org/model", retries=0, **part)
            ) as client:
                return await EndpointModel(client, whole_tokens=99).write(ask)

        return asyncio.run(main()), server


def test_an_endpoint_receives_the_file_the_goal_and_the_failures() -> None:
    answer, server = written(Says(["by\n  exact id", "by\n  intro h; exact h"]))
    assert answer.texts == ("by\n  exact id", "by\n  intro h; exact h")
    assert answer.usage == Usage(10, 5, None)
    body = server.requests[0].body
    assert (body["n"], body["max_tokens"], body["seed"]) == (2, 99, 3)
    system, user = body["messages"]
    assert (system["role"], user["role"]) == ("system", "user")
    for said in ("lemma helper", "sorry", "⊢ p → p", "by\n  simp", "simp made no progress"):
        assert said in user["content"]


def test_a_long_file_is_shown_from_its_end() -> None:
    context = "".join(f"lemma number{n} : True := trivial\n" for n in range(5000))
    _, server = written(Says("x"), ask=asked(f"{context}{STATED}"))
    content = server.requests[0].body["messages"][1]["content"]
    assert "number4999" in content
    assert "number0 " not in content
    assert len(content) < 26_000


def test_answers_that_are_of_no_use_are_reported() -> None:
    answer, _ = written(Says("by simp", finish="length"))
    assert answer.texts == ()
    assert answer.missing == "answers of no use: 2 cut off; raise max_tokens"


def test_the_cost_of_an_endpoint_s_failure_is_reported(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    prices: dict[str, Any] = {"usd_per_million_prompt": 1.0, "usd_per_million_completion": 10.0}
    answer, _ = written(Fails(504), ledger=ledger, cap_usd=1.0, **prices)
    assert answer.reason == "overloaded"
    assert "Remedy" in answer.error
    # A gateway that gave up waiting says nothing of what was written behind it: the worst is counted.
    assert answer.usage.completion_tokens == 2 * 99
    (day,) = tmp_path.glob("ledger-*.jsonl")
    lines = [json.loads(line) for line in day.read_text().splitlines()]
    assert answer.usage.usd == pytest.approx(lines[-1]["usd"]) != 0
    assert [line["kind"] for line in lines] == ["reserved", "booked"]


def test_the_time_that_is_left_holds_for_the_endpoint() -> None:
    time = PassingTime()

    async def main(server: ChatServer) -> AuthorAnswers:
        where = EndpointSpec(base_url=server.url, model="m")
        async with ChatClient(where, sleep=time.sleep, clock=time.clock, now=time.now) as client:
            return await EndpointModel(client).write(asked(STATED, seconds=5))

    with ChatServer([Fails(503)]) as server:
        assert "no time is left" in asyncio.run(main(server)).error
    assert time.seconds < 5


@pytest.fixture(scope="module")
def generator(learned: Path) -> Generator:
    return load_generator(learned, device="cpu")


def by_model(generator: Generator, *asks: WholeAsk, max_tokens: int = 12) -> list[AuthorAnswers]:
    async def main() -> list[AuthorAnswers]:
        async with HFAuthor(generator, max_tokens=max_tokens) as author:
            return await asyncio.gather(*map(author.write, asks))

    return asyncio.run(main())


def test_a_model_writes_for_several_sorries_at_once_and_the_same_again(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = [asked(f"theorem t{n} (p : Prop) : p → p := by\n  sorry", count=3, seed=n) for n in range(3)]
    batches: list[int] = []
    answers = generator._loop.answers

    def noted(prompts: Sequence[Prompt], *others: Any) -> list[list[Completion]]:
        batches.append(len(prompts))
        return answers(prompts, *others)

    monkeypatch.setattr(generator._loop, "answers", noted)
    first = by_model(generator, *asks)
    assert batches == [3]
    for answer in first:
        assert answer.usage.prompt_tokens > 0
        assert 0 < answer.usage.completion_tokens <= 3 * 12
        assert answer.usage.usd is None
    assert by_model(generator, *asks) == first


def test_an_unfinished_answer_is_no_answer(generator: Generator) -> None:
    (answer,) = by_model(generator, asked(STATED), max_tokens=1)
    assert answer.texts == ()
    assert "cut off" in answer.missing or "empty" in answer.missing


def test_a_declaration_that_no_prompt_has_room_for_concerns_itself_only(generator: Generator) -> None:
    long = asked(f"theorem t : {' ∧ '.join(['True'] * 3000)} := by\n  sorry")
    failed, fine = by_model(generator, long, asked(STATED))
    assert "declaration alone" in failed.error
    assert not fine.error


def test_a_model_that_fails_is_an_author_s_error(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(generator, "complete", fails)
    (failed,) = by_model(generator, ASK)
    assert (failed.reason, "device-side assert" in failed.error) == ("model_failed", True)
