"""Lean 4.35.0 from the wheel, as the pool of sessions takes it: its language server."""

from __future__ import annotations

from pipeline.lean.backend import LeanBackend
from tests.support.lean.wheel.lean import VERSION, toolchain


def backend() -> LeanBackend:
    """Return this Lean, built the first time.

    Raises:
        UnavailableError: it cannot be had here.
    """
    tools = toolchain()
    program = (str(tools / "bin" / "lean"),)
    name = f"leanprover/lean4:v{VERSION}"
    return LeanBackend("server", program, "", name, sandbox="none", sysroot=str(tools))
