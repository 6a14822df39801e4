"""A Lean toolchain for tests: `elan`, `lake` and `lean`, laid out as elan lays them out. None of it is Lean.

    tools = make_toolchain(tmp_path)                        # an ELAN_HOME with one toolchain in it
    tools.lake, tools.sysroot, tools.toolchain              # …/bin/lake, the toolchain's folder, its full name
    environment = {"PATH": f"{tools.home}/bin:/usr/bin:/bin", "ELAN_HOME": str(tools.home)}

What the programs do is in `tests.support.lean.elan` and `tests.support.lean.lake`; `lean` only says what it is.
Loading a lakefile or building a module runs code, as in Lean: a line that begins with `--! run ` (`#! run ` in TOML) is
given to /bin/sh in the project's folder; its exit status other than 0 fails the step, a signal ends lake with it. That
is how tests make lake hang (`--! run sleep 1000`), flood (`--! run yes`), die (`--! run kill -9 $PPID`) or attack
(`--! run cat /etc/shadow`). A line `--! error TEXT` is a compile error at that line.

Each program is one file, so that a sandbox that binds the sysroot read-only can run it. They live in a folder that a
test made, are on no PATH but a test's, and all say that they are stand-ins.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.lean import elan, lake
from tests.support.lean.lake import SETTINGS, STANDS_IN

VERSION = "v4.21.0"
_LEAN = f"#!/bin/sh\n# tests.support\necho 'Lean ({STANDS_IN})'; [ \"$1\" = --version ]\n"


@dataclass(frozen=True, slots=True)
class StandIn:
    """Where the parts of a made toolchain are."""

    home: Path
    toolchain: str
    sysroot: Path

    @property
    def lake(self) -> Path:
        return self.sysroot / "bin" / "lake"

    @property
    def lean(self) -> Path:
        return self.sysroot / "bin" / "lean"


def make_toolchain(folder: Path, *, errors: Mapping[str, str] | None = None) -> StandIn:
    """Make an ELAN_HOME in `folder`/elan with one toolchain installed.

    Args:
        errors: what compiling a module says, by a pattern that is found in its text.
    """
    home, toolchain = make_elan(folder), f"leanprover/lean4:{VERSION}"
    sysroot = sysroot_of(home, toolchain)
    shutil.copytree(home / "made", sysroot)
    (sysroot / SETTINGS).write_text(json.dumps({"errors": dict(errors or {})}), "utf-8")
    return StandIn(home, toolchain, sysroot)


def make_elan(folder: Path, *, releases: Sequence[str] | None = None, offline: bool = False) -> Path:
    """Make an ELAN_HOME in `folder`/elan with no toolchain in it, and return it.

    Args:
        releases: full toolchain names that `elan toolchain install` finds; None: every name.
        offline: elan fails as without a network.
    """
    home = folder / "elan"
    (home / "toolchains").mkdir(parents=True)
    settings = {"releases": None if releases is None else list(releases), "offline": offline}
    (home / SETTINGS).write_text(json.dumps(settings), "utf-8")
    write_program(home / "bin" / "elan", Path(elan.__file__))
    write_program(home / "made" / "bin" / "lake", Path(lake.__file__))
    lean = home / "made" / "bin" / "lean"
    lean.write_text(_LEAN, "utf-8")
    lean.chmod(0o755)
    (home / "made" / SETTINGS).write_text(json.dumps({"errors": {}}), "utf-8")
    return home


def sysroot_of(home: Path, toolchain: str) -> Path:
    """Return where elan puts a toolchain: `toolchains/leanprover--lean4---v4.21.0`."""
    return home / "toolchains" / toolchain.replace("/", "--").replace(":", "---")


def write_program(target: Path, source: Path) -> None:
    """Write a program of one file, for an interpreter that a sandbox has too."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(
        f"#!{interpreter_in_usr() or sys.executable} -ISB\n{source.read_text('utf-8')}", "utf-8"
    )
    target.chmod(0o755)


def interpreter_in_usr() -> str | None:
    """Return a Python 3.11 or newer that a sandbox sees (below /usr), or None."""
    own = os.path.realpath(sys.executable)
    if own.startswith("/usr/"):
        return own
    for folder in ("/usr/local/bin", "/usr/bin"):
        for minor in (11, 12, 13, 14):
            candidate = Path(folder, f"python3.{minor}")
            if candidate.exists():
                return str(candidate)
    return None
