"""`everlean doctor`: what the watched repositories need and lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.toolchain.versions import parse_version
from store.events.projects import Project
from store.events.repositories import BranchCreated, RepositoryWatched
from store.events.scans import CommitScanned


class Machine:
    """A state folder, and an ELAN_HOME; no sandbox, which has its own tests."""

    def __init__(self, folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.config.write_text('[daemon]\nstate_dir = "state"\n[lean]\nsandbox = "none"\nas_root = true\n')
        monkeypatch.setenv("ELAN_HOME", str(folder.root / "elan"))

    def checks(self) -> dict[str, Any]:
        """What doctor says, by name."""
        return {item["name"]: item for item in self.folder.everlean("doctor", "--json").json["checks"]}

    def lean(self, version: str) -> Path:
        """A toolchain of elan's, as far as looking at it goes."""
        program = parse_version(version).sysroot / "bin" / "lean"
        program.parent.mkdir(parents=True)
        program.write_bytes(b"\x7fELF")
        return program

    def needs(self, repository: str, toolchain: str, branch: str = "main") -> None:
        """Record that a watched branch was scanned and what its `lean-toolchain` says."""
        stream, sha = f"repository:{repository}", "a" * 40
        self.folder.add(stream, RepositoryWatched(projects=(),
            repository=repository, url=f"https://{repository}", branches=(), include=("**/*.lean",), exclude=(),
            every_s=300.0, enabled=True, opt_out=False,
        ))  # fmt: skip
        self.folder.add(stream, BranchCreated(repository=repository, branch=branch, tip=sha, is_default=True))
        self.folder.add(stream, CommitScanned(
            repository=repository, branch=branch, sha=sha, base=None, include=("**/*.lean",), exclude=(),
            projects=(Project("", toolchain, ""),), files_scanned=0, files_removed=0, files_failed=0, seconds=0.1,
            challenges=(),
        ))  # fmt: skip
        self.folder.write()


@pytest.fixture
def machine(folder: Any, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(folder, monkeypatch)


def test_what_the_repositories_need_and_lack_is_said(machine: Machine) -> None:
    there = machine.lean("v4.21.0")
    machine.needs("github.com/demo/one", "leanprover/lean4:v4.21.0")
    machine.needs("github.com/demo/two", "leanprover/lean4:v4.22.0")
    machine.needs("github.com/demo/three", "v4.22.0")
    machine.needs("github.com/demo/four", "")
    machine.needs("github.com/demo/five", "nightly-2026-11-20")
    checks = machine.checks()
    assert checks["lean backend"]["verdict"] == "ok"
    assert (checks["lean v4.21.0"]["verdict"], checks["lean v4.21.0"]["remedy"]) == ("ok", "")
    assert str(there.parents[1]) in checks["lean v4.21.0"]["detail"]
    lacking = checks["lean v4.22.0"]
    assert (lacking["verdict"], lacking["remedy"]) == ("missing", "run `everlean setup`")
    assert "needed by github.com/demo/three (main), github.com/demo/two (main)" in lacking["detail"]
    assert "toolchain leanprover/lean4:v4.22.0 is not installed (there is v4.21.0)" in lacking["detail"]
    assert "no lean-toolchain" in checks["lean version"]["detail"]
    assert checks["lean nightly-2026-11-20"]["verdict"] == "missing"
    assert checks["curl"]["verdict"] in ("ok", "warning")
