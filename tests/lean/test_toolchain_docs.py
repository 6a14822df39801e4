"""What docs/install.md tells an administrator to do for Lean: the very commands of the page, with stand-ins for Lean's.

No package is installed and no other user is there: `sudo` runs the rest of its line, `apt` does nothing, and what
`curl` would fetch is a script that puts a stand-in elan where elan's installer puts the real one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.lean.repl_install import HOSTS, Patience
from pipeline.lean.toolchain.toolchains import Toolchains
from tests.support.daemon.remote import Remote
from tests.support.lean.toolchain import make_elan

PAGE = Path(__file__).resolve().parents[2] / "docs" / "install.md"
INSTALLER = """test "$*" = '-y --no-modify-path --default-toolchain none' || exit 1
ln -s {elan} "$HOME/.elan\""""
UNSORRY = Path(sys.executable).parent
PROGRAMS = {
    "sudo": 'while [ "${1#-}" != "$1" ]; do case "$1" in -u) shift 2 ;; *) shift ;; esac; done\nexec "$@"',
    "apt": "exit 0",
    "curl": "cat <<'END'\n{installer}\nEND",
}


def section() -> str:
    return PAGE.read_text(encoding="utf-8").split("\n## Lean\n")[1].split("\n## ")[0]


def test_the_commands_of_the_page_make_and_list_a_build(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```\n(.*?)^```$", section(), flags=re.MULTILINE | re.DOTALL)
    elan, home, programs = make_elan(tmp_path), tmp_path / "home", tmp_path / "bin"
    for folder in (home, programs):
        folder.mkdir()
    for name, text in PROGRAMS.items():
        text = text.replace("{installer}", INSTALLER.format(elan=elan))
        (programs / name).write_text(f"#!/bin/bash\n{text}\n", "utf-8")
        (programs / name).chmod(0o755)
    config = tmp_path / "config.toml"
    config.write_text('[daemon]\nstate_dir = "state"\n[lean]\nsandbox = "none"\nas_root = true\n', "utf-8")
    remote = Remote(tmp_path / "pantograph")
    lakefile = "package pantograph\nlean_exe repl where\n  root := `Main\n"
    sha = remote.commit(
        "source",
        {"lean-toolchain": "leanprover/lean4:v4.21.0\n", "lakefile.lean": lakefile, "Main.lean": "-- main\n"},
    )
    install = "toolchain install v4.21.0"
    assert install in block
    # The real source is out of reach here; all else is as it stands on the page.
    block = block.replace(install, f"{install} --revision {sha} --source file://{remote.path}")
    dropped = ("UNSORRY_CONFIG", "ELAN_HOME", "STATE_DIRECTORY", "CACHE_DIRECTORY", "RUNTIME_DIRECTORY")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", block],
        # For /etc/unsorry/config.toml, where the page has it found.
        env={
            **kept,
            "HOME": str(home),
            "PATH": f"{programs}:{UNSORRY}:/usr/bin:/bin",
            "UNSORRY_CONFIG": str(config),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "v4.21.0  ok" in done.stdout
    (made,) = Toolchains(tmp_path / "state" / "cache" / "toolchains").installed()
    assert made.sysroot.startswith(str(home / ".elan"))


@pytest.mark.parametrize("host", HOSTS)
def test_the_page_names_every_host_that_an_installation_speaks_to(host: str) -> None:
    assert f"`{host}`" in section()


def test_the_page_says_how_long_a_step_may_take() -> None:
    patience = Patience()
    minutes = [round(seconds / 60) for seconds in (patience.elan_s, patience.git_s, patience.build_s)]
    assert "after {} minutes (elan), {} (git) and {} (the build)".format(*minutes) in section()
