from __future__ import annotations

from typing import Any

import pytest

from pipeline.lean.tactic_text import Step
from pipeline.models.progress.model import step_ids


class Characters:
    """A tokenizer with a token for each character."""

    def __init__(self, longest: int) -> None:
        self.model_max_length = longest

    def __call__(self, text: str, *, truncation: bool = False, verbose: bool = True) -> dict[str, list[int]]:
        return {"input_ids": list(map(ord, text))[: self.model_max_length if truncation else None]}


def shown(step: Step, room: int = 1000) -> str:
    tokenizer: Any = Characters(room)
    return "".join(map(chr, step_ids(step, tokenizer)))


def test_the_text_is_the_reference_s() -> None:
    step = Step("h : p\n⊢ p ∧ q", "exact ⟨h, hq⟩", "intro h\nhave hq : q := by\n  simp")
    text = (
        "Goal:\nh : p\n⊢ p ∧ q\n\nPrefix:\nintro h\nhave hq : q := by\n  simp\n\n"
        "Candidate tactic:\nexact ⟨h, hq⟩"
    )
    assert shown(step) == shown(step, len(text)) == text
    assert shown(Step("⊢ p", "simp")) == "Goal:\n⊢ p\n\nPrefix:\n\n\nCandidate tactic:\nsimp"


def test_a_state_is_the_same_text_from_a_dataset_and_from_a_search() -> None:
    counted = Step("2 goals\ncase left\n⊢ p\n\ncase right\n⊢ q", "simp")
    assert shown(counted) == shown(Step("case left\n⊢ p\n\ncase right\n⊢ q\n", " simp\n"))


@pytest.mark.parametrize("room", [46, 60, 80, 100, 200, 1000])
def test_the_step_and_the_target_stay_whatever_else_is_cut(room: int) -> None:
    step = Step(
        "\n".join(f"h{number} : p{number}" for number in range(50)) + "\n⊢ q",
        "exact h3",
        "\n".join(f"have h{number} := x{number}" for number in range(50)),
    )
    text = shown(step, room)
    assert len(text) <= room
    assert text.endswith("Candidate tactic:\nexact h3")
    assert text.startswith("Goal:\n")
    if room >= 60:
        assert "⊢ q\n" in text


def test_the_newest_steps_of_the_prefix_stay_and_the_goal_is_cut_after_them() -> None:
    step = Step("h : p\n⊢ q", "simp", "\n".join(f"have x{number} := {number}" for number in range(20)))
    text = shown(step, 120)
    assert "h : p\n⊢ q" in text
    assert "…\n" in text
    kept = [int(line[6:8]) for line in text.splitlines() if line.startswith("have x")]
    assert kept == list(range(kept[0], 20)), "the newest, in their order, none left out between"
    assert kept[0] > 0


def test_a_step_too_long_for_the_model_is_still_a_text() -> None:
    text = shown(Step("⊢ p", "x" * 1000, "intro"), 50)
    assert text == f"Goal:\n…\n\nPrefix:\n…\n\nCandidate tactic:\n{'x' * 100}"[:50]
