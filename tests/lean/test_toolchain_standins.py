"""The stand-in elan, lake and lean: that they keep the layout and habits of the real ones, and say what they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.lean.lake import STANDS_IN
from tests.support.lean.toolchain import make_toolchain

GOOD = "theorem a (p : Prop) : p → p := fun h => h\n"


class Project:
    """A project with lake in a made toolchain."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self.tools = make_toolchain(folder)
        self.elan = self.tools.home / "bin" / "elan"
        self.write({"lakefile.toml": 'name = "demo"\n', "Demo.lean": GOOD})

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def run(self, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(program), *arguments],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "ELAN_HOME": str(self.tools.home)},
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
    for program in (project.elan, project.tools.lake, project.tools.lean):
        assert STANDS_IN in project.run(program, "--version").stdout


def test_elan_puts_a_toolchain_where_the_first_one_is_and_looks_no_further(project: Project) -> None:
    name = "leanprover/lean4:v4.22.0"
    assert project.run(project.elan, "toolchain", "install", name).returncode == 0
    newer = project.tools.sysroot.with_name("leanprover--lean4---v4.22.0")
    assert project.run(newer / "bin" / "lake", "build").returncode == 0
    (newer / "bin" / "lean").unlink()
    assert project.run(project.elan, "toolchain", "install", name).returncode == 0
    assert not (newer / "bin" / "lean").exists()


def test_a_build_is_done_once_and_says_again_what_it_said(project: Project) -> None:
    project.write({"Demo/More.lean": "import Demo\ntheorem b : 1 = 2 := sorry\n"})
    warning = "warning: Demo/More.lean:2:21: declaration uses 'sorry'"
    assert f"✔ [1/2] Built Demo\n⚠ [2/2] Built Demo.More\n{warning}" in project.lake("build").stdout
    again = project.lake("build").stdout
    assert ("Built" not in again, f"Replayed Demo.More\n{warning}" in again) == (True, True)

    project.write({"Demo.lean": GOOD + "-- changed\n"})
    assert "Built Demo.More" in project.lake("build").stdout  # it imports what changed


def test_an_error_stops_what_imports_it_and_a_module_is_built_alone(project: Project) -> None:
    project.write({"Bad.lean": "--! error type mismatch\n", "Other.lean": "import Bad\n"})
    done = project.lake("build")
    assert done.returncode == 1
    assert "error: Bad.lean:1:0: type mismatch" in done.stdout
    assert done.stdout.rstrip().endswith("- Bad")
    assert "error: build failed" in done.stderr
    assert not project.olean("Other").exists()
    assert project.lake("build", "+Demo").returncode == 0
    assert "unknown target" in project.lake("build", "Nowhere").stderr


@pytest.mark.parametrize(
    ("command", "status"), [("exit 3", 1), ("kill -9 $$", -9), ("kill -9 $PPID", -9), ("true", 0)]
)
def test_a_lakefile_runs_code_and_lake_ends_as_it_does(project: Project, command: str, status: int) -> None:
    project.write({"lakefile.toml": f'name = "demo"\n#! run {command}\n'})
    assert project.lake("build").returncode == status
