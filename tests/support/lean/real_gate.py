"""The whole check job on Lean 4.35.0 itself: a project folder, its toolchain, and a small stand-in for lake.

    court = RealGate(tmp_path, real_lean)
    court.verified(Case("exact ⟨h.2, h.1⟩"))

Lean, its kernel and our own Lean program are real; `lake build` is a program of some lines that compiles a module and
what it imports of the project with `lean -o`, as lake does, and says what lake says. There is no `leanchecker`. The
library in place of Lean's is our own (`tests.support.lean.wheel`): the gate verifies nothing with it, and a test says
`FIRST_MODULE` to see the rest.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.lean.backend import LeanBackend
from tests.support.gate import GateProject, Lean
from tests.support.lean.wheel.lean import VERSION, build

FIRST_MODULE = "Init.Base"
"""What stands below all of our own library, as `pipeline.gate.lake_checks.FIRST_MODULE` does of Lean's."""
TOOLCHAIN = f"leanprover/lean4:v{VERSION}"
_ROOT = Path(__file__).resolve().parents[3]


class RealGate(GateProject):
    """A project judged by Lean itself."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.real = build(folder / "lean")
        program = self.real / "bin" / "lake"
        lake = f"{__name__}_lake"
        start = f'import sys; sys.path.insert(0, "{_ROOT}"); from {lake} import main; sys.exit(main(sys.argv[1:]))'
        words = (sys.executable, "-I", "-S", "-B", "-c", start, str(self.real))
        quoted = " ".join(f"'{word}'" for word in words)
        program.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n', "utf-8")
        program.chmod(0o755)

    def backend(self, lean: Lean) -> LeanBackend:
        program = (str(self.real / "bin" / "lean"),)
        return LeanBackend(
            "server", program, "", TOOLCHAIN, simulated=False, sandbox="none", sysroot=str(self.real)
        )
