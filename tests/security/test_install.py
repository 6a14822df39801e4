"""`make install` and `make uninstall`: what they put where, and that they take away that and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "systemd" / "install.sh"
SYSTEM_FILES = {
    "etc/everlean/config.toml",
    "usr/bin/everlean",
    "usr/lib/systemd/system/everlean-serve.service",
    "usr/lib/systemd/system/everlean.service",
    "usr/lib/sysusers.d/everlean.conf",
    "usr/lib/tmpfiles.d/everlean.conf",
    "usr/share/bash-completion/completions/everlean",
    "usr/share/doc/everlean/gpu-amd.conf",
    "usr/share/doc/everlean/gpu.conf",
    *(f"usr/share/doc/everlean/{path.relative_to(ROOT / 'docs')}" for path in (ROOT / "docs").rglob("*.*")),
    "usr/share/fish/vendor_completions.d/everlean.fish",
    "usr/share/man/man1/everlean.1",
    "usr/share/zsh/site-functions/_everlean",
}


def install(*arguments: str, **environment: str) -> str:
    given = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHON": sys.executable, **environment}
    done = subprocess.run(["sh", SCRIPT, *arguments], capture_output=True, text=True, check=False, env=given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file()
    }


def test_all_but_the_application_is_staged_and_taken_away_again(tmp_path: Path) -> None:
    stage = {"PREFIX": "/usr", "DESTDIR": str(tmp_path)}
    install("files", **stage)
    assert files(tmp_path) == SYSTEM_FILES
    unit = (tmp_path / "usr/lib/systemd/system/everlean.service").read_text("utf-8")
    assert "ExecStart=/usr/lib/everlean/venv/bin/everlean run" in unit
    assert "/usr/local" not in unit
    assert str(tmp_path) not in unit
    assert (tmp_path / "usr/bin/everlean").readlink() == Path("/usr/lib/everlean/venv/bin/everlean")
    completions = {
        path: (tmp_path / path).read_text("utf-8")
        for path in SYSTEM_FILES
        if "everlean" in path and "compl" in path
    }
    assert all("_EVERLEAN_COMPLETE=" in text for text in completions.values())
    assert (
        (tmp_path / "usr/share/zsh/site-functions/_everlean")
        .read_text("utf-8")
        .startswith("#compdef everlean")
    )
    pages = tmp_path / "usr/share/doc/everlean"
    linked = {
        page.parent / target
        for page in pages.rglob("*.md")
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text("utf-8"))
    }
    assert len(linked) > 20
    assert [target for target in linked if not target.is_file()] == []
    manual = (tmp_path / "usr/share/man/man1/everlean.1").read_text("utf-8")
    for name in ("everlean sorries show ID", "\\-\\-fail\\-on", ".B 75"):
        assert name in manual
    (tmp_path / "usr/lib/everlean/venv").mkdir(parents=True)
    said = install("uninstall", **stage)
    assert files(tmp_path) == {"etc/everlean/config.toml"}
    assert not (tmp_path / "usr/lib/everlean").exists()
    assert "kept: /etc/everlean" in said


def test_an_administrator_s_configuration_outlives_every_install(tmp_path: Path) -> None:
    # The completions are another test's: what prints them here prints nothing.
    stage = {"PREFIX": "/usr/local", "DESTDIR": str(tmp_path), "PYTHON": "/bin/true"}
    config = tmp_path / "etc/everlean/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("# mine\n", "utf-8")
    install("files", **stage)
    install("uninstall", **stage)
    assert config.read_text("utf-8") == "# mine\n"


def test_a_user_s_install_stays_in_the_home(tmp_path: Path) -> None:
    here = {"PREFIX": f"{tmp_path}/.local", "HOME": str(tmp_path), "PYTHON": "/bin/true"}
    install("files", "--user", **here)
    placed = files(tmp_path)
    assert {
        ".config/systemd/user/everlean-serve.service",
        ".config/systemd/user/everlean.service",
        ".config/everlean/config.toml",
        ".local/bin/everlean",
    } <= placed
    unit = (tmp_path / ".config/systemd/user/everlean.service").read_text("utf-8")
    assert "%h/.local/lib/everlean/venv/bin/everlean run --config %E/everlean/config.toml" in unit
    install("uninstall", "--user", **here)
    assert files(tmp_path) == {".config/everlean/config.toml"}


@pytest.mark.parametrize("arguments", [[], ["install", "--everything"], ["remove"]])
def test_what_is_no_action_changes_nothing(tmp_path: Path, arguments: list[str]) -> None:
    environment = {"PATH": os.environ["PATH"], "DESTDIR": str(tmp_path), "HOME": "/nonexistent"}
    done = subprocess.run(
        ["sh", SCRIPT, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 2
    assert "usage" in done.stderr
    assert files(tmp_path) == set()


@pytest.mark.slow
@pytest.mark.usefixtures("network", "users_settings")
@pytest.mark.timeout(900)
def test_a_staged_application_runs_where_it_is_unpacked(tmp_path: Path) -> None:
    """The whole of `make install`, with the index: exactly what was locked, and nothing else."""
    stage = tmp_path / "stage"
    subprocess.run(
        ["make", "-C", ROOT, "install", f"DESTDIR={stage}", "PREFIX=/usr", f"PYTHON={sys.executable}"],
        check=True,
        capture_output=True,
        env={**os.environ, "PIP_NO_CACHE_DIR": "1"},
    )
    venv = stage / "usr/lib/everlean/venv"
    frozen = subprocess.run(
        [venv / "bin/python", "-m", "pip", "freeze"], capture_output=True, text=True, check=True
    )
    locked = (ROOT / "locks" / "core.txt").read_text("utf-8").lower()
    installed = [line for line in frozen.stdout.lower().splitlines() if not line.startswith("everlean")]
    assert installed
    assert [line for line in installed if f"{line} " not in locked] == []
    said = subprocess.run(
        [venv / "bin/python", "-P", "-m", "daemon.cli", "version"], capture_output=True, text=True, check=True
    )
    assert "everlean" in said.stdout
    for script in (venv / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            assert str(stage).encode() not in script.read_bytes(), f"{script} names the stage"
    assert shutil.which("everlean", path=str(stage / "usr/bin")) is None, "it leads to its final place"
