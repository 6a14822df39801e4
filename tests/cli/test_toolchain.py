"""`everlean toolchain` and `doctor`: builds made, checked and removed, and what the repositories need and lack."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.toolchain.standins import SWITCH
from pipeline.lean.toolchain.toolchains import Toolchain, Toolchains, parse_version
from store.events.projects import Project
from store.events.repositories import BranchCreated, RepositoryWatched
from store.events.scans import CommitScanned
from tests.support.daemon.remote import Remote
from tests.support.lean.toolchain import make_elan
from tests.support.lean.toolchain_build import write_build

LAKEFILE = "package pantograph\nlean_exe repl where\n  root := `Main\n"


class Machine:
    """A state folder, elan, and a repository of Pantograph's source; no sandbox, which has its own tests."""

    def __init__(self, folder: Any) -> None:
        self.folder = folder
        folder.config.write_text('[daemon]\nstate_dir = "state"\n[lean]\nsandbox = "none"\nas_root = true\n')
        self.cache = Toolchains(folder.state / "cache" / "toolchains")
        self.remote = Remote(folder.root / "pantograph")
        self.sha = self.remote.commit(
            "source",
            {
                "lean-toolchain": "leanprover/lean4:v4.21.0\n",
                "lakefile.lean": LAKEFILE,
                "Main.lean": "-- main\n",
            },
        )
        make_elan(folder.root)
        self.env = {
            "ELAN_HOME": str(folder.root / "elan"),
            "PATH": f"{folder.root}/elan/bin:{os.environ['PATH']}",
            SWITCH: "1",
        }

    def __call__(self, *arguments: str) -> Any:
        return self.folder.everlean("toolchain", *arguments, env=self.env)

    def checks(self) -> dict[str, Any]:
        """What doctor says, by name."""
        found = self.folder.everlean("doctor", "--json", env=self.env).json["checks"]
        return {item["name"]: item for item in found}

    def install(self, *more: str, version: str = "v4.21.0") -> Any:
        source = f"file://{self.remote.path}"
        return self("install", version, "--revision", self.sha, "--source", source, *more)

    def placed(self, version: str = "v4.21.0") -> Toolchain:
        """A build, without the work."""
        return write_build(self.cache.folder, version, home=self.folder.root / "elan")

    def lean(self, version: str) -> None:
        """A toolchain of elan's, as far as looking at it goes."""
        program = (
            self.folder.root / "elan" / "toolchains" / parse_version(version).elan_folder / "bin" / "lean"
        )
        program.parent.mkdir(parents=True)
        program.write_bytes(b"\x7fELF")

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
def machine(folder: Any) -> Machine:
    return Machine(folder)


def test_a_build_is_made_listed_and_removed(machine: Machine) -> None:
    made = machine.install("--json", version="4.21.0")
    assert made.code == 0, made.err
    assert "lake build repl" in made.err
    assert (made.json["made"], made.json["toolchain"]) == (True, "leanprover/lean4:v4.21.0")
    assert made.json["revision"] == machine.sha
    assert Path(made.json["repl"]).is_file()
    assert machine.checks()["toolchain v4.21.0"]["verdict"] == "ok"

    again = machine.install()
    assert "there already" in again.out
    assert "not Lean" in again.out  # what the stand-in says of itself
    removed = machine("remove", "leanprover/lean4:v4.21.0", "--json").json
    assert removed["removed"] == "leanprover/lean4:v4.21.0"
    assert "toolchain v4.21.0" not in machine.checks()


def test_what_the_repositories_need_and_lack_is_said(machine: Machine) -> None:
    machine.placed()
    machine.needs("github.com/demo/one", "leanprover/lean4:v4.21.0")
    machine.needs("github.com/demo/two", "leanprover/lean4:v4.22.0")
    machine.needs("github.com/demo/three", "v4.22.0")
    machine.needs("github.com/demo/four", "")
    checks = machine.checks()
    assert checks["lean v4.21.0"]["verdict"] == "ok"
    lacking = checks["lean v4.22.0"]
    assert (lacking["verdict"], lacking["remedy"]) == ("missing", "run `everlean setup`")
    assert "needed by github.com/demo/three (main), github.com/demo/two (main)" in lacking["detail"]
    assert "toolchain leanprover/lean4:v4.22.0 is not installed" in lacking["detail"]
    assert "no lean-toolchain" in checks["lean version"]["detail"]


UNKNOWN_TO_PANTOGRAPH = {
    "v4.35.0": "leanprover/lean4:v4.35.0",
    "v4.40.0": "leanprover/lean4:v4.40.0",
    "v4.36.0-rc2": "leanprover/lean4:v4.36.0-rc2",
    "nightly-2026-11-20": "leanprover/lean4-nightly:nightly-2026-11-20",
}


@pytest.mark.parametrize("version", UNKNOWN_TO_PANTOGRAPH)
def test_a_version_that_pantograph_has_no_revision_for_is_no_problem_once_lean_is_there(
    machine: Machine, version: str
) -> None:
    toolchain = UNKNOWN_TO_PANTOGRAPH[version]
    machine.needs("github.com/demo/one", version)
    lacking = machine.checks()[f"lean {version}"]
    assert (lacking["verdict"], lacking["remedy"]) == ("missing", "run `everlean setup`")
    assert (
        f"after `elan toolchain install {toolchain}` its branches are traced"
        in machine("install", version).err
    )

    machine.lean(version)
    there = machine.checks()[f"lean {version}"]
    assert (there["verdict"], there["remedy"]) == ("ok", "")
    assert "its branches are traced, searched and checked with that toolchain alone" in there["detail"]
    assert there["detail"].endswith(f"no revision of Pantograph is known for {version}, and none is needed")


def test_of_a_version_that_pantograph_is_built_for_the_repl_is_offered(machine: Machine) -> None:
    machine.needs("github.com/demo/one", "v4.22.0")
    machine.lean("v4.22.0")
    assert machine.checks()["lean v4.22.0"]["detail"].endswith(
        "`everlean toolchain install v4.22.0` builds a REPL, by which searches are faster"
    )


def test_where_only_a_repl_may_search_the_remedy_is_the_setting(machine: Machine) -> None:
    machine.folder.config.write_text(
        '[daemon]\nstate_dir = "state"\n[lean]\nbackend = "pantograph"\nsandbox = "none"\nas_root = true\n'
    )
    machine.needs("github.com/demo/one", "v4.35.0")
    assert 'write backend = "auto" under [lean]' in str(machine.checks()["lean v4.35.0"])


def test_doctor_names_a_build_that_is_not_as_it_was_made(machine: Machine) -> None:
    machine.placed()
    machine.needs("github.com/demo/one", "leanprover/lean4:v4.21.0")
    checks = machine.checks()
    assert checks["lean backend"]["verdict"] == "ok"
    assert str(machine.cache.installed()[0].repl) in checks["lean v4.21.0"]["detail"]
    assert "stand-in" in checks["elan"]["detail"]
    assert checks["curl"]["verdict"] in ("ok", "warning")

    repl = machine.cache.installed()[0].repl
    before = repl.stat()
    repl.write_bytes(repl.read_bytes()[:-1] + b"#")
    os.utime(repl, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "not the file that was built" in machine.checks()["toolchain v4.21.0"]["detail"]
    repl.write_text("#!/bin/sh\n")
    damaged = machine.checks()["toolchain v4.21.0"]
    assert "changed since it was built" in damaged["detail"]
    assert damaged["remedy"] == "everlean toolchain install v4.21.0"


def test_what_stands_in_for_lean_in_tests_is_refused_by_everyone_else(machine: Machine) -> None:
    assert machine.install().code == 0
    del machine.env[SWITCH]

    assert "a stand-in for tests, not Lean" in machine.checks()["toolchain v4.21.0"]["detail"]
    again = machine.install()
    assert again.code == 1
    assert "a stand-in for tests, not Lean" in again.err
    machine("remove", "v4.21.0")
    fresh = machine.install()
    assert fresh.code == 1
    assert "nothing was installed" in fresh.err
    assert machine.cache.installed() == ()


def test_a_build_in_use_stays_and_the_code_is_75(machine: Machine) -> None:
    machine.placed()
    with machine.cache.in_use(parse_version("v4.21.0")):
        refused = machine("remove", "v4.21.0")
        assert machine.checks()["toolchain v4.21.0"]["verdict"] == "ok"
    assert refused.code == 75
    assert "is used by" in refused.err
    assert machine.cache.installed()


def test_a_second_installation_names_the_first_one(machine: Machine) -> None:
    with machine.cache.installing("everlean toolchain install v4.22.0"):
        refused = machine.install()
    assert refused.code == 75
    assert f"process {os.getpid()} (everlean toolchain install v4.22.0) is at work" in refused.err


@pytest.mark.parametrize("version", ["../x", "v4.21.0 -rf", "stable", "evil/lean4:v4.21.0"])
def test_a_hostile_or_unclear_name_is_a_wrong_command_line(machine: Machine, version: str) -> None:
    refused = machine("install", version)
    assert refused.code == 2
    assert "VERSION" in refused.err
    assert machine.cache.installed() == ()


def test_a_name_that_looks_like_an_option_is_refused(machine: Machine) -> None:
    assert machine("remove", "-rf").code == 2
    assert machine("remove", "--", "-rf").code == 2


def test_a_failure_is_code_1_with_what_to_do(machine: Machine) -> None:
    unknown = machine("install", "v4.5.0")
    assert unknown.code == 1
    assert "--revision SHA" in unknown.err
    absent = machine("remove", "v4.21.0")
    assert absent.code == 1
    assert "not installed" in absent.err


def test_a_configuration_with_a_mistake_is_code_78(machine: Machine) -> None:
    machine.folder.config.write_text('[lean]\nsandbox = "docker"\n')
    assert machine("install", "v4.21.0").code == 78
