"""`everlean setup`: elan and the Lean versions of the watched repositories, by stand-ins and a local server.

No release of elan is real here: its archive holds a script that puts the stand-in elan where the installer would. The
commands that docs/install.md has for an administrator are run too: `sudo` runs the rest of its line, `apt` nothing.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from daemon.health.setup import SetupError, Step, hold_room
from pipeline.lean.install import HOSTS, STEP_BYTES, STEP_S
from pipeline.lean.toolchain.standins import SWITCH
from store.files import lock
from tests.support.daemon.remote import Remote
from tests.support.lean.toolchain import make_elan

INSTALLER = """#!/bin/sh
# What elan-init does as far as we look: `-y --no-modify-path --default-toolchain none`.
[ "$*" = "-y --no-modify-path --default-toolchain none" ] || exit 2
mkdir -p "$ELAN_HOME" && cp -R {made}/. "$ELAN_HOME"
"""


class Machine:
    """A machine with git and no elan, two watched repositories, and a release of elan to be had."""

    def __init__(self, folder: Any) -> None:
        self.folder = folder
        self.home = folder.root / "home" / ".elan"
        self.made = make_elan(folder.root / "made")
        self.work = folder.state / "cache" / "setup"
        self.archive = folder.root / "elan.tar.gz"
        self.release(self.archive, INSTALLER.format(made=self.made))
        self.remotes = [Remote(folder.root / name) for name in ("one", "two")]
        for remote in self.remotes:
            remote.commit("first", {"lean-toolchain": "leanprover/lean4:v4.21.0\n", "A.lean": "-- none\n"})
        self.env = {
            "ELAN_HOME": str(self.home),
            "PATH": f"{self.home}/bin:{os.environ['PATH']}",
            SWITCH: "1",
        }
        self.configure()

    def release(self, path: Path, installer: str) -> None:
        """Write a release of elan with this installer."""
        with tarfile.open(path, "w:gz") as archive:
            data = installer.encode()
            member = tarfile.TarInfo("elan-init")
            member.size, member.mode = len(data), 0o755
            archive.addfile(member, io.BytesIO(data))

    def configure(self, lean: str = "") -> None:
        tables = "".join(f'[[repos]]\nurl = "{remote.path}"\n' for remote in self.remotes)
        self.folder.config.write_text(
            f'[daemon]\nstate_dir = "state"\n[lean]\nsandbox = "none"\n{lean}\n{tables}'
        )

    def __call__(self, *arguments: str) -> Any:
        return self.folder.everlean("setup", *arguments, env=self.env)

    def lean(self, version: str = "v4.21.0") -> Path:
        return Path(self.home, "toolchains", f"leanprover--lean4---{version}", "bin", "lean")

    def left(self) -> list[str]:
        return sorted(path.name for path in self.work.iterdir() if path.name != "lock")


@pytest.fixture
def machine(folder: Any) -> Machine:
    return Machine(folder)


@pytest.fixture
def server(machine: Machine) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(machine.archive.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()


def test_one_command_brings_elan_and_each_version_that_is_named_once(machine: Machine, server: str) -> None:
    machine.remotes[1].commit("newer", {"lean-toolchain": "leanprover/lean4:v4.22.0\n"})
    shown = machine("--dry-run")
    assert not machine.home.exists()
    assert "to install: elan, v4.21.0, v4.22.0; about" in shown.out
    assert "Mathlib" in shown.out

    result = machine("--yes", "--elan", f"{server}/elan.tar.gz")
    assert result.code == 0, result.err
    assert "installed: elan, v4.21.0, v4.22.0" in result.out
    assert machine.lean("v4.21.0").is_file()
    assert machine.lean("v4.22.0").is_file()
    assert machine.left() == []

    again = machine("--json")
    assert again.json["installed"] == []
    assert {step["name"]: step["there"] for step in again.json["steps"]}["v4.22.0"] is True
    assert "nothing is to be installed" in machine().out


def test_it_asks_and_without_a_terminal_it_says_how_to_answer(machine: Machine) -> None:
    refused = machine("--elan", str(machine.archive))
    assert refused.code == 2
    assert "--yes installs" in refused.err
    assert not machine.home.exists()


def test_without_a_network_each_step_says_what_to_bring(machine: Machine, server: str) -> None:
    refused = machine("--yes", "--elan", f"{server}/gone.tar.gz")
    assert (refused.code, machine.home.exists()) == (1, False)
    assert "fetch that file elsewhere, and name it with --elan FILE" in refused.err

    settings = machine.made / "standin.json"
    settings.write_text(json.dumps({"releases": None, "offline": True}))
    refused = machine("--yes", "--elan", str(machine.archive))
    assert refused.code == 1
    assert "Could not resolve host" in refused.err
    assert "everlean setup goes on from here" in refused.err
    assert (machine.home / "bin" / "elan").is_file(), "elan is there by now"
    settings.write_text(json.dumps({"releases": None, "offline": False}))
    (machine.home / "standin.json").write_text(settings.read_text())
    assert machine("--yes").code == 0
    assert machine.lean().is_file()


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"no archive", "no release of elan"), (None, "no such file; name a release's .tar.gz")],
)
def test_what_is_no_release_of_elan_is_refused_and_leaves_nothing(
    machine: Machine, content: bytes | None, said: str
) -> None:
    path = machine.folder.root / "other.tar.gz"
    if content is not None:
        path.write_bytes(content)
    refused = machine("--yes", "--elan", str(path))
    assert refused.code == 1
    assert said in refused.err
    assert (machine.home.exists(), machine.left()) == (False, [])


def test_a_name_that_is_no_released_lean_is_named_and_never_installed(machine: Machine) -> None:
    machine.remotes[0].commit("evil", {"lean-toolchain": "evil/lean4:v4.21.0\n"})
    machine.remotes[1].commit("path", {"lean-toolchain": "../../bin\n"})
    result = machine("--yes", "--elan", str(machine.archive))
    assert result.code == 1, "a person has to look"
    assert "installed: elan;" in result.out
    assert list((machine.home / "toolchains").iterdir()) == []
    assert machine("--dry-run").out.count("no released Lean, so it is not used") == 2


def test_a_repository_that_cannot_be_read_is_named_with_the_reason(machine: Machine) -> None:
    machine.configure('[[repos]]\nurl = "/nowhere/at/all"')
    shown = machine("--dry-run", "--json")
    steps = {step["name"]: step for step in shown.json["steps"]}
    assert steps["local/at/all"]["there"] is False
    assert "/nowhere/at/all" in steps["local/at/all"]["detail"]
    assert steps["v4.21.0"]["size_bytes"] > 10**9


def test_what_does_not_fit_the_disk_is_not_begun() -> None:
    with pytest.raises(SetupError, match=r"not enough room: about .* 2 GiB of them to spare.*ELAN_HOME"):
        hold_room([Step("v4.21.0", there=False, detail="", size_bytes=10**18)])


def test_where_lean_is_switched_off_none_is_installed(machine: Machine) -> None:
    machine.configure('backend = "none"')
    assert 'none is used: [lean] backend = "none"' in machine("--dry-run").out


def test_interrupted_and_run_again_it_goes_on(machine: Machine) -> None:
    slow = machine.folder.root / "slow.tar.gz"
    machine.release(slow, '#!/bin/sh\ntouch "$ELAN_HOME/begun"\nexec sleep 600\n')
    more = ("--yes", "--elan", str(slow), "--config", str(machine.folder.config))
    argv = [sys.executable, "-m", "daemon.cli", "setup", *more]
    process = subprocess.Popen(argv, env={**os.environ, **machine.env}, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (machine.home / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 128 + signal.SIGINT
    assert machine.left() == []
    assert machine("--yes", "--elan", str(machine.archive)).code == 0
    assert machine.lean().is_file()


def test_while_another_process_installs_the_code_is_75(machine: Machine) -> None:
    machine.work.mkdir(parents=True)
    with lock(machine.work / "lock") as held:
        held.leave_note("process 12")
        refused = machine("--yes", "--elan", str(machine.archive))
    assert refused.code == 75
    assert "process 12 installs; wait for its end" in refused.err


# ---- docs/install.md


PAGE = Path(__file__).resolve().parents[2] / "docs" / "install.md"
PROGRAMS = {
    "sudo": 'while [ "${1#-}" != "$1" ]; do case "$1" in -u) shift 2 ;; *) shift ;; esac; done\nexec "$@"',
    "apt": "exit 0",
}


def section() -> str:
    return PAGE.read_text(encoding="utf-8").split("\n## Lean\n")[1].split("\n## ")[0]


def test_the_commands_of_the_page_install_what_a_watched_repository_names(machine: Machine) -> None:
    (block,) = re.findall(r"^```\n(.*?)^```$", section(), flags=re.MULTILINE | re.DOTALL)
    programs = machine.folder.root / "programs"
    programs.mkdir()
    for name, text in {**PROGRAMS, "everlean": f'exec {sys.executable} -m daemon.cli "$@"'}.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n", "utf-8")
        (programs / name).chmod(0o755)
    # GitHub is out of reach here, and so is whoever would answer; all else is as it stands on the page.
    assert block.endswith("everlean setup\n")
    block = block.replace("everlean setup", f"everlean setup --yes --elan {machine.archive}")
    # EVERLEAN_CONFIG: for /etc/everlean/config.toml, where the page has it found.
    environment = {**os.environ, **machine.env, "EVERLEAN_CONFIG": str(machine.folder.config)}
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    result = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", block],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "installed: elan, v4.21.0" in result.stdout
    assert machine.lean().is_file()


def test_the_page_names_every_host_and_each_limit_of_an_installation() -> None:
    assert [host for host in HOSTS if f"`{host}`" not in section()] == []
    assert f"after {STEP_S / 60:.0f} minutes" in section()
    assert f"above {STEP_BYTES / 2**30:.0f} GiB" in section()
