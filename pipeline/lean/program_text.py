"""Put `Nodes.lean` and `Printer.lean` into a Lean program of ours: one file, compiled without others."""

from __future__ import annotations

from pathlib import Path

_IMPORT = "import Lean\n"


def program_text(program: Path, *parts: str) -> bytes:
    """Return a program's text with these parts ("Nodes") behind its import."""
    head, _, rest = program.read_text("utf-8").partition(_IMPORT)
    texts = (Path(__file__).with_name(f"{one}.lean").read_text("utf-8") for one in parts)
    return f"{head}{_IMPORT}\n{''.join(texts)}{rest}".encode()
