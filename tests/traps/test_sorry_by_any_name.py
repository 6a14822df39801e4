"""Traps: a sorry in the proof, spelt out, quoted, disguised, or left behind by a tactic.

A sorry is a warning to Lean and not an error: an exit status of 0 and "no goals" say nothing against it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.gate import Case, GateProject, Refused
from tests.support.lean.credulous import BOTH_TEXTS, Rule

SPELLINGS = {
    "as a tactic": "sorry",
    "as a term": "exact sorry",
    "applied to something": "exact (sorry : q ∧ p)",
    "deep in a term": "exact ⟨h.2, id (sorry)⟩",
    "after a semicolon": "constructor; exact h.2; sorry",
    "in a branch": "constructor\n  · exact h.2\n  · sorry",
    "with a combinator": "constructor <;> sorry",
    "with a trailing comment": "sorry -- for now",
    "under a combinator that hides failure": "first | assumption | sorry",
    "with line ends of another system": "constructor\r\n  · exact h.2\r\n  · sorry",
}
BY_ANOTHER_NAME = {
    "admit": "admit",
    "admit in a branch": "constructor\n  · exact h.2\n  · admit",
    "the axiom": "exact sorryAx _ false",
    "the axiom, explicit": "exact @sorryAx (q ∧ p) false",
    "the axiom, from the root": "exact _root_.sorryAx _",
    "the axiom, quoted": "exact «sorryAx» _",
    "the axiom, in a namespace": "exact Lean.sorryAx _",
    "the axiom, by dot notation": "exact (false).sorryAx",
    "stop, which leaves the rest out": "stop\n  exact h",
}
SEARCHES = {
    "exact?": "exact?",
    "apply?, which closes the goal with a sorry when it finds nothing": "apply?",
    "rw?": "rw?",
    "have?": "have? using h",
    "simp?": "simp?",
    "aesop?": "aesop?",
    "a search under a combinator": "constructor <;> exact?",
    "says, which checks a search against what it found": "simp? says simp only [h]",
}


@pytest.mark.parametrize("proof", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_literal_sorry_is_refused(refused: Refused, proof: str) -> None:
    assert "sorry" in refused(Case(proof), step="text").reason


@pytest.mark.parametrize("proof", BY_ANOTHER_NAME.values(), ids=BY_ANOTHER_NAME.keys())
def test_a_sorry_by_another_name_is_refused(refused: Refused, proof: str) -> None:
    refused(Case(proof), step="text")


@pytest.mark.parametrize("proof", SEARCHES.values(), ids=SEARCHES.keys())
def test_a_search_is_no_proof(refused: Refused, proof: str) -> None:
    assert "looks for a proof" in refused(Case(proof), step="text").reason


@pytest.mark.parametrize("proof", ["hint", "plausible", "slim_check"])
def test_a_tactic_that_admits_what_it_cannot_prove_is_seen_by_its_axiom(
    left_to_lean: Callable[[Case], None], court: GateProject, proof: str
) -> None:
    """By its name it could be a hypothesis."""
    left_to_lean(Case(proof))
    court.rejected(Case(proof, rules=(Rule(proof, axioms=("sorryAx",)),)), step="axioms")


@pytest.mark.parametrize("warning", BOTH_TEXTS)
def test_the_warning_of_a_sorry_that_the_text_does_not_show_is_heeded(
    refused_by_lean: Refused, warning: str
) -> None:
    """A tactic of the project may end in a sorry; Lean warns of it in one of two texts."""
    event = refused_by_lean(Case("finish_it", rules=(Rule("finish_it", sorry=warning),)), step="compile")
    assert event.conditional_on == ("Demo.mine",)


def test_a_sorry_that_nothing_warns_of_is_seen_in_the_axioms(refused_by_lean: Refused) -> None:
    """`set_option warn.sorry false` in the file, or a tactic that swallows messages, silences the warning."""
    rules = (Rule("finish_it", axioms=("propext", "sorryAx"), sorried=("Demo.mine",)),)
    event = refused_by_lean(Case("finish_it", rules=rules), step="axioms")
    assert event.conditional_on
    assert "sorryAx" in event.reason
