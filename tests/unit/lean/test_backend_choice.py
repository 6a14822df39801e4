"""Which Lean runs a project: the build of its own version, and a plain reason where there is none."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from pipeline.lean.backend import LeanBackend, Leans, find_leans, simulator
from pipeline.lean.toolchain.standins import SWITCH
from pipeline.lean.toolchain.toolchains import MARKER, REPL
from tests.support.lean.toolchain_build import write_build


class Machine:
    """A cache of builds, an import path, a PATH and an ELAN_HOME, all empty."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.cache = folder / "toolchains"
        self.site = folder / "site"
        self.site.mkdir()
        monkeypatch.setattr(sys, "path", [str(self.site), *sys.path])
        monkeypatch.setenv("PATH", str(folder / "bin"))
        monkeypatch.setenv("ELAN_HOME", str(folder / "elan"))
        importlib.invalidate_caches()

    def build(self, release: str) -> Path:
        """Put a build into the cache as an installation does."""
        return write_build(self.cache, release, home=self.folder / "elan").repl

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
        return self.repl(folder / REPL, toolchain)

    def leans(self, *, backend: str = "auto", repl: str = "", sandbox: str = "none") -> Leans:
        return find_leans(backend=backend, repl=repl, sandbox=sandbox, toolchains=self.cache)

    def chosen(self, toolchain: str, *, repl: str = "") -> LeanBackend:
        return self.leans(repl=repl).for_toolchain(toolchain)


def program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_each_project_gets_the_build_of_its_own_version(machine: Machine) -> None:
    old, new = machine.build("v4.21.0"), machine.build("v4.28.0")

    assert machine.chosen("leanprover/lean4:v4.21.0\n").argv == (str(old),)
    assert machine.chosen("v4.28.0").argv == (str(new),)
    assert machine.chosen("v4.28.0").toolchain == "leanprover/lean4:v4.28.0"


def test_a_version_that_is_not_there_says_how_to_get_it(machine: Machine) -> None:
    machine.build("v4.21.0")
    chosen = machine.chosen("leanprover/lean4:v4.22.0")

    assert chosen.kind == "none"
    assert "toolchain leanprover/lean4:v4.22.0 is not installed (there is v4.21.0)" in chosen.detail
    assert "run `everlean setup`" in chosen.detail
    only_repls = machine.leans(backend="pantograph").for_toolchain("v4.22.0")
    assert "run `everlean toolchain install v4.22.0`" in only_repls.detail


def test_a_damaged_build_is_never_chosen(machine: Machine) -> None:
    machine.build("v4.21.0").write_text("#!/bin/sh\necho changed\n")
    for chosen in (
        machine.chosen("v4.21.0"),
        machine.leans().summary,
        machine.leans(backend="pantograph").for_toolchain("v4.21.0"),
    ):
        assert chosen.kind != "pantograph"
        assert "damaged" in chosen.detail
        assert "everlean toolchain install v4.21.0" in chosen.detail


def test_of_a_version_without_a_repl_the_toolchain_s_own_language_server_is_taken(machine: Machine) -> None:
    """Elan has it; with [lean] backend = "pantograph" it is not taken."""
    folder = machine.folder / "elan" / "toolchains" / "leanprover--lean4---v4.35.0"
    program(folder / "bin" / "lean")
    machine.build("v4.21.0")
    chosen = machine.chosen("v4.35.0")
    assert (chosen.kind, chosen.argv, chosen.sysroot) == (
        "server",
        (str(folder / "bin" / "lean"),),
        str(folder),
    )
    assert (chosen.toolchain, chosen.is_lean) == ("leanprover/lean4:v4.35.0", True)
    assert machine.chosen("v4.21.0").kind == "pantograph"
    assert machine.leans(backend="pantograph").for_toolchain("v4.35.0").kind == "none"
    missing = machine.chosen("v4.34.0")
    assert (missing.kind, "run `everlean setup`" in missing.detail) == ("none", True)


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
    root = machine.folder / "elan" / "toolchains" / "leanprover--lean4---v4.28.0"
    program(root / "bin" / "lean")

    assert machine.chosen("v4.28.0").sysroot == str(root)


def test_of_three_for_one_version_the_configured_comes_first_then_the_bundled_then_the_cached(
    machine: Machine,
) -> None:
    cached = machine.build("v4.28.0")
    assert machine.chosen("v4.28.0").argv == (str(cached),)
    bundled = machine.bundled("leanprover/lean4:v4.28.0")
    assert machine.chosen("v4.28.0").argv == (str(bundled),)
    own = machine.repl(machine.folder / "own" / "repl", "leanprover/lean4:v4.28.0")
    assert machine.chosen("v4.28.0", repl=str(own)).argv == (str(own),)


def test_nothing_found_names_each_way_to_get_it(machine: Machine) -> None:
    assert machine.leans().summary.detail == "no Lean is installed here; run `everlean setup`"
    detail = machine.leans(backend="pantograph").summary.detail
    assert "PyPantograph" in detail
    assert "lean.repl" in detail
    assert "everlean toolchain install VERSION" in detail


def test_the_configured_repl_comes_first_and_serves_its_own_version_only(machine: Machine) -> None:
    cached = machine.build("v4.21.0")
    machine.build("v4.28.0")
    own = machine.repl(machine.folder / "own" / "repl", "leanprover/lean4:v4.28.0")

    assert machine.chosen("v4.28.0", repl=str(own)).argv == (str(own),)
    assert machine.chosen("v4.21.0", repl=str(own)).argv == (str(cached),)
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
    machine.build("v4.21.0")
    chosen = machine.chosen("v4.21.0", repl="/nowhere/repl")

    assert chosen.kind == "none"
    assert "/nowhere/repl: no such file" in chosen.detail


def test_a_repl_on_path_needs_a_known_version(machine: Machine) -> None:
    found = machine.repl(machine.folder / "bin" / REPL)
    assert machine.chosen("v4.21.0").kind == "none"
    assert "name it as lean.repl" in machine.leans().summary.detail

    (found.parent / MARKER).write_text("leanprover/lean4:v4.21.0")
    assert machine.chosen("v4.21.0").argv == (str(found),)


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
    machine.build("v4.21.0")
    chosen = machine.chosen(toolchain)

    assert chosen.kind == "none"
    assert reason in chosen.detail


def test_only_a_configured_repl_runs_a_project_without_a_lean_toolchain(machine: Machine) -> None:
    own = machine.repl(machine.folder / "own" / "repl", "leanprover/lean4:v4.28.0")
    chosen = machine.chosen("", repl=str(own))

    assert (chosen.argv, chosen.toolchain) == ((str(own),), "leanprover/lean4:v4.28.0")
    assert "no lean-toolchain file" in chosen.detail


def test_the_simulator_is_no_lean_outside_the_tests(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWITCH)
    chosen = machine.leans(backend="simulator").for_toolchain("v4.21.0")

    assert chosen.kind == "none"
    assert 'in the tests alone; write backend = "auto"' in chosen.detail


def test_the_simulator_serves_every_toolchain_and_never_by_itself(machine: Machine) -> None:
    assert machine.leans().summary.kind == "none"
    leans = machine.leans(backend="simulator")
    for toolchain in ("", "leanprover/lean4:v4.21.0", "nonsense"):
        assert leans.for_toolchain(toolchain).kind == "simulator"
    assert leans.summary.kind == "simulator"


def test_switched_off_is_off_for_every_project(machine: Machine) -> None:
    machine.build("v4.21.0")
    leans = machine.leans(backend="none")

    assert leans.for_toolchain("v4.21.0").kind == leans.summary.kind == "none"
    assert "switched off" in leans.summary.detail


def test_no_sandbox_means_no_lean_at_all(machine: Machine) -> None:
    machine.build("v4.21.0")
    chosen = machine.leans(sandbox="bubblewrap").for_toolchain("v4.21.0")

    assert chosen.kind == "none"
    assert "bwrap is not on PATH" in chosen.detail


def test_the_summary_names_every_version(machine: Machine) -> None:
    assert "everlean setup" in machine.leans().summary.detail
    machine.build("v4.21.0")
    assert machine.leans().summary.toolchain == "leanprover/lean4:v4.21.0"
    machine.build("v4.28.0")
    both = machine.leans().summary

    assert (both.kind, both.toolchain, both.detail) == (
        "pantograph",
        "",
        "Lean for v4.21.0, v4.28.0",
    )


@pytest.mark.parametrize(("backend", "sandbox"), [("lean3", "none"), ("auto", "docker")])
def test_unknown_words_are_errors(machine: Machine, backend: str, sandbox: str) -> None:
    with pytest.raises(ValueError, match=r"lean\."):
        machine.leans(backend=backend, sandbox=sandbox)


def test_the_time_for_a_start_is_the_setting_s_for_whatever_runs_lean(machine: Machine) -> None:
    machine.build("v4.21.0")
    program(machine.folder / "elan" / "toolchains" / "leanprover--lean4---v4.35.0" / "bin" / "lean")
    leans = find_leans(backend="auto", repl="", sandbox="none", toolchains=machine.cache, start_timeout_s=7.0)
    repl, server = leans.for_toolchain("v4.21.0"), leans.for_toolchain("v4.35.0")
    assert (repl.kind, server.kind) == ("pantograph", "server")
    assert [one.start_timeout_s for one in (repl, server, repl.reading("module\n"))] == [7.0, 7.0, 7.0]


def test_looking_starts_no_process(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for release in ("v4.21.0", "v4.28.0"):
        machine.build(release)
    machine.bundled("leanprover/lean4:v4.29.1")
    monkeypatch.setattr("subprocess.Popen", None)
    monkeypatch.setattr("hashlib.file_digest", None)

    assert len(machine.leans().builds) == 3


def test_a_lean_that_is_gone_takes_its_build_with_it(machine: Machine) -> None:
    machine.build("v4.21.0")
    shutil.rmtree(machine.folder / "elan")

    assert "is gone" in machine.chosen("v4.21.0").detail


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
    machine.build("v4.21.0")
    assert machine.chosen("v4.21.0").kind == "pantograph"  # and it is in no one's way


def test_a_configured_repl_has_to_be_executable(machine: Machine) -> None:
    own = machine.repl(machine.folder / "own" / "repl")
    own.chmod(0o644)

    assert "not executable" in machine.chosen("v4.21.0", repl=str(own)).detail


def test_a_backend_survives_json(machine: Machine) -> None:
    machine.build("v4.21.0")
    for backend in (machine.chosen("v4.21.0"), machine.chosen("v4.22.0"), simulator()):
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
            toolchains=machine.cache,
            as_root=as_root,
        ).summary.kind

    refused = find_leans(backend="auto", repl="", sandbox="none", toolchains=machine.cache, as_root=False)
    assert (kind(as_root=False), kind(as_root=True)) == ("none", "pantograph")
    assert "write as_root = true under [lean]" in refused.summary.detail
    by_simulator = find_leans(
        backend="simulator", repl="", sandbox="none", toolchains=machine.cache, as_root=False
    )
    assert by_simulator.summary.kind == "simulator", "it runs no code of a repository"
