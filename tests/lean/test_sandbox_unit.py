"""The sandbox under the filters of the shipped systemd unit: what forbids the daemon much must not forbid it this.

systemd does not run in a test, so its filters are made here as it makes them: the groups of calls are asked of
systemd-analyze, and libseccomp loads them into a process that then makes a sandbox.
"""

from __future__ import annotations

import ctypes.util
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.lean.sandbox.command import bubblewrap

pytestmark = pytest.mark.usefixtures("bubblewrap", "systemd_analyze", "seccomp")
UNIT = Path(__file__).resolve().parents[2] / "systemd" / "everlean.service"
CONFINED = """
import ctypes, ctypes.util, json, os, sys
names, namespaces, families, hostname, argv = json.loads(sys.argv[1])
lib = ctypes.CDLL(ctypes.util.find_library("seccomp"))
lib.seccomp_init.restype = ctypes.c_void_p
lib.seccomp_load.argtypes = [ctypes.c_void_p]
lib.seccomp_rule_add_array.argtypes = [
    ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
class Comparison(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]
ALLOW, EPERM = 0x7FFF0000, 0x00050001
EQUAL, MASKED_EQUAL = 4, 7
def rule(context, action, name, *comparisons):
    number = lib.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        array = (Comparison * max(1, len(comparisons)))(*comparisons)
        assert lib.seccomp_rule_add_array(context, action, number, len(comparisons), array) == 0, name
def load(context):
    assert lib.seccomp_load(context) == 0
FLAGS = {"mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
         "pid": 0x20000000, "net": 0x40000000}
context = lib.seccomp_init(ALLOW)
for name, flag in FLAGS.items():
    if name not in namespaces:
        rule(context, EPERM, "clone", Comparison(0, MASKED_EQUAL, flag, flag))
        rule(context, EPERM, "unshare", Comparison(0, MASKED_EQUAL, flag, flag))
rule(context, 0x00050000 | 38, "clone3")
for family in set(range(64)) - set(families):
    rule(context, EPERM, "socket", Comparison(0, EQUAL, family, 0))
if hostname:
    rule(context, EPERM, "sethostname")
    rule(context, EPERM, "setdomainname")
load(context)
context = lib.seccomp_init(EPERM)
for name in names:
    rule(context, ALLOW, name)
load(context)
os.execvp(argv[0], argv)
"""


@pytest.fixture(scope="module")
def seccomp() -> None:
    if ctypes.util.find_library("seccomp") is None:
        pytest.skip("libseccomp is not installed; Debian: apt-get install libseccomp2")


def settings(name: str) -> list[str]:
    """The values of a directive, one for each line that has it."""
    lines = UNIT.read_text("utf-8").splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def setting(name: str) -> str:
    (value,) = settings(name)
    return value


def allowed_calls() -> set[str]:
    """The calls that the unit's filter lets pass: systemd takes the lines in their order, `~` takes away."""
    calls: set[str] = set()
    for line in settings("SystemCallFilter"):
        named = set().union(*(calls_of(word) for word in line.removeprefix("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def calls_of(group: str) -> set[str]:
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True
    )
    names = [line.strip() for line in done.stdout.splitlines()[1:]]
    words = [name for name in names if name and not name.startswith("#")]
    return {call for word in words for call in (calls_of(word) if word.startswith("@") else {word})}


def confined(argv: tuple[str, ...], **changes: object) -> subprocess.CompletedProcess[str]:
    """Run it under the unit's filters, or others."""
    given = {
        "names": sorted(allowed_calls()),
        "namespaces": setting("RestrictNamespaces").split(),
        "families": [getattr(socket, name) for name in setting("RestrictAddressFamilies").split()],
        "hostname": setting("ProtectHostname") == "yes",
        **changes,
    }
    command = [sys.executable, "-c", CONFINED, json.dumps([*given.values(), argv])]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


def test_a_sandbox_can_be_made_under_the_filters_of_the_unit(tmp_path: Path) -> None:
    argv = bubblewrap(["/bin/echo", "inside"], project=tmp_path, writable=[tmp_path], environment={})

    assert confined(argv).stdout == "inside\n", confined(argv).stderr


def test_the_filters_are_those_that_bite(tmp_path: Path) -> None:
    """Without one of the namespaces it fails: so what passes above has been through a filter."""
    argv = bubblewrap(["/bin/echo", "inside"], project=tmp_path, environment={})

    assert "new namespace" in confined(argv, namespaces=["user", "mnt", "pid", "ipc", "uts"]).stderr
