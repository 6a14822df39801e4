"""Red team: a second kernel judges the export of a proof. Its refusal counts, whatever Lean says.

The kernel is a stand-in in the toolchain's folder that reads what nanoda reads; Lean is the one that says yes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.gate import lake_checks, questions, second_kernel
from pipeline.gate.second_kernel import AUTO, NANODA, OFF
from pipeline.lean.build.lake import Bounds
from store.events.proofs import ProofChecked, ProofRejected, ProofVerified
from tests.support.gate import FILE, Case, GateProject
from tests.support.lean.credulous import Rule
from tests.support.lean.second_kernel import KERNELS, Says, bring_kernels, make_kernel

PROOF = "exact ⟨h.2, h.1⟩"
NAMED = f"{NANODA} 0.0.1"
REPLAY = "leanchecker of v4.34.1"


def kernel(court: GateProject, says: Says = "accept", only: str = "") -> None:
    make_kernel(court.tools.sysroot / "bin" / NANODA, says=says, only=only)


def without_checker(court: GateProject) -> None:
    (court.tools.sysroot / "bin" / "leanchecker").unlink()


def evidence(verdict: ProofChecked | ProofVerified | ProofRejected) -> str:
    return next(one.evidence for one in verdict.checks if one.step == "kernel")


def header(court: GateProject, verdict: ProofVerified) -> str:
    text = (court.folder / "job" / "staging" / verdict.patch.sha256).read_text("utf-8")
    return text.partition("diff --git")[0]


def test_a_second_kernel_that_accepts_is_named_with_its_version(court: GateProject) -> None:
    kernel(court)
    verdict = court.verified(Case(PROOF))
    assert (verdict.grade, verdict.kernel) == ("L1", f"{REPLAY}, {NAMED}")
    assert evidence(verdict).startswith(f"{NAMED} accepts the export of the proof with all that it rests on")
    assert f"Grade: L1: kernel replayed all, by {REPLAY}, {NAMED}" in header(court, verdict)


def test_it_makes_the_grade_where_lean_brings_no_checker(court: GateProject) -> None:
    without_checker(court)
    kernel(court)
    verdict = court.verified(Case(PROOF))
    assert (verdict.grade, verdict.kernel, verdict.not_checked) == ("L1", NAMED, ())


def test_it_judges_what_lean_s_kernel_has_not_seen(court: GateProject) -> None:
    without_checker(court)
    case = Case(PROOF, file="set_option debug.skipKernelTC true\n" + FILE)
    assert court.candidate(case).not_checked == ("kernel",)
    kernel(court)
    assert court.verified(case).kernel == NAMED


def test_without_one_the_evidence_says_so(court: GateProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_kernel, "NANODA", "none_has_this")
    verdict = court.verified(Case(PROOF), second_kernel=AUTO)
    assert evidence(verdict).endswith("no second kernel: no none_has_this in the toolchain or on PATH")
    assert f"Grade: L1: kernel replayed all, by {REPLAY}; no second kernel" in header(court, verdict)


WITH_PROOF = "a proof of Demo.mine with it"
"""What stands in the export of the proof alone."""
PROVED = Case(PROOF, rules=(Rule(r"theorem mine .*\n  exact", proof=WITH_PROOF),))


def test_a_proof_that_it_refuses_is_rejected_where_nobody_accepts_it(court: GateProject) -> None:
    kernel(court, "refuse", only=WITH_PROOF)
    without_checker(court)
    event = court.rejected(PROVED, step="kernel")
    assert f"{NAMED} refuses the export of the proof (exit status 101" in event.reason


def test_a_proof_that_one_refuses_and_another_accepts_is_in_doubt(court: GateProject) -> None:
    kernel(court, "refuse", only=WITH_PROOF)
    event = court.candidate(PROVED)
    assert event.disagreement == f"kernels do not agree: {NAMED} refuses, {REPLAY} accepts"
    assert event.not_checked == ("kernel",)
    assert f"{NAMED} refuses the export of the proof (exit status 101" in evidence(event)


def test_one_that_refuses_the_file_without_the_proof_too_verifies_nothing(court: GateProject) -> None:
    """It may be the kernel that is wrong: then nobody knows, and nobody says verified."""
    kernel(court, "refuse")
    verdict = court.candidate(Case(PROOF))
    assert verdict.not_checked == ("kernel",)
    assert "does not accept it without the proof" in evidence(verdict)
    assert verdict.disagreement == f"kernels do not agree: {NAMED} refuses, {REPLAY} accepts"


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("crash", "ended by signal 11"),
        ("decline", "exit status 2: Declined: something unknown"),
        ("hang", "no end after 2 s"),
        ("memory", "out of memory: INTERNAL PANIC: out of memory; raise [jobs] memory"),
    ],
)
def test_one_that_could_not_judge_leaves_lean_s_own_word_and_the_reason(
    court: GateProject, monkeypatch: pytest.MonkeyPatch, says: Says, why: str
) -> None:
    monkeypatch.setattr(lake_checks, "KERNEL_BOUNDS", Bounds(timeout_s=2.0))
    kernel(court, says)
    verdict = court.verified(Case(PROOF))
    assert verdict.kernel == REPLAY
    assert f"not judged by {NAMED}: {why}" in evidence(verdict)


def test_an_export_that_is_too_large_is_not_judged_and_the_evidence_says_so(
    court: GateProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(questions.MOST_BYTES, "closure", 100)
    kernel(court)
    assert f"not judged by {NAMED}: Questions.lean: an export of" in evidence(court.verified(Case(PROOF)))


def test_an_export_of_another_statement_is_not_the_proof_s(court: GateProject) -> None:
    """A module that could make the exporter lie would have the kernel accept `True`."""
    kernel(court)
    verdict = court.verified(Case(PROOF, rules=(Rule("", closure="True"),)))
    assert verdict.kernel == REPLAY
    assert f"not judged by {NAMED}: the export has another statement" in evidence(verdict)


def test_it_permits_no_axiom_but_those_of_the_proof(court: GateProject) -> None:
    kernel(court)
    verdict = court.verified(Case(PROOF, rules=(Rule("", axioms=("propext",)),)))
    assert (verdict.axioms, verdict.kernel) == (("propext",), f"{REPLAY}, {NAMED}")


def test_a_kernel_that_the_project_brings_is_not_run(court: GateProject) -> None:
    program = make_kernel(court.project / "tools" / NANODA)
    program.write_text(f"#!/bin/sh\ntouch {court.folder / 'ran'}\n", "utf-8")
    assert "lies in the project" in evidence(court.verified(Case(PROOF), second_kernel=str(program)))
    assert not (court.folder / "ran").exists()


def test_a_link_to_nanoda_is_called_as_nanoda(court: GateProject, tmp_path: Path) -> None:
    make_kernel(tmp_path / "checker", name="nanoda_checker")
    (tmp_path / NANODA).symlink_to(tmp_path / "checker")
    assert court.verified(Case(PROOF), second_kernel=str(tmp_path / NANODA)).kernel.endswith(
        ", nanoda_checker 0.0.1"
    )


def test_the_setting_names_a_program_that_takes_an_export(court: GateProject, tmp_path: Path) -> None:
    program = make_kernel(tmp_path / "other")
    verdict = court.verified(Case(PROOF), second_kernel=str(program))
    assert verdict.kernel == f"{REPLAY}, other 0.0.1"
    off = court.verified(Case(PROOF), second_kernel=OFF)
    assert evidence(off).endswith('no second kernel: switched off: [lean] second_kernel = "off"')
    none = court.verified(Case(PROOF), second_kernel=str(tmp_path / "none"))
    assert "is no program here" in evidence(none)


# ---- the kernels that Lean 4.35 brings

OF_4_35 = (
    *(
        "leanchecker of v4.35.0",
        "leanchecker --from-export of v4.35.0",
        "leanchecker-paranoid --from-export of v4.35.0",
    ),
    *("lean4lean of v4.35.0", NAMED, "con-leche of v4.35.0", "con-ron of v4.35.0"),
)


OF_LEAN_4_35 = Case(PROOF, rules=(*PROVED.rules, Rule("", lean="4.35.0")))


@pytest.fixture
def newer(court: GateProject) -> GateProject:
    court.toolchain = "leanprover/lean4:v4.35.0"
    bring_kernels(court.tools.sysroot / "bin")
    return court


def test_where_all_that_lean_brings_accept_the_grade_is_the_highest_and_names_each(
    newer: GateProject,
) -> None:
    verdict = newer.verified(OF_LEAN_4_35)
    assert (verdict.grade, verdict.kernel) == ("L2", ", ".join(OF_4_35))
    assert f"Grade: L2: all kernels of its Lean accept it, by {verdict.kernel}\n" in header(newer, verdict)


@pytest.mark.parametrize("name", ["leanchecker", "leanchecker-paranoid", "lean4lean", "con-leche", "con-ron"])
def test_one_of_them_that_refuses_puts_the_proof_in_doubt(newer: GateProject, name: str) -> None:
    bring_kernels(newer.tools.sysroot / "bin", says={name: "refuse"}, only=WITH_PROOF)
    event = newer.candidate(OF_LEAN_4_35)
    assert f"{name} " in event.disagreement.partition(" refuses, ")[0]
    assert event.disagreement.partition(" refuses, ")[2].count(" of v4.35.0") == 5


@pytest.mark.parametrize("says", ["decline", "crash", "silent"])
def test_one_of_them_that_does_not_judge_lowers_the_grade(newer: GateProject, says: Says) -> None:
    bring_kernels(newer.tools.sysroot / "bin", says={"con-ron": says})
    verdict = newer.verified(OF_LEAN_4_35)
    assert (verdict.grade, verdict.kernel) == ("L1", ", ".join(OF_4_35[:-1]))
    assert "not judged by con-ron of v4.35.0: " in evidence(verdict)


def test_a_toolchain_that_lacks_one_of_them_has_not_the_highest_grade(newer: GateProject) -> None:
    (newer.tools.sysroot / "bin" / "lean4lean").unlink()
    verdict = newer.verified(OF_LEAN_4_35)
    assert verdict.grade == "L1"
    assert "v4.35.0 lacks lean4lean" in evidence(verdict)


def test_what_all_of_them_refuse_is_rejected(newer: GateProject) -> None:
    """The replay of the modules, which accepts, is away."""
    bring_kernels(newer.tools.sysroot / "bin", says=dict.fromkeys(KERNELS, "refuse"), only=WITH_PROOF)
    modules = newer.tools.sysroot / "bin" / "leanchecker-modules"
    modules.unlink()
    modules.symlink_to("/bin/false")
    assert "lean4lean of v4.35.0 refuses" in newer.rejected(OF_LEAN_4_35, step="kernel").reason
