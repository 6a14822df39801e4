"""What a model's text is as a tactic, and what of it is none."""

from __future__ import annotations

import pytest

from pipeline.lean.source.lexer import lex
from pipeline.lean.tactic_text import LONGEST, read_tactic


@pytest.mark.parametrize(
    ("said", "tactic"),
    [
        ("simp [h]", "simp [h]"),
        ("  exact h\n", "exact h"),
        ("```lean\nexact ⟨h.2, h.1⟩\n```", "exact ⟨h.2, h.1⟩"),
        ("Here it is:\n```lean4\nintro h\nexact h\n```\nIt works.", "intro h\nexact h"),
        ("```\nrfl", "rfl"),
        ("<think>\nsorry?\n</think>\nomega", "omega"),
        ("by simp", "simp"),
        ("by\n  intro h\n  exact h", "intro h\nexact h"),
        ("by_cases h : p", "by_cases h : p"),
        ("bypass h", "bypass h"),
        ("exact by simp", "exact by simp"),
        ("exact foo_by_cases h", "exact foo_by_cases h"),
        ("exact lean_lemma x", "exact lean_lemma x"),
        ("simp\r\nrfl", "simp\nrfl"),
        ("have h : p := by\n\tsimp\nexact h", "have h : p := by\n  simp\nexact h"),
        ("have h : p := by\n  simp\n\n  exact g", "have h : p := by\n  simp\n  exact g"),
        ("    constructor\n    · simp\n    · rfl", "constructor\n· simp\n· rfl"),
    ],
)
def test_a_tactic_is_what_the_model_said_without_what_stands_around_it(said: str, tactic: str) -> None:
    answer = read_tactic(said)
    assert (answer.tactic, answer.flaw, answer.why) == (tactic, None, "")


@pytest.mark.parametrize(
    ("said", "tactic"),
    [
        ("simp -- and now the rest", "simp"),
        ("simp\n-- closes the goal", "simp"),
        ("-- first\nsimp\nrfl -- last", "simp\nrfl"),
        ("exact /- the left one -/ h", f"exact {' ' * len('/- the left one -/')} h"),
        ('exact f "-- no comment"', 'exact f "-- no comment"'),
    ],
)
def test_a_comment_cannot_swallow_what_stands_behind_the_tactic(said: str, tactic: str) -> None:
    answer = read_tactic(said)
    assert answer.tactic == tactic
    assert lex(f"{answer.tactic}; done").code.endswith("; done")


@pytest.mark.parametrize(
    ("said", "flaw"),
    [
        ("", "empty"),
        (" \n\t\n", "empty"),
        ("-- nothing but this", "empty"),
        ("```lean\n```", "empty"),
        ("by ", "empty"),
        ("simp /- and the rest of the file", "unclosed"),
        ('exact "', "unclosed"),
        ("simp\x00", "characters"),
        ("\x1b[31mrfl", "characters"),
        ("exact \ufffdh", "characters"),
        ("exact \ud800", "characters"),
        ("ex\u200bact h", "characters"),
        ("simp " * 10_000, "too_long"),
    ],
)
def test_what_is_no_tactic_says_what_is_wrong_with_it(said: str, flaw: str) -> None:
    answer = read_tactic(said)
    assert (answer.tactic, answer.flaw) == ("", flaw)
    assert answer.why


def test_the_longest_tactic_is_read_and_one_character_more_is_not() -> None:
    assert read_tactic("x" * LONGEST).flaw is None
    assert read_tactic("x" * (LONGEST + 1)).flaw == "too_long"
