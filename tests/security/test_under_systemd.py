"""The shipped unit under a real systemd: what it promises daemon and sandbox it keeps, what it denies is denied.

systemd is started for the test, in namespaces of its own and over a throw-away copy of this machine's files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SYSTEMD = Path("/lib/systemd/systemd")
PYTHON = Path("/usr/bin/python3")
PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
"""systemd's, in the copy of the machine's files."""
NEEDED = ("unshare", "pivot_root", "useradd", "bwrap")


def _lacking() -> str:
    if os.geteuid() != 0:
        return "only root can start a systemd of its own"
    lacking = [str(path) for path in (SYSTEMD, PYTHON) if not path.exists()]
    lacking += [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return f"no mount namespaces here: {tried.stderr.decode()}" if tried.returncode else ""


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("bubblewrap")]
BOOT = """
set -e
cd "$1"
mount --make-rprivate /
mount -t tmpfs none box
mkdir box/up box/work box/root
mount -t overlay overlay -o lowerdir=/,upperdir=box/up,workdir=box/work box/root
R=$PWD/box/root
mount -t proc proc $R/proc
mount -t tmpfs none $R/run
mount -t tmpfs none $R/tmp
mount --rbind /dev $R/dev
mount -t sysfs sysfs $R/sys
mount -t cgroup2 cgroup2 $R/sys/fs/cgroup
mkdir -p $R/out $R/etc/everlean $R/usr/local/probe
mount --bind out $R/out
rm -rf $R/etc/systemd/system $R/run/systemd
mkdir -p $R/etc/systemd/system
cp units/* $R/etc/systemd/system/
cp -r probe.py "$2/pipeline" $R/usr/local/probe/
grep -q ^everlean: /etc/passwd || useradd -R $R -r everlean
cd $R
mkdir -p old
pivot_root . old
umount -l /old
export container=test PATH=/usr/bin:/bin:/usr/sbin:/sbin SYSTEMD_LOG_TARGET=null
exec /lib/systemd/systemd --unit=go.target
"""
GO = "[Unit]\nDefaultDependencies=no\nWants=everlean.service stop.service\n"
STOP = """[Unit]
DefaultDependencies=no
After=everlean.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'systemctl show everlean -p Result,ExecMainStatus >/out/result'
ExecStopPost=/bin/kill -s RTMIN+14 1
"""
PROBE = """
import json, os, socket, subprocess, sys
from pathlib import Path
sys.path.insert(0, "/usr/local/probe")
from pipeline.lean.sandbox.command import bubblewrap, bubblewrap_problem

def tried(what):
    try:
        return what() or "done"
    except OSError as error:
        return error.strerror

own = Path("/sys/fs/cgroup" + Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2])
argv = bubblewrap(["/bin/sh", "-c", "id -u; cat /proc/1/comm"], project=Path("/var/lib/everlean"), environment={})
said = {
    "user": os.getuid(),
    "users": sorted(int(line.split()[0]) for line in Path("/proc/self/uid_map").read_text().splitlines()),
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
    "problem": bubblewrap_problem(),
    "sandbox": subprocess.run(argv, capture_output=True, text=True).stdout,
    "own group": tried((own / "job-1").mkdir),
    "moved": tried(lambda: (own / "job-1" / "cgroup.procs").write_text(str(os.getpid())) and None),
    "other group": tried(Path("/sys/fs/cgroup/other").mkdir),
    "state": tried(Path("/var/lib/everlean/x").touch),
    "cache": tried(Path("/var/cache/everlean/x").touch),
    "socket": tried(Path("/run/everlean/x").touch),
    "system": tried(Path("/usr/local/x").touch),
    "configuration": tried(Path("/etc/everlean/config.toml").touch),
    "home": tried(lambda: str(os.listdir("/root"))),
    "devices": sorted(set(os.listdir("/dev")) & {"sda", "vda", "kvm", "mem", "kmsg"}),
    "packets": tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()),
    "priority": tried(lambda: os.setpriority(os.PRIO_PROCESS, 0, 19)),
    "core": Path("/proc/self/limits").read_text().split("Max core file size")[1].split()[:2],
}
print(json.dumps(said))
"""


def unit() -> str:
    """The shipped one, with the probe for the daemon, and without what it waits for in a machine that boots."""
    text = (ROOT / "systemd" / "everlean.service").read_text("utf-8")
    text = re.sub(
        r"(?m)^(WatchdogSec|Restart|NotifyAccess|Wants|After|SyslogIdentifier|ExecReload)=.*\n", "", text
    )
    text = re.sub(r"(?m)^ExecStart=.*$", f"ExecStart={PYTHON} -B /usr/local/probe/probe.py", text)
    text = text.replace(
        "Type=notify", "Type=oneshot\nStandardOutput=file:/out/said\nStandardError=file:/out/errors"
    )
    return text.replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if reason := _lacking():
        pytest.skip(reason)
    place = tmp_path_factory.mktemp("systemd")
    for name in ("box", "out", "units"):
        (place / name).mkdir()
    for name, text in (("everlean.service", unit()), ("go.target", GO), ("stop.service", STOP)):
        (place / "units" / name).write_text(text, "utf-8")
    (place / "probe.py").write_text(PROBE, "utf-8")
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--cgroup"]
    done = subprocess.run(
        [*spaces, "sh", "-c", BOOT, "boot", place, ROOT],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    result = place / "out" / "result"
    if not result.exists():
        pytest.skip(f"systemd cannot be started in namespaces here: {done.stderr[-500:]}")
    errors = (place / "out" / "errors").read_text("utf-8") if (place / "out" / "errors").exists() else ""
    assert "Result=success" in result.read_text("utf-8"), f"{result.read_text('utf-8')} {errors}"
    found: dict[str, Any] = json.loads((place / "out" / "said").read_text("utf-8"))
    return found


def test_a_sandbox_can_be_made_in_the_service(said: dict[str, Any]) -> None:
    assert said["problem"] is None
    assert said["sandbox"] == f"{said['user']}\nbwrap\n"


def test_the_service_writes_its_own_folders_and_nothing_else(said: dict[str, Any]) -> None:
    assert [said[name] for name in ("state", "cache", "socket")] == ["done"] * 3
    for name in ("system", "configuration"):
        assert said[name] in ("Read-only file system", "Permission denied")
    assert said["home"] in ("Permission denied", "[]")


def test_the_service_divides_its_own_control_group_and_no_other(said: dict[str, Any]) -> None:
    assert (said["own group"], said["moved"]) == ("done", "done")
    assert said["other group"] in ("Read-only file system", "Permission denied")


def test_the_service_sees_no_other_users_processes_and_devices(said: dict[str, Any]) -> None:
    assert said["users"] == [0, said["user"]]
    assert said["processes"] <= 3
    assert said["devices"] == []


def test_the_service_may_not_call_what_it_does_not_need(said: dict[str, Any]) -> None:
    assert said["packets"] in ("Operation not permitted", "Address family not supported by protocol")
    assert said["priority"] == "Operation not permitted"
    assert said["core"] == ["0", "0"]
