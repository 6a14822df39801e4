"""Which Lean runs a project: one of its own version, a REPL first, and a plain reason where there is none."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from pipeline.lean.backend import REPL_NAME, LeanBackend, Leans, find_leans
from pipeline.lean.toolchain.versions import parse_version

MARKER = "lean-toolchain"


class Machine:
    """An import path, a PATH and an ELAN_HOME, all empty."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.site = folder / "site"
        self.site.mkdir()
        monkeypatch.setattr(sys, "path", [str(self.site), *sys.path])
        monkeypatch.setenv("PATH", str(folder / "bin"))
        monkeypatch.setenv("ELAN_HOME", str(folder / "elan"))
        importlib.invalidate_caches()

    def lean(self, release: str) -> Path:
        """Have a toolchain of elan's, as far as looking at it goes."""
        lean = parse_version(release).sysroot / "bin" / "lean"
        program(lean)
        return lean

    def repl(self, path: Path, toolchain: str = "") -> Path:
        program(path)
        if toolchain:
            (path.parent / MARKER).write_text(toolchain + "\n")
        return path

    def bundled(self, toolchain: str) -> Path:
        folder = self.site / "pantograph"
        for name in ("server.py", "expr.py", "__init__.py"):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text("raise SystemExit('must not be imported')\n")
        return self.repl(folder / REPL_NAME, toolchain)

    def leans(self, *, backend: str = "auto", repl: str = "", sandbox: str = "none") -> Leans:
        return find_leans(backend=backend, repl=repl, sandbox=sandbox)

    def chosen(self, toolchain: str, *, repl: str = "") -> LeanBackend:
        return self.leans(repl=repl).for_toolchain(toolchain)


def program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_each_project_gets_the_language_server_of_its_own_version(machine: Machine) -> None:
    old, new = machine.lean("v4.21.0"), machine.lean("v4.28.0")

    assert machine.chosen("leanprover/lean4:v4.21.0\n").argv == (str(old),)
    chosen = machine.chosen("4.28.0")
    assert (chosen.kind, chosen.argv, chosen.sysroot) == ("server", (str(new),), str(new.parents[1]))
    assert (chosen.toolchain, chosen.is_lean) == ("leanprover/lean4:v4.28.0", True)


def test_a_version_that_is_not_there_is_named_with_those_that_are_and_the_remedy(machine: Machine) -> None:
    machine.lean("v4.21.0")
    chosen = machine.chosen("v4.22.0")

    assert chosen.kind == "none"
    assert "leanprover/lean4:v4.22.0 is not installed (there is v4.21.0)" in chosen.detail
    assert "run `everlean setup`" in chosen.detail


def test_the_bundled_repl_is_found_without_an_import_and_serves_its_own_version_only(
    machine: Machine,
) -> None:
    bundled = machine.bundled("leanprover/lean4:v4.28.0")

    assert machine.chosen("leanprover/lean4:v4.28.0").argv == (str(bundled),)
    assert "pantograph" not in sys.modules
    assert machine.chosen("leanprover/lean4:v4.21.0").kind == "none"


def test_the_toolchains_folder_is_found_where_elan_keeps_it(machine: Machine) -> None:
    machine.bundled("leanprover/lean4:v4.28.0")
    assert machine.chosen("v4.28.0").sysroot == ""
    lean = machine.lean("v4.28.0")

    assert machine.chosen("v4.28.0").sysroot == str(lean.parents[1])


def test_of_all_for_one_version_the_configured_comes_first_and_the_language_server_last(
    machine: Machine,
) -> None:
    toolchain = "leanprover/lean4:v4.28.0"
    assert machine.chosen(toolchain).kind == "none"
    lean = machine.lean(toolchain)
    assert machine.chosen(toolchain).argv == (str(lean),)
    on_path = machine.repl(machine.folder / "bin" / REPL_NAME, toolchain)
    assert machine.chosen(toolchain).argv == (str(on_path),)
    bundled = machine.bundled(toolchain)
    assert machine.chosen(toolchain).argv == (str(bundled),)
    own = machine.repl(machine.folder / "own" / "repl", toolchain)
    assert machine.chosen(toolchain, repl=str(own)).argv == (str(own),)


def test_where_nothing_is_found_the_remedy_is_one_command(machine: Machine) -> None:
    assert machine.leans().summary.detail == "no Lean is installed here; run `everlean setup`"


def test_the_configured_repl_serves_its_own_version_only(machine: Machine) -> None:
    lean = machine.lean("v4.21.0")
    own = machine.repl(machine.folder / "own" / "repl", "leanprover/lean4:v4.28.0")

    assert machine.chosen("v4.28.0", repl=str(own)).argv == (str(own),)
    assert machine.chosen("v4.21.0", repl=str(own)).argv == (str(lean),)
    assert machine.chosen("v4.22.0", repl=str(own)).kind == "none"


def test_a_configured_repl_of_unknown_version_is_used_and_the_detail_says_so(machine: Machine) -> None:
    own = machine.repl(machine.folder / "own" / "repl")
    chosen = machine.chosen("leanprover/lean4:v4.22.0", repl=str(own))

    assert chosen.argv == (str(own),)
    assert "unknown Lean version" in chosen.detail
    assert "lean.repl names it" in chosen.detail
    assert "v4.22.0" in chosen.detail


def test_a_configured_repl_may_be_a_name_on_path(machine: Machine) -> None:
    own = machine.repl(machine.folder / "bin" / "my-repl", "leanprover/lean4:v4.28.0")

    assert machine.chosen("v4.28.0", repl="my-repl").argv == (str(own),)
    assert "your-repl: not on PATH (lean.repl)" in machine.chosen("v4.28.0", repl="your-repl").detail


def test_a_repl_that_lake_built_has_the_version_of_its_project_and_no_other_folder_s(
    machine: Machine,
) -> None:
    own = machine.repl(machine.folder / "src" / ".lake" / "build" / "bin" / "repl")
    (machine.folder / "src" / MARKER).write_text("leanprover/lean4:v4.28.0")
    assert machine.chosen("v4.28.0", repl=str(own)).toolchain == "leanprover/lean4:v4.28.0"

    alone = machine.repl(machine.folder / "tools" / "bin" / "repl")
    (machine.folder / MARKER).write_text("leanprover/lean4:v4.28.0")
    assert machine.chosen("v4.28.0", repl=str(alone)).toolchain == ""


def test_a_configured_repl_that_is_not_there_is_not_replaced_by_another(machine: Machine) -> None:
    machine.lean("v4.21.0")
    chosen = machine.chosen("v4.21.0", repl="/nowhere/repl")

    assert chosen.kind == "none"
    assert "/nowhere/repl: no such file" in chosen.detail


def test_a_repl_on_path_needs_a_known_version(machine: Machine) -> None:
    result = machine.repl(machine.folder / "bin" / REPL_NAME)
    assert machine.chosen("v4.21.0").kind == "none"
    assert "name it as lean.repl" in machine.leans().summary.detail

    (result.parent / MARKER).write_text("leanprover/lean4:v4.21.0")
    assert machine.chosen("v4.21.0").argv == (str(result),)


@pytest.mark.parametrize(
    ("toolchain", "reason"),
    [
        ("", "no lean-toolchain file"),
        ("  \n", "no lean-toolchain file"),
        ("leanprover/lean4:stable", "channel"),
        ("evil/lean4:v4.21.0", "no proof"),
        ("/opt/lean", "no Lean version"),
        ("leanprover-community/lean:3.42.1", "Lean 3, another language"),
        ("../../v4.21.0", "no Lean version"),
    ],
)
def test_a_project_that_names_no_lean_version_is_not_guessed_at(
    machine: Machine, toolchain: str, reason: str
) -> None:
    machine.lean("v4.21.0")
    chosen = machine.chosen(toolchain)

    assert chosen.kind == "none"
    assert reason in chosen.detail


def test_only_a_configured_repl_runs_a_project_without_a_lean_toolchain(machine: Machine) -> None:
    own = machine.repl(machine.folder / "own" / "repl", "leanprover/lean4:v4.28.0")
    chosen = machine.chosen("", repl=str(own))

    assert (chosen.argv, chosen.toolchain) == ((str(own),), "leanprover/lean4:v4.28.0")
    assert "no lean-toolchain file" in chosen.detail


def test_switched_off_is_off_for_every_project(machine: Machine) -> None:
    machine.lean("v4.21.0")
    leans = machine.leans(backend="none")

    assert leans.for_toolchain("v4.21.0").kind == leans.summary.kind == "none"
    assert "switched off" in leans.summary.detail


def test_no_sandbox_means_no_lean_at_all(machine: Machine) -> None:
    machine.lean("v4.21.0")
    chosen = machine.leans(sandbox="bubblewrap").for_toolchain("v4.21.0")

    assert chosen.kind == "none"
    assert "bwrap is not on PATH" in chosen.detail


def test_the_summary_names_every_version(machine: Machine) -> None:
    assert "everlean setup" in machine.leans().summary.detail
    machine.lean("v4.21.0")
    assert machine.leans().summary.toolchain == "leanprover/lean4:v4.21.0"
    machine.lean("v4.28.0")
    both = machine.leans().summary

    assert (both.kind, both.toolchain, both.detail) == (
        "server",
        "",
        "Lean for v4.21.0, v4.28.0",
    )


@pytest.mark.parametrize(("backend", "sandbox"), [("lean3", "none"), ("auto", "docker")])
def test_unknown_words_are_errors(machine: Machine, backend: str, sandbox: str) -> None:
    with pytest.raises(ValueError, match=r"lean\."):
        machine.leans(backend=backend, sandbox=sandbox)


def test_the_time_for_a_start_is_the_setting_s_for_whatever_runs_lean(machine: Machine) -> None:
    machine.bundled("leanprover/lean4:v4.21.0")
    machine.lean("v4.21.0")
    machine.lean("v4.35.0")
    leans = find_leans(backend="auto", repl="", sandbox="none", start_timeout_s=7.0)
    repl, server = leans.for_toolchain("v4.21.0"), leans.for_toolchain("v4.35.0")
    assert (repl.kind, server.kind) == ("pantograph", "server")
    assert [one.start_timeout_s for one in (repl, server, repl.reading("module\n"))] == [7.0, 7.0, 7.0]


def test_looking_starts_no_process(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for release in ("v4.21.0", "v4.28.0"):
        machine.lean(release)
    machine.bundled("leanprover/lean4:v4.29.1")
    monkeypatch.setattr("subprocess.Popen", None)

    assert len(machine.leans().builds) == 3


def test_pypantograph_without_its_repl_is_named_as_such(machine: Machine) -> None:
    machine.bundled("leanprover/lean4:v4.28.0").unlink()

    assert "without its pantograph-repl" in machine.leans().summary.detail


def test_the_canvas_package_of_that_name_is_recognised(machine: Machine) -> None:
    package = machine.site / "pantograph"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('must not be imported')\n")
    metadata = machine.site / "pantograph-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pantograph\nVersion: 0.1.0\n")

    assert "pantograph 0.1.0 is a library for HTML5 canvases" in machine.leans().summary.detail
    machine.lean("v4.21.0")
    assert machine.chosen("v4.21.0").kind == "server"  # and it is in no one's way


def test_a_configured_repl_has_to_be_executable(machine: Machine) -> None:
    own = machine.repl(machine.folder / "own" / "repl")
    own.chmod(0o644)

    assert "not executable" in machine.chosen("v4.21.0", repl=str(own)).detail


def test_a_backend_survives_json(machine: Machine) -> None:
    machine.lean("v4.21.0")
    for backend in (machine.chosen("v4.21.0"), machine.chosen("v4.22.0")):
        adapter = TypeAdapter(LeanBackend)
        assert adapter.validate_json(adapter.dump_json(backend), strict=True) == backend


@pytest.mark.usefixtures("as_root")
def test_root_runs_no_lean_unless_the_settings_say_so(machine: Machine) -> None:
    machine.repl(machine.site / "repl", "leanprover/lean4:v4.21.0")

    def kind(as_root: bool) -> str:
        return find_leans(
            backend="auto",
            repl=str(machine.site / "repl"),
            sandbox="none",
            as_root=as_root,
        ).summary.kind

    refused = find_leans(backend="auto", repl="", sandbox="none", as_root=False)
    assert (kind(as_root=False), kind(as_root=True)) == ("none", "pantograph")
    assert "write as_root = true under [lean]" in refused.summary.detail
