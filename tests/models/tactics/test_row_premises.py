"""What a tactic model learns beside a state is what the provers show it: the retriever's premises, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.specs import RetrieverSpec
from pipeline.lean.client.messages import Goal, Variable
from pipeline.models.datasets import TaskData
from pipeline.models.finding import row_premises
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.job import evaluate
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.requests import Completion, Decoding, Prompt, Request, Suggestions
from pipeline.models.tactics.rows import Row, RowPremises, digest_of, read_rows
from pipeline.models.tactics.service import Batching
from pipeline.models.tactics.training import encode
from pipeline.prove.generator import GeneratorProposer
from pipeline.prove.graph import TacticRequest
from pipeline.prove.premises import ShownPremises
from tests.support.retrieval import imports_of, write_dataset
from tests.support.tiny_models import make_tiny, make_tiny_retriever

PREMISES = (
    Premise("A.lean", "one", (1, 1), (1, 20), "theorem one : p → p"),
    Premise("A.lean", "big", (2, 1), (9, 20), "def big := " + "x" * 5000),
    Premise("A.lean", "two", (10, 1), (10, 20), "theorem two : q → q"),
)
STATE = "p : Prop\nh : p\n⊢ p"
GOAL = Goal(
    "g",
    "p",
    (Variable("1", "p", False, "Prop"), Variable("2", "h", False, "p")),
)


def many(number: int) -> list[Row]:
    return [Row(f"⊢ p{at}", "rfl", f"t{at}", "A.lean", 0) for at in range(number)]


def found(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    return [(f"theorem <a>for_{row.theorem}</a> : p",) for row in rows]


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_a_row_is_learned_from_the_prompt_that_a_search_asks_with(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(make_tiny(kind, tmp_path / kind), max_seq_len=700)
    row = Row(STATE, "exact h", "t", "A.lean", 0, premises=tuple(one.serialize() for one in PREMISES))
    (example,) = encode([row], model.prompts, answer_length=100)
    learned = example["input_ids"]
    if kind == "causal":
        learned = learned[: example["labels"].index(model.prompts.answer_ids("exact h")[0])]
    asked: list[tuple[int, ...]] = []

    def complete(prompts: Sequence[Prompt]) -> list[list[Completion]]:
        asked.extend(prompt.ids for prompt in prompts)
        return [[] for _ in prompts]

    async def find(_state: str) -> tuple[Premise, ...]:
        return PREMISES

    async def search() -> None:
        generator = Generator(model)
        monkeypatch.setattr(generator, "complete", complete)
        async with Batching(generator.suggest) as service:
            proposer = GeneratorProposer(service.ask, decoding=Decoding(), premises=ShownPremises(find))
            await proposer.propose(TacticRequest((GOAL,), (), 0))

    asyncio.run(search())
    assert asked == [tuple(learned)]
    prompt = str(model.tokenizer.decode(learned))
    assert "one" in prompt
    assert "two" in prompt
    assert "xxx" not in prompt, "what has no room is left out"


def test_a_share_of_the_rows_is_shown_none_and_the_same_ones_each_time() -> None:
    rows, premises = many(400), RowPremises("r", lambda _task: found)

    def shown(given: Sequence[Row], *, dropout: float = 0.0, seed: int = 0) -> tuple[Row, ...]:
        return premises.shown(given, TaskData("r", Path()), dropout=dropout, seed=seed)

    def without(given: Sequence[Row], seed: int) -> set[str]:
        return {row.theorem for row in shown(given, dropout=0.25, seed=seed) if not row.premises}

    assert 60 < len(without(rows, 7)) < 140
    assert without(rows[::-1], 7) == without(rows, 7) != without(rows, 8)
    some = shown(rows, dropout=0.25)
    assert all(row.premises in ((), (f"theorem <a>for_{row.theorem}</a> : p",)) for row in some)
    assert all(row.premises for row in shown(rows))
    assert not any(row.premises for row in shown(rows, dropout=1.0))
    assert digest_of(some) == digest_of(rows), "which steps they are, whatever is shown beside them"


def test_a_row_s_premises_are_those_of_its_own_dataset_that_its_theorem_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = write_dataset(tmp_path / "data", files=3)
    folder = make_tiny_retriever(tmp_path / "chain" / "r-1", d_model=32, layers=1)

    spec = RetrieverSpec(
        chain=folder.parent,
        checkpoint="r-1",
        indices=tmp_path / "indices",
        device="cpu",
        premises=50,
    )
    premises = row_premises(spec)
    assert premises.name == "r-1/50"
    rows = [
        Row("⊢ p", "rfl", "Demo.F0.p2", "Demo/F0.lean", 0, start=(5, 1)),
        Row("⊢ p", "rfl", "Demo.F1.t", "Demo/F1.lean", 0, start=(99, 1)),
    ]
    above, imported = premises.of(TaskData("r", dataset))(rows)
    assert {code.partition("<a>")[2].partition("</a>")[0] for code in above} == {"Demo.F0.p0", "Demo.F0.p1"}
    files = {code.partition("<a>Demo.")[2][:2] for code in imported}
    corpus = Corpus(dataset / "corpus.jsonl")
    assert files == {path[5:7] for path in ("Demo/F1.lean", *imports_of(corpus, "Demo/F1.lean"))}
    words = row_premises(spec.model_copy(update={"checkpoint": "bm25", "premises": 1}))
    ((found,),) = words.of(TaskData("r", dataset))([replace(rows[0], state="⊢ p0")])
    assert (words.name, found in above, "p0</a>" in found) == ("bm25/1", True, True)


def test_a_model_is_measured_with_the_premises_that_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Request] = []

    def suggest(_: Generator, some: Sequence[Request]) -> list[Suggestions]:
        requests.extend(some)
        return [Suggestions((), {})] * len(some)

    monkeypatch.setattr(Generator, "suggest", suggest)
    path = write_dataset(tmp_path / "data", files=2, theorems=20) / "random" / "test.json"
    model = load_model(make_tiny("causal", tmp_path / "model"), max_seq_len=400)
    rows = read_rows(path).rows[:3]
    beside = RowPremises("r", lambda _task: found).shown(rows, TaskData("r", path.parent.parent))
    shown, alone = evaluate(model, beside), evaluate(model, rows)
    assert shown.dataset == alone.dataset, "the same steps, so that checkpoints can be compared"
    prompts = [request.premises for request in requests]
    assert prompts == [*found(rows), (), (), ()]
