"""The loops that run a model, transformers' and vLLM's (by a double): answers, their log-probabilities, their seeds."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.generation import configuration_utils

from pipeline.models.tactics.generate import Loop
from pipeline.models.tactics.loop import TransformersLoop
from pipeline.models.tactics.models import TacticModel, load_model, read_model
from pipeline.models.tactics.requests import Decoding, Prompt
from pipeline.models.tactics.vllm_loop import VllmLoop
from tests.support.tiny_models import make_tiny_causal, make_tiny_seq2seq
from tests.support.vllm_double import install

STATES = ["⊢ p", "h : p\nq : r\n⊢ p ∧ q ∧ r", "x : ℕ\n⊢ x = x + 0", "⊢ ∀ n, n < n + 1"]
MOST = 10
KINDS = ["causal", "seq2seq", "vllm"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TacticModel]:
    folder = tmp_path_factory.mktemp("models")
    made = {
        "causal": load_model(make_tiny_causal(folder / "causal", hidden=32)),
        "seq2seq": load_model(make_tiny_seq2seq(folder / "seq2seq", d_model=32, seed=3)),
    }
    # While its output is its input's embedding it says the same token on and on.
    head: Any = made["seq2seq"].model.get_output_embeddings()
    head.weight = torch.nn.Parameter(
        torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(1)) / 2
    )
    made["vllm"] = made["causal"]
    for one in made.values():
        one.model.eval()
    return made


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(models: dict[str, TacticModel], kind: str) -> TacticModel:
    return models[kind]


@pytest.fixture
def loop(model: TacticModel, kind: str, monkeypatch: pytest.MonkeyPatch) -> Loop:
    """A loop whose answers end, though the model knows nothing: so many tokens end one."""
    ends = list(range(1, int(model.model.config.vocab_size), 12))
    if kind == "vllm":
        install(monkeypatch, ends=ends)
        return VllmLoop(read_model(model.base), dtype=torch.float32)
    made = TransformersLoop(model)
    made.ends = ends
    return made


def asked(prompts: Sequence[Sequence[int]], decoding: Decoding, seeds: Sequence[int]) -> list[Prompt]:
    return [Prompt(tuple(ids), decoding, seed) for ids, seed in zip(prompts, seeds, strict=True)]


def prompts_of(model: TacticModel) -> list[list[int]]:
    return [model.prompts.ids(state) for state in STATES]


def rescored(model: TacticModel, prompt: Sequence[int], answer: Sequence[int]) -> list[Tensor]:
    """Return the log-probabilities of the vocabulary at each token of an answer and behind it, read at once."""
    with torch.no_grad():
        if model.prompts.kind == "seq2seq":
            start = model.model.config.decoder_start_token_id
            logits = model.model(
                input_ids=torch.tensor([prompt]), decoder_input_ids=torch.tensor([[start, *answer]])
            ).logits[0]
        else:
            logits = model.model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 :]
    return list(torch.log_softmax(logits, dim=-1))


@pytest.mark.parametrize("mode", ["beams", "sampling"])
def test_a_log_probability_is_the_model_s_own_whatever_the_temperature(
    model: TacticModel, loop: Loop, mode: Any
) -> None:
    prompts, beginning = prompts_of(model), model.prompts.answer_ids("rw [")[:-1]
    decoding = Decoding(candidates=3, mode=mode, temperature=0.7)
    found = loop.answers(asked(prompts, decoding, [5, 6, 7, 8]), MOST, beginning)
    ended = 0
    for prompt, answers in zip(prompts, found, strict=True):
        assert len(answers) == 3
        assert answers == sorted(answers, key=lambda one: (not one.ended, -one.log_probability))
        for answer in answers:
            rows = rescored(model, prompt, [*beginning, *answer.ids])[len(beginning) :]
            total = sum(float(row[token]) for row, token in zip(rows, answer.ids, strict=False))
            ended += answer.ended
            if answer.ended:
                ends = (total + float(rows[-1][end]) for end in range(len(rows[-1])))
                assert any(abs(value - answer.log_probability) < 1e-3 for value in ends)
            else:
                assert total == pytest.approx(answer.log_probability, abs=1e-3)
    assert ended, "some of them end"


@pytest.mark.parametrize("mode", ["beams", "sampling"])
def test_an_answer_does_not_depend_on_what_else_is_in_the_batch(
    model: TacticModel, loop: Loop, mode: Any
) -> None:
    prompts, seeds, decoding = prompts_of(model), [11, 12, 13, 14], Decoding(candidates=4, mode=mode)
    together = loop.answers(asked(prompts, decoding, seeds), MOST)
    for number in (3, 0):
        (alone,) = loop.answers(asked([prompts[number]], decoding, [seeds[number]]), MOST)
        other = together[number]
        assert [(one.ids, one.ended) for one in alone] == [(one.ids, one.ended) for one in other]
        assert [one.log_probability for one in alone] == pytest.approx(
            [one.log_probability for one in other], abs=1e-3
        )


@pytest.mark.parametrize(
    ("family", "own"),
    [("gemma3", {}), ("qwen3_5", {"layer_types": ["linear_attention", "full_attention"]})],
)
def test_a_model_that_reads_images_too_or_has_linear_attention_answers_as_others(
    models: dict[str, TacticModel], family: str, own: dict[str, Any]
) -> None:
    text = {
        "vocab_size": int(models["causal"].model.config.vocab_size),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": 1024,
        "pad_token_id": 0,
        **own,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        weights = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, text_config=text))
    model = replace(models["causal"], model=weights)
    loop, prompts, decoding = TransformersLoop(model), prompts_of(model), Decoding(candidates=3)
    assert loop.positions == 1024
    for prompt, answers in zip(prompts, loop.answers(asked(prompts, decoding, [0] * 4), 4), strict=True):
        for one in answers:
            rows = rescored(model, prompt, one.ids)
            total = sum(float(row[token]) for row, token in zip(rows, one.ids, strict=False))
            end = float(rows[-1][loop.ends[0]]) if one.ended else 0.0
            assert one.log_probability == pytest.approx(total + end, abs=1e-3)


@pytest.mark.parametrize("decoding", [Decoding(3), Decoding(1), Decoding(3, "sampling")])
def test_the_penalties_that_a_model_brings_along_change_no_answer_and_no_setting_is_in_vain(
    models: dict[str, TacticModel], decoding: Decoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models["causal"]
    loop, prompts, seeds = TransformersLoop(model), prompts_of(model), [1, 2, 3, 4]
    bare = loop.answers(asked(prompts, decoding, seeds), MOST)
    own: Any = model.model.generation_config
    warnings: list[str] = []
    monkeypatch.setattr(configuration_utils.logger, "warning_once", warnings.append)
    brought = copy.deepcopy(own)
    brought.update(repetition_penalty=1.9, no_repeat_ngram_size=1, return_dict_in_generate=True)
    cast("Any", model.model).generation_config = brought
    try:
        assert loop.answers(asked(prompts, decoding, seeds), MOST) == bare
        assert model.model.generation_config is brought
        assert warnings == []
    finally:
        cast("Any", model.model).generation_config = own


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_tokens_that_are_equally_likely_cost_no_beam_its_log_probability(
    models: dict[str, TacticModel], kind: str
) -> None:
    model = models[kind]
    weight: Any = model.model.get_output_embeddings().weight
    kept = weight.detach().clone()
    try:
        weight.data.zero_()
        (found,) = TransformersLoop(model).answers(asked([[5, 6, 7]], Decoding(candidates=8), [0]), MOST)
    finally:
        weight.data.copy_(kept)
    each = -math.log(len(weight))
    assert [one.log_probability for one in found] == pytest.approx(
        [each * (len(one.ids) + one.ended) for one in found], abs=1e-3
    )


def test_beams_are_different_and_one_is_the_likeliest_token_by_token(model: TacticModel, loop: Loop) -> None:
    (prompt, *_) = prompts_of(model)
    (several,) = loop.answers(asked([prompt], Decoding(candidates=4), [0]), MOST)
    assert len({(one.ids, one.ended, one.log_probability) for one in several}) == 4
    for seed in (1, 2):
        (found,) = loop.answers(asked([prompt], Decoding(candidates=1), [seed]), MOST)
        (one,) = found
        rows = rescored(model, prompt, one.ids)
        assert [int(row.argmax()) for row in rows[: len(one.ids)]] == list(one.ids)


def test_the_seed_decides_the_samples_and_the_caller_s_random_numbers_stay(
    model: TacticModel, loop: Loop
) -> None:
    prompts, decoding = prompts_of(model)[:1] * 2, Decoding(candidates=4, mode="sampling")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, other = loop.answers(asked(prompts, decoding, [1, 2]), 6)
    assert torch.equal(torch.get_rng_state(), before)
    assert one != other
    assert loop.answers(asked(prompts, decoding, [2, 1]), 6) == [other, one]


@pytest.mark.parametrize("mode", ["beams", "sampling"])
def test_numbers_that_are_none_end_their_prompt_and_no_other(
    models: dict[str, TacticModel], mode: Any
) -> None:
    model = models["seq2seq"]
    embeddings: Any = model.model.get_input_embeddings()
    prompts, decoding = [[5, 250, 6], [5, 6, 7, 8]], Decoding(candidates=2, mode=mode)
    known = embeddings.weight.data[250].clone()
    embeddings.weight.data[250] = math.nan
    try:
        broken, whole = TransformersLoop(model).answers(asked(prompts, decoding, [0, 0]), 3)
    finally:
        embeddings.weight.data[250] = known
    assert all(math.isnan(one.log_probability) and not one.ended for one in broken)
    assert len(broken) == len(whole) == 2
    assert not any(math.isnan(one.log_probability) for one in whole)


@pytest.mark.parametrize(
    "settings",
    [
        {"candidates": 0},
        {"mode": "greedy"},
        {"temperature": 0.0},
        {"temperature": math.nan},
        {"max_tokens": 0},
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=f"Decoding\n{min(settings)}\n"):
        Decoding(**settings)
