"""Measuring a tactic model: what counts as the tactic that people ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.job import evaluate, sampled
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.requests import Suggestion, Suggestions
from pipeline.models.tactics.rows import Row


def rows_of(*steps: tuple[str, str]) -> tuple[Row, ...]:
    return tuple(
        Row(state, tactic, f"t{number}", "A.lean", 0) for number, (state, tactic) in enumerate(steps)
    )


def test_a_step_counts_where_its_own_tactic_is_among_the_first(
    causal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"⊢ a": ("simp", "rfl"), "⊢ b": ("rfl", "simp [h]"), "⊢ c": ("rfl",), "⊢ d": ()}

    def suggest(_self: Generator, requests: list[object]) -> list[Suggestions]:
        texts = [answers[str(getattr(request, "state", ""))] for request in requests]
        return [Suggestions(tuple(Suggestion(text, -1.0) for text in one), {}) for one in texts]

    monkeypatch.setattr(Generator, "suggest", suggest)
    steps: list[tuple[int, int]] = []
    found = evaluate(
        load_model(causal, max_seq_len=400),
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
