"""`make install` and `make uninstall`: what they put where, and that they take away that and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "systemd" / "install.sh"
SYSTEM_FILES = {
    "etc/unsorry/config.toml",
    "usr/bin/unsorry",
    "usr/lib/systemd/system/unsorry-serve.service",
    "usr/lib/systemd/system/unsorry.service",
    "usr/lib/sysusers.d/unsorry.conf",
    "usr/lib/tmpfiles.d/unsorry.conf",
    "usr/share/bash-completion/completions/unsorry",
    "usr/share/doc/unsorry/gpu-amd.conf",
    "usr/share/doc/unsorry/gpu.conf",
    "usr/share/doc/unsorry/install.md",
    "usr/share/doc/unsorry/operations.md",
    "usr/share/doc/unsorry/security.md",
    "usr/share/fish/vendor_completions.d/unsorry.fish",
    "usr/share/zsh/site-functions/_unsorry",
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
    unit = (tmp_path / "usr/lib/systemd/system/unsorry.service").read_text("utf-8")
    assert "ExecStart=/usr/lib/unsorry/venv/bin/unsorry run" in unit
    assert "/usr/local" not in unit
    assert str(tmp_path) not in unit
    assert (tmp_path / "usr/bin/unsorry").readlink() == Path("/usr/lib/unsorry/venv/bin/unsorry")
    completions = {
        path: (tmp_path / path).read_text("utf-8")
        for path in SYSTEM_FILES
        if "unsorry" in path and "compl" in path
    }
    assert all("_UNSORRY_COMPLETE=" in text for text in completions.values())
    assert (
        (tmp_path / "usr/share/zsh/site-functions/_unsorry").read_text("utf-8").startswith("#compdef unsorry")
    )
    (tmp_path / "usr/lib/unsorry/venv").mkdir(parents=True)
    said = install("uninstall", **stage)
    assert files(tmp_path) == {"etc/unsorry/config.toml"}
    assert not (tmp_path / "usr/lib/unsorry").exists()
    assert "kept: /etc/unsorry" in said


def test_an_administrator_s_configuration_outlives_every_install(tmp_path: Path) -> None:
    # The completions are another test's: what prints them here prints nothing.
    stage = {"PREFIX": "/usr/local", "DESTDIR": str(tmp_path), "PYTHON": "/bin/true"}
    config = tmp_path / "etc/unsorry/config.toml"
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
        ".config/systemd/user/unsorry-serve.service",
        ".config/systemd/user/unsorry.service",
        ".config/unsorry/config.toml",
        ".local/bin/unsorry",
    } <= placed
    unit = (tmp_path / ".config/systemd/user/unsorry.service").read_text("utf-8")
    assert "%h/.local/lib/unsorry/venv/bin/unsorry run --config %E/unsorry/config.toml" in unit
    install("uninstall", "--user", **here)
    assert files(tmp_path) == {".config/unsorry/config.toml"}


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
@pytest.mark.network
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
    venv = stage / "usr/lib/unsorry/venv"
    frozen = subprocess.run(
        [venv / "bin/python", "-m", "pip", "freeze"], capture_output=True, text=True, check=True
    )
    locked = (ROOT / "locks" / "core.txt").read_text("utf-8").lower()
    installed = [line for line in frozen.stdout.lower().splitlines() if not line.startswith("unsorry")]
    assert installed
    assert [line for line in installed if f"{line} " not in locked] == []
    said = subprocess.run(
        [venv / "bin/python", "-P", "-m", "daemon.cli", "version"], capture_output=True, text=True, check=True
    )
    assert "unsorry" in said.stdout
    for script in (venv / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            assert str(stage).encode() not in script.read_bytes(), f"{script} names the stage"
    assert shutil.which("unsorry", path=str(stage / "usr/bin")) is None, "it leads to its final place"
