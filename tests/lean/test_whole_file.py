"""Rung 0 with a Lean whose language server cannot be spoken to: tactics are tried in whole files."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.jobs.protocol import JobError
from pipeline.lean.backend import LeanBackend
from tests.support.prove import attempts, parameters, run
from tests.support.trace import lean_itself

SOURCE = """\
namespace Demo

/-- Closed by one tactic, in a term's place. -/
@[simp] theorem same (p : Prop) : p ∧ p ↔ p := sorry

theorem swap : ∀ p q : Prop, p ∧ q → q ∧ p := by
  sorry

theorem wrong (n : Nat) : n = n + 1 := by
  sorry

theorem two (p : Prop) (h : p) : p ∧ p := ⟨sorry, sorry⟩

end Demo
"""


def stand_in(folder: Path, lean: Path, script: str) -> LeanBackend:
    """Lean itself behind a shell script, which runs first."""
    program = folder / "stand-in-lean"
    program.write_text(f'#!/bin/sh\n{script}\nexec {shlex.quote(f"{lean}/bin/lean")} "$@"\n')
    program.chmod(0o755)
    return replace(lean_itself(lean), argv=(str(program),))


MUTE = 'case "$1" in --server) echo "unknown option --server" >&2; exit 1;; esac'


@pytest.fixture
def mute(real_lean: Path, tmp_path: Path) -> LeanBackend:
    """Lean itself, but for its language server."""
    return stand_in(tmp_path, real_lean, MUTE)


def test_one_run_of_the_compiler_judges_all_tactics_for_a_sorry(mute: LeanBackend, tmp_path: Path) -> None:
    bodies, _ = run(parameters(tmp_path, SOURCE, lean=mute), tmp_path / "job")
    said = attempts(bodies)
    assert {name: one.outcome for name, one in said.items()} == {
        "Demo.same": "found",
        "Demo.swap": "found",
        "Demo.wrong": "exhausted",
        "Demo.two": "unsupported",
    }
    assert "tactics were tried in whole files" in said["Demo.wrong"].detail
    assert said["Demo.wrong"].nodes > 20


def test_a_tactic_without_an_end_costs_its_half_of_the_list(real_lean: Path, tmp_path: Path) -> None:
    hanging = f'{MUTE}\nfor file; do :; done\nif grep -q intros "$file"; then exec sleep 60; fi'
    source = "theorem t (p : Prop) (h : p) : p := by\n  sorry\n"
    given = parameters(tmp_path, source, lean=stand_in(tmp_path, real_lean, hanging))
    bodies, _ = run(given | {"budget": {"seconds": 4, "nodes": 20, "tactic_timeout_s": 5}}, tmp_path / "job")
    found = attempts(bodies)["t"]
    assert (found.outcome, found.detail) == ("found", "in whole files")
    assert 2 <= found.seconds < 4


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("import Nowhere\n", "unknown module prefix 'Nowhere'"),
        ("theorem wrong : 1 = 2 := rfl\n", "Lean refuses the text before the declaration"),
    ],
)
def test_a_text_that_lean_does_not_get_through_is_no_proof(
    mute: LeanBackend, tmp_path: Path, before: str, said: str
) -> None:
    bodies, _ = run(
        parameters(tmp_path, f"{before}theorem t : 1 = 1 := by\n  sorry\n", lean=mute), tmp_path / "job"
    )
    (attempt,) = bodies
    assert (attempt.outcome, said in attempt.detail) == ("error", True), attempt


def test_what_lean_said_too_much_of_is_tried_again_in_parts(mute: LeanBackend, tmp_path: Path) -> None:
    """Each error repeats the hypothesis, and of all of them together the beginning is not kept."""
    source = f"theorem t (p q : Prop) ({'h' * 30_000} : p) : q := by\n  sorry\n"
    bodies, _ = run(parameters(tmp_path, source, lean=mute), tmp_path / "job")
    (attempt,) = bodies
    assert (attempt.outcome, attempt.nodes > 20) == ("exhausted", True), attempt


def test_a_declaration_that_takes_too_long_fails_no_other(real_lean: Path, tmp_path: Path) -> None:
    hanging = f'{MUTE}\nfor file; do :; done\nif grep -q slow "$file"; then exec sleep 60; fi'
    source = "theorem quick (p : Prop) (h : p) : p := by\n  sorry\n" + "theorem slow : True := by\n  sorry\n"
    given = parameters(tmp_path, source, lean=stand_in(tmp_path, real_lean, hanging))
    bodies, _ = run(given | {"budget": {"seconds": 5, "nodes": 20, "tactic_timeout_s": 5}}, tmp_path / "job")
    assert {name: one.outcome for name, one in attempts(bodies).items()} == {
        "quick": "found",
        "slow": "budget",
    }


def test_a_lean_that_compiles_nothing_either_fails_the_job(real_lean: Path, tmp_path: Path) -> None:
    broken = stand_in(tmp_path, real_lean, "echo 'libc: no such symbol' >&2; exit 127")
    with pytest.raises(ExceptionGroup) as failed:
        run(parameters(tmp_path, SOURCE, lean=broken), tmp_path / "job")
    (error,) = failed.value.exceptions
    assert isinstance(error, JobError)
    assert (error.reason, "no such symbol" in str(error)) == ("lean_does_not_start", True)


def test_imports_that_fail_are_the_file_s_fault(real_lean: Path, tmp_path: Path) -> None:
    source = "import Nowhere\ntheorem t : True := by\n  sorry\n"
    bodies, _ = run(parameters(tmp_path, source, lean=lean_itself(real_lean)), tmp_path / "job")
    attempt = attempts(bodies)["t"]
    assert attempt.outcome == "error"
    assert "the imports of A.lean fail" in attempt.detail
    assert "unknown module prefix 'Nowhere'" in attempt.detail
