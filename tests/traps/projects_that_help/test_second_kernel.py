"""Red team: a second kernel judges the export of a proof. Its refusal counts, whatever Lean says.

The kernel is a stand-in in the toolchain's folder that reads what nanoda reads; Lean is the one that says yes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.gate import lake_checks, second_kernel
from pipeline.gate.second_kernel import AUTO, NANODA, OFF
from pipeline.lean.build.lake import Bounds
from store.events.proofs import ProofChecked, ProofRejected, ProofVerified
from tests.support.gate import FILE, Case, GateProject
from tests.support.lean.credulous import Rule
from tests.support.lean.second_kernel import Says, make_kernel

PROOF = "exact ⟨h.2, h.1⟩"
NAMED = f"{NANODA} 0.0.1"


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
    assert (verdict.grade, verdict.kernel) == ("replayed_closure", f"leanchecker, {NAMED}")
    assert evidence(verdict).startswith(f"{NAMED} accepts the export of the proof with all that it rests on")
    assert f"Grade: kernel replayed all, by leanchecker, {NAMED}" in header(court, verdict)


def test_it_makes_the_grade_where_lean_brings_no_checker(court: GateProject) -> None:
    without_checker(court)
    kernel(court)
    verdict = court.verified(Case(PROOF))
    assert (verdict.grade, verdict.kernel, verdict.not_checked) == ("replayed_closure", NAMED, ())


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
    assert "Grade: kernel replayed all, by leanchecker; no second kernel" in header(court, verdict)


def leanchecker_that_takes_an_export(court: GateProject, says: Says = "accept", only: str = "") -> None:
    """Put a checker before the toolchain's, which knows `--from-export` as those of Lean 4.34 do."""
    own = court.tools.sysroot / "bin" / "leanchecker"
    judge = make_kernel(court.folder / "judge", says=says, only=only)
    before = own.rename(own.with_name("leanchecker-modules"))
    own.write_text(
        '#!/bin/sh\ncase "$1" in\n'
        "  --help) echo 'leanchecker [--from-export FILE] [MODULE...]' ;;\n"
        f'  --from-export) shift; exec {judge} "$@" ;;\n'
        f'  *) exec {before} "$@" ;;\nesac\n',
        "utf-8",
    )
    own.chmod(0o755)


@pytest.fixture
def no_nanoda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_kernel, "NANODA", "none_has_this")


@pytest.mark.usefixtures("no_nanoda")
def test_the_toolchain_s_checker_judges_the_export_where_it_takes_one(court: GateProject) -> None:
    leanchecker_that_takes_an_export(court)
    verdict = court.verified(Case(PROOF), second_kernel=AUTO)
    assert verdict.kernel == "leanchecker, leanchecker --from-export"
    assert evidence(verdict).startswith("leanchecker --from-export accepts the export of the proof")


@pytest.mark.usefixtures("no_nanoda")
def test_an_export_that_it_refuses_with_the_proof_alone_is_a_rejection(court: GateProject) -> None:
    leanchecker_that_takes_an_export(court, "refuse", only="a proof of Demo.mine with it")
    case = Case(PROOF, rules=(Rule(r"theorem mine .*\n  exact", proof="a proof of Demo.mine with it"),))
    event = court.rejected(case, step="kernel", second_kernel=AUTO)
    assert "leanchecker --from-export refuses the export of the proof" in event.reason


@pytest.mark.usefixtures("no_nanoda")
def test_an_export_that_it_cannot_read_leaves_its_word_on_the_modules(court: GateProject) -> None:
    leanchecker_that_takes_an_export(court, "refuse")
    verdict = court.verified(Case(PROOF), second_kernel=AUTO)
    assert (verdict.grade, verdict.kernel) == ("replayed_closure", "leanchecker")
    assert "leanchecker --from-export refuses the export of the proof" in evidence(verdict)


@pytest.mark.parametrize("checker", [True, False])
def test_a_proof_that_it_refuses_is_rejected_whatever_lean_says(court: GateProject, checker: bool) -> None:
    kernel(court, "refuse", only="a proof of Demo.mine with it")
    if not checker:
        without_checker(court)
    case = Case(PROOF, rules=(Rule(r"theorem mine .*\n  exact", proof="a proof of Demo.mine with it"),))
    event = court.rejected(case, step="kernel")
    assert f"{NAMED} refuses the export of the proof (exit status 101" in event.reason


def test_one_that_refuses_the_file_without_the_proof_too_verifies_nothing(court: GateProject) -> None:
    """It may be the kernel that is wrong: then nobody knows, and nobody says verified."""
    kernel(court, "refuse")
    verdict = court.candidate(Case(PROOF))
    assert verdict.not_checked == ("kernel",)
    assert "does not accept it without the proof" in evidence(verdict)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("crash", "ended by signal 11"),
        ("decline", "exit status 2: Declined: something unknown"),
        ("hang", "no end after 2 s"),
    ],
)
def test_one_that_could_not_judge_leaves_lean_s_own_word_and_the_reason(
    court: GateProject, monkeypatch: pytest.MonkeyPatch, says: Says, why: str
) -> None:
    monkeypatch.setattr(lake_checks, "KERNEL_BOUNDS", Bounds(timeout_s=2.0))
    kernel(court, says)
    verdict = court.verified(Case(PROOF))
    assert verdict.kernel == "leanchecker"
    assert f"not judged by a second kernel, {NAMED}: {why}" in evidence(verdict)


def test_an_export_that_is_too_large_is_not_judged_and_the_evidence_says_so(
    court: GateProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lake_checks.MOST_BYTES, "closure", 100)
    kernel(court)
    assert f"not judged by a second kernel, {NAMED}: Questions.lean: an export of" in evidence(
        court.verified(Case(PROOF))
    )


def test_an_export_of_another_statement_is_not_the_proof_s(court: GateProject) -> None:
    """A module that could make the exporter lie would have the kernel accept `True`."""
    kernel(court)
    verdict = court.verified(Case(PROOF, rules=(Rule("", closure="True"),)))
    assert verdict.kernel == "leanchecker"
    assert f"not judged by a second kernel, {NAMED}: the export has another statement" in evidence(verdict)


def test_it_permits_no_axiom_but_those_of_the_proof(court: GateProject) -> None:
    kernel(court)
    verdict = court.verified(Case(PROOF, rules=(Rule("", axioms=("propext",)),)))
    assert (verdict.axioms, verdict.kernel) == (("propext",), f"leanchecker, {NAMED}")


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
    assert verdict.kernel == "leanchecker, other 0.0.1"
    off = court.verified(Case(PROOF), second_kernel=OFF)
    assert evidence(off).endswith('no second kernel: switched off: [lean] second_kernel = "off"')
    none = court.verified(Case(PROOF), second_kernel=str(tmp_path / "none"))
    assert "is no program here" in evidence(none)
