"""What the gate makes of Lean's answers. Lean is a double: the simulator under Lean's name, lake a script.

No real toolchain is needed, and none is shown to be right by this: only that the gate asks, and believes exactly
what it is told.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from pipeline.gate.verdict import Gate, Verdict
from pipeline.lean.backend import LeanBackend, find_lean
from pipeline.lean.scanner import scan_source
from pipeline.prove.file import git_blob
from store.events import ProofFound

SOURCE = "theorem mine (p : Prop) : p → p := sorry\n"
LAKE = """#!/bin/sh
case "$1" in
build) {build} ;;
env) case "$2" in
  lean) if grep -q '#check' "$3"; then {types}; else echo "{axioms}"; fi ;;
  *) {replay} ;;
  esac ;;
esac
"""


class Bench:
    """A project with one sorry, and a toolchain that answers as told."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.bin = folder / "toolchain" / "bin"
        self.bin.mkdir(parents=True)
        (self.project / "lakefile.toml").write_text('name = "x"\n')
        self.file = self.project / "A.lean"
        self.file.write_text(SOURCE, encoding="utf-8")

    def toolchain(
        self,
        *,
        axioms: str,
        build: str = "exit 0",
        replay: str | None = None,
        types: str = 'echo "mine : ∀ (p : Prop), p → p"',
    ) -> None:
        program = self.bin / "lake"
        program.write_text(
            LAKE.format(axioms=axioms, build=build, replay=replay or "exit 0", types=types), encoding="utf-8"
        )
        program.chmod(0o755)
        if replay is not None:
            (self.bin / "leanchecker").touch()

    @property
    def backend(self) -> LeanBackend:
        argv = find_lean(backend="simulator", repl="", sandbox="none").argv
        toolchain = "leanprover/lean4:v4.28.0"
        return LeanBackend(
            "pantograph",
            argv,
            "a double",
            toolchain,
            simulated=False,
            sandbox="none",
            sysroot=str(self.bin.parent),
        )

    def judge(
        self, replacement: str, *, simulated: bool = False, replaced: bytes = b"sorry", name: str = "mine"
    ) -> Verdict:
        before = self.file.read_bytes()
        start = before.index(replaced)
        patched = before.replace(replaced, replacement.encode())
        (declaration,) = [one for one in scan_source(patched, path="A.lean").declarations if one.name == name]
        proof = ProofFound(
            proof="p",
            sorry="s",
            repository="local/x/y",
            branch="main",
            sha="0" * 40,
            path="A.lean",
            blob=git_blob(before, like="0" * 40),
            byte_start=start,
            byte_end=start + len(replaced),
            declaration=name,
            declaration_text_hash=declaration.text_hash,
            replacement=replacement,
            tactics=(),
            prover="tactics",
            rung=0,
            toolchain="",
            simulated=simulated,
            job="j",
        )
        gate = Gate(proof=proof, backend=self.backend, project=self.project, before=before)
        return asyncio.run(gate.run())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_all_required_checks_passed_is_what_verifies(bench: Bench) -> None:
    bench.toolchain(axioms="'mine' depends on axioms: [propext]")
    verdict = bench.judge("fun h => h")
    assert verdict.all_required_passed, verdict.checks
    assert verdict.axioms == ("propext",)
    assert verdict.not_checked == ("kernel",)


def test_a_replayed_module_leaves_nothing_unchecked(bench: Bench) -> None:
    bench.toolchain(axioms="'mine' does not depend on any axioms", replay="exit 0")
    verdict = bench.judge("fun h => h")
    assert verdict.all_required_passed
    assert verdict.not_checked == ()


def test_a_refused_replay_fails_the_proof(bench: Bench) -> None:
    bench.toolchain(axioms="'mine' does not depend on any axioms", replay="echo mismatch; exit 1")
    verdict = bench.judge("fun h => h")
    assert verdict.failed is not None
    assert verdict.failed.step == "kernel"


@pytest.mark.parametrize("axiom", ["Lean.ofReduceBool", "cheat", "mine._native.native_decide.ax_1"])
def test_an_axiom_that_is_not_on_the_list_fails_the_proof(bench: Bench, axiom: str) -> None:
    bench.toolchain(axioms=f"'mine' depends on axioms: [propext, {axiom}]")
    verdict = bench.judge("fun h => h")
    assert verdict.failed is not None
    assert axiom in verdict.failed.evidence
    assert verdict.conditional_on == ()


def test_sorry_ax_makes_it_conditional_and_the_sorry_is_named(bench: Bench) -> None:
    bench.file.write_text(f"theorem gap (p : Prop) : p → p := sorry\n{SOURCE}", encoding="utf-8")
    text = bench.file.read_text(encoding="utf-8")
    # The judged sorry is the first one in the file for this bench, so the gap is an `admit`.
    bench.file.write_text(text.replace("sorry", "by admit", 1), encoding="utf-8")
    bench.toolchain(axioms="'mine' depends on axioms: [sorryAx]")
    verdict = bench.judge("gap p")
    assert verdict.failed is not None
    assert verdict.failed.step == "axioms"
    assert verdict.conditional_on == ("gap",)


@pytest.mark.parametrize("text", ["by\n  exact id\nlibrary_command x", "id\nlibrary_command x"])
def test_a_line_at_the_declaration_s_column_is_no_part_of_a_proof(bench: Bench, text: str) -> None:
    bench.toolchain(axioms="'mine' does not depend on any axioms")
    verdict = bench.judge(text)
    assert verdict.failed is not None
    assert (verdict.failed.step, "column" in verdict.failed.evidence) == ("shape", True)


def test_a_block_may_stand_at_the_left_where_the_sorry_does(bench: Bench) -> None:
    bench.file.write_text("theorem mine (p : Prop) : p → p := by\nsorry\n", encoding="utf-8")
    bench.toolchain(axioms="'mine' does not depend on any axioms")
    verdict = bench.judge("intro h\nexact h")
    assert [check.evidence for check in verdict.checks if check.step == "shape"] == [
        "the same commands before and after; only the sorry's bytes changed"
    ]


def test_a_type_that_lean_prints_differently_with_the_proof_fails_it(bench: Bench) -> None:
    bench.toolchain(
        axioms="'mine' does not depend on any axioms",
        types="if grep -q sorry A.lean; then echo 'mine : False'; else echo 'mine : True'; fi",
    )
    verdict = bench.judge("fun h => h")
    assert verdict.failed is not None
    assert (verdict.failed.step, verdict.failed.by) == ("statement", "lake leanprover/lean4:v4.28.0")
    assert not verdict.all_required_passed


@pytest.mark.parametrize("types", ["echo 'mine : a ⋯ b'", "echo 'error: x'; exit 1", "echo 'other : True'"])
def test_a_type_that_lean_does_not_print_whole_leaves_a_candidate(bench: Bench, types: str) -> None:
    bench.toolchain(axioms="'mine' does not depend on any axioms", types=types)
    verdict = bench.judge("fun h => h")
    assert verdict.failed is None
    assert "statement" in verdict.not_checked
    assert not verdict.all_required_passed


def test_a_constant_that_the_command_does_not_make_is_not_asked_about(bench: Bench) -> None:
    # The simulator, like Lean, knows no name for an example: whatever `#print axioms` says is of another.
    bench.file.write_text("example (p : Prop) : p → p := sorry\n", encoding="utf-8")
    (name,) = [one.name for one in scan_source(bench.file.read_bytes(), path="A.lean").declarations]
    bench.toolchain(axioms=f"'{name}' does not depend on any axioms", types=f"echo '{name} : True'")
    verdict = bench.judge("fun h => h", name=name)
    assert verdict.failed is None
    assert not verdict.all_required_passed


def test_data_in_a_sorry_s_place_is_no_proof(bench: Bench) -> None:
    bench.file.write_text("def mine : Nat := sorry\n", encoding="utf-8")
    bench.toolchain(axioms="'mine' does not depend on any axioms", types="echo 'mine : Nat'")
    verdict = bench.judge("3")
    assert verdict.failed is not None
    assert "data" in verdict.failed.evidence


def test_a_sorry_in_the_statement_cannot_be_filled_as_a_proof(bench: Bench) -> None:
    bench.file.write_text("theorem mine (p : Prop) : p → sorry := fun h => h\n", encoding="utf-8")
    bench.toolchain(axioms="'mine' does not depend on any axioms")
    verdict = bench.judge("p")
    assert verdict.failed is not None
    assert verdict.failed.step == "statement"


TWO = "theorem mine (p : Prop) : p ∧ p → p ∧ p := fun h => ⟨sorry, sorry⟩\n"


def test_two_sorrys_are_filled_together_with_the_text_between_them_kept(bench: Bench) -> None:
    bench.file.write_text(TWO, encoding="utf-8")
    bench.toolchain(axioms="'mine' does not depend on any axioms")
    assert bench.judge("id (id h.1), h.2", replaced=b"sorry, sorry").all_required_passed


@pytest.mark.parametrize("trick", ["id h.1 /- /- a -/, -/, h.2", "h.1, h.2", "(h.1 /- a -/, h).2, h.2"])
def test_the_text_between_two_sorrys_is_neither_changed_nor_hidden(bench: Bench, trick: str) -> None:
    bench.file.write_text(TWO.replace(", ", " /- a -/, "), encoding="utf-8")
    bench.toolchain(axioms="'mine' does not depend on any axioms")
    verdict = bench.judge(trick, replaced=b"sorry /- a -/, sorry")
    assert verdict.failed is not None
    assert verdict.failed.step == "shape"


def test_an_answer_that_cannot_be_read_leaves_a_candidate(bench: Bench) -> None:
    bench.toolchain(axioms="something else")
    verdict = bench.judge("fun h => h")
    assert verdict.failed is None
    assert not verdict.all_required_passed
    assert "axioms" in verdict.not_checked


def test_a_project_that_does_not_build_anyway_is_not_the_proof_s_fault(bench: Bench) -> None:
    bench.toolchain(axioms="", build="echo no network; exit 1")
    verdict = bench.judge("fun h => h")
    assert verdict.failed is None
    assert not verdict.all_required_passed
    assert any("even without the proof" in check.evidence for check in verdict.checks)


def test_a_build_that_only_fails_with_the_proof_fails_it(bench: Bench) -> None:
    bench.toolchain(axioms="", build="grep -q sorry A.lean")
    verdict = bench.judge("fun h => h")
    assert verdict.failed is not None
    assert verdict.failed.step == "compile"
    assert bench.file.read_text(encoding="utf-8") == SOURCE


def test_without_lake_the_axioms_are_not_checked_and_the_reason_is_named(bench: Bench) -> None:
    (bench.project / "lakefile.toml").unlink()
    verdict = bench.judge("fun h => h")
    assert verdict.failed is None
    assert not verdict.all_required_passed
    reasons = {check.step: check.evidence for check in verdict.checks if check.verdict == "not_checked"}
    assert reasons["axioms"] == "the project has no lakefile"


def test_a_simulated_proof_s_axioms_are_never_taken_as_checked(bench: Bench) -> None:
    bench.toolchain(axioms="'mine' does not depend on any axioms")
    verdict = bench.judge("fun h => h", simulated=True)
    assert not verdict.all_required_passed


def test_git_agrees_about_the_blob(bench: Bench) -> None:
    theirs = subprocess.run(
        ["git", "hash-object", str(bench.file)], capture_output=True, text=True
    ).stdout.strip()
    assert git_blob(bench.file.read_bytes(), like=theirs) == theirs
