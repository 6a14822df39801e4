"""Finding Lean: the configured path, PyPantograph's files, and the unrelated package of the same name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from pipeline.lean.backend import LeanBackend, find_lean
from pipeline.lean.client.repl import lean_path


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path and no other `pantograph`, no bwrap, no REPL on PATH."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("ELAN_HOME", str(tmp_path / "elan"))
    importlib.invalidate_caches()
    return folder


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", "utf-8")
    path.chmod(0o755)
    return path


def pypantograph(site: Path, *, with_repl: bool = True) -> Path:
    folder = site / "pantograph"
    folder.mkdir()
    for name in ("__init__", "server", "expr"):
        (folder / f"{name}.py").write_text("raise SystemExit('must not be imported')\n", "utf-8")
    if with_repl:
        program(folder / "pantograph-repl")
        (folder / "lean-toolchain").write_text("leanprover/lean4:v4.28.0\n", "utf-8")
    return folder


def test_nothing_installed_names_the_remedy(packages: Path) -> None:
    found = find_lean(backend="auto", repl="", sandbox="none")

    assert found.kind == "none"
    assert "PyPantograph" in found.detail
    assert "lean.repl" in found.detail


def test_auto_never_picks_the_simulator(packages: Path) -> None:
    assert not find_lean(backend="auto", repl="", sandbox="none").simulated
    chosen = find_lean(backend="simulator", repl="", sandbox="bubblewrap")
    assert (chosen.kind, chosen.simulated) == ("simulator", True)


def test_the_installed_pypantograph_is_found_without_importing_it(packages: Path) -> None:
    folder = pypantograph(packages)
    found = find_lean(backend="auto", repl="", sandbox="none")

    assert (found.kind, found.argv) == ("pantograph", (str(folder / "pantograph-repl"),))
    assert found.toolchain == "leanprover/lean4:v4.28.0"
    assert "pantograph" not in sys.modules


def test_the_toolchains_folder_is_found_where_elan_keeps_it(packages: Path, tmp_path: Path) -> None:
    pypantograph(packages)
    root = tmp_path / "elan" / "toolchains" / "leanprover--lean4---v4.28.0"
    program(root / "bin" / "lean")

    assert find_lean(backend="auto", repl="", sandbox="none").sysroot == str(root)


def test_pypantograph_without_its_repl_is_named_as_such(packages: Path) -> None:
    pypantograph(packages, with_repl=False)
    found = find_lean(backend="pantograph", repl="", sandbox="none")

    assert found.kind == "none"
    assert "without its pantograph-repl" in found.detail


def test_the_canvas_package_of_that_name_is_recognised(packages: Path) -> None:
    (packages / "pantograph").mkdir()
    (packages / "pantograph" / "__init__.py").write_text("", "utf-8")
    (packages / "pantograph" / "handlers.py").write_text("", "utf-8")
    metadata = packages / "pantograph-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pantograph\nVersion: 0.1.0\n", "utf-8")

    found = find_lean(backend="auto", repl="", sandbox="none")
    assert found.kind == "none"
    assert "pantograph 0.1.0 is a library for HTML5 canvases" in found.detail


def test_a_configured_path_wins_and_must_be_executable(packages: Path, tmp_path: Path) -> None:
    pypantograph(packages)
    own = program(tmp_path / "own" / "repl")

    assert find_lean(backend="auto", repl=str(own), sandbox="none").argv == (str(own),)
    own.chmod(0o644)
    assert "not executable" in find_lean(backend="auto", repl=str(own), sandbox="none").detail
    assert "no such file" in find_lean(backend="auto", repl=str(tmp_path / "gone"), sandbox="none").detail


def test_a_sandbox_that_is_not_there_is_a_refusal(packages: Path) -> None:
    pypantograph(packages)
    found = find_lean(backend="auto", repl="", sandbox="bubblewrap")

    assert found.kind == "none"
    assert "bwrap is not on PATH" in found.detail


@pytest.mark.parametrize(("backend", "sandbox"), [("lean3", "none"), ("auto", "docker")])
def test_unknown_words_are_errors(backend: str, sandbox: str) -> None:
    with pytest.raises(ValueError, match=r"lean\."):
        find_lean(backend=backend, repl="", sandbox=sandbox)


def test_a_backend_survives_json() -> None:
    chosen = find_lean(backend="simulator", repl="", sandbox="bubblewrap")

    assert LeanBackend.from_json(chosen.as_json()) == chosen


def test_a_simulator_that_claims_not_to_be_one_is_refused() -> None:
    raw = find_lean(backend="simulator", repl="", sandbox="none").as_json()

    with pytest.raises(ValueError, match="simulated"):
        LeanBackend.from_json({**raw, "simulated": False})


def test_lean_path_lists_the_project_and_its_packages(tmp_path: Path) -> None:
    own = tmp_path / ".lake" / "build" / "lib" / "lean"
    package = tmp_path / ".lake" / "packages" / "mathlib" / ".lake" / "build" / "lib" / "lean"
    older = tmp_path / ".lake" / "packages" / "std" / ".lake" / "build" / "lib"
    for folder in (own, package, older):
        folder.mkdir(parents=True)

    assert lean_path(tmp_path).split(":") == [str(own), str(package), str(older)]
