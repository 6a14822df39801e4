"""The locks: every dependency by version and hash for every supported Python, and in step with what was tested."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {
    "core": (),
    "train": ("train",),
    "serve": ("serve",),
    "notify": ("notify",),
    "dev": ("train", "serve", "notify", "dev"),
}
"""Each lock and the extras that it is for."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
AUDIT = ROOT / ".venv" / "audit" / "bin" / "pip-audit"


def environment(python: str, *, extra: str = "") -> dict[str, str]:
    here = {name: str(value) for name, value in default_environment().items()}
    linux = {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
    }
    return {**here, **linux, "python_version": python, "python_full_version": f"{python}.9", "extra": extra}


@functools.cache
def entries(path: Path) -> list[tuple[Requirement, list[str]]]:
    """The requirements of a lock, each with its hashes."""
    text = re.sub(r"\\\n", " ", path.read_text("utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [
        (Requirement(line.split(" --hash")[0]), re.findall(r"--hash=sha256:([0-9a-f]{64})(?:\s|$)", line))
        for line in lines
    ]


@functools.cache
def locked(name: str, python: str) -> dict[str, str]:
    """What a lock has a Python install: name to version."""
    found: dict[str, str] = {}
    for requirement, _ in entries(ROOT / "locks" / f"{name}.txt"):
        if requirement.marker is None or requirement.marker.evaluate(environment(python)):
            (specifier,) = requirement.specifier
            assert specifier.operator == "=="
            assert (
                found.setdefault(canonicalize_name(requirement.name), specifier.version) == specifier.version
            )
    return found


@functools.cache
def constraints(python: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(environment(python)):
                found[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    return found


def asked_for(extras: tuple[str, ...]) -> list[Requirement]:
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def test_the_supported_pythons_are_those_that_the_project_names() -> None:
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert tuple(named) == PYTHONS


@pytest.mark.parametrize("lock", [*LOCKS, "build", "lean435", "leandojo"])
def test_every_line_has_a_hash_and_none_an_address(lock: str) -> None:
    path = ROOT / "locks" / f"{lock}.txt"
    found = entries(path)
    assert found
    assert [str(requirement) for requirement, hashes in found if not hashes or requirement.url] == []
    assert "://" not in path.read_text("utf-8")


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_what_the_project_asks_for_in_the_versions_that_were_tested(
    lock: str, python: str
) -> None:
    versions, tested = locked(lock, python), constraints(python)
    for requirement in asked_for(LOCKS[lock]):
        version = versions[canonicalize_name(requirement.name)]
        assert SpecifierSet(str(requirement.specifier)).contains(version), requirement
    assert {name: version for name, version in versions.items() if tested.get(name, version) != version} == {}
    if lock == "core":
        assert sorted(set(versions) - set(tested)) == [], "constraints.txt names all of the core"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_everything_that_its_packages_ask_for_in_turn(lock: str) -> None:
    """As the installed packages tell it: with hashes, pip refuses to install what a lock has left out."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if python not in PYTHONS:
        pytest.skip(f"Python {python} is none of those that are supported")
    versions = locked(lock, python)
    missing: set[str] = set()
    for name in versions:
        try:
            requires = metadata.requires(name) or []
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # of another build of torch
        if installed != versions[name]:
            continue  # another version, which an extra that no lock has (ray) needed, may ask for other packages
        for line in requires:
            requirement = Requirement(line)
            marker = requirement.marker or Marker("python_version > '3'")
            if marker.evaluate(environment(python)) and canonicalize_name(requirement.name) not in versions:
                missing.add(f"{name}: {line}")
    assert missing == set()


def test_the_larger_locks_hold_the_smaller() -> None:
    for python in PYTHONS:
        core, *extras, dev = (locked(lock, python) for lock in LOCKS)
        for extra in extras:
            assert core.items() <= extra.items() <= dev.items()


def test_an_install_takes_what_is_locked_and_nothing_else() -> None:
    script = (ROOT / "systemd" / "install.sh").read_text("utf-8")
    installs = [line.strip() for line in script.splitlines() if re.search(r"(?:pip|build) install", line)]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)


@pytest.mark.slow
@pytest.mark.usefixtures("network", "users_settings")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lock", ["build", "dev"])
def test_no_locked_version_has_a_known_vulnerability(lock: str) -> None:
    if not AUDIT.exists():
        pytest.skip("pip-audit is not installed; `make audit` installs it")
    command = [
        str(AUDIT),
        "--require-hashes",
        "--disable-pip",
        "--format=json",
        "-r",
        str(ROOT / "locks" / f"{lock}.txt"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        pytest.skip(f"pip-audit could not look them up: {done.stderr.strip()[-300:]}")
    found = [
        f"{one['name']} {one['version']}: {bug['id']}"
        for one in report["dependencies"]
        for bug in one.get("vulns", ())
    ]
    assert found == []
    assert len(report["dependencies"]) >= len(entries(ROOT / "locks" / f"{lock}.txt")) // 2
