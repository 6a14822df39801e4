"""Properties over many texts: only the sorry's bytes may change, and no text is a proof because it reads like one."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from pipeline.gate import lake_checks
from pipeline.gate.source_checks import in_its_place, parts_of
from pipeline.lean.source.lexer import words
from pipeline.lean.source.splice import Replacement, splice
from tests.support.gate import FILE, Case, GateProject, does_not_compile

HOLE = FILE.encode().index(b"HOLE")
BEFORE = FILE.replace("HOLE", "sorry").encode()
PROOF = "exact ⟨h.2, h.1⟩"
TOKENS = st.sampled_from(
    sorted(
        words(
            "exact intro h h.1 h.2 ⟨ ⟩ ( ) [ ] { } by := => · ; , . : | <;> _ ? ?x fun have show simp rfl omega "
            "mine later helper sorry admit sorryAx axiom theorem end namespace Demo open in set_option "
            'debug.skipKernelTC true #eval native_decide instance macro -- /- -/ " « » @ @[simp] let rec where '
            "'\\n' ← ↦ ∀ ¬ ∧ False.elim 0 1"
        )
    )
)
SPACES = st.sampled_from([" ", "\n", "\n  ", "\n    ", ""])
SOUP = st.lists(st.tuples(TOKENS, SPACES), min_size=1, max_size=14).map(
    lambda words: "".join(word + space for word, space in words)
)


@given(
    start=st.integers(0, len(BEFORE)),
    end=st.integers(0, len(BEFORE)),
    text=st.one_of(st.sampled_from(["", PROOF, "rfl", "sorry"]), SOUP),
)
@example(start=HOLE, end=HOLE + 4, text=PROOF)
@example(start=HOLE - 1, end=HOLE + 5, text=PROOF)
@example(start=HOLE + 5, end=HOLE + 5, text=PROOF)
@settings(max_examples=150, deadline=None)
def test_only_the_sorry_s_own_bytes_may_be_replaced(start: int, end: int, text: str) -> None:
    assume((start, end) != (HOLE, HOLE + len("sorry")))
    assert isinstance(parts_of(BEFORE, Replacement(min(start, end), max(start, end), text)), str)


@given(at=st.integers(0, len(BEFORE)), text=SOUP)
@settings(max_examples=150, deadline=None)
def test_a_file_that_differs_elsewhere_too_is_another_shape(at: int, text: str) -> None:
    """The splice is the only way to the patched file; were there another, a second change would still show."""
    after = splice(BEFORE, Replacement(HOLE, HOLE + len("sorry"), PROOF))
    grown = len(after) - len(BEFORE)
    outside = at if at <= HOLE else at + grown
    start = after.index(b"theorem mine")
    end = after.index(b"theorem later")
    assume(not start <= outside <= end)  # inside the declaration its statement and its text's hash hold it
    assume(text.strip() and not text.strip().startswith("--"))
    other = after[:outside] + text.encode() + after[outside:]
    assert in_its_place(BEFORE, other)


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory) -> GateProject:
    return GateProject(tmp_path_factory.mktemp("soup"))


@given(text=SOUP)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_token_soup_is_never_verified_without_the_compile_step(court: GateProject, text: str) -> None:
    """Here everything after the compile step says yes; the compile step is Lean's and says that it was not made."""
    with patch.object(lake_checks, "findings", does_not_compile):
        judged = court.judge(Case(text), lean="credulous")
    assert judged.type == "proof_rejected"
    passed = {check.step for check in judged.checks if check.verdict == "passed"}
    assert "compile" not in passed
