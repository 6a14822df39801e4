"""Asking the project's own toolchain: in which process, with what at hand to write, and what stays behind."""

from __future__ import annotations

import time
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

import pytest

from pipeline.gate.answers import same_constant
from pipeline.gate.lake_checks import axioms_of, find_checker, leads_outside, patched_in_place
from pipeline.gate.questions import QUESTIONS, ask_exactly
from pipeline.lean.backend import LeanBackend
from pipeline.lean.build.lake import LakeRunner, build
from pipeline.lean.source.imports import lean_options, local_file, module_of, module_path, source_folders
from tests.support.lean.credulous import Rule, make_credulous

SOURCE = b"theorem t (p : Prop) : p := sorry\n"


def backend(sysroot: Path, *, sandbox: Literal["bubblewrap", "none"] = "none") -> LeanBackend:
    return LeanBackend("server", ("lean",), "a double", "v4", sandbox=sandbox, sysroot=str(sysroot))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "lakefile.toml").write_text('name = "x"\n')
    (folder / "A.lean").write_bytes(SOURCE)
    return folder


@pytest.fixture
def runner(project: Path, tmp_path: Path) -> LakeRunner:
    make_credulous(tmp_path / "toolchain")
    result = LakeRunner.find(backend(tmp_path / "toolchain"), project=project)
    assert isinstance(result, LakeRunner)
    return result


def test_a_question_s_files_go_away_and_the_answer_is_of_what_was_built(
    runner: LakeRunner, tmp_path: Path
) -> None:
    make_credulous(tmp_path / "toolchain").believe(Rule("sorry", axioms=("propext", "sorryAx")))
    assert build(runner, "A").ok
    assert axioms_of(runner, module="A", declaration="t") == ("propext", "sorryAx")
    answer = ask_exactly(runner, module="A", declaration="t")
    assert not isinstance(answer, str)
    assert answer.axioms == ("propext", "sorryAx")
    assert not list((runner.project / ".lake" / "everlean").iterdir())


def test_of_what_was_not_built_nothing_is_answered(runner: LakeRunner) -> None:
    answer = ask_exactly(runner, module="A", declaration="t")
    assert isinstance(answer, str)
    assert "unknown module" in answer


@pytest.mark.usefixtures("bubblewrap")
def test_in_the_sandbox_a_build_writes_below_dot_lake_and_nowhere_else(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    program = tmp_path / "toolchain" / "bin" / "lake"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho in > .lake/inside.txt\necho in > A.lean\necho out > {outside}\nexit 0\n"
    )
    program.chmod(0o755)
    result = LakeRunner.find(backend(tmp_path / "toolchain", sandbox="bubblewrap"), project=project)
    assert isinstance(result, LakeRunner)
    assert build(result, "A").ok
    assert (project / ".lake" / "inside.txt").read_text() == "in\n"
    assert (project / "A.lean").read_bytes() == SOURCE
    assert not outside.exists()


def test_the_worktree_and_its_build_are_as_before_afterwards_even_after_an_error(runner: LakeRunner) -> None:
    assert build(runner, "A").ok
    built = runner.project / ".lake" / "build" / "lib" / "lean" / "A.olean"
    of_the_sorry = (built.read_bytes(), built.stat().st_mtime_ns)

    def use() -> None:
        with patched_in_place(runner.project, "A.lean", b"patched"):
            assert (runner.project / "A.lean").read_bytes() == b"patched"
            assert not built.exists()  # or lake could take the old one for built
            built.write_text("of the candidate")
            built.with_suffix(".trace").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        use()
    assert (runner.project / "A.lean").read_bytes() == SOURCE
    assert (built.read_bytes(), built.stat().st_mtime_ns) == of_the_sorry
    assert sorted(path.name for path in built.parent.iterdir()) == ["A.olean"]


def test_only_the_module_s_own_outputs_are_put_aside(runner: LakeRunner) -> None:
    folder = runner.project / ".lake" / "build" / "lib" / "lean"
    folder.mkdir(parents=True)
    for name in ("A.olean", "A.olean.private", "A.ilean", "A.trace", "A.B.olean", "AB.olean"):
        (folder / name).touch()
    with patched_in_place(runner.project, "A.lean", b"patched"):
        assert sorted(path.name for path in folder.iterdir()) == ["A.B.olean", "AB.olean"]
    assert len(list(folder.iterdir())) == 6


def test_a_build_folder_that_others_share_is_not_built_in(runner: LakeRunner, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (runner.project / ".lake").mkdir()
    (runner.project / ".lake" / "build").symlink_to(shared)
    assert "leads out of the worktree" in (leads_outside(runner) or "")


def test_the_kernel_replay_is_the_toolchain_s(runner: LakeRunner, tmp_path: Path) -> None:
    result = find_checker(runner)
    assert result == tmp_path / "toolchain" / "bin" / "leanchecker"
    result.unlink()
    assert "has no leanchecker" in str(find_checker(runner))


@pytest.mark.parametrize(("path", "module"), [("Demo/Logic.lean", "Demo.Logic"), ("a b/C.lean", "«a b».C")])
def test_a_path_names_its_module(path: str, module: str) -> None:
    assert module_of(path) == module
    assert f"{module_path(module)}.lean" == path


@pytest.mark.parametrize(
    ("lakefile", "text"),
    [
        ("lakefile.toml", 'name = "x"\n[[lean_lib]]\nname = "A"\nsrcDir = "src"\n'),
        ("lakefile.toml", 'name = "x"\nsrcDir = "./src/"\n[[lean_lib]]\nname = "A"\n'),
        ("lakefile.lean", 'import Lake\npackage x where\n  srcDir := "src"\n'),
    ],
)
def test_modules_below_a_source_folder_have_no_part_of_it_in_their_names(
    project: Path, lakefile: str, text: str
) -> None:
    (project / lakefile).write_text(text)
    file = project / "src" / "A" / "B.lean"
    file.parent.mkdir(parents=True)
    file.touch()
    folders = source_folders(project)
    assert module_of("src/A/B.lean", folders) == "A.B"
    assert module_of("Test.lean", folders) == "Test"
    assert local_file(project, "A.B") == file
    assert local_file(project, "A") == project / "A.lean"
    assert local_file(project, "B") is None


@pytest.mark.parametrize(
    "text",
    [
        'srcDir = "src"\na' + ".a" * 15_000 + " = 1",
        'srcDir = "src"\n[a' + r' . "\""' * 4_000 + "]",
        'srcDir = "src"\n#' + "x" * 32 * 2**10,
        "x = " + "[" * 30_000,
        'srcDir = "."\nlean_lib = ["A", 1]\nlean_exe = 1\nleanOptions = true\n',
    ],
    ids=["dotted", "quoted", "long", "deep", "wrong types"],
)
def test_a_lakefile_that_takes_its_parser_minutes_or_says_nothing_names_no_source_folder(
    project: Path, text: str
) -> None:
    (project / "lakefile.toml").write_text(text)
    began = time.monotonic()
    assert source_folders(project) == ("",)
    assert lean_options(project) == ()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("said", "declaration", "same"),
    [
        ("Demo.mine", "Demo.mine", True),
        ("_private.A.B.0.Demo.mine", "Demo.mine", True),
        ("Demo.mine", "«Demo».mine", True),
        ("«a b».c", "«a b».c", True),
        ("Demo.mine'", "Demo.mine", False),
        ("Other.Demo.mine", "Demo.mine", False),
        ("_private.A.0.Other.Demo.mine", "Demo.mine", False),
    ],
)
def test_a_constant_is_the_declaration_s_in_quotes_or_private_too(
    said: str, declaration: str, same: bool
) -> None:
    assert same_constant(said, declaration) is same


def test_the_script_is_part_of_the_package_and_no_rule_keeps_it_out_of_a_wheel() -> None:
    root = Path(__file__).parents[3]
    assert root / "pipeline" / "gate" == QUESTIONS.parent
    assert QUESTIONS.is_file()
    wheel = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    assert "pipeline" in wheel["packages"]
    assert not {"exclude", "only-include", "include"} & set(wheel)
    patterns = (root / ".gitignore").read_text("utf-8").split()
    assert not [pattern for pattern in patterns if fnmatch(QUESTIONS.name, pattern.strip("/"))]
