"""Tactics that Lean printed anew are found in the source whatever its layout, each at its own place."""

from __future__ import annotations

import pytest

from pipeline.lean.source.lexer import lex
from pipeline.trace.source import place


def found(source: str, *tactics: str) -> list[str | None]:
    code = lex(source).code
    return [
        None if span is None else source[span.start : span.end]
        for span in place(tactics, code=code, start=0, end=len(code))
    ]


def test_layout_and_comments_do_not_matter() -> None:
    source = "by\n  rw [foo,\n      bar] -- twice\n  exact  f   x /- so -/ y"
    assert found(source, "rw [foo, bar]", "exact f x y") == [
        "rw [foo,\n      bar]",
        "exact  f   x /- so -/ y",
    ]


def test_words_are_not_run_together() -> None:
    assert found("exact h x\nexact hx", "exact hx") == ["exact hx"]
    assert found("exact hxy", "exact hx") == [None]
    assert found("simp_all", "simp") == [None]


def test_the_same_text_twice_is_two_places_and_an_outer_step_comes_before_its_inner_ones() -> None:
    source = "cases h with\n| inl h => exact h\n| inr h => exact h"
    code = lex(source).code
    outer, first, second = place([source, "exact h", "exact h"], code=code, start=0, end=len(code))
    assert outer is not None
    assert first is not None
    assert second is not None
    assert outer.holds(first)
    assert outer.holds(second)
    assert first.end < second.start


def test_a_tactic_that_ran_more_often_than_it_stands_there_is_found_where_it_stands() -> None:
    assert found("constructor <;> assumption", "constructor", "assumption", "assumption") == [
        "constructor", "assumption", "assumption",
    ]  # fmt: skip
    source = "all_goals (intro h; exact h)"
    assert found(source, "intro h", "exact h", "intro h", "exact h") == ["intro h", "exact h"] * 2


@pytest.mark.parametrize(("written", "printed"), [("fun x ↦ x", "fun x => x"), ("λ x => x", "fun x ↦ x")])
def test_spellings_of_one_token_are_the_same(written: str, printed: str) -> None:
    assert found(f"exact {written}", f"exact {printed}") == [f"exact {written}"]


def test_what_is_not_there_is_not_found_and_hinders_nothing() -> None:
    assert found("intro h\nexact h", "intro h", "exact (g h)", "exact h") == ["intro h", None, "exact h"]
    assert found("", "intro h", "") == [None, None]
