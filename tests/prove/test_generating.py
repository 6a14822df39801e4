from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from pipeline.lean.client.messages import Goal, Variable
from pipeline.lean.tactic_text import Step
from pipeline.models.retriever.corpus import Premise
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import TacticModel, load_model
from pipeline.models.tactics.requests import Completion, Decoding, Prompt, Request, Suggestions
from pipeline.models.tactics.service import Batching, GenerationStoppedError
from pipeline.prove.generator import GeneratorProposer, ProgressRemaining
from pipeline.prove.graph import TacticRequest
from pipeline.prove.premises import ShownPremises
from tests.support.tiny_models import make_tiny_causal

T = TypeVar("T")
Service = Batching[Request, Suggestions]
GOAL = Goal("g", target="p", vars=(Variable("_h", "h", False, "p"),))
ASKED = TacticRequest((GOAL,), (), 7)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TacticModel:
    return load_model(make_tiny_causal(tmp_path_factory.mktemp("model"), hidden=32, layers=1))


class Says(Generator):
    """A generator whose model says these texts of every state; "unended" has no end mark."""

    def __init__(self, model: TacticModel, *texts: str) -> None:
        super().__init__(model)
        self.texts = texts
        self.asked: list[Request] = []

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        self.asked += requests
        return super().suggest(requests)

    def complete(self, prompts: Sequence[Prompt]) -> list[list[Completion]]:
        ids = [self._tokenizer(text, add_special_tokens=False)["input_ids"] for text in self.texts]
        said = [
            Completion(tuple(one), -float(number), ended=text != "unended")
            for number, (text, one) in enumerate(zip(self.texts, ids, strict=True))
        ]
        return [said for _ in prompts]


def with_service(generator: Says, use: Callable[[Service], Awaitable[T]]) -> T:
    async def main() -> T:
        async with Batching(generator.suggest) as service:
            return await use(service)

    return asyncio.run(main())


def test_the_model_s_tokens_are_counted(model: TacticModel) -> None:
    generator = Says(model, "simp", "unended")

    async def use(service: Service) -> GeneratorProposer:
        proposer = GeneratorProposer(service.ask)
        await proposer.propose(ASKED)
        await proposer.propose(ASKED)
        return proposer

    cost = with_service(generator, use).cost
    (prompt, _), said = (
        (generator.prompts.ids(asked.state) for asked in generator.asked),
        [generator._tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("simp", "unended")],
    )
    # The end mark of the answer that has one is written too.
    assert (cost.prompt_tokens, cost.completion_tokens) == (2 * len(prompt), 2 * (sum(map(len, said)) + 1))
    assert cost.usd is None


def test_answers_become_candidates_with_their_probabilities(model: TacticModel) -> None:
    generator = Says(model, "exact h", "simp", "")
    decoding = Decoding(candidates=3)

    async def find(state: str) -> tuple[Premise, ...]:
        assert state == "h : p\n⊢ p"
        return (Premise("A.lean", "foo", (1, 1), (1, 16), "theorem foo : p"),)

    async def ask(service: Service) -> tuple[list[Any], str]:
        proposer = GeneratorProposer(service.ask, decoding=decoding, premises=ShownPremises(find))
        return await proposer.propose(ASKED), proposer.reason

    candidates, reason = with_service(generator, ask)
    assert [(one.text, one.log_probability) for one in candidates] == [("exact h", 0.0), ("simp", -1.0)]
    assert reason == "", "an answer among others that is no tactic is nothing to tell"
    assert generator.asked == [Request("h : p\n⊢ p", ("theorem <a>foo</a> : p",), decoding, 7)]


def test_a_failed_retrieval_leaves_the_request_without_premises_and_is_reported(model: TacticModel) -> None:
    async def find(_state: str) -> tuple[Premise, ...]:
        raise ValueError("the index is gone")

    async def ask(service: Service) -> tuple[int, str]:
        proposer = GeneratorProposer(service.ask, premises=ShownPremises(find))
        return len(await proposer.propose(ASKED)), proposer.reason

    assert with_service(Says(model, "simp"), ask) == (
        1,
        "no premises were found for 1 of 1 states: the index is gone",
    )


def test_a_closed_service_ends_a_search(model: TacticModel) -> None:
    async def main() -> None:
        service = Batching(Says(model).suggest)
        with pytest.raises(GenerationStoppedError):
            await GeneratorProposer(service.ask).propose(ASKED)

    asyncio.run(main())


class Rates:
    """A progress model that says how long a tactic is."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def predict(self, steps: Sequence[Step]) -> list[float]:
        self.batches.append(len(steps))
        if any("bad" in step.tactic for step in steps):
            raise RuntimeError("no such weight\nand more")
        return [float(len(step.tactic)) for step in steps]


def test_steps_of_all_searches_are_rated_together_and_one_that_fails_comes_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Rates()

    async def main() -> tuple[list[float], ...]:
        async with ProgressRemaining(model) as remaining:
            rated = await asyncio.gather(
                remaining.remaining([Step("⊢ p", "abc"), Step("⊢ p", "a")]),
                remaining.remaining([]),
                remaining.remaining([Step("⊢ q", "ab")]),
            )
            bad = await remaining.remaining([Step("⊢ p", "abcd"), Step("⊢ p", "bad")])
        with pytest.raises(GenerationStoppedError):
            await remaining.remaining([Step("⊢ p", "late")])
        return (*rated, bad)

    rated = asyncio.run(main())
    assert rated == ([3.0, 1.0], [], [2.0], [4.0, math.inf])
    assert model.batches == [3, 2, 1, 1]
    assert "the progress model failed: no such weight" in caplog.text
