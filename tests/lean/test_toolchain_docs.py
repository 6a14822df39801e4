"""What docs/install.md tells an administrator to do for Lean: the very commands of the page, with stand-ins for Lean's.

No package is installed and no other user is there: `sudo` runs the rest of its line, `apt` does nothing, and elan's
release holds a script that puts a stand-in elan where its installer puts the real one.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pipeline.lean.repl_install import HOSTS, Patience
from tests.support.daemon.remote import Remote
from tests.support.lean.toolchain import make_elan

PAGE = Path(__file__).resolve().parents[2] / "docs" / "install.md"
INSTALLER = """#!/bin/sh
test "$*" = '-y --no-modify-path --default-toolchain none' || exit 1
cp -R {elan}/. "$ELAN_HOME"
"""
EVERLEAN = Path(sys.executable).parent
PROGRAMS = {
    "sudo": 'while [ "${1#-}" != "$1" ]; do case "$1" in -u) shift 2 ;; *) shift ;; esac; done\nexec "$@"',
    "apt": "exit 0",
}


def section() -> str:
    return PAGE.read_text(encoding="utf-8").split("\n## Lean\n")[1].split("\n## ")[0]


def test_the_commands_of_the_page_install_what_a_watched_repository_names(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```\n(.*?)^```$", section(), flags=re.MULTILINE | re.DOTALL)
    elan, home, programs = make_elan(tmp_path), tmp_path / "home", tmp_path / "bin"
    for folder in (home, programs):
        folder.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n", "utf-8")
        (programs / name).chmod(0o755)
    archive = tmp_path / "elan.tar.gz"
    with tarfile.open(archive, "w:gz") as release:
        data = INSTALLER.format(elan=elan).encode()
        member = tarfile.TarInfo("elan-init")
        member.size = len(data)
        release.addfile(member, io.BytesIO(data))
    remote = Remote(tmp_path / "project")
    remote.commit("first", {"lean-toolchain": "leanprover/lean4:v4.21.0\n", "A.lean": "-- none\n"})
    config = tmp_path / "config.toml"
    config.write_text(
        '[daemon]\nstate_dir = "state"\n[lean]\nsandbox = "none"\nas_root = true\n'
        f'[[repos]]\nurl = "{remote.path}"\n',
        "utf-8",
    )
    # GitHub is out of reach here, and so is whoever would answer; all else is as it stands on the page.
    assert block.endswith("everlean setup\n")
    block = block.replace("everlean setup", f"everlean setup --yes --elan {archive}")
    dropped = ("EVERLEAN_CONFIG", "ELAN_HOME", "STATE_DIRECTORY", "CACHE_DIRECTORY", "RUNTIME_DIRECTORY")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", block],
        # For /etc/everlean/config.toml, where the page has it found.
        env={
            **kept,
            "HOME": str(home),
            "PATH": f"{programs}:{EVERLEAN}:{os.environ['PATH']}",
            "EVERLEAN_CONFIG": str(config),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installed: elan, v4.21.0" in done.stdout
    assert (home / ".elan" / "toolchains" / "leanprover--lean4---v4.21.0" / "bin" / "lean").is_file()


@pytest.mark.parametrize("host", HOSTS)
def test_the_page_names_every_host_that_an_installation_speaks_to(host: str) -> None:
    assert f"`{host}`" in section()


def test_the_page_says_how_long_a_step_may_take() -> None:
    patience = Patience()
    minutes = [round(seconds / 60) for seconds in (patience.elan_s, patience.git_s, patience.build_s)]
    assert "after {} minutes (elan), {} (git) and {} (the build)".format(*minutes) in section()
