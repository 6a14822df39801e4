"""A stand-in for a second kernel: reads nanoda's configuration, or an export's path, and says what it was told to say.

    make_kernel(folder / "nanoda_bin", says="refuse")

It reads the export as our own reader does, and permits only the axioms of the configuration. `refuse` refuses every
theorem whose statement holds `only` (""; every one), `decline`, `crash` and `hang` are the ways not to judge.
"""

# ruff: noqa: T201 - a program prints
from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

_ROOT = Path(__file__).resolve().parents[3]
Says = Literal["accept", "refuse", "decline", "crash", "hang"]


def make_kernel(program: Path, *, says: Says = "accept", only: str = "", name: str = "") -> Path:
    """Write the program and return its path; `name` is what it calls itself, by default its file's."""
    start = f'import sys; sys.path.insert(0, "{_ROOT}"); from {__name__} import main; sys.exit(main(sys.argv[1:]))'
    words = (sys.executable, "-I", "-S", "-B", "-c", start, says, only, "0.0.1", name or program.name)
    quoted = " ".join(f"'{word}'" for word in words)
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n', "utf-8")
    program.chmod(0o755)
    return program


def main(arguments: Sequence[str]) -> int:
    """Be the program: what it says, of which theorems, its version, its name, and what it was called with."""
    says, only, version, name, given = arguments
    if given == "--help":
        print(f"{name} {version}\n\nA stand-in for a kernel")
        return 0
    if says == "hang":
        time.sleep(600)
    if says == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if says == "decline":
        print("Declined: something unknown")
        return 2
    permitted, export = None, Path(given)
    if "nanoda" in name:
        configuration = json.loads(Path(given).read_text("utf-8"))
        permitted, export = configuration["permitted_axioms"], Path(configuration["export_file_path"])
    return _judge(export.read_text("utf-8"), permitted, only if says == "refuse" else None)


def _judge(text: str, permitted: list[str] | None, refused: str | None) -> int:
    from pipeline.lean.export import read_export

    export = read_export(text.split("\n")[:-1])
    axioms = [".".join(name) for name in export.axioms]
    if permitted is not None and not set(axioms) <= set(permitted):
        print(f"export file declares unpermitted axiom {axioms}")
        return 1
    if export.undeclared:
        print(f"not declared: {sorted(export.undeclared)}")
        return 101
    if refused is not None and refused in text:
        print("thread 'main' panicked: type mismatch")
        return 101
    print(f"Checked {len(export.declared)} declarations with no errors")
    return 0
