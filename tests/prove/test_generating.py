from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pipeline.jobs.specs import Budget
from pipeline.lean.client.messages import Expression, Goal, Variable
from pipeline.lean.pool.pool import ReplKey, ReplPool
from pipeline.lean.pool.session import Session
from pipeline.lean.tactic_text import Step
from pipeline.models.retriever.corpus import Premise
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import TacticModel, load_model
from pipeline.models.tactics.requests import Completion, Decoding, Request, Suggestions
from pipeline.models.tactics.service import GenerationService, GenerationStoppedError
from pipeline.prove.generator import GeneratorProposer, ProgressRemaining
from pipeline.prove.graph import ModelScoring, TacticRequest
from pipeline.prove.premises import ShownPremises
from pipeline.prove.search import Search, SearchResult
from tests.support.lean import scripted
from tests.support.lean.scripted import Script
from tests.support.tiny_models import make_tiny_causal

T = TypeVar("T")
GOAL = Goal("g", target=Expression("p"), vars=(Variable("_h", "h", False, Expression("p")),))
ASKED = TacticRequest((GOAL,), (), 7)
BUDGET = Budget(nodes=8, seconds=20.0, tactic_timeout_s=5.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TacticModel:
    return load_model(make_tiny_causal(tmp_path_factory.mktemp("model"), hidden=32, layers=1))


class Says(Generator):
    """A generator with fixed texts for states that contain a word, by word; "" for the others."""

    def __init__(self, model: TacticModel, texts: dict[str, Sequence[str | BaseException]]) -> None:
        super().__init__(model)
        self.texts = texts
        self.asked: list[Request] = []

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        self.asked += requests
        return super().suggest(requests)

    def complete(
        self, prompts: Sequence[Sequence[int]], decoding: Decoding, *, seeds: Sequence[int]
    ) -> list[list[Completion] | str]:
        return [self._said(str(self._tokenizer.decode(list(prompt)))) for prompt in prompts]

    def _said(self, prompt: str) -> list[Completion] | str:
        word = next((word for word in self.texts if word and word in prompt), "")
        found: list[Completion] = []
        for text in self.texts.get(word, ()):
            if isinstance(text, BaseException):
                raise text
            if text == "no room":
                return "the device's memory is too small"
            ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            found.append(Completion(tuple(ids), -float(len(found)), ended=text != "unended"))
        return found


def with_service(generator: Says, use: Callable[[GenerationService], Awaitable[T]]) -> T:
    async def main() -> T:
        async with GenerationService(generator, wait_s=0.05) as service:
            return await use(service)

    return asyncio.run(main())


def test_the_model_s_tokens_are_counted(model: TacticModel) -> None:
    generator = Says(model, {"": ["simp", "unended"]})

    async def use(service: GenerationService) -> GeneratorProposer:
        proposer = GeneratorProposer(service)
        await proposer.propose(ASKED)
        await proposer.propose(ASKED)
        return proposer

    cost = with_service(generator, use).cost
    (prompt, _), said = (
        (generator._ids(asked.state, ()) for asked in generator.asked),
        [generator._tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("simp", "unended")],
    )
    # The end mark of the answer that has one is written too.
    assert (cost.prompt_tokens, cost.completion_tokens) == (2 * len(prompt), 2 * (sum(map(len, said)) + 1))
    assert cost.usd is None


def test_answers_become_candidates_with_their_probabilities(model: TacticModel) -> None:
    generator = Says(model, {"": ["exact h", "simp", ""]})
    decoding = Decoding(candidates=3)

    async def find(state: str) -> tuple[Premise, ...]:
        assert state == "h : p\n⊢ p"
        return (Premise("A.lean", "foo", (1, 1), (1, 16), "theorem foo : p"),)

    async def ask(service: GenerationService) -> tuple[list[Any], str]:
        proposer = GeneratorProposer(service, decoding=decoding, premises=ShownPremises(find))
        return await proposer.propose(ASKED), proposer.reason

    candidates, reason = with_service(generator, ask)
    assert [(one.text, one.log_probability, one.tokens) for one in candidates] == [
        ("exact h", 0.0, 8),
        ("simp", -1.0, 5),
    ]
    assert reason == "", "an answer among others that is no tactic is nothing to tell"
    assert generator.asked == [Request("h : p\n⊢ p", ("theorem <a>foo</a> : p",), decoding, 7)]


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([], "the model gave no tactic for 1 of 1 states"),
        (["", "  \n\t "], "(answers left out: empty 2)"),
        (["x" * 10_000], "(answers left out: too_long 1)"),
        (["exact \x07 h", "exact \u200b h"], "(answers left out: characters 2)"),
        (["simp /- and the rest is gone", 'exact "'], "(answers left out: unclosed 2)"),
        (["unended"], "(answers left out: unended 1)"),
        (["-- exact h"], "(answers left out: empty 1)"),
        (["no room"], "the generator failed for 1 of 1 states: the device's memory is too small"),
        ([RuntimeError("CUDA error: an illegal\nmemory access")], "1 of 1 states: CUDA error: an illegal"),
    ],
)
def test_unusable_answers_propose_nothing_and_give_the_reason(
    model: TacticModel, texts: list[str | BaseException], why: str
) -> None:
    async def ask(service: GenerationService) -> tuple[list[Any], str]:
        proposer = GeneratorProposer(service)
        return await proposer.propose(ASKED), proposer.reason

    candidates, reason = with_service(Says(model, {"": texts}), ask)
    assert candidates == []
    assert why in reason


def test_a_failed_retrieval_leaves_the_request_without_premises_and_is_reported(model: TacticModel) -> None:
    async def find(_state: str) -> tuple[Premise, ...]:
        raise ValueError("the index is gone")

    async def ask(service: GenerationService) -> tuple[int, str]:
        proposer = GeneratorProposer(service, premises=ShownPremises(find))
        return len(await proposer.propose(ASKED)), proposer.reason

    assert with_service(Says(model, {"": ["simp"]}), ask) == (
        1,
        "no premises were found for 1 of 1 states: the index is gone",
    )


def test_a_closed_service_ends_a_search(model: TacticModel) -> None:
    async def main() -> None:
        service = GenerationService(Says(model, {}))
        with pytest.raises(GenerationStoppedError):
            await GeneratorProposer(service).propose(ASKED)

    asyncio.run(main())


def search_all(
    folder: Path, generator: Says, statements: Sequence[str]
) -> list[tuple[SearchResult, GeneratorProposer]]:
    """Search for proofs of several statements at once, on one generator; a script answers in Lean's place."""
    goals = [("∀ (p : Prop), p → p", "intro p h"), ("p : Prop\nh : p\n⊢ p", "exact h")]
    garbage = {("", tactic): {"parseError": "<input>:1:1: unknown tactic"} for tactic in ("fly away", "swim")}
    script = Script(tactics={goals[0]: ["p : Prop\nh : p\n⊢ p"], goals[1]: [], **garbage})

    async def one(pool: ReplPool, service: GenerationService, statement: str) -> Any:
        proposer = GeneratorProposer(service)
        async with Session(pool, ReplKey(scripted.NOWHERE, folder, ("Init",))) as session:
            state = await session.start(statement)
            search = Search(session, proposer, budget=BUDGET, scoring=ModelScoring())
            return await search.run(state), proposer

    async def all_of_them(service: GenerationService) -> list[Any]:
        async with ReplPool(start=scripted.starts(script)) as pool:
            return await asyncio.gather(*(one(pool, service, statement) for statement in statements))

    return with_service(generator, all_of_them)


def test_a_bad_model_s_searches_end_by_themselves_and_the_others_go_on(
    model: TacticModel, tmp_path: Path
) -> None:
    generator = Says(
        model,
        {
            "h : p\n": ["exact h"],
            "∀ (p : Prop)": ["intro p h -- and this\n-- swallows the rest", "sorry"],
            "∀ (x : Prop)": [RuntimeError("a bad state")],
            "∀ (y : Prop)": ["", "   "],
            "∀ (z : Prop)": ["intro z /- never closed", "\x00"],
        },
    )
    named = ["p", "x", "y", "z"]
    found = search_all(tmp_path, generator, [f"∀ ({name} : Prop), {name} → {name}" for name in named])
    assert [result.outcome for result, _ in found] == ["found", "exhausted", "exhausted", "exhausted"]
    script = found[0][0].script
    assert script is not None
    assert script.tactics == ("intro p h", "exact h")
    assert found[0][1].reason == ""
    assert "a bad state" in found[1][1].reason
    assert "(answers left out: empty 2)" in found[2][1].reason
    assert "unclosed 1, characters 1" in found[3][1].reason


def test_unparsed_tactics_are_reported(model: TacticModel, tmp_path: Path) -> None:
    ((result, proposer),) = search_all(
        tmp_path, Says(model, {"": ["fly away", "swim"]}), ["∀ (p : Prop), p → p"]
    )
    assert result.outcome == "exhausted"
    assert proposer.reason == "none of its 2 tactics could be parsed"


class Rates:
    """A progress model that says how long a tactic is."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def predict(self, steps: Sequence[Step]) -> list[float]:
        self.batches.append(len(steps))
        if any("bad" in step.tactic for step in steps):
            raise RuntimeError("no such weight\nand more")
        return [float(len(step.tactic)) for step in steps]


def test_steps_of_all_searches_are_rated_together_and_one_that_fails_comes_last() -> None:
    model = Rates()

    async def main() -> tuple[Any, str, int]:
        async with ProgressRemaining(model) as remaining:
            rated = await asyncio.gather(
                remaining.remaining([Step("⊢ p", "abc"), Step("⊢ p", "a")]),
                remaining.remaining([]),
                remaining.remaining([Step("⊢ q", "ab")]),
            )
            bad = await remaining.remaining([Step("⊢ p", "abcd"), Step("⊢ p", "bad")])
        with pytest.raises(GenerationStoppedError):
            await remaining.remaining([Step("⊢ p", "late")])
        return (*rated, bad), remaining.reason, remaining.failed

    rated, reason, failed = asyncio.run(main())
    assert rated == ([3.0, 1.0], [], [2.0], [4.0, math.inf])
    assert model.batches == [3, 2, 1, 1]
    assert (reason, failed) == ("the progress model failed: no such weight", 1)
