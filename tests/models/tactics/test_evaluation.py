"""Measuring a tactic model: what counts as the tactic that people ran, and the share of its tokens that is known."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.job import comparable, evaluate, sampled, token_accuracies
from pipeline.models.tactics.models import TacticModel, load_model
from pipeline.models.tactics.requests import Suggestion, Suggestions
from pipeline.models.tactics.rows import Row
from tests.support.tiny_models import make_tiny_causal, make_tiny_seq2seq


@pytest.fixture(scope="module", params=["causal", "seq2seq"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TacticModel:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "causal":
        make_tiny_causal(folder, hidden=32, layers=1)
    else:
        make_tiny_seq2seq(folder, d_model=32, layers=1)
    found = load_model(folder, max_seq_len=400)
    with torch.no_grad():
        # Random weights know nothing: this one says "a" wherever it is not sure that it should not.
        found.model.get_output_embeddings().weight[found.prompts.answer_ids("a")[0]] *= 50
    return found


def rows_of(*steps: tuple[str, str]) -> tuple[Row, ...]:
    return tuple(
        Row(state, tactic, f"t{number}", "A.lean", 0) for number, (state, tactic) in enumerate(steps)
    )


def known_share(model: TacticModel, row: Row) -> float:
    """The same, token by token, without a batch."""
    prompt, answer = model.prompts.ids(row.state), model.prompts.answer_ids(row.tactic)
    right = 0
    for number, token in enumerate(answer):
        with torch.inference_mode():
            if model.prompts.kind == "seq2seq":
                begins = model.model.config.decoder_start_token_id
                read = model.model(
                    input_ids=torch.tensor([prompt]),
                    decoder_input_ids=torch.tensor([[begins, *answer[:number]]]),
                )
            else:
                read = model.model(input_ids=torch.tensor([[*prompt, *answer[:number]]]))
        right += int(read.logits[0, -1].argmax()) == token
    return right / len(answer)


def test_the_share_of_known_tokens_is_that_of_each_row_alone(model: TacticModel) -> None:
    # Padding that a model might say counts no more than any other.
    model = replace(model, tokenizer=copy.deepcopy(model.tokenizer))
    model.tokenizer.pad_token = "a"
    rows = rows_of(("⊢ p", "aa baa"), ("⊢ q", "exact a"), ("h : a\n⊢ b ∧ a", "rfl"), ("⊢ a", "a" * 9))
    found = token_accuracies(model, rows)
    assert found == pytest.approx([known_share(model, row) for row in rows])
    assert 0 < max(found) < 1


def test_a_tactic_longer_than_an_answer_may_be_is_known_in_part_at_most(model: TacticModel) -> None:
    (row,) = rows_of(("⊢ p", "x" * 300))
    assert token_accuracies(model, [row])[0] < model.lengths.answer / 300


def test_a_step_counts_where_its_own_tactic_is_among_the_first(
    model: TacticModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"⊢ a": ("simp", "rfl"), "⊢ b": ("rfl", "simp  [h]"), "⊢ c": ("rfl",), "⊢ d": ()}

    def suggest(_self: Generator, requests: list[object]) -> list[Suggestions]:
        texts = [answers[str(getattr(request, "state", ""))] for request in requests]
        return [Suggestions(tuple(Suggestion(text, -1.0) for text in one), {}) for one in texts]

    monkeypatch.setattr(Generator, "suggest", suggest)
    steps: list[tuple[int, int]] = []
    found = evaluate(
        model,
        rows_of(("⊢ a", "simp"), ("⊢ b", "simp [h]"), ("⊢ c", "simp"), ("⊢ d", "simp")),
        on_batch=lambda done, total: steps.append((done, total)),
    )
    assert (found.metrics["tactic@1"], found.metrics["tactic@8"]) == (0.25, 0.5)
    assert (found.n, len(found.scores), steps) == (4, 4, [(4, 4)])
    assert found.metrics["tactic@8_low"] < 0.5 < found.metrics["tactic@8_high"]


def test_the_same_steps_are_drawn_whatever_else_is_there() -> None:
    rows = rows_of(*((f"⊢ {number}", "simp") for number in range(60)))
    assert sampled(rows, 0, 1) == sampled(rows, 60, 1) == rows
    drawn = sampled(rows, 20, 1)
    assert len(drawn) == 20
    assert [row for row in rows if row in drawn] == list(drawn), "in their order"
    assert drawn != sampled(rows, 20, 2)
    kept = [row for row in rows if row in drawn or int(row.theorem[1:]) % 2]
    assert set(sampled(kept, 20, 1)) == set(drawn)


@pytest.mark.parametrize(
    ("tactic", "same"),
    [("simp   [h]", "simp [h]"), ("a\n    b  c", "a\n    b c")],
)
def test_spaces_within_a_line_do_not_count_and_lines_do(tactic: str, same: str) -> None:
    assert comparable(tactic) == comparable(same) == same
    assert comparable(tactic.replace("\n", " ")) != same or "\n" not in tactic
