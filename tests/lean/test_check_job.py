"""What the check job makes of Lean's answers, and what it leaves behind. Lean is a double that says yes, or by rule no.

No real toolchain is needed, and none is shown to be right by this: only that the gate asks, and believes exactly
what it is told. The traps are in tests/traps.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.gate import check
from pipeline.jobs.child import LONGEST_LINE_BYTES
from pipeline.jobs.protocol import JobError, JobSpec, Reporter
from pipeline.jobs.specs import Candidate, CheckSpec, JudgedText
from pipeline.lean.build import build_cache
from pipeline.lean.build.build_cache import Build
from pipeline.lean.build.sources import read_sources
from store.domain.identity import git_blob
from store.events.proofs import ProofVerified
from tests.support.daemon import warm
from tests.support.gate import FILE, Case, GateProject
from tests.support.lean.credulous import TOOLCHAIN, Rule

PROOF = "exact ⟨h.2, h.1⟩"
HONEST = Case(PROOF)


@pytest.fixture
def court(tmp_path: Path) -> GateProject:
    return GateProject(tmp_path)


def test_all_required_checks_passed_is_what_verifies_and_the_evidence_names_what_was_run(
    court: GateProject,
) -> None:
    verdict = court.verified(Case(PROOF, rules=(Rule("", axioms=("propext",)),)))
    assert (verdict.axioms, verdict.not_checked) == (("propext",), ())
    evidence = [(check.step, check.by, check.evidence) for check in verdict.checks]
    assert [step for step, _, _ in evidence] == [
        "text", "shape", "statement", "compile", "axioms", "statement", "kernel",
    ]  # fmt: skip
    digest = hashlib.sha256(FILE.replace("HOLE", PROOF).encode()).hexdigest()
    shape, by_lake, axioms, statement, kernel = (evidence[at] for at in (1, 3, 4, 5, 6))
    assert digest in shape[2]
    assert by_lake[1] == f"lake {TOOLCHAIN}"
    assert "`lake build +A`" in by_lake[2]
    assert digest in by_lake[2]
    assert "by Questions.lean" in axioms[2]
    assert "and by #print axioms" in axioms[2]
    assert (verdict.grade, verdict.kernel) == ("L1", "leanchecker of v4.34.1")
    assert "sha256" in statement[2]
    assert kernel[1] == "leanchecker of v4.34.1"
    assert kernel[2].startswith("`leanchecker A`: every declaration replayed; no second kernel: ")


def test_the_worktree_is_as_before_and_nothing_built_of_the_candidate_stays(court: GateProject) -> None:
    court.verified(HONEST)
    assert (court.project / "A.lean").read_text("utf-8") == FILE.replace("HOLE", "sorry")
    built = court.project / ".lake" / "build" / "lib" / "lean" / "A.olean"
    assert PROOF not in built.read_text("utf-8")
    assert not list((court.project / ".lake" / "everlean").iterdir())


def test_what_fills_several_sorries_is_judged_once_with_a_verdict_and_a_patch_for_each(
    court: GateProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("h.2, h.1", file=FILE.replace("HOLE", "exact ⟨HOLE⟩"), hole="sorry, sorry", parts=(3, 3))
    spec = court.spec(case, lean="credulous")
    other = spec.parameters.proof.model_copy(update={"proof": "q" * 16, "sorry": "t" * 16})
    parameters = spec.parameters.model_copy(update={"alike": (Candidate(proof=other),)})
    first, second = court.recorded(replace(spec, parameters=parameters))
    assert [(one.type, one.sorry) for one in (first, second)] == [
        ("proof_verified", "s" * 16),
        ("proof_verified", "t" * 16),
    ]
    assert isinstance(first, ProofVerified)
    assert isinstance(second, ProofVerified)
    assert first.checks == second.checks
    assert first.patch != second.patch, "each names its own sorry"
    spec = court.spec(case, lean="none")
    spec = replace(spec, parameters=spec.parameters.model_copy(update={"alike": (Candidate(proof=other),)}))
    for most, lines in ((LONGEST_LINE_BYTES, [2]), (100, [1, 1])):
        monkeypatch.setattr(check, "LONGEST_LINE_BYTES", most)
        out = io.StringIO()
        check.work(spec, Reporter(spec, out))
        said = [json.loads(line) for line in out.getvalue().splitlines()]
        assert [len(one["events"]) for one in said if one["line"] == "events"] == lines, "a line is bounded"


@pytest.mark.parametrize(
    "edit",
    [
        {"replacement": "h.1, h.2"},
        {"parts": (2, 4)},
        {"byte_start": 1},
        {"byte_end": 999},
        {"path": "B.lean"},
        {"blob": "1" * 40},
        {"sha": "1" * 40},
        {"declaration": "Demo.other"},
        {"declaration_text_hash": "1" * 64},
        {"toolchain": "leanprover/lean4:v4.1.0"},
    ],
    ids=lambda edit: next(iter(edit)),
)
def test_a_verdict_on_one_text_is_recorded_for_no_other(court: GateProject, edit: dict[str, object]) -> None:
    spec = court.spec(
        Case("h.2, h.1", file=FILE.replace("HOLE", "exact ⟨HOLE⟩"), hole="sorry, sorry", parts=(3, 3)),
        lean="none",
    )
    other = spec.parameters.proof.model_copy(update={"proof": "q" * 16, "sorry": "t" * 16, **edit})
    spec = replace(spec, parameters=spec.parameters.model_copy(update={"alike": (Candidate(proof=other),)}))
    out = io.StringIO()
    with pytest.raises(JobError, match=r"q{16} is not the text of proof p{16}") as caught:
        check.work(spec, Reporter(spec, out))
    assert (caught.value.reason, caught.value.deterministic, out.getvalue()) == ("other_text", True, "")


def test_a_block_may_stand_at_the_left_where_the_sorry_does(court: GateProject) -> None:
    file = "theorem mine (p : Prop) : p → p := by\nHOLE\n"
    court.verified(Case("intro h\nexact h", file=file, declaration="mine"))


def test_a_constant_that_the_command_does_not_make_is_not_asked_about(court: GateProject) -> None:
    # Lean knows no name for an example: whatever it says is of another constant.
    case = Case("fun h => h", file="example (p : Prop) : p → p := HOLE\n", declaration="_example")
    verdict = court.candidate(case)
    assert verdict.not_checked == ("compile", "axioms", "statement", "kernel")


def test_a_project_that_does_not_build_anyway_is_not_the_proof_s_fault(court: GateProject) -> None:
    verdict = court.candidate(Case(PROOF, rules=(Rule("", build="no network"),)))
    assert any("even without the proof" in check.evidence for check in verdict.checks)


def test_a_build_that_only_fails_with_the_proof_fails_it(court: GateProject) -> None:
    court.rejected(Case(PROOF, rules=(Rule(r"h\.2", build="no"),)), step="compile")
    assert (court.project / "A.lean").read_text("utf-8") == FILE.replace("HOLE", "sorry")


def test_without_a_lakefile_the_axioms_are_not_checked_and_the_reason_is_named(court: GateProject) -> None:
    (court.project / "lakefile.toml").unlink()
    verdict = court.candidate(HONEST)
    reasons = {check.step: check.evidence for check in verdict.checks if check.verdict == "not_checked"}
    assert reasons["axioms"] == "the project has no lakefile"


def test_a_build_folder_that_others_use_is_not_touched(court: GateProject, tmp_path: Path) -> None:
    shared = tmp_path / "cache"
    shared.mkdir()
    (court.project / ".lake").mkdir()
    (court.project / ".lake" / "build").symlink_to(shared)
    verdict = court.candidate(HONEST)
    assert "axioms" in verdict.not_checked
    assert not list(shared.iterdir())


def test_a_worktree_of_another_version_is_no_place_to_judge_in(court: GateProject) -> None:
    with pytest.raises(JobError) as caught:
        court.judge(Case(PROOF, edit={"blob": "1" * 40}), lean="none")
    assert caught.value.reason == "other_version"


@pytest.mark.parametrize("path", ["../outside.lean", "/etc/hostname"])
def test_a_path_that_leaves_the_worktree_is_refused(court: GateProject, path: str) -> None:
    with pytest.raises(JobError) as caught:
        court.judge(Case(PROOF, edit={"path": path}), lean="none")
    assert caught.value.reason == "outside_worktree"


def test_git_agrees_about_the_blob(court: GateProject) -> None:
    court.found(HONEST)
    file = court.project / "A.lean"
    theirs = subprocess.run(["git", "hash-object", str(file)], capture_output=True, text=True).stdout.strip()
    assert git_blob(file.read_bytes(), like=theirs) == theirs


def test_a_proof_of_a_project_below_the_root_is_judged_there_and_recorded_with_the_repository_s_paths(
    court: GateProject,
) -> None:
    court.project.rename(court.folder / "x")
    court.project.mkdir()
    inner = court.project / "lean"
    (court.folder / "x").rename(inner)
    (court.project / "lean-toolchain").write_text(f"{TOOLCHAIN}\n")
    spec = court.spec(HONEST, lean="credulous")
    (court.project / "A.lean").rename(inner / "A.lean")
    proof = spec.parameters.proof.model_copy(update={"path": "lean/A.lean"})
    below = spec.parameters.model_copy(update={"proof": proof, "folder": "lean"})
    (verdict,) = court.recorded(replace(spec, parameters=below))
    assert isinstance(verdict, ProofVerified), verdict
    assert verdict.material is not None
    assert [one.path for one in verdict.material.inputs] == ["lean-toolchain", "lean/lakefile.toml"]
    patch = (spec.staging / verdict.patch.sha256).read_text()
    assert "+++ b/lean/A.lean\n" in patch
    assert (inner / "A.lean").read_text("utf-8") == FILE.replace("HOLE", "sorry")

    (court.project / "lean-toolchain").write_text("leanprover/lean4:v4.1.0\n")
    (other,) = court.recorded(replace(spec, parameters=below))
    assert other.type == "proof_checked"
    assert "the project's lean-toolchain names leanprover/lean4:v4.1.0" in other.checks[-1].evidence


# ---- several texts in one job


LAKE = """#!/bin/sh
[ -e .lake/poison ] && exit 3
if grep -q crash A.lean; then touch .lake/poison; kill -SEGV $$; fi
if grep -q wait A.lean; then sleep 60; fi
exec "$0-itself" "$@"
"""
"""A lake that a proof's text can hold up, or end, and that builds nothing any more where one has ended it."""


def text_of(court: GateProject, name: str, proof: str, **edit: object) -> JudgedText:
    edit = {"proof": name * 16, "sorry": name * 16, **edit}
    return JudgedText(proof=court.found(Case(proof, edit=edit)))


def together(court: GateProject, *texts: JudgedText) -> JobSpec[CheckSpec]:
    """Return the job that judges these texts, with the build that each gets."""
    lake = court.tools.sysroot / "bin" / "lake"
    lake.rename(lake.with_name("lake-itself"))
    lake.write_text(LAKE, "utf-8")
    lake.chmod(0o755)
    spec, cache = court.spec(HONEST, lean="credulous"), court.folder / "cache"
    court.tools.read(*(FILE.replace("HOLE", one) for one in ("sorry", *(t.proof.replacement for t in texts))))
    court.tools.believe(Rule("wrong", build="it is wrong"))
    proof = spec.parameters.proof
    build = Build(
        repository=proof.repository,
        sha=proof.sha,
        project="",
        toolchain=TOOLCHAIN,
        dependencies="",
        lakefile="",
        modules_failed=(),
        nested=(),
        bytes=0,
        seconds=1.0,
        built_at=1.0,
    )
    build_cache.store(cache, court.project, build, read_sources(court.project))
    first = {"proof": texts[0].proof, "alike": texts[0].alike}
    return replace(
        spec, parameters=spec.parameters.model_copy(update={**first, "then": texts[1:], "cache": cache})
    )


def test_of_several_texts_each_gets_the_verdict_that_it_gets_in_a_job_of_its_own(tmp_path: Path) -> None:
    court = GateProject(tmp_path / "together")
    texts = [
        text_of(court, "a", PROOF),
        text_of(court, "b", "exact wrong h"),
        text_of(court, "c", "exact crash h"),
        text_of(court, "d", PROOF, blob="1" * 40),
        text_of(court, "e", f"{PROOF} "),
    ]
    said = court.recorded(together(court, *texts))
    assert [(one.proof[0], one.type) for one in said] == [
        ("a", "proof_verified"),
        ("b", "proof_rejected"),
        ("c", "proof_rejected"),
        ("e", "proof_verified"),
    ], "of one whose file is another nothing can be said here"
    for body, text in zip(said, (texts[0], texts[1], texts[2], texts[4]), strict=True):
        alone = GateProject(tmp_path / text.proof.proof)
        assert alone.recorded(together(alone, text)) == [body]


def test_no_further_text_is_begun_once_the_time_is_up(
    court: GateProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "TOGETHER_S", 0.0)
    texts = [text_of(court, name, "sorry") for name in "abc"]
    assert [one.proof[0] for one in court.recorded(together(court, *texts))] == ["a"]


def test_the_first_text_is_the_job_s_own_and_fails_it(court: GateProject) -> None:
    texts = [text_of(court, "a", PROOF, blob="1" * 40), text_of(court, "b", PROOF)]
    with pytest.raises(JobError, match="is not blob 1"):
        court.recorded(together(court, *texts))


def test_a_job_that_is_killed_between_two_verdicts_has_given_the_first(court: GateProject) -> None:
    spec = together(court, text_of(court, "a", PROOF), text_of(court, "b", "exact wait h"))
    spec.staging.mkdir(parents=True)
    running = warm.launch(
        "pipeline.gate.check", spec.write(), folder=court.folder, errors=court.folder / "errors"
    )
    assert running.stdout is not None
    with running, running.stdout as lines:
        events = next(json.loads(line)["events"] for line in lines if b'"events"' in line)
        os.killpg(running.pid, signal.SIGKILL)
        assert b'"events"' not in lines.read()
    told = [(one["type"], one["data"]["proof"]) for one in events]
    assert told == [("proof_verified", "a" * 16), ("closure_judged", "a" * 16)]


def test_a_proof_that_another_job_judges_again_is_another_fact(court: GateProject) -> None:
    spec, ids = court.spec(Case("sorry"), lean="none"), []
    for job in ("check-1", "check-1", "check-2"):
        out = io.StringIO()
        check.work(replace(spec, job=job), Reporter(replace(spec, job=job), out))
        ids += re.findall(r'"event_id": "([^"]*)"', out.getvalue())
    assert ids[0] == ids[1] != ids[2], "the log takes one id for one content, and the job is a part of that"
