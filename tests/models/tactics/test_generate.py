from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from pipeline.models.errors import ModelError
from pipeline.models.libraries import quiet_libraries
from pipeline.models.tactics import loop
from pipeline.models.tactics.generate import Generator, PrefixTooLongError, load_generator
from pipeline.models.tactics.loop import TransformersLoop
from pipeline.models.tactics.models import TacticModel, load_model
from pipeline.models.tactics.requests import (
    Completion,
    Decoding,
    Mode,
    Prompt,
    Request,
    Suggestion,
    likeliest_first,
)
from tests.support.tiny_models import make_tiny_causal, make_tiny_seq2seq

PAIRS = [
    ("p : Prop\n⊢ p → p", "intro h"),
    ("p : Prop\nh : p\n⊢ p", "exact h"),
    ("p q : Prop\n⊢ p ∧ q", "constructor"),
    ("⊢ ∀ n : ℕ, n = n", "intro n\nrfl"),
]


def learned(folder: Path, kind: str) -> TacticModel:
    """Return a tiny model that has learned `PAIRS` by heart, through the prompts that it is then asked with."""
    if kind == "causal":
        made = load_model(make_tiny_causal(folder, hidden=64, layers=1), max_seq_len=512)
    else:
        made = load_model(make_tiny_seq2seq(folder, d_model=32, layers=1), max_seq_len=512)
    model: Any = made.model
    rows = [(made.prompts.ids(state), made.prompts.answer_ids(tactic)) for state, tactic in PAIRS]
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    pad = int(made.tokenizer.pad_token_id)
    for _ in range(60):
        if kind == "causal":
            ids = torch.tensor([[pad] * (width - len(p) - len(a)) + p + a for p, a in rows])
            labels = torch.tensor([[-100] * (width - len(a)) + a for _, a in rows])
            loss = model(input_ids=ids, attention_mask=(ids != pad).long(), labels=labels).loss
        else:
            longest, last = (max(len(row[at]) for row in rows) for at in (0, 1))
            ids = torch.tensor([p + [pad] * (longest - len(p)) for p, _ in rows])
            labels = torch.tensor([a + [-100] * (last - len(a)) for _, a in rows])
            loss = model(input_ids=ids, attention_mask=(ids != pad).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    return made


@pytest.fixture(scope="module", params=["causal", "seq2seq"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TacticModel:
    return learned(tmp_path_factory.mktemp("learned"), request.param)


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> TacticModel:
    return load_model(make_tiny_causal(tmp_path_factory.mktemp("causal"), hidden=32, layers=1))


BEAMS = Decoding(candidates=3, max_tokens=24)


def test_what_was_learned_comes_first_and_whole_for_every_state_of_a_batch(model: TacticModel) -> None:
    generator = Generator(model)
    found = generator.suggest([Request(state, decoding=BEAMS) for state, _ in PAIRS])
    assert [answer.tactics[0].tactic for answer in found] == [tactic for _, tactic in PAIRS]
    for answer in found:
        assert math.exp(answer.tactics[0].log_probability) > 0.5
        ranks = [one.log_probability for one in answer.tactics]
        assert ranks == sorted(ranks, reverse=True)


def test_samples_of_what_was_learned_are_one_tactic_and_the_rest_are_counted(model: TacticModel) -> None:
    decoding = Decoding(candidates=6, mode="sampling", temperature=0.2, max_tokens=24)
    (found,) = Generator(model).suggest([Request(PAIRS[1][0], decoding=decoding, seed=4)])
    assert found.tactics[0].tactic == "exact h"
    assert len(found.tactics) + sum(found.left_out.values()) == 6
    assert found.left_out["repeated"] >= 3


def test_answers_come_in_the_order_of_the_requests_whatever_their_batches(model: TacticModel) -> None:
    requests = [Request(state, decoding=BEAMS) for state, _ in PAIRS] * 3
    requests[5] = replace(
        requests[5], decoding=Decoding(candidates=2, mode="sampling", max_tokens=24), seed=9
    )
    generator = Generator(model)
    expected = [answer for request in requests for answer in generator.suggest([request])]
    found = generator.suggest(requests)
    assert [[one.tactic for one in answer.tactics] for answer in found] == [
        [one.tactic for one in answer.tactics] for answer in expected
    ]
    assert generator.suggest([]) == []


def test_an_adapter_is_asked_with_its_weights(causal: TacticModel) -> None:
    torch.manual_seed(0)
    plain: Any = causal.model
    before = Generator(causal).complete([Prompt((1, 2, 3), BEAMS)])
    with quiet_libraries():
        adapted = get_peft_model(plain, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    after = Generator(replace(causal, model=adapted)).complete([Prompt((1, 2, 3), BEAMS)])
    adapted.unload()
    assert before != after
    assert Generator(causal).complete([Prompt((1, 2, 3), BEAMS)]) == before


class Says(Generator):
    """A generator whose model says these texts."""

    def __init__(self, model: TacticModel, texts: Sequence[str | Completion]) -> None:
        super().__init__(model)
        self._texts = texts

    def complete(self, prompts: Sequence[Prompt]) -> list[list[Completion]]:
        def completion(text: str | Completion) -> Completion:
            if isinstance(text, Completion):
                return text
            ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
            return Completion(tuple(ids), -float(len(ids)), True)

        return [likeliest_first([completion(text) for text in self._texts])]


def test_what_is_no_tactic_is_left_out_and_counted_by_why(causal: TacticModel) -> None:
    generator = Says(
        causal,
        [
            "",
            "  \n\t ",
            "simp -- and so on",
            "x" * 10_000,
            "exact \x07 h",
            "rw [foo /- never closed",
            "  exact <a>foo.bar</a> h",
            "simp",
            "simp<|im_start|>",
            Completion((5, 6), math.nan, False),
            Completion((5, 6), -1.0, False),
        ],
    )
    (found,) = generator.suggest([Request("⊢ p")])
    assert [one.tactic for one in found.tactics] == ["simp", "exact foo.bar h"]
    assert found.tactics[0] == Suggestion("simp", -4.0), "the likelier of two that say the same"
    assert found.left_out == {
        "empty": 2,
        "too_long": 1,
        "characters": 1,
        "unclosed": 1,
        "repeated": 1,
        "marks": 1,
        "no_numbers": 1,
        "unended": 1,
    }


def test_a_model_that_never_stops_is_stopped_and_it_is_said(causal: TacticModel) -> None:
    generator = Generator(causal)
    (found,) = generator.suggest([Request("⊢ p", decoding=Decoding(candidates=2, max_tokens=5))])
    assert found.tactics == ()
    assert found.left_out == {"unended": 2}
    assert found.usage.completion_tokens == 10


def test_a_state_of_any_length_and_any_characters_is_asked(causal: TacticModel) -> None:
    states = ["", "h : p\n" * 20_000 + "⊢ q", "⊢ \x00\ud800 <|im_end|> <|im_start|>assistant\nsimp"]
    decoding = Decoding(candidates=1, max_tokens=3)
    assert len(Generator(causal).suggest([Request(state, decoding=decoding) for state in states])) == 3


class Watched(TransformersLoop):
    """Notes the prompts that it is asked at once and the threads that ask."""

    def __init__(self, model: TacticModel) -> None:
        super().__init__(model)
        self.batches: list[list[int]] = []
        self.inside = self.most = 0

    def _decoded(self, prompts: Sequence[Prompt], *others: Any) -> list[list[Completion]]:
        self.batches.append([len(prompt.ids) for prompt in prompts])
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            return super()._decoded(prompts, *others)
        finally:
            self.inside -= 1


def test_batches_are_of_like_length_and_within_the_budget(
    causal: TacticModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches(lengths: Sequence[int], mode: Mode = "beams") -> list[list[int]]:
        watched = Watched(causal)
        watched.answers([Prompt((1,) * length, Decoding(4, mode)) for length in lengths], 2)
        return watched.batches

    assert batches([10, 300, 12, 290, 700, 11, 13]) == [[10, 11, 12, 13], [290, 300], [700]]
    assert batches([5] * 3, "sampling") == [[5]] * 3, "drawn from a seed of its own"
    monkeypatch.setattr(loop, "_MOST_SCORES", 2 * 4 * 2 * int(causal.model.config.vocab_size))
    assert batches([5] * 5) == [[5, 5], [5, 5], [5]]
    monkeypatch.setattr(loop, "_MOST_SCORES", 1)
    assert batches([400] * 2) == [[400], [400]], "alone, but not refused"


def test_two_threads_ask_a_model_one_after_the_other(causal: TacticModel) -> None:
    watched, decoding = Watched(causal), Decoding(candidates=2, max_tokens=4)
    generator = Generator(causal, watched)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: generator.complete([Prompt((1, 2), decoding)]), range(4)))
    assert (watched.most, watched.batches) == (1, [[2]] * 4)


def test_an_answer_goes_on_from_its_prefix_and_says_it(model: TacticModel) -> None:
    decoding = Decoding(candidates=2, max_tokens=24)
    (found, plain) = Generator(model).suggest(
        [
            Request(PAIRS[1][0], decoding=replace(decoding, prefix="exact")),
            Request(PAIRS[1][0], decoding=decoding),
        ]
    )
    assert found.tactics[0].tactic == plain.tactics[0].tactic == "exact h"
    assert found.tactics[0].log_probability > plain.tactics[0].log_probability - 1e-3
    with pytest.raises(
        PrefixTooLongError, match="the prefix has 24 tokens, and an answer of this model has 24"
    ):
        Generator(model).suggest([Request("⊢ p", decoding=replace(decoding, prefix="x" * 24))])


def test_a_token_that_the_model_itself_ends_with_ends_an_answer_too(tmp_path: Path) -> None:
    made = load_model(make_tiny_causal(tmp_path, hidden=32, layers=1))
    model: Any = made.model
    end = made.tokenizer.eos_token_id
    model.generation_config.eos_token_id = [9, end]
    assert TransformersLoop(made).ends == [end, 9]
    model.generation_config.eos_token_id = None
    assert TransformersLoop(made).ends == [end]


def test_a_generator_is_loaded_from_a_folder(tmp_path: Path) -> None:
    folder = make_tiny_seq2seq(tmp_path / "model")
    assert load_generator(folder, device="cpu").prompts.kind == "seq2seq"
    with pytest.raises(ModelError):
        load_generator(tmp_path / "nowhere", device="cpu")
