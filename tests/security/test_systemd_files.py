"""The unit files say what they should, as systemd itself reads them."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.serve.limits import bounded_for
from pipeline.serve.spec import Limits

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "systemd" / "everlean.service"
USER_UNIT = ROOT / "systemd" / "user" / "everlean.service"
DROP_INS = sorted((ROOT / "systemd").glob("*.conf"))
SERVE_UNIT = ROOT / "systemd" / "everlean-serve.service"
SERVE_USER_UNIT = ROOT / "systemd" / "user" / "everlean-serve.service"
UNITS = pytest.mark.parametrize(
    "unit",
    [UNIT, USER_UNIT, SERVE_UNIT, SERVE_USER_UNIT],
    ids=["system", "user", "serve-system", "serve-user"],
)
# `systemd-analyze security` counts in tenths: 25 is what it shows as 2.5.
MOST_EXPOSED = 25
LOOSE = {
    "ProtectKernelTunables": "no",
    "ProtectKernelLogs": "no",
    "PrivateNetwork": "no",
    "MemoryDenyWriteExecute": "no",
    "ProcSubset": "all",
}
"""What the shipped unit leaves open, in so many words."""
# What systemd-analyze counts against a service although the directive is there; each needs its reason too.
RELAXING = re.compile(
    r"^(?:Delegate|ReadWritePaths|RestrictNamespaces|RestrictAddressFamilies|SystemCallFilter|UMask|DeviceAllow"
    r"|LoadCredential|OOMPolicy|TasksMax|SupplementaryGroups)=|^\w+=(?:no|all)$"
)


def with_a_program_that_exists(unit: Path, folder: Path) -> Path:
    """`systemd-analyze verify` wants ExecStart's program on disk, and this machine has no installed everlean."""
    copy = folder / unit.name
    copy.write_text(re.sub(r"=\S+/bin/everlean", "=/bin/true", unit.read_text(encoding="utf-8")))
    return copy


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    # A user's manager needs a runtime folder, which exists only after a login.
    environment = {**os.environ, "XDG_RUNTIME_DIR": "/tmp"}
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False, env=environment
    )


def complaints(unit: Path, *options: str) -> tuple[int, list[str]]:
    done = analyze("verify", *options, str(unit))
    return done.returncode, [line for line in done.stderr.splitlines() if "everlean" in line]


@pytest.mark.usefixtures("systemd_analyze")
@UNITS
def test_systemd_accepts_the_unit_without_a_warning(unit: Path, tmp_path: Path) -> None:
    options = ["--user"] if unit in (USER_UNIT, SERVE_USER_UNIT) else []
    assert complaints(with_a_program_that_exists(unit, tmp_path), *options) == (0, [])


@pytest.mark.usefixtures("systemd_analyze")
@pytest.mark.parametrize("drop_in", DROP_INS, ids=lambda path: path.name)
def test_systemd_accepts_the_unit_with_each_drop_in(drop_in: Path, tmp_path: Path) -> None:
    unit = with_a_program_that_exists(UNIT, tmp_path)
    folder = tmp_path / "everlean.service.d"
    folder.mkdir()
    shutil.copy(drop_in, folder)
    assert complaints(unit) == (0, [])
    shown = analyze("security", "--offline=yes", "--no-pager", "--json=short", str(unit)).stdout
    before = folder.rename(tmp_path / "aside")
    assert analyze("security", "--offline=yes", "--no-pager", "--json=short", str(unit)).stdout != shown, (
        f"{before}: nothing of it was read"
    )


@pytest.mark.usefixtures("systemd_analyze")
def test_a_mistake_in_a_unit_is_one_that_systemd_would_name(tmp_path: Path) -> None:
    """So that the silence above says something."""
    unit = with_a_program_that_exists(UNIT, tmp_path)
    unit.write_text(unit.read_text().replace("PrivateMounts=yes", "PrivateMount=yes"))
    assert any("PrivateMount" in line for line in complaints(unit)[1])


@pytest.mark.usefixtures("systemd_analyze")
def test_the_service_is_exposed_no_more_than_it_says(tmp_path: Path) -> None:
    unit = with_a_program_that_exists(UNIT, tmp_path)
    threshold = f"--threshold={MOST_EXPOSED}"
    done = analyze("security", "--offline=yes", "--no-pager", threshold, str(unit))
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


@pytest.mark.parametrize("unit", [UNIT, USER_UNIT, *DROP_INS], ids=lambda path: str(path.relative_to(ROOT)))
def test_each_relaxed_directive_has_its_reason_above_it(unit: Path) -> None:
    lines = unit.read_text(encoding="utf-8").splitlines()
    relaxed = [number for number, line in enumerate(lines) if RELAXING.match(line)]
    assert relaxed
    # A reason may stand above several directives that belong together.
    without = [
        lines[number]
        for number in relaxed
        if not next(
            line for line in reversed(lines[:number]) if not re.match(r"^\w+=", line) or line.startswith("#")
        ).startswith("#")
    ]
    assert without == []


def test_what_the_unit_leaves_open_is_what_it_says_it_leaves_open() -> None:
    open_ones = dict(
        line.split("=", 1)
        for line in UNIT.read_text(encoding="utf-8").splitlines()
        if re.match(r"^\w+=(?:no|all)$", line)
    )
    assert open_ones == LOOSE


def directives(unit: Path) -> dict[str, str]:
    return dict(
        line.split("=", 1)
        for line in unit.read_text(encoding="utf-8").splitlines()
        if "=" in line and not line.startswith("#")
    )


def test_the_unit_keeps_the_promises_of_the_installation_guide() -> None:
    found = directives(UNIT)
    assert found["Type"] == "notify"
    assert found["StateDirectory"] == found["CacheDirectory"] == found["RuntimeDirectory"] == "everlean"
    assert "WatchdogSec" in found
    assert found["LoadCredential"].startswith("github-token:")
    assert set(found["RestartPreventExitStatus"].split()) == {"75", "78"}
    assert found["LimitCORE"] == "0"


@UNITS
def test_each_unit_says_how_many_descriptors_it_may_have(unit: Path) -> None:
    """More than every listener's connections together: the editors' server keeps the most."""
    assert int(directives(unit)["LimitNOFILE"]) >= 4 * bounded_for(Limits()).bounds.most


@pytest.mark.parametrize("unit", [UNIT, SERVE_UNIT], ids=["system", "serve-system"])
@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "fe80::a9fe:a9fe",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
    ],
)
def test_no_cloud_hands_the_service_the_credentials_of_its_machine(unit: Path, address: str) -> None:
    lines = re.findall(r"^IPAddressDeny=(.*)$", unit.read_text("utf-8"), flags=re.MULTILINE)
    denied = [ipaddress.ip_network(one) for line in lines for one in line.split()]
    wanted = ipaddress.ip_address(address)
    assert any(wanted in network for network in denied if network.version == wanted.version)


def test_the_user_s_unit_is_the_same_service() -> None:
    system, user = directives(UNIT), directives(USER_UNIT)
    for name in ("Type", "NotifyAccess", "ExecReload", "Restart", "RestartPreventExitStatus", "WatchdogSec"):
        assert user[name] == system[name]
    for name in ("KillMode", "TimeoutStopSec", "LimitCORE", "NoNewPrivileges", "Delegate", "OOMPolicy"):
        assert user[name] == system[name]
    assert "User" not in user


@pytest.mark.usefixtures("as_root")
def test_the_account_and_the_folders_are_made_as_systemd_makes_them(
    tmp_path: Path, provide: Callable[[str], Path]
) -> None:
    provide("systemd-sysusers")
    provide("systemd-tmpfiles")
    root = f"--root={tmp_path}"
    (tmp_path / "etc").mkdir()
    for name in ("sysusers", "tmpfiles"):
        folder = tmp_path / f"usr/lib/{name}.d"
        folder.mkdir(parents=True)
        shutil.copy(ROOT / "systemd" / f"everlean.{name}", folder / "everlean.conf")
    subprocess.run(["systemd-sysusers", root], check=True, capture_output=True)
    (account,) = [
        line.split(":") for line in (tmp_path / "etc/passwd").read_text().splitlines() if "everlean" in line
    ]
    assert account[0] == "everlean"
    assert account[5] == "/var/lib/everlean"
    assert account[6].endswith("nologin")
    subprocess.run(["systemd-tmpfiles", root, "--create"], check=True, capture_output=True)
    modes = {
        name: oct((tmp_path / name).stat().st_mode & 0o777) for name in ("etc/everlean", "etc/credstore")
    }
    assert modes == {"etc/everlean": "0o755", "etc/credstore": "0o700"}
