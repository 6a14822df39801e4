"""`everlean toolchain`: builds made, listed, checked and removed through the installed command."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.toolchain.standins import SWITCH
from pipeline.lean.toolchain.toolchains import Toolchain, Toolchains, parse_version
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
        self.folder.add(stream, RepositoryWatched(
            repository=repository, url=f"https://{repository}", branches=(), include=("**/*.lean",), exclude=(),
            every_s=300.0, enabled=True, opt_out=False,
        ))  # fmt: skip
        self.folder.add(stream, BranchCreated(repository=repository, branch=branch, tip=sha, is_default=True))
        self.folder.add(stream, CommitScanned(
            repository=repository, branch=branch, sha=sha, base=None, include=("**/*.lean",), exclude=(),
            toolchain=toolchain, manifest="", files_scanned=0, files_removed=0, files_failed=0, seconds=0.1,
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
    build = made.json["toolchain"]
    assert (made.json["made"], build["version"], build["state"]) == (True, "v4.21.0", "ok")
    assert build["revision"] == machine.sha

    listed = machine("list", "--check", "--json").json
    assert listed["toolchains"] == [build]
    assert (listed["checked"], listed["needs"]) == (True, None)
    assert Path(listed["elan"]).is_file()

    again = machine.install()
    assert "there already" in again.out
    assert "not Lean" in again.out  # what the stand-in says of itself
    removed = machine("remove", "leanprover/lean4:v4.21.0", "--json").json
    assert removed["removed"] == "leanprover/lean4:v4.21.0"
    assert machine("list", "--json").json["toolchains"] == []


def test_what_the_repositories_need_and_lack_is_said(machine: Machine) -> None:
    machine.placed()
    machine.needs("github.com/demo/one", "leanprover/lean4:v4.21.0")
    machine.needs("github.com/demo/two", "leanprover/lean4:v4.22.0")
    machine.needs("github.com/demo/three", "v4.22.0")
    machine.needs("github.com/demo/four", "")

    needs = {need["toolchain"]: need for need in machine("list", "--json").json["needs"]}
    assert needs["leanprover/lean4:v4.21.0"]["kind"] == "pantograph"
    lacking = needs["leanprover/lean4:v4.22.0"]
    assert lacking["kind"] == "none"
    assert [place["repository"] for place in lacking["branches"]] == [
        "github.com/demo/three",
        "github.com/demo/two",
    ]
    assert "everlean setup" in lacking["detail"]
    assert "no lean-toolchain" in needs[""]["detail"]

    text = machine("list").out
    assert "v4.22.0: needed by github.com/demo/three (main), github.com/demo/two (main)" in text
    assert "missing: toolchain leanprover/lean4:v4.22.0 is not installed" in text


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
    (need,) = machine("list", "--json").json["needs"]
    assert (need["toolchain"], need["kind"]) == (toolchain, "none")
    assert need["detail"].endswith("is not installed; run `everlean setup`")
    assert (
        f"after `elan toolchain install {toolchain}` its branches are traced"
        in machine("install", version).err
    )

    machine.lean(version)
    (need,) = machine("list", "--json").json["needs"]
    assert need["kind"] == "server"
    assert need["detail"].endswith(f"no revision of Pantograph is known for {version}, and none is needed")
    assert "its branches are traced, searched and checked with that toolchain alone" in machine("list").out
    checks = machine.folder.everlean("doctor", "--json", env=machine.env).json["checks"]
    (check,) = (one for one in checks if one["name"] == f"lean {version}")
    assert (check["verdict"], check["remedy"]) == ("ok", "")


def test_of_a_version_that_pantograph_is_built_for_the_repl_is_offered(machine: Machine) -> None:
    machine.needs("github.com/demo/one", "v4.22.0")
    machine.lean("v4.22.0")
    (need,) = machine("list", "--json").json["needs"]
    assert need["kind"] == "server"
    assert need["detail"].endswith(
        "`everlean toolchain install v4.22.0` builds a REPL, by which searches are faster"
    )


def test_where_only_a_repl_may_search_the_remedy_is_the_setting(machine: Machine) -> None:
    machine.folder.config.write_text(
        '[daemon]\nstate_dir = "state"\n[lean]\nbackend = "pantograph"\nsandbox = "none"\nas_root = true\n'
    )
    machine.needs("github.com/demo/one", "v4.35.0")
    (need,) = machine("list", "--json").json["needs"]
    assert 'write backend = "auto" under [lean]' in need["detail"]


def test_doctor_names_the_builds_and_what_is_lacking(machine: Machine) -> None:
    machine.placed()
    machine.needs("github.com/demo/one", "leanprover/lean4:v4.21.0")
    machine.needs("github.com/demo/two", "leanprover/lean4:v4.22.0")
    checks = {
        check["name"]: check
        for check in machine.folder.everlean("doctor", "--json", env=machine.env).json["checks"]
    }

    assert checks["toolchain v4.21.0"]["verdict"] == "ok"
    assert checks["lean backend"]["verdict"] == "ok"
    assert checks["lean v4.21.0"]["verdict"] == "ok"
    assert str(machine.cache.installed()[0].repl) in checks["lean v4.21.0"]["detail"]
    assert checks["lean v4.22.0"]["verdict"] == "missing"
    assert checks["lean v4.22.0"]["remedy"] == "run `everlean setup`"
    assert "stand-in" in checks["elan"]["detail"]
    assert checks["curl"]["verdict"] in ("ok", "warning")

    repl = machine.cache.installed()[0].repl
    before = repl.stat()
    repl.write_bytes(repl.read_bytes()[:-1] + b"#")
    os.utime(repl, ns=(before.st_atime_ns, before.st_mtime_ns))
    checks = {
        check["name"]: check
        for check in machine.folder.everlean("doctor", "--json", env=machine.env).json["checks"]
    }
    assert "not the file that was built" in checks["toolchain v4.21.0"]["detail"]


def test_what_stands_in_for_lean_in_tests_is_refused_by_everyone_else(machine: Machine) -> None:
    assert machine.install().code == 0
    del machine.env[SWITCH]

    listed = machine("list", "--json")
    (build,) = listed.json["toolchains"]
    assert (listed.code, build["state"]) == (1, "damaged")
    assert "a stand-in for tests, not Lean" in build["problem"]
    again = machine.install()
    assert again.code == 1
    assert "a stand-in for tests, not Lean" in again.err
    machine("remove", "v4.21.0")
    fresh = machine.install()
    assert fresh.code == 1
    assert "nothing was installed" in fresh.err
    assert machine.cache.installed() == ()


def test_a_damaged_build_is_named_with_code_1(machine: Machine) -> None:
    machine.placed()
    machine.cache.installed()[0].repl.write_text("#!/bin/sh\n")
    listed = machine("list")

    assert listed.code == 1
    assert "1 damaged" in listed.out
    assert "changed since it was built" in listed.out
    assert "run `everlean toolchain install v4.21.0`" in listed.out


def test_a_build_in_use_stays_and_the_code_is_75(machine: Machine) -> None:
    machine.placed()
    with machine.cache.in_use(parse_version("v4.21.0")):
        refused = machine("remove", "v4.21.0")
        assert machine("list", "--json").json["toolchains"][0]["state"] == "ok"
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
    assert machine("list").code == 78


def test_the_known_revisions_are_listed_for_programs(machine: Machine) -> None:
    known = {item["version"]: item for item in json.loads(machine("list", "--json").out)["known"]}
    assert known["v4.21.0"]["certain"] is True
    assert len(known["v4.29.1"]["revision"]) == 40
