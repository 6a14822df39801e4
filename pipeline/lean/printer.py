"""Puts `Printer.lean` into a Lean program of ours: such a program is one file, so that compiling it needs no other."""

from __future__ import annotations

from pathlib import Path

_IMPORT = "import Lean\n"


def with_printer(program: Path) -> bytes:
    """Return a program's text with the printer behind its import."""
    head, _, rest = program.read_text("utf-8").partition(_IMPORT)
    printer = Path(__file__).with_name("Printer.lean").read_text("utf-8")
    return f"{head}{_IMPORT}\n{printer}{rest}".encode()
