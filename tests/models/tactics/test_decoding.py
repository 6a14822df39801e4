from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.models.errors import ConfigError
from pipeline.models.tactics.generate import CausalRows, Completion, DecodingRows, EncodedRows, decode
from pipeline.models.tactics.models import TacticModel, load_model
from pipeline.models.tactics.requests import Decoding
from tests.support.tiny_models import make_tiny_causal, make_tiny_seq2seq

STATES = ["⊢ p", "h : p\nq : r\n⊢ p ∧ q ∧ r", "x : ℕ\n⊢ x = x + 0", "⊢ ∀ n, n < n + 1"]
MOST = 16
Kind = str


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, TacticModel]:
    folder = tmp_path_factory.mktemp("models")
    made = {
        "causal": load_model(make_tiny_causal(folder / "causal", hidden=32)),
        "seq2seq": load_model(make_tiny_seq2seq(folder / "seq2seq", d_model=32, seed=3)),
    }
    # While its output is its input's embedding it says the same token on and on.
    head: Any = made["seq2seq"].model.get_output_embeddings()
    head.weight = torch.nn.Parameter(torch.randn(head.weight.shape, generator=seeded(1)) / 2)
    for one in made.values():
        one.model.eval()
    return made


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def prompts_of(model: TacticModel) -> list[list[int]]:
    return [model.prompts.ids(state) for state in STATES]


def rows_of(model: TacticModel, prompts: Sequence[Sequence[int]]) -> DecodingRows:
    kind = EncodedRows if model.prompts.kind == "seq2seq" else CausalRows
    return kind(model.model, prompts, int(model.tokenizer.pad_token_id))


def many_ends(model: TacticModel) -> list[int]:
    """So many tokens that end an answer that answers of a model which knows nothing do end."""
    return list(range(1, int(model.model.config.vocab_size), 2))


def rescored(model: TacticModel, prompt: Sequence[int], answer: Sequence[int]) -> list[Tensor]:
    """Return the log-probabilities of the vocabulary at each token of an answer, read at once and without a cache."""
    with torch.no_grad():
        if model.prompts.kind == "seq2seq":
            start = model.model.config.decoder_start_token_id
            logits = model.model(
                input_ids=torch.tensor([prompt]), decoder_input_ids=torch.tensor([[start, *answer[:-1]]])
            ).logits[0]
        else:
            logits = model.model(input_ids=torch.tensor([[*prompt, *answer[:-1]]])).logits[
                0, len(prompt) - 1 :
            ]
    return list(torch.log_softmax(logits, dim=-1))


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
@pytest.mark.parametrize(("beams", "penalty"), [(1, 0.0), (4, 0.0), (4, 1.0), (7, 0.5)])
def test_beams_are_those_of_transformers_with_the_log_probabilities(
    models: dict[Kind, TacticModel], kind: Kind, beams: int, penalty: float
) -> None:
    model = models[kind]
    prompts, ends = prompts_of(model), many_ends(model)
    decoding = Decoding(candidates=beams, length_penalty=penalty)
    found = decode(rows_of(model, prompts), decoding, seeds=[0] * len(prompts), ends=ends, most=MOST)
    generate: Any = model.model.generate
    compared = 0
    for prompt, mine in zip(prompts, found, strict=True):
        theirs = generate(
            input_ids=torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            num_beams=beams,
            num_return_sequences=beams,
            do_sample=False,
            eos_token_id=ends,
            max_new_tokens=MOST,
            return_dict_in_generate=True,
            output_scores=True,
            **({"length_penalty": penalty, "early_stopping": False} if beams > 1 else {}),
        )
        skip = 1 if kind == "seq2seq" else len(prompt)
        expected = []
        for row in theirs.sequences[:, skip:].tolist():
            at = next((place for place, token in enumerate(row) if token in ends), None)
            expected.append((tuple(row[:at]), at is not None))
        answers = [(one.ids, one.ended) for one in mine]
        # There what has not ended at the last token counts as if it had, and takes the place of what has.
        # The same tokens with another end mark are another answer, which this test does not distinguish.
        theirs_ended = list(dict.fromkeys(answer for answer in expected if answer[1]))
        assert list(dict.fromkeys(answer for answer in answers if answer in theirs_ended)) == theirs_ended
        compared += all(ended for _, ended in expected)
        if beams > 1 and answers == expected:
            lengths = [len(ids) + ended for ids, ended in answers]
            ranks = [one.log_probability / length**penalty for one, length in zip(mine, lengths, strict=True)]
            assert ranks == pytest.approx(theirs.sequences_scores.tolist(), abs=1e-3)
    assert compared, "answers that all ended, of one prompt at least"


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
@pytest.mark.parametrize("mode", ["beams", "sampling"])
def test_a_log_probability_is_the_model_s_own_whatever_the_temperature(
    models: dict[Kind, TacticModel], kind: Kind, mode: Any
) -> None:
    model = models[kind]
    prompts, ends = prompts_of(model), many_ends(model)
    decoding = Decoding(candidates=3, mode=mode, temperature=0.7, top_p=0.9)
    found = decode(rows_of(model, prompts), decoding, seeds=[5, 6, 7, 8], ends=ends, most=MOST)
    for prompt, answers in zip(prompts, found, strict=True):
        for answer in answers:
            rows = rescored(model, prompt, [*answer.ids, 0] if answer.ended else answer.ids)
            total = sum(float(row[token]) for row, token in zip(rows, answer.ids, strict=False))
            if answer.ended:
                last = [total + float(rows[-1][end]) for end in ends]
                assert min(abs(value - answer.log_probability) for value in last) < 1e-3
            else:
                assert total == pytest.approx(answer.log_probability, abs=1e-3)


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
@pytest.mark.parametrize("mode", ["beams", "sampling"])
def test_an_answer_does_not_depend_on_what_else_is_in_the_batch(
    models: dict[Kind, TacticModel], kind: Kind, mode: Any
) -> None:
    model = models[kind]
    prompts, ends = prompts_of(model), many_ends(model)
    decoding = Decoding(candidates=4, mode=mode)
    seeds = [11, 12, 13, 14]
    together = decode(rows_of(model, prompts), decoding, seeds=seeds, ends=ends, most=MOST)
    for number in (3, 0, 2):
        (alone,) = decode(
            rows_of(model, [prompts[number]]), decoding, seeds=[seeds[number]], ends=ends, most=MOST
        )
        assert [(one.ids, one.ended) for one in alone] == [(one.ids, one.ended) for one in together[number]]
        assert [one.log_probability for one in alone] == pytest.approx(
            [one.log_probability for one in together[number]], abs=1e-3
        )


def test_the_seed_decides_the_samples_and_the_caller_s_random_numbers_stay(
    models: dict[Kind, TacticModel],
) -> None:
    model = models["causal"]
    prompts = prompts_of(model)[:1] * 2

    def sample(seeds: Sequence[int]) -> list[list[Completion]]:
        return decode(
            rows_of(model, prompts), Decoding(candidates=4, mode="sampling"), seeds=seeds, ends=[1], most=6
        )

    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, other = sample([1, 2])
    assert torch.equal(torch.get_rng_state(), before)
    assert one != other
    assert sample([2, 1]) == [other, one]
    assert len({answer.ids for answer in one}) == 4


class Fixed:
    """A model that says the same of every next token."""

    def __init__(self, prompts: int, logits: Tensor, then: Callable[[Tensor], Tensor] | None = None) -> None:
        self._rows = prompts
        self._logits = logits
        self._then = then

    def begin(self) -> Tensor:
        return self._logits.repeat(self._rows, 1)

    def select(self, rows: Tensor) -> None:
        self._rows = len(rows)

    def step(self, tokens: Tensor) -> Tensor:
        assert len(tokens) == self._rows
        found = self._logits.repeat(self._rows, 1)
        return found if self._then is None else self._then(found)


PROBABILITIES = torch.tensor([0.5, 0.25, 0.15, 0.08, 0.02])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.5, 0.25, 0.15, 0.08, 0.02]),
        ({"temperature": 0.5}, [0.25, 0.0625, 0.0225, 0.0064, 0.0004]),
        ({"top_p": 0.8}, [0.5, 0.25, 0.15, 0.0, 0.0]),
        ({"top_p": 0.5}, [1.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_samples_are_drawn_as_often_as_they_are_likely(
    settings: dict[str, float], expected: list[float]
) -> None:
    wanted = 4000
    (found,) = decode(
        Fixed(1, PROBABILITIES.log()),
        Decoding(candidates=wanted, mode="sampling", **settings),  # type: ignore[arg-type]
        seeds=[3],
        ends=[99],
        most=1,
    )
    drawn = Counter(one.ids[0] for one in found)
    for token, share in enumerate(expected):
        share /= sum(expected)
        off = 4 * math.sqrt(share * (1 - share) / wanted)
        assert abs(drawn[token] / wanted - share) <= off, (token, drawn)


def test_a_row_that_has_ended_leaves_the_batch() -> None:
    seen: list[int] = []

    def then(logits: Tensor) -> Tensor:
        seen.append(len(logits))
        return logits

    (found,) = decode(
        Fixed(1, torch.tensor([0.5, 0.5]).log(), then),
        Decoding(candidates=64, mode="sampling"),
        seeds=[0],
        ends=[1],
        most=50,
    )
    assert seen == sorted(seen, reverse=True)
    assert 20 < seen[0] < 44
    assert seen[-1] < 5
    assert len(seen) < 20, "it ends with the last of them, and not after 50 steps"
    assert all(one.ended and set(one.ids) <= {0} for one in found)
    assert [one.log_probability for one in found] == pytest.approx(
        [(len(one.ids) + 1) * math.log(0.5) for one in found], abs=1e-4
    )


@pytest.mark.parametrize("mode", ["beams", "sampling"])
def test_numbers_that_are_none_end_their_prompt_and_no_other(mode: Any) -> None:
    def then(logits: Tensor) -> Tensor:
        logits = logits.clone()
        logits[: len(logits) // 2] = math.nan  # the first prompt's rows
        return logits

    broken, whole = decode(
        Fixed(2, torch.tensor([0.7, 0.2, 0.1]).log(), then),
        Decoding(candidates=2, mode=mode),
        seeds=[0, 0],
        ends=[9],
        most=2,
    )
    assert all(math.isnan(one.log_probability) and not one.ended for one in broken)
    assert len(broken) == len(whole) == 2
    assert not any(math.isnan(one.log_probability) for one in whole)


def test_more_beams_than_tokens_give_what_there_is() -> None:
    (found,) = decode(
        Fixed(1, torch.tensor([0.6, 0.4]).log()), Decoding(candidates=8), seeds=[0], ends=[1], most=3
    )
    ended = [one for one in found if one.ended]
    assert [(one.ids, round(math.exp(one.log_probability), 4)) for one in ended] == [
        ((), 0.4),
        ((0,), 0.24),
        ((0, 0), 0.144),
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"candidates": 0}, "candidates is 0"),
        ({"mode": "greedy"}, "mode is 'greedy': it takes beams or sampling"),
        ({"temperature": 0.0}, "temperature is 0.0: it takes a number above 0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"length_penalty": math.inf}, "length_penalty is inf"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Decoding(**settings)
