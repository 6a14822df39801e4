"""The unit file says what it should, as systemd itself reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "systemd" / "unsorry.service"
systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed (Debian: package systemd)",
)


@pytest.fixture
def unit_with_a_program_that_exists(tmp_path: Path) -> Path:
    """`systemd-analyze verify` wants ExecStart's program on disk, and this machine has no installed unsorry."""
    copy = tmp_path / "unsorry.service"
    copy.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(encoding="utf-8")))
    return copy


@systemd_analyze
def test_systemd_accepts_the_unit_without_a_warning(unit_with_a_program_that_exists: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit_with_a_program_that_exists)],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if "unsorry.service" in line]
    assert (done.returncode, complaints) == (0, [])


@systemd_analyze
def test_the_unit_stays_hardened(unit_with_a_program_that_exists: Path) -> None:
    done = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=yes",
            "--threshold=35",
            str(unit_with_a_program_that_exists),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


def test_the_unit_keeps_the_promises_of_the_installation_guide() -> None:
    directives = dict(
        line.split("=", 1)
        for line in UNIT.read_text(encoding="utf-8").splitlines()
        if "=" in line and not line.startswith("#")
    )
    assert directives["Type"] == "notify"
    assert (
        directives["StateDirectory"]
        == directives["CacheDirectory"]
        == directives["RuntimeDirectory"]
        == "unsorry"
    )
    assert "WatchdogSec" in directives
    assert directives["LoadCredential"].startswith("github-token:")
    assert set(directives["RestartPreventExitStatus"].split()) == {"75", "78"}
