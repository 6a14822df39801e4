from __future__ import annotations

import pytest

from pipeline.lean.tactic_text import Step
from pipeline.models.progress.model import fitting_text, progress_text

STEP = Step("h : p\n⊢ p ∧ q", "exact ⟨h, hq⟩", "intro h\nhave hq : q := by\n  simp")


def test_the_text_is_the_reference_s() -> None:
    assert progress_text(STEP) == (
        "Goal:\nh : p\n⊢ p ∧ q\n\nPrefix:\nintro h\nhave hq : q := by\n  simp\n\n"
        "Candidate tactic:\nexact ⟨h, hq⟩"
    )
    assert progress_text(Step("⊢ p", "simp")) == "Goal:\n⊢ p\n\nPrefix:\n\n\nCandidate tactic:\nsimp"


def test_a_state_is_the_same_text_from_a_dataset_and_from_a_search() -> None:
    counted = Step("2 goals\ncase left\n⊢ p\n\ncase right\n⊢ q", "simp")
    assert progress_text(counted) == progress_text(Step("case left\n⊢ p\n\ncase right\n⊢ q\n", " simp\n"))


def test_what_fits_is_not_cut() -> None:
    text = progress_text(STEP)
    assert fitting_text(STEP, lambda shown: len(shown) <= len(text)) == text


@pytest.mark.parametrize("room", [46, 60, 80, 100, 200, 1000])
def test_the_step_and_the_target_stay_whatever_else_is_cut(room: int) -> None:
    step = Step(
        "\n".join(f"h{number} : p{number}" for number in range(50)) + "\n⊢ q",
        "exact h3",
        "\n".join(f"have h{number} := x{number}" for number in range(50)),
    )
    shown = fitting_text(step, lambda text: len(text) <= room)
    assert len(shown) <= room
    assert shown.endswith("Candidate tactic:\nexact h3")
    assert shown.startswith("Goal:\n")
    if room >= 60:
        assert "⊢ q\n" in shown


def test_the_newest_steps_of_the_prefix_stay_and_the_goal_is_cut_after_them() -> None:
    step = Step("h : p\n⊢ q", "simp", "\n".join(f"have x{number} := {number}" for number in range(20)))
    shown = fitting_text(step, lambda text: len(text) <= 120)
    assert "h : p\n⊢ q" in shown
    assert "…\n" in shown
    assert "have x19 := 19\n" in shown
    assert "have x0 :=" not in shown
    kept = [int(line[6:8]) for line in shown.splitlines() if line.startswith("have x")]
    assert kept == list(range(kept[0], 20)), "the newest, in their order, none left out between"


def test_a_step_too_long_for_the_model_is_still_a_text() -> None:
    shown = fitting_text(Step("⊢ p", "x" * 1000, "intro"), lambda text: len(text) <= 50)
    assert shown.endswith("x" * 1000), "the tokenizer cuts the end"
    assert "⊢ p" not in shown
