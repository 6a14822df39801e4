"""Asking the project's own toolchain. Lake is a double here: a script that answers as Lean does."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from pipeline.gate.lake import Lake, axioms_of, module_of, patched_in_place, read_axioms
from pipeline.lean.backend import LeanBackend
from pipeline.lean.sandbox import bubblewrap_path

FAKE = """#!/bin/sh
case "$1" in
build) echo built "$2" > built.txt && ! grep -q broken A.lean ;;
env) cat "$3" | sed -n 's/#print axioms \\(.*\\)/'"'\\1'"' depends on axioms: [propext,\\n Quot.sound]/p' ;;
esac
"""


def backend(sysroot: Path, *, sandbox: Literal["bubblewrap", "none"] = "none") -> LeanBackend:
    return LeanBackend(
        "pantograph", ("repl",), "a double", "v4", simulated=False, sandbox=sandbox, sysroot=str(sysroot)
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "lakefile.toml").write_text('name = "x"\n')
    (folder / "A.lean").write_text("theorem t : p := sorry\n")
    program = tmp_path / "toolchain" / "bin" / "lake"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE)
    program.chmod(0o755)
    return folder


def test_the_axioms_are_asked_in_a_file_of_its_own_that_goes_away(project: Path) -> None:
    lake = Lake.find(backend(project.parent / "toolchain"), project=project)
    assert isinstance(lake, Lake)
    assert axioms_of(lake, module="A", declaration="N.t") == ("propext", "Quot.sound")
    assert not list((project / ".lake" / "unsorry").iterdir())


@pytest.mark.skipif(bubblewrap_path() is None, reason="bubblewrap is not installed")
def test_in_the_sandbox_the_build_writes_into_the_worktree_and_nowhere_else(
    project: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    program = tmp_path / "toolchain" / "bin" / "lake"
    program.write_text(f"#!/bin/sh\necho in > inside.txt\necho out > {outside}\nexit 0\n")
    lake = Lake.find(backend(tmp_path / "toolchain", sandbox="bubblewrap"), project=project)
    assert isinstance(lake, Lake)
    ran = lake.run("build", "A")
    if "No permissions to create new namespace" in ran.output or "Operation not permitted" in ran.output:
        pytest.skip("this machine lets nobody make a namespace")
    assert (project / "inside.txt").read_text() == "in\n"
    assert not outside.exists()


def test_the_worktree_is_as_before_afterwards_even_after_an_error(project: Path) -> None:
    file = project / "A.lean"
    before = file.read_bytes()

    def use() -> None:
        with patched_in_place(file, b"patched"):
            assert file.read_bytes() == b"patched"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        use()
    assert file.read_bytes() == before
    assert sorted(path.name for path in project.iterdir()) == ["A.lean", "lakefile.toml"]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("'N.t' does not depend on any axioms\n", ()),
        ("'N.t' depends on axioms: [propext, sorryAx]\n", ("propext", "sorryAx")),
        (
            "'N.t' depends on axioms: [propext,\n Classical.choice,\n Quot.sound]",
            ("propext", "Classical.choice", "Quot.sound"),
        ),
    ],
)
def test_the_answer_is_read(output: str, expected: tuple[str, ...]) -> None:
    assert read_axioms(output, "N.t") == expected


@pytest.mark.parametrize(
    "output",
    [
        "",
        "error: unknown constant 'N.t'",
        "'M.t' does not depend on any axioms",
        "'N.t' does not depend on any axioms\n'N.t' depends on axioms: [sorryAx]",
    ],
)
def test_an_answer_that_is_not_plain_is_no_verdict(output: str) -> None:
    assert isinstance(read_axioms(output, "N.t"), str)


def test_without_a_lakefile_there_is_no_lake(tmp_path: Path) -> None:
    assert Lake.find(backend(tmp_path), project=tmp_path) == "the project has no lakefile"


@pytest.mark.parametrize(("path", "module"), [("Demo/Logic.lean", "Demo.Logic"), ("a b/C.lean", "«a b».C")])
def test_a_path_names_its_module(path: str, module: str) -> None:
    assert module_of(path) == module
