from __future__ import annotations

import time

import pytest

from pipeline.prove.whole_proof import LONGEST, block_of, read_proof

TERM = "theorem N.t (p q : Prop) : p ∧ q → q ∧ p := sorry\n"
TACTIC = "theorem N.t (p q : Prop) : p ∧ q → q ∧ p := by\n  sorry\n"
INNER = "theorem t (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  constructor\n  · sorry\n  · exact h.1\n"
BLOCK = "by\n  intro h\n  exact ⟨h.2, h.1⟩"
STATED = "theorem t (p q : Prop) : p ∧ q → q ∧ p := by\n  intro h\n  exact ⟨h.2, h.1⟩"


@pytest.mark.parametrize("declaration", [TERM, TACTIC])
@pytest.mark.parametrize(
    "answer",
    [
        "by\n  intro h\n  exact ⟨h.2, h.1⟩",
        ":= by\n  intro h\n  exact ⟨h.2, h.1⟩",
        "by intro h\n   exact ⟨h.2, h.1⟩",
        "intro h\nexact ⟨h.2, h.1⟩",
        "    intro h\n    exact ⟨h.2, h.1⟩\n",
        "by\r\n\tintro h\r\n\texact ⟨h.2, h.1⟩",
        STATED,
        f"```lean\n{STATED}\n```",
        f"Sure! Here it is:\n\n```lean4\n{STATED}\n```\n\nThis swaps the two parts.",
        f"First idea:\n```lean\nby simp\n```\nBetter:\n```lean\n{STATED}\n```\nIn Python:\n```python\npass\n```",
        f"```\n{STATED}\n```",
        f"```lean\n{STATED}",
        f"<think>maybe\n```lean\nby simp\n```\n</think>\n{STATED}",
        f"import Mathlib\nopen Nat\n\nlemma other : True := trivial\n\n{STATED}\n\n#check t\n",
        f"{STATED}\n\ntheorem u : True := trivial",
        "by\n  -- swap `h`\n  intro h /- here -/\n\n  exact ⟨h.2, h.1⟩ -- done",
    ],
)
def test_the_proof_is_found_in_an_answer_of_any_shape(answer: str, declaration: str) -> None:
    assert read_proof(answer, declaration).proofs == (BLOCK,)


@pytest.mark.parametrize(
    ("answer", "proof"),
    [
        ("fun h => ⟨h.2, h.1⟩", "fun h => ⟨h.2, h.1⟩"),
        ("```lean\nfun h =>\n      ⟨h.2, h.1⟩\n```", "fun h =>\n  ⟨h.2, h.1⟩"),
        ("example : p := fun h =>\n  ⟨h.2, h.1⟩", "fun h =>\n  ⟨h.2, h.1⟩"),
        (":= And.symm", "And.symm"),
    ],
)
def test_a_term_is_a_proof_too(answer: str, proof: str) -> None:
    proofs = read_proof(answer, TACTIC).proofs
    assert proof in proofs
    assert block_of(proof) is None


def test_one_line_that_could_be_either_is_read_as_tactics_first() -> None:
    assert read_proof("And.symm", TERM).proofs == ("by\n  And.symm", "And.symm")
    assert read_proof("exact h", TERM).proofs[0] == "by\n  exact h"


@pytest.mark.parametrize("tactic", ["exact foo_by_cases h", "exact lean_lemma x", "rcases h with ⟨by_me, _⟩"])
def test_no_name_loses_a_part_of_itself(tactic: str) -> None:
    # LeanDojo-v2 deletes every "by", and all before the last "lean".
    assert read_proof(f"```lean\nby\n  {tactic}\n```", TERM).proofs == (f"by\n  {tactic}",)
    assert read_proof(tactic, TERM).proofs[0] == f"by\n  {tactic}"


def test_a_statement_is_never_taken_from_the_answer() -> None:
    answer = "theorem t (p q : Prop) : True := by\n  trivial"
    assert read_proof(answer, TERM).proofs == ("by\n  trivial",)


@pytest.mark.parametrize(
    ("statement", "proof"),
    [
        ("theorem t (n : Nat := by exact 3) : n = n := by rfl", "by\n  rfl"),
        ("theorem t : let x := 2; x = x := by\n  intro x\n  rfl", "by\n  intro x\n  rfl"),
    ],
)
def test_a_statement_with_a_value_in_it_is_passed_whole(statement: str, proof: str) -> None:
    assert read_proof(statement, TERM).proofs == (proof,)


def test_of_several_theorems_the_one_of_that_name_counts() -> None:
    answer = f"{STATED}\n\ntheorem helper : True := by\n  trivial"
    assert read_proof(answer, TERM).proofs == (BLOCK,)


def test_lines_keep_their_depth() -> None:
    answer = "theorem t : a := by\n    cases h with\n    | inl x =>\n      exact x\n    | inr y => exact y"
    assert read_proof(answer, TERM).proofs == (
        "by\n  cases h with\n  | inl x =>\n    exact x\n  | inr y => exact y",
    )


def test_a_continuation_line_behind_by_stays_one() -> None:
    answer = "theorem t : a := by rcases h with\n    ⟨x,\n      y⟩"
    assert read_proof(answer, TERM).proofs[0] == "by\n  rcases h with\n    ⟨x,\n      y⟩"


def test_tactics_below_one_behind_by_are_tried_though_lean_would_not_read_them_so() -> None:
    answer = "theorem t : a := by intro h\n  exact ⟨h.2,\n    h.1⟩"
    assert read_proof(answer, TERM).proofs[1] == "by\n  intro h\n  exact ⟨h.2,\n    h.1⟩"


def test_a_theorem_stated_again_gives_the_text_for_an_inner_sorry() -> None:
    answer = INNER.replace("sorry", "have x := h\n    exact x.2")
    assert read_proof(answer, INNER).proofs == ("by\n  have x := h\n  exact x.2",)
    assert read_proof("exact h.2", INNER).proofs[0] == "by\n  exact h.2"


def test_a_theorem_that_differs_from_the_file_is_refused_with_the_reason() -> None:
    result = read_proof(STATED, INNER)
    assert result.proofs == ()
    assert "around the sorry" in result.why


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "no proof"),
        (" \n\t\n", "no proof"),
        ("```lean\n```", "no proof"),
        ("-- I cannot do this", "no proof"),
        ("by", "nothing behind the `by`"),
        ("theorem t : p :=", "nothing behind its `:=`"),
        ("theorem t : p\n  | x => x", "no proof behind"),
        ("by simp /- and so on", "not closed"),
        ("x" * (LONGEST + 1), f"no proof has more than {LONGEST}"),
    ],
)
def test_an_answer_without_a_proof_says_why(answer: str, why: str) -> None:
    result = read_proof(answer, TERM)
    assert result.proofs == ()
    assert why in result.why


@pytest.mark.parametrize(
    "answer", ["by \ud800", "by\x00\x1b[2J", "``````", "theorem", ":=:=", "by " * 900, "(" * 9000]
)
def test_no_text_raises(answer: str) -> None:
    for declaration in (TERM, TACTIC, INNER, "", "sorry", "\ud800"):
        read_proof(answer, declaration)


@pytest.mark.parametrize("filler", [" ", "\n", "```", "``` ", "by\n", "(", "«"])
def test_a_model_that_does_not_stop_takes_no_time(filler: str) -> None:
    begun = time.process_time()
    assert read_proof("```lean\n" + filler * 1_000_000 + "x", TERM).proofs == ()
    assert time.process_time() - begun < 5


def test_a_block_is_distinguished_from_a_term() -> None:
    assert block_of(BLOCK) == ("intro h", "exact ⟨h.2, h.1⟩")
    assert block_of("by simp") is None
    assert block_of("by") is None
