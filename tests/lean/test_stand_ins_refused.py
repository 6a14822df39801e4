"""What stands in for Lean in tests is taken for it nowhere else, and nothing of a repository runs without a sandbox.

Every kind of job that starts Lean or lake is run here as the daemon runs it, as a process of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.kinds import KINDS as JOB_KINDS
from pipeline.jobs.kinds import Kind
from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.pool import PoolLimits
from pipeline.lean.toolchain.standins import MARK, SWITCH, is_stand_in
from store.domain.identity import git_blob
from tests.support.daemon import warm
from tests.support.gate import Case, GateProject
from tests.support.lean.credulous import make_credulous
from tests.support.lean.lake import STANDS_IN
from tests.support.lean.scripted import write_repl
from tests.support.lean.toolchain import make_toolchain
from tests.support.specs import raw_spec
from tests.support.trace import Workshop

KINDS: tuple[Kind, ...] = ("trace", "prove", "check", "build")
LEAN_TEXT = "theorem mine : True := by\n  sorry\n"
TOOLCHAIN = "leanprover/lean4:v4.21.0"


class Site:
    """A spec for each kind of job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started = folder / "started"

    def program(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        path.chmod(0o755)
        return path

    def parameters(self, kind: Kind, lean: LeanBackend) -> dict[str, Any]:
        if kind == "trace":
            workshop = Workshop(self.folder / "trace", lean)
            workshop.commit({"Demo.lean": LEAN_TEXT})
            parameters = workshop.parameters()
            workshop.close()
            return parameters
        if kind == "check":
            court = GateProject(self.folder / "check")
            proof = court.found(
                Case("trivial", file="theorem mine : True := by\n  HOLE\n", declaration="mine"),
            )
            return {"worktree": court.project, "lean": lean, "proof": proof}
        worktree = self.folder / kind
        worktree.mkdir()
        (worktree / "Demo.lean").write_text(LEAN_TEXT)
        common = {
            "repository": "local/x/demo",
            "branch": "main",
            "sha": "a" * 40,
            "worktree": str(worktree),
            "lean": lean,
        }
        if kind == "build":
            (worktree / "lakefile.toml").write_text('name = "demo"\n')
            (worktree / "lean-toolchain").write_text(lean.toolchain + "\n")
            bounds = {"timeout_s": 60, "memory_bytes": 2**30, "disk_bytes": 2**28}
            return {**common, **bounds, "cache": str(self.folder / "cache"), "hosts": [], "modules": []}
        start = LEAN_TEXT.index("sorry")
        sorry = {
            "sorry": "s" * 16, "path": "Demo.lean", "blob": git_blob(LEAN_TEXT.encode(), like="0" * 40),
            "byte_start": start, "byte_end": start + 5, "declaration": "mine", "kind": "theorem", "ordinal": 0,
        }  # fmt: skip
        budget = {"seconds": 5, "nodes": 10, "tactic_timeout_s": 5}
        return {
            **common, "limits": PoolLimits(), "rung": {"number": 0}, "budget": budget, "budget_key": "small",
            "parallel": 1, "sorries": [sorry],
        }  # fmt: skip

    def failure(self, kind: Kind, lean: LeanBackend, *, stand_ins: bool) -> dict[str, Any]:
        """Run the job, with the tests' switch in its environment or not; return its last line, a failure's."""
        folder = self.folder / f"job-{kind}"
        folder.mkdir()
        spec_file = raw_spec(kind, self.parameters(kind, lean), folder).write()
        environment = {name: value for name, value in os.environ.items() if name != SWITCH}
        if stand_ins:
            environment[SWITCH] = "1"
        module = JOB_KINDS[kind].module
        with warm.launch(
            module, spec_file, folder=folder, errors=folder / "stderr", environment=environment
        ) as process:
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 1
        *before, last = [json.loads(line) for line in said.splitlines()]
        assert {line["line"] for line in before} <= {"progress"}
        assert (last["line"], last["deterministic"]) == ("failure", False)
        assert not self.started.exists()
        failure: dict[str, Any] = last
        return failure


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_where_no_sandbox_can_be_made_nothing_of_a_repository_runs(
    site: Site, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bwrap may be there and forbidden to make namespaces. That is no fault of the commit, which is tried again."""
    for name in ("lean", "lake"):
        lean = site.program(site.folder / "bin" / name, f"touch {site.started}; exit 1")
    argv, sysroot = (str(lean),), str(site.folder)
    server = LeanBackend("server", argv, "", TOOLCHAIN, sandbox="bubblewrap", sysroot=sysroot)
    broken = site.program(
        site.folder / "programs" / "bwrap", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"
    )
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    failure = site.failure(kind, server, stand_ins=True)

    assert failure["reason"] == "sandbox_missing"
    assert "No permissions" in failure["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_job_works_with_a_stand_in_outside_of_the_tests(site: Site, kind: Kind) -> None:
    tools = make_toolchain(site.folder)
    argv, sysroot = (str(tools.lean),), str(tools.sysroot)
    lean = LeanBackend("server", argv, "made by hand", TOOLCHAIN, sandbox="none", sysroot=sysroot)
    if kind == "prove":
        lean = dataclasses.replace(lean, kind="pantograph", argv=(str(write_repl(site.folder)),))
    failure = site.failure(kind, lean, stand_ins=False)

    assert failure["reason"] == "toolchain_missing"
    assert f"{lean.argv[0]}: a stand-in for tests, not Lean" in failure["message"]


def test_a_stand_in_behind_another_script_gives_itself_away_by_its_version(
    site: Site, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = site.program(site.folder / "tools" / "bin" / "unremarkable", f"echo '0.3 ({MARK})'")
    wrapper = site.program(site.folder / "repl", f'exec {hidden} "$@"')
    monkeypatch.delenv(SWITCH)
    assert not is_stand_in(wrapper)
    lean = LeanBackend(
        "pantograph", (str(wrapper),), "", "", sandbox="bubblewrap" if sandbox == "bubblewrap" else "none",
        sysroot=str(site.folder / "tools"),
    )  # fmt: skip
    assert f"{wrapper}: a stand-in for tests, not Lean" in lean.stand_in_problem()
    assert f"0.3 ({MARK})" in lean.stand_in_problem()


def test_stand_ins_are_found_in_every_place_where_lean_is_looked_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = make_toolchain(site.folder)
    bundled = write_repl(site.folder / "site" / "pantograph", toolchain=tools.toolchain)
    (bundled.parent / "__init__.py").touch()
    on_path = write_repl(site.folder / "programs", toolchain=tools.toolchain)
    configured = write_repl(site.folder / "own", toolchain=tools.toolchain)
    monkeypatch.setenv("ELAN_HOME", str(tools.home))
    monkeypatch.setenv("PATH", f"{on_path.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "path", [str(site.folder / "site"), *sys.path])

    def found(repl: str = "") -> list[str]:
        return [one.argv[0] for one in find_leans(backend="auto", repl=repl, sandbox="none").builds]

    assert found(str(configured)) == [str(one) for one in (configured, bundled, on_path)]
    for one in (bundled, on_path):
        one.unlink()
    assert found() == [str(tools.lean)]
    monkeypatch.delenv(SWITCH)
    assert found() == []
    for path in (bundled, on_path):
        write_repl(path.parent, toolchain=tools.toolchain)
        summary = find_leans(backend="auto", repl="", sandbox="none").summary
        assert (summary.kind, f"{path}: a stand-in" in summary.detail) == ("none", True)
    summary = find_leans(backend="auto", repl=str(configured), sandbox="none").summary
    assert (summary.kind, f"{configured}: a stand-in" in summary.detail) == ("none", True)


def test_a_real_repl_beside_a_stand_in_for_lake_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = make_toolchain(site.folder)
    repl = site.program(site.folder / "own" / "repl", "exit 1")
    (repl.parent / "lean-toolchain").write_text(tools.toolchain)
    monkeypatch.setenv("ELAN_HOME", str(tools.home))
    assert find_leans(backend="auto", repl=str(repl), sandbox="none").summary.sysroot == str(tools.sysroot)
    monkeypatch.delenv(SWITCH)
    summary = find_leans(backend="auto", repl=str(repl), sandbox="none").summary
    assert (summary.kind, f"{tools.lake}: a stand-in" in summary.detail) == ("none", True)


def test_every_program_that_stands_in_for_lean_can_be_told(site: Site) -> None:
    assert MARK in STANDS_IN
    tools = make_toolchain(site.folder)
    credulous = make_credulous(site.folder / "credulous").sysroot
    programs = [
        write_repl(site.folder / "own"),
        *(tools.home / "bin").iterdir(),
        *(tools.sysroot / "bin").iterdir(),
        *(credulous / "bin").iterdir(),
    ]
    assert len(programs) > 6
    assert [program for program in programs if not is_stand_in(program)] == []
    assert not is_stand_in(Path("/bin/sh"))
    assert not is_stand_in(site.folder / "nothing")
