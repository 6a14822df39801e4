"""The REPL that the stand-in lake builds: the simulator in the place of `pantograph-repl`, under its own version.

Like the real one it ends before `ready.` where the toolchain that it is run with is not the one it was built with.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.lean.simulator.server import main as simulate
from tests.support.lean.toolchain import SETTINGS


def main(_name: str, arguments: Sequence[str]) -> int:
    own = Path(__file__).resolve().parents[5]
    given = os.environ.get("LEAN_SYSROOT")
    if given and _toolchain(Path(given)) != _toolchain(own) and list(arguments) != ["--version"]:
        sys.stderr.write(
            f"uncaught exception: failed to read file '{given}/lib/lean/Init.olean', invalid header\n"
        )
        return 1
    return simulate(list(arguments))


def _toolchain(sysroot: Path) -> str:
    try:
        return str(json.loads((sysroot / SETTINGS).read_text("utf-8"))["toolchain"])
    except FileNotFoundError:
        return ""  # not one of ours, and so another one
