"""Traps: the word of a Lean that may not judge, or about something else than the patched file.

Another version than the project's, a package that has a module of the same name, a project that hides Lean's own
library, a project that knows how to pass the kernel by, a file that is a link.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pipeline.jobs.protocol import JobError
from store.events.proofs import ProofChecked, ProofVerified
from tests.support.gate import FILE, Case, GateProject
from tests.support.lean.credulous import TOOLCHAIN, Rule

PROOF = "exact ⟨h.2, h.1⟩"
HONEST = Case(PROOF)
OTHER = "leanprover/lean4:v4.9.0"


def reason(verdict: ProofChecked, step: str) -> str:
    return next(one.evidence for one in verdict.checks if one.step == step and one.verdict == "not_checked")


def patch_of(court: GateProject, verdict: ProofChecked | ProofVerified) -> str:
    return (court.folder / "job" / "staging" / verdict.patch.sha256).read_text("utf-8")


def test_a_proof_found_with_another_toolchain_is_not_verified_by_this_one(court: GateProject) -> None:
    verdict = court.candidate(Case(PROOF, edit={"toolchain": OTHER}))
    assert {"compile", "axioms", "kernel"} <= set(verdict.not_checked)
    assert f"found with {OTHER}, and the Lean here is {TOOLCHAIN}" in reason(verdict, "compile")


@pytest.mark.parametrize("named", [OTHER, "leanprover/lean4:stable", "somebody/lean4:v4.34.1", "\ufffd"])
def test_a_project_of_another_toolchain_is_not_judged(court: GateProject, named: str) -> None:
    (court.project / "lean-toolchain").write_text(named, "utf-8")
    assert "compile" in court.candidate(HONEST).not_checked


def test_a_toolchain_that_is_a_link_is_not_taken_for_none(court: GateProject) -> None:
    (court.project / "named").write_text(OTHER, "utf-8")
    (court.project / "lean-toolchain").unlink(missing_ok=True)
    (court.project / "lean-toolchain").symlink_to("named")
    verdict = court.candidate(HONEST)
    assert "lean-toolchain was not read" in reason(verdict, "compile")


@pytest.mark.parametrize("named", [TOOLCHAIN, "v4.34.1\n"])
def test_the_project_s_own_toolchain_judges(court: GateProject, named: str) -> None:
    (court.project / "lean-toolchain").write_text(named, "utf-8")
    verdict = court.verified(Case(PROOF, edit={"toolchain": TOOLCHAIN}))
    told = patch_of(court, verdict)
    assert told.startswith("A proof of Demo.mine, found by everlean and verified by Lean\n")
    assert f"\nToolchain: {TOOLCHAIN}\n" in told


def test_a_patch_names_the_lean_that_judged_and_not_the_one_that_searched(court: GateProject) -> None:
    verdict = court.candidate(Case(PROOF, edit={"toolchain": TOOLCHAIN}), lean="none")
    told = patch_of(court, verdict)
    assert told.startswith("A candidate for a proof of Demo.mine")
    assert "\nToolchain: none: no Lean judged it\n" in told


def test_a_lean_of_no_known_version_verifies_nothing(
    court: GateProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = dataclasses.replace(court.backend(), toolchain="")
    monkeypatch.setattr(court, "backend", lambda _: backend)
    assert "not known" in reason(court.candidate(HONEST), "compile")


@pytest.mark.parametrize(
    "said",
    [
        "4.9.0",
        "4.34.1-rc1",
        *(
            pytest.param(said, marks=pytest.mark.slow)
            for said in ("4.34.1-nightly-2026-01-01", "4.34.10", "v")
        ),
    ],
)
def test_the_lean_that_answers_has_to_be_the_toolchain_s(court: GateProject, said: str) -> None:
    """A lake from PATH brings whatever Lean it likes."""
    verdict = court.candidate(Case(PROOF, rules=(Rule("", lean=said),)))
    assert f"Lean {said} answered, and not {TOOLCHAIN}" in reason(verdict, "axioms")


def test_a_package_s_module_of_the_same_name_does_not_answer_for_the_file(court: GateProject) -> None:
    """The project builds elsewhere, and a package on the search path has an `A` that Lean would find."""
    package = court.project / ".lake" / "packages" / "evil" / ".lake" / "build" / "lib" / "lean"
    package.mkdir(parents=True)
    (package / "A.olean").write_text(
        '{"text": "", "statements": {"Demo.mine": "x"}, "sorried": ["Demo.mine"]}'
    )
    (court.project / ".lake" / "build" / "lib" / "lean").mkdir(parents=True)
    verdict = court.candidate(Case(PROOF, rules=(Rule("", elsewhere="out"),)))
    assert "it builds elsewhere" in reason(verdict, "axioms")


def test_an_olean_that_lies_there_already_does_not_answer_for_the_file(court: GateProject) -> None:
    """One that the repository brings along, of an honest file; the build of the proof goes elsewhere."""
    library = court.project / ".lake" / "build" / "lib" / "lean"
    library.mkdir(parents=True)
    (library / "A.olean").write_text(
        '{"text": "", "statements": {"Demo.mine": "x"}, "sorried": ["Demo.mine"]}'
    )
    verdict = court.candidate(Case(PROOF, rules=(Rule("", elsewhere="out"),)))
    assert {"axioms", "statement"} <= set(verdict.not_checked)


@pytest.mark.parametrize(
    "root", ["Lean", *(pytest.param(root, marks=pytest.mark.slow) for root in ("Init", "Std"))]
)
@pytest.mark.parametrize("package", ["", ".lake/packages/evil/"])
def test_a_project_that_hides_lean_s_own_library_is_not_asked(
    court: GateProject, root: str, package: str
) -> None:
    """Our script imports `Lean`: from LEAN_PATH, before the toolchain's own."""
    folder = court.project / f"{package}.lake" / "build" / "lib" / "lean"
    folder.mkdir(parents=True)
    (folder / f"{root}.olean").touch()
    assert f"a module {root} of its own" in reason(court.candidate(HONEST), "axioms")


UNSEEN: dict[str, dict[str, Any]] = {
    "an option of the file": {"file": "set_option debug.skipKernelTC true\n" + FILE},
    "a tactic of the file": {"file": "-- env.addDeclWithoutChecking decl\n" + FILE},
    "a file that it imports": {"file": "import Evil\n" + FILE, "others": {"Evil.lean": "-- skipKernelTC\n"}},
    "an option of the lakefile": {
        "others": {"lakefile.toml": 'name = "x"\nleanOptions.debug.skipKernelTC = true\n'}
    },
    "an option of the other lakefile": {"others": {"lakefile.lean": "-DskipKernelTC"}},
}


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(
            edit, id=name, marks=[] if "imports" in name or name.endswith("the file") else pytest.mark.slow
        )
        for name, edit in UNSEEN.items()
    ],
)
def test_where_the_kernel_can_be_passed_by_only_a_replay_verifies(
    court: GateProject, edit: dict[str, object]
) -> None:
    case = dataclasses.replace(HONEST, **edit)  # type: ignore[arg-type]
    court.verified(case)
    (court.tools.sysroot / "bin" / "leanchecker").unlink()
    verdict = court.candidate(case)
    assert verdict.not_checked == ("kernel",)
    assert "only a kernel replay says" in reason(verdict, "kernel")


def test_compiled_code_that_the_kernel_believed_without_an_axiom_is_refused(court: GateProject) -> None:
    """`Lean.reduceBool` in a term: older kernels evaluate it, and no axiom shows it."""
    event = court.rejected(
        Case("finish_it", rules=(Rule("finish_it", native=("Demo.mine._aux",)),)), step="axioms"
    )
    assert "compiled code" in event.reason


@pytest.mark.parametrize("path", ["A.lean", "linked/A.lean"])
def test_a_file_behind_a_link_is_not_judged(court: GateProject, path: str) -> None:
    """What is written in its place would be a file where the commit has a link, or another file than it names."""
    real = court.project / "real"
    real.mkdir()
    (real / "A.lean").write_text(FILE.replace("HOLE", "sorry"), "utf-8")
    (court.project / path.split("/")[0]).symlink_to("real/A.lean" if path == "A.lean" else "real")
    with pytest.raises(JobError) as caught:
        court.judge(Case(PROOF, edit={"path": path}), lean="credulous")
    assert caught.value.reason == "linked_file"
    assert PROOF not in (real / "A.lean").read_text("utf-8")
