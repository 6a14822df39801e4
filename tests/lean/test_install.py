"""Lean versions by elan, each way to fail included: the programs are scripts in the place of elan."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pipeline.lean.install import BusyError, InstallError, installing
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.toolchain.versions import find_elan, parse_version

VERSION = parse_version("v4.21.0")
MAKE = (
    'folder="$ELAN_HOME/toolchains/leanprover--lean4---v4.21.0/bin"; mkdir -p "$folder"; touch "$folder/lean"'
)


class Machine:
    """A folder to install from, and an ELAN_HOME whose elan is a shell script."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.home = folder / "elan"
        self.work = folder / "cache" / "setup"
        self.said: list[str] = []
        monkeypatch.setenv("ELAN_HOME", str(self.home))

    def elan(self, script: str) -> None:
        program = self.home / "bin" / "elan"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        program.chmod(0o755)

    def install(self, *, sandboxed: bool = False) -> None:
        with installing(
            self.work, sandbox="bubblewrap" if sandboxed else "none", say=self.said.append
        ) as installer:
            installer.lean(VERSION)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_version_that_is_there_is_not_installed_again(machine: Machine) -> None:
    machine.elan(f'{MAKE} "$folder/lake"; echo "$*" > "$ELAN_HOME/asked"')
    machine.install()
    assert (machine.home / "asked").read_text() == "toolchain install leanprover/lean4:v4.21.0\n"
    assert machine.said == ["elan toolchain install leanprover/lean4:v4.21.0"]
    machine.elan("exit 1")
    machine.install()
    assert list(machine.work.iterdir()) == [machine.work / "lock"]


@pytest.mark.usefixtures("bubblewrap")
def test_elan_writes_to_its_own_folder_only_and_reads_nobody_s_files(machine: Machine) -> None:
    secret = machine.folder / "secret.txt"
    secret.write_text("s3cret")
    # What it writes outside of its folder is in the sandbox's own /tmp, and gone with it.
    machine.elan(
        f"cat {secret} && exit 1; test -e /etc/passwd && exit 1; touch {machine.folder}/written\n"
        f'{MAKE} "$folder/lake"'
    )
    machine.install(sandboxed=True)
    assert (VERSION.sysroot / "bin" / "lake").is_file()
    assert not (machine.folder / "written").exists()


@pytest.mark.usefixtures("bubblewrap")
def test_a_host_that_is_not_lean_s_is_refused_and_named(machine: Machine) -> None:
    machine.elan("GIT_TERMINAL_PROMPT=0 exec git ls-remote https://nowhere.invalid/lean.git")
    with pytest.raises(
        InstallError, match=r"nothing was installed[\s\S]*\nrefused: nowhere.invalid:443"
    ) as caught:
        machine.install(sandboxed=True)
    assert "it needs the internet" in str(caught.value)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo error: no such release; exit 1",
            r"exit status 1.*nothing was installed[\s\S]*no such release",
        ),
        (
            "echo 'error: No space left on device'; exit 1",
            r"no space left on the disk of .*/elan; nothing was",
        ),
        ("kill -9 $$", r"ended by signal 9; nothing was installed"),
        (MAKE, r"has no bin/lean and bin/lake; run `elan toolchain uninstall leanprover/lean4:v4\.21\.0`"),
    ],
)
def test_a_failure_of_elan_is_told_in_its_own_words(machine: Machine, script: str, said: str) -> None:
    machine.elan(script)
    with pytest.raises(InstallError, match=said):
        machine.install()


def test_without_elan_the_error_says_where_to_get_it(machine: Machine) -> None:
    assert find_elan() is None
    with pytest.raises(InstallError, match=r"elan is not on PATH.*run `everlean setup`"):
        machine.install()


def test_a_second_installation_names_the_first_one(machine: Machine) -> None:
    with (
        installing(machine.work, sandbox="none", say=machine.said.append),
        pytest.raises(BusyError, match=rf"process {os.getpid()} installs; wait for its end"),
    ):
        machine.install()


def test_what_a_killed_installation_left_is_gone_with_the_next(machine: Machine) -> None:
    (machine.work / "work").mkdir(parents=True)
    (machine.work / "work" / "elan.tar.gz").touch()
    with installing(machine.work, sandbox="none", say=machine.said.append) as installer:
        assert list(installer.work.iterdir()) == []
    assert not installer.work.exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/cache/elan.tar.gz"),
            "/cache/elan.tar.gz: No space",
        ),
        (SandboxError("bwrap is not on PATH"), "not installed: bwrap is not on PATH"),
    ],
)
def test_what_the_machine_refuses_is_named_and_nothing_is_left(
    machine: Machine, error: Exception, said: str
) -> None:
    with (
        pytest.raises(InstallError, match=said),
        installing(machine.work, sandbox="none", say=machine.said.append),
    ):
        raise error
    assert list(machine.work.iterdir()) == [machine.work / "lock"]


def test_a_folder_that_cannot_be_made_is_named(machine: Machine) -> None:
    machine.work.parent.touch()
    with pytest.raises(
        InstallError, match=f"{machine.work}: Not a directory; give this user write permission"
    ):
        machine.install()
