"""A sorry is a token of Lean, not five letters."""

from __future__ import annotations

import pytest

from store.domain.records import holds_sorry


@pytest.mark.parametrize(
    "text",
    [
        "sorry",
        "admit",
        "exact sorry",
        "exact (sorry : p)",
        "exact foo sorry.1",
        "refine ⟨sorry, ?_⟩",
        "· sorry",
        "·sorry",
        "constructor <;> sorry",
        "simp; sorry",
        "calc a = b := by sorry\n  _ = c := rfl",
        "/- why not -/ sorry",
        "/- a /- b -/ c -/sorry",
        'exact f "no" sorry',
        "exact f '\"' sorry",
        r"exact f '\'' sorry",
        "have h' := sorry",
        "exact f s! sorry",
        "fun x₁ ↦ sorry",
        "λ x => sorry",
        "let n := 3; sorry",
        "-- a line\nsorry",
        'exact r#"raw " text"# ++ sorry',
    ],
)
def test_what_holds_one(text: str) -> None:
    assert holds_sorry(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "simp",
        "exact sorry_lemma",
        "exact not_sorry",
        "exact sorry'",
        "exact sorry?",
        "exact sorry₁",
        "exact Foo.sorry",
        "exact sorry.elim",
        "exact h.sorry",
        "exact (f x).sorry",
        "exact ⟨a, b⟩.sorry",
        "exact «sorry»",
        "exact Foo.«sorry».bar",
        "exact admittedly",
        "exact sorryAx p",
        "simp -- sorry",
        "simp /- sorry -/",
        "simp /- a /- b -/ sorry -/",
        "simp /- sorry",
        'exact f "sorry"',
        r'exact f "a \" sorry"',
        'exact f r"\\" ++ "sorry"',
        'exact f r#"a " sorry"#',
        "exact `sorry",
        "exact ``Foo.sorry",
        "exact μ_sorry",
        "exact ℝsorry",
    ],
)
def test_what_holds_none(text: str) -> None:
    assert not holds_sorry(text)
