"""The stand-in elan, lake and lean: that they keep the layout and habits of the real ones, and say what they are."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.daemon.remote import Remote
from tests.support.lean.toolchain import STANDS_IN, Answer, StandIn, make_toolchain

GOOD = "theorem a (p : Prop) : p → p := fun h => h\n"


class Project:
    """A project with lake in a made toolchain."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self.tools = make_toolchain(folder)
        self.write(
            {"lakefile.toml": 'name = "demo"\n', "lean-toolchain": self.tools.toolchain, "Demo.lean": GOOD}
        )

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def run(self, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.tools.bin}:{os.environ['PATH']}",
            "ELAN_HOME": str(self.tools.home),
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }
        return subprocess.run(
            [str(program), *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    def lake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.tools.lake, *arguments)

    def olean(self, module: str) -> Path:
        return self.folder.joinpath(".lake/build/lib/lean", *module.split(".")).with_suffix(".olean")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_every_program_says_that_it_is_not_lean(project: Project) -> None:
    for program in (project.tools.elan, project.tools.lake, project.tools.lean):
        assert STANDS_IN in project.run(program, "--version").stdout


def test_the_layout_is_elans(project: Project) -> None:
    tools = project.tools
    assert tools.sysroot == tools.home / "toolchains" / "leanprover--lean4---v4.21.0"
    assert project.run(tools.elan, "which", "lean").stdout.strip() == str(tools.lean)
    assert project.run(tools.elan, "toolchain", "install", "4.22.0").returncode == 0
    listed = project.run(tools.elan, "toolchain", "list").stdout.split()
    assert listed == ["leanprover/lean4:v4.21.0", "leanprover/lean4:v4.22.0"]


def test_a_folder_that_is_there_is_not_installed_again(project: Project) -> None:
    project.tools.lean.unlink()
    assert project.run(project.tools.elan, "toolchain", "install", "v4.21.0").returncode == 0
    assert not project.tools.lean.exists()


def test_the_proxies_obey_lean_toolchain(project: Project) -> None:
    project.write({"lean-toolchain": "leanprover/lean4:v4.25.0\n"})
    said = project.run(project.tools.bin / "lean", "--version")
    assert "Lean (version 4.25.0" in said.stdout  # fetched, as elan does


def test_a_build_writes_what_lake_writes_and_is_done_once(project: Project) -> None:
    project.write({"Demo/More.lean": "import Demo\n" + GOOD})
    first = project.lake("build")
    assert first.returncode == 0
    assert "✔ [2/2] Built Demo.More" in first.stdout
    written = project.olean("Demo.More")
    assert written.with_suffix(".trace").is_file()
    assert "Built" not in project.lake("build").stdout

    project.write({"Demo.lean": GOOD + "-- changed\n"})
    assert "Built Demo.More" in project.lake("build").stdout  # it imports what changed


def test_an_error_stops_what_imports_it(project: Project) -> None:
    project.write({"Demo.lean": "--! error type mismatch\n", "Other.lean": "import Demo\n"})
    done = project.lake("build")
    assert done.returncode == 1
    assert "error: Demo.lean:1:0: type mismatch" in done.stdout
    assert done.stdout.rstrip().endswith("- Demo")
    assert "error: build failed" in done.stderr
    assert not project.olean("Other").exists()


def test_a_single_module_is_built_with_what_it_needs(project: Project) -> None:
    project.write({"Other.lean": "import Demo\n", "Bad.lean": "--! error bad\n"})
    assert project.lake("build", "Other").returncode == 0
    assert project.olean("Demo").exists()
    assert "unknown target" in project.lake("build", "Nowhere").stderr


def test_a_sorry_is_a_warning(project: Project) -> None:
    project.write({"Demo.lean": "theorem a : 1 = 2 := sorry\n"})
    done = project.lake("build")
    assert done.returncode == 0
    assert "declaration uses 'sorry'" in done.stdout


def test_answers_are_given_where_their_pattern_is_found(project: Project) -> None:
    project.tools.configure(
        answers=[
            Answer("lean", r"#print axioms mine", "'mine' depends on axioms: [propext]"),
            Answer("build", "GOOD", "error: no", exit=1),
            Answer("leanchecker", "Demo", "mismatch", exit=1),
        ],
        leanchecker=True,
    )
    project.write({"ask.lean": "#print axioms mine\n", "Demo.lean": "-- GOOD\n"})
    assert project.lake("env", "lean", "ask.lean").stdout == "'mine' depends on axioms: [propext]\n"
    assert project.lake("build", "Demo").returncode == 1
    assert project.lake("env", "leanchecker", "Demo").returncode == 1
    project.tools.configure()
    assert not (project.tools.sysroot / "bin" / "leanchecker").exists()


def test_env_gives_relative_paths_with_the_packages_before_the_project(project: Project) -> None:
    (project.folder / ".lake" / "packages" / "aesop").mkdir(parents=True)
    said = project.lake("env", "printenv", "LEAN_PATH").stdout.strip()
    assert said == "./.lake/packages/aesop/.lake/build/lib/lean:./.lake/build/lib/lean"


def test_packages_are_cloned_at_the_manifests_revision(project: Project, tmp_path: Path) -> None:
    remote = Remote(tmp_path / "dep")
    wanted = remote.commit("one", {"Dep.lean": "-- one\n"})
    remote.commit("two", {"Dep.lean": "-- two\n"})
    package = {"name": "dep", "type": "git", "url": f"file://{remote.path}", "rev": wanted}
    project.write({"lake-manifest.json": json.dumps({"version": "1.1.0", "packages": [package]})})
    assert project.lake("build").returncode == 0
    assert (project.folder / ".lake/packages/dep/Dep.lean").read_text() == "-- one\n"

    package["rev"] = "0" * 40
    project.write({"lake-manifest.json": json.dumps({"packages": [{**package, "name": "other"}]})})
    failed = project.lake("build")
    assert failed.returncode == 1
    assert "external command 'git' exited with code" in failed.stderr


@pytest.mark.parametrize(
    ("command", "status"), [("exit 3", 1), ("kill -9 $$", -9), ("kill -9 $PPID", -9), ("true", 0)]
)
def test_a_lakefile_runs_code_and_lake_ends_as_it_does(project: Project, command: str, status: int) -> None:
    project.write({"lakefile.toml": f'name = "demo"\n#! run {command}\n'})
    assert project.lake("env", "true").returncode == status


def test_the_cache_is_mathlibs_and_needs_the_network(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert "unknown executable cache" in project.lake("exe", "cache", "get").stderr
    manifest = {"packages": [{"name": "mathlib", "type": "path", "dir": "x"}]}
    project.write({"lake-manifest.json": json.dumps(manifest)})
    assert project.lake("exe", "cache", "get").returncode == 0
    (tmp_path / "off").mkdir()
    offline: StandIn = make_toolchain(tmp_path / "off", offline=True)
    assert "Could not resolve host" in project.run(offline.lake, "exe", "cache", "get").stdout
