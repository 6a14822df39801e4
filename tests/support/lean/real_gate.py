"""The whole check job on Lean 4.35.0 itself: a project folder, its toolchain, and a small stand-in for lake.

    court = RealGate(tmp_path)
    court.verified(Case("exact ⟨h.2, h.1⟩"))

Lean, its kernel and our own Lean program are real; lake is the stand-in (`tests.support.lean.lake`), which compiles a
module and what it imports of the project with `lean -o`, as lake does. There is no `leanchecker` but where a test asks
for it: then it is the kernel's own replay too (`Leanchecker.lean`). The library in place of Lean's is our own
(`tests.support.lean.wheel`): the gate verifies nothing with it, and a test says `FIRST_MODULE` to see the rest.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from pipeline.lean.backend import LeanBackend
from tests.support.gate import GateProject, Lean
from tests.support.lean import lake
from tests.support.lean.toolchain import make_elan, sysroot_of, write_program
from tests.support.lean.wheel.lean import VERSION, build

FIRST_MODULE = "Init.Base"
"""What stands below all of our own library, as `pipeline.gate.lake_checks.FIRST_MODULE` does of Lean's."""
TOOLCHAIN = f"leanprover/lean4:v{VERSION}"


def with_lake(sysroot: Path) -> Path:
    """Put the stand-in for lake into a toolchain's folder."""
    write_program(sysroot / "bin" / "lake", Path(lake.__file__))
    return sysroot


def real_elan(folder: Path) -> Path:
    """Make an ELAN_HOME in `folder`/elan: elan's stand-in, and Lean 4.35.0 itself as the toolchain that it has."""
    home = make_elan(folder, releases=(TOOLCHAIN,), offline=True)
    with_lake(build(sysroot_of(home, TOOLCHAIN)))
    return home


@cache
def _shared(*, leanchecker: bool) -> Path:
    """Return one toolchain with the stand-in for lake, for all tests, so that the questions are compiled once."""
    folder = Path(tempfile.mkdtemp(prefix="everlean-lean435-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = with_lake(build(folder / "lean"))
    if leanchecker:
        shutil.copy(Path(__file__).with_name("Leanchecker.lean"), made / "bin")
        program = made / "bin" / "leanchecker"
        program.write_text(
            '#!/bin/sh\nhere=${0%/*}\nexec "$here/lean" --run "$here/Leanchecker.lean" "$@"\n', "utf-8"
        )
        program.chmod(0o755)
    return made


class RealGate(GateProject):
    """A project judged by Lean itself."""

    def __init__(self, folder: Path, *, leanchecker: bool = False) -> None:
        super().__init__(folder)
        self.real = _shared(leanchecker=leanchecker)

    def backend(self, lean: Lean = "credulous") -> LeanBackend:
        program = (str(self.real / "bin" / "lean"),)
        return LeanBackend("server", program, "", TOOLCHAIN, sandbox="none", sysroot=str(self.real))
