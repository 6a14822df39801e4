"""`make acceptance` without elan: steps, limits, the table, the workflow; and all of it on the Lean of the tests."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from daemon.place.lock import holder
from pipeline.lean.source.manifest import read_manifest
from pipeline.lean.source.scanner import scan_source
from pipeline.lean.toolchain.versions import parse_version
from tests.acceptance import real_lean
from tests.acceptance.real_lean import choose, grades, kernels, main, perform, prepare, programs, steps
from tests.acceptance.real_lean_projects import (
    PROJECTS,
    REALS,
    SMALL,
    WRITTEN,
    Project,
    requiring_mathlib,
)
from tests.acceptance.real_lean_site import (
    NotHeldError,
    OutOfReachError,
    Result,
    Site,
    Step,
    make,
    table,
)
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import TOOLCHAIN, real_elan
from tests.support.lean.second_kernel import KERNELS, bring_kernels
from tests.support.lean.toolchain import sysroot_of

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "acceptance.yml"
VERSION = TOOLCHAIN.partition(":")[2]


def performed(folder: Path, *chosen: Step) -> list[Result]:
    return perform(prepare(folder, [VERSION], None, again=False), chosen, folder, ["a test"])


def raising(error: Exception) -> Callable[[Site], str]:
    def work(site: Site) -> str:
        raise error

    return work


# --- steps ----------------------------------------------------------------------------------------------------


def test_no_step_s_end_keeps_the_next_from_being_made(tmp_path: Path) -> None:
    results = performed(
        tmp_path,
        Step("wrong", 9, raising(NotHeldError("two is three"))),
        Step("broken", 9, raising(KeyError("nobody thought of it"))),
        Step("far", 9, raising(OutOfReachError("needs a bridge"))),
        Step("right", 9, lambda site: site.must("echo", "here").strip()),
    )
    assert [(one.step, one.verdict) for one in results] == [
        ("wrong", "failed"),
        ("broken", "failed"),
        ("far", "not reached"),
        ("right", "held"),
    ]
    assert results[1].reason == "KeyError: 'nobody thought of it'"
    assert "Traceback" in (tmp_path / results[1].output).read_text("utf-8")
    assert results[3].reason == "here"
    kept = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert kept["results"] == [dataclasses.asdict(one) for one in results]


def test_a_program_that_fails_ends_its_step_with_its_error_and_all_that_it_said_is_kept(
    tmp_path: Path,
) -> None:
    script = "for i in $(seq 9999); do echo line $i; done; echo 'error: no such thing' >&2; echo bye; exit 3"
    (result,) = performed(tmp_path, Step("talks", 60, lambda site: site.must("sh", "-c", script)))
    assert (result.verdict, result.reason.endswith("status 3: error: no such thing")) == ("failed", True)
    text = (tmp_path / result.output).read_text("utf-8")
    assert "\nline 1\n" in text
    assert "\nline 5000\n" in text
    assert "\nline 9999\nerror: no such thing\nbye\n" in text


def test_the_time_limit_ends_a_step_with_all_that_it_started(tmp_path: Path) -> None:
    mark = "86399.25"
    script = f"setsid sleep {mark} & sleep {mark}"
    slow, after = performed(
        tmp_path,
        Step("slow", 1, lambda site: site.must("sh", "-c", script)),
        Step("after", 9, lambda site: "made"),
    )
    assert (slow.verdict, after.verdict) == ("timed out", "held")
    assert 1 <= slow.seconds < 20
    assert [one.pid for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or ())] == []


def test_the_table_counts_the_verdicts_and_has_a_row_for_each_step() -> None:
    held = Result("v4.1.0", "one", "held", 1.25, "a | b", "f")
    text = table([held, dataclasses.replace(held, step="two", verdict="timed out")], ["a machine"])
    assert text.splitlines()[0] == "1 held, 0 failed, 1 timed out, 0 not reached"
    assert "- a machine" in text
    assert "| v4.1.0 | one | held | 1.2 | a \\| b |" in text
    assert "| v4.1.0 | two | **timed out** | 1.2 | a \\| b |" in text


def test_all_steps_of_a_version_are_over_before_github_ends_its_job() -> None:
    job = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]["lean"]
    assert sum(step.seconds for step in steps(PROJECTS)) < 60 * job["timeout-minutes"]


# --- the command line -----------------------------------------------------------------------------------------


def test_a_machine_without_elan_is_told_what_to_install_and_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status = main(["--lean", VERSION, "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert status == real_lean.EX_UNAVAILABLE
    assert "elan is not on PATH: curl -sSf https://elan.lean-lang.org/elan-init.sh" in said
    assert "bwrap is not on PATH: apt install bubblewrap" in said
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_something_else_made_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis.tex").touch()
    monkeypatch.setattr(real_lean, "missing", list)
    with pytest.raises(SystemExit) as ended:
        main(["--lean", VERSION, "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]


def test_another_run_begins_anew_but_for_the_toolchains_and_single_steps_find_what_is_there(
    tmp_path: Path,
) -> None:
    (site,) = prepare(tmp_path, [VERSION], None, again=False)
    lean, repository = site.elan_home / "toolchains" / "x", site.place(SMALL) / "repository"
    for folder in (lean, repository):
        folder.mkdir(parents=True)
    prepare(tmp_path, [VERSION], None, again=True)
    assert repository.is_dir()
    prepare(tmp_path, [VERSION], None, again=False)
    assert not repository.exists()
    assert lean.is_dir()


def test_a_daemon_that_a_killed_run_left_is_stopped_before_its_folder_goes(tmp_path: Path) -> None:
    (site,) = prepare(tmp_path, [VERSION], None, again=False)
    site.watch(SMALL)
    left = site.daemons[SMALL.name]
    lock = site.place(SMALL) / "state" / "daemon.lock"
    ends = time.monotonic() + 30
    while not (lock.exists() and holder(lock)) and time.monotonic() < ends:
        time.sleep(0.05)
    prepare(tmp_path, [VERSION], None, again=False)
    assert left.wait(30) == 0
    assert not lock.parent.exists()


def test_the_newest_releases_are_one_for_each_minor_version_and_the_candidate_is_ahead_of_them() -> None:
    tags = (
        "v4.36.0-rc1",
        "v4.35.0",
        "v4.9.1",
        "v4.34.0",
        "v4.34.1",
        "v4.36.0-rc2",
        "v4.35.0-rc3",
        "v3.51.1",
        "x",
    )
    releases: list[dict[str, Any]] = [{"tag_name": tag} for tag in tags]
    releases.append({"tag_name": "v4.99.0", "draft": True})
    assert choose(releases, 3, candidate=True) == ["v4.35.0", "v4.34.1", "v4.9.1", "v4.36.0-rc2"]
    assert choose(releases, 1, candidate=False) == ["v4.35.0"]
    assert choose([*releases, {"tag_name": "v4.36.0"}], 1, candidate=True) == ["v4.36.0"]


def test_the_workflow_calls_what_there_is_and_shows_its_table_whatever_happened() -> None:
    jobs = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]
    commands = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    calls = "\n".join(
        line for text in commands for line in text.splitlines() if "acceptance" in line or "--" in line
    )
    known = {option for action in real_lean.parser()._actions for option in action.option_strings}
    ours = re.findall(
        r"(?<!\S)(?:\"|')?(--(?:lean|newest|candidate|list|mathlib|out|\S*step|limit)\b)", calls
    )
    assert set(ours) <= known
    assert {"--newest", "--candidate", "--list", "--mathlib", "--out", "--lean"} <= set(ours)
    targets = re.findall(r"^([\w.$()/-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {"acceptance", "$(VENV)/.core"} <= set(targets)
    assert any("make acceptance ACCEPTANCE=" in text for text in commands)
    last_two = jobs["lean"]["steps"][-2:]
    assert [step["if"] for step in last_two] == ["always()", "always()"]
    assert "GITHUB_STEP_SUMMARY" in last_two[0]["run"]
    assert last_two[1]["uses"].startswith("actions/upload-artifact@v")
    assert jobs["lean"]["strategy"]["fail-fast"] is False


def test_the_help_of_make_and_the_script_name_each_other() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (default,) = re.findall(r"^ACCEPTANCE \?= (.*)$", makefile, re.MULTILINE)
    assert real_lean.parser().parse_args(shlex.split(default)).newest == 1
    assert "-m tests.acceptance.real_lean $(ACCEPTANCE)" in makefile


# --- the projects ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_a_project_s_sorries_and_theorems_are_those_that_it_says(project: Project) -> None:
    scanned = {
        path: scan_source(text.encode(), path=path)
        for path, text in project.files.items()
        if path.endswith(".lean")
    }
    result = {sorry.declaration: path for path, one in scanned.items() for sorry in one.sorries}
    assert result == project.sorries
    theorems = [each for one in scanned.values() for each in one.declarations if each.kind == "theorem"]
    assert len(theorems) == project.theorems


def test_the_small_project_has_line_ends_of_two_bytes_a_module_header_and_a_source_folder() -> None:
    assert "\n" not in SMALL.files["Small/Windows.lean"].replace("\r\n", "")
    assert SMALL.files["Small/Modern.lean"].startswith("module\n")
    libraries = tomllib.loads(SMALL.files["lakefile.toml"])["lean_lib"]
    assert {one["name"]: one.get("srcDir", "") for one in libraries} == {"Small": "", "Deep": "below"}


def test_the_project_that_requires_mathlib_pins_its_commit_and_all_that_mathlib_pins() -> None:
    batteries = {"url": "https://github.com/leanprover-community/batteries", "type": "git", "rev": "b" * 40}
    batteries |= {"name": "batteries", "inputRev": "v4.35.0", "configFile": "lakefile.toml"}
    theirs = {"version": "1.1.0", "packagesDir": ".lake/packages", "name": "mathlib", "packages": [batteries]}
    files = requiring_mathlib("v4.35.0", "a" * 40, json.dumps(theirs))
    manifest = read_manifest(files["lake-manifest.json"].encode())
    assert {one.name: (one.rev, one.inherited) for one in manifest.packages} == {
        "mathlib": ("a" * 40, False),
        "batteries": ("b" * 40, True),
    }
    assert tomllib.loads(files["lakefile.toml"])["require"][0]["rev"] == "v4.35.0"


@pytest.mark.usefixtures("curl")
def test_the_commit_of_mathlib_is_what_the_tag_of_this_version_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A git repository and a folder stand in for GitHub; the tag is an annotated one, as Mathlib's are not always."""
    remote, out = Remote(tmp_path / "mathlib"), tmp_path / "out"
    sha = remote.commit("A release", {"lean-toolchain": TOOLCHAIN})
    remote.git("tag", "-m", "a release", VERSION)
    raw = remote.path / sha
    raw.mkdir()
    (raw / "lean-toolchain").write_text(f"{TOOLCHAIN}\n", "utf-8")
    (raw / "lake-manifest.json").write_text('{"version": "1.1.0", "packages": []}', "utf-8")
    monkeypatch.setattr(real_lean, "MATHLIB", f"file://{remote.path}")
    (site,) = prepare(out, [VERSION], None, again=False)
    chosen = [step for step in steps(PROJECTS) if step.name == "mathlib-project"]
    (made,) = perform([site], chosen, out, [])
    assert (made.verdict, made.reason) == ("held", "5 files, 4 sorries")
    manifest = (site.place(REALS) / "repository" / "lake-manifest.json").read_text("utf-8")
    assert [one["rev"] for one in json.loads(manifest)["packages"]] == [sha]

    (raw / "lean-toolchain").write_text("leanprover/lean4:v4.1.0\n", "utf-8")
    (again,) = perform(prepare(out, [VERSION], None, again=False), chosen, out, [])
    assert again.verdict == "not reached"
    assert again.reason == f"needs a Mathlib for {TOOLCHAIN}; its tag is for leanprover/lean4:v4.1.0"


# --- what the gate has to have said ---------------------------------------------------------------------------


def proof(declaration: str, state: str = "verified", grade: str = "L1") -> dict[str, Any]:
    kernel = "leanchecker" if grade == "L1" else ""
    result = {"declaration": declaration, "state": state, "grade": grade, "kernel": kernel, "label": state}
    skipped = {"step": "kernel", "verdict": "not_checked", "evidence": "no checker"}
    return {**result, "reason": "", "checks": [skipped]}


def test_a_proof_of_a_false_statement_fails_the_step_whatever_the_others_are() -> None:
    assert grades(SMALL, [proof("Small.by_rfl")], checker=True) == "1 verified, L1 by leanchecker"
    for state in ("verified", "candidate", "conditional"):
        with pytest.raises(NotHeldError, match=f"FALSE STATEMENTS HAVE PROOFS.*Small.wrong.*{state}"):
            grades(SMALL, [proof("Small.by_rfl"), proof("Small.wrong", state)], checker=True)
    grades(SMALL, [proof("Small.by_rfl"), proof("Small.wrong", "rejected")], checker=True)


def test_a_proof_that_is_not_verified_or_not_replayed_where_it_could_be_fails_the_step() -> None:
    with pytest.raises(NotHeldError, match=r"Small\.windows: candidate: kernel: no checker"):
        grades(SMALL, [proof("Small.by_rfl"), proof("Small.windows", "candidate")], checker=True)
    once = [proof("Small.by_rfl", grade="L0")]
    assert grades(SMALL, once, checker=False) == "1 verified, L0 by no kernel"
    with pytest.raises(NotHeldError, match="not all is replayed"):
        grades(SMALL, once, checker=True)


# --- the kernels that Lean brings -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("real_lean")
def test_our_lean_programs_answer_about_a_plain_and_a_module_file(tmp_path: Path) -> None:
    (site,) = prepare(tmp_path / "out", [VERSION], real_elan(tmp_path), again=False)
    result = make(site, Step("programs", 200, lambda site: programs(site, sandbox="none")))
    assert (result.verdict, result.reason) == (
        "held",
        "Questions.lean and Trace.lean answer, about Plain, Modern too",
    )


def test_a_row_of_versions_has_the_steps_of_our_lean_programs_alone() -> None:
    names = [step.name for step in steps(PROJECTS)]
    assert names[: len(real_lean.OF_THE_ROW)] == [*real_lean.OF_THE_ROW]
    assert [str(parse_version(one)) for one in real_lean.ROW] == [*real_lean.ROW]


@pytest.mark.slow
@pytest.mark.usefixtures("real_lean")
def test_each_kernel_has_to_accept_a_proof_and_to_refuse_a_wrong_one(tmp_path: Path) -> None:
    """Lean 4.35.0 itself writes the export; stand-ins for its kernels refuse what the wrong one has."""
    home = real_elan(tmp_path)
    programs = sysroot_of(home, TOOLCHAIN) / "bin"
    (site,) = prepare(tmp_path / "out", [VERSION], home, again=False)

    def made() -> tuple[str, str]:
        result = make(site, Step("kernels", 60, lambda site: kernels(site, sandbox="none")))
        return result.verdict, result.reason

    assert made() == ("not reached", "needs a toolchain that brings kernels, from v4.35.0-rc2 on")
    (programs / "leanchecker").touch()
    bring_kernels(programs)
    verdict, reason = made()
    assert verdict == "failed"
    assert "leanchecker-paranoid --from-export of v4.35.0 on wrong.ndjson: accepted, not refused" in reason
    bring_kernels(programs, says=dict.fromkeys(KERNELS, "look"))
    assert made()[0] == "held"
    (programs / "con-ron").unlink()
    assert made() == ("failed", "v4.35.0 lacks con-ron")


# --- on Lean 4.35.0 itself, with a library of our own, and stand-ins for elan and lake ------------------------


def without_the_library(project: Project) -> Project:
    """Leave out what our own library has no words for."""
    path = "Small/Arithmetic.lean"
    root = project.files["Small.lean"].replace("import Small.Arithmetic\n", "")
    files = {name: text for name, text in project.files.items() if name != path} | {"Small.lean": root}
    provable = {name: at for name, at in project.provable.items() if at != path}
    return dataclasses.replace(project, files=files, provable=provable, theorems=project.theorems - 4)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("bubblewrap")
def test_every_step_holds_on_lean_itself_but_what_lean_s_own_library_is_needed_for(
    real_lean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, out = real_elan(tmp_path), tmp_path / "out"
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    chosen = [
        step
        for step in steps(
            [without_the_library(SMALL), dataclasses.replace(WRITTEN, deep=("Written", "named"))]
        )
        if step.name not in ("kernels", "tests", "latency")
    ]
    results = perform(prepare(out, [VERSION], home, again=False), chosen, out, ["a test"])
    said = {one.step: f"{one.verdict}: {one.reason}" for one in results}
    assert said["small-lake"] == "held: lake build is green, in which 7 declarations have a sorry"
    for checked in (said.pop("small-check"), said.pop("written-check")):
        assert checked.startswith("failed: "), checked
        assert "is not Lean's own, since Init.Prelude is not in it" in checked
    assert {step: one for step, one in said.items() if not one.startswith("held: ")} == {}
    assert said["small-watch"].startswith("held: 7 sorries in 4 files; run by ")
    assert said["small-trace"].startswith("held: 7 of 7 files, 10 of 10 theorems, ")
    patches = "6 patches applied; lake build is green, in which 1 declarations have a sorry"
    assert said["small-patches"] == f"held: {patches}"
    assert said["written-trace"].startswith("held: 1 of 1 files, 2 of 2 theorems, ")
    assert re.fullmatch(
        r"held: named: \d constants, 0 MiB, \d+ s; accepted by no kernel: it brings none",
        said["written-closure"],
    )
    assert said["written-patches"].startswith("held: 1 patches applied; lake build is green")
