"""The simulator's command line (`python -m pipeline.lean.simulator --help`) and its loop: a line, and a line back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from getopt import GetoptError, gnu_getopt
from pathlib import Path
from typing import BinaryIO

from pipeline.lean.simulator import VERSION
from pipeline.lean.simulator.faults import HELP, BadFault, Faults, no_faults, parse_fault
from pipeline.lean.simulator.modules import ImportFailure, Modules
from pipeline.lean.simulator.protocol import Dialect, Refusal, parse_line, render
from pipeline.lean.simulator.server import Server

RECURSION_LIMIT = 6000
_OPTIONS = ("help", "version", "root=", "dialect=", "fault=", "seed=")
_HELP = f"""\
usage: pipeline.lean.simulator [module ...] [--key=value ...] [options]

{VERSION}. Modules are files under --root, else built in; without any there is not even Init.

options:
  --help               show this and end
  --root DIR           the project's folder (default: here)
  --dialect new|old    the REPL to stand for: 0.3.8 and on, or 0.3.4 (default: new)
  --fault SPEC         see below
  --seed N             seed of the faults that have a probability (default: none)
  --version            show the version and end

{HELP}"""


def main(argv: Sequence[str] | None = None) -> int:
    try:
        options, imports = _read(sys.argv[1:] if argv is None else argv)
        if "--help" in options or "--version" in options:
            sys.stdout.write(_HELP if "--help" in options else f"{VERSION}\n")
            return 0
        dialect = _dialect(options.get("--dialect", ["new"])[-1])
        seed = int(options["--seed"][-1]) if "--seed" in options else None
        faults = Faults(
            [parse_fault(spec) for spec in options.get("--fault", [])], seed=seed, dialect=dialect
        )
    except (GetoptError, BadFault, ValueError) as error:
        return _complain(str(error))
    _complain(f"{VERSION}: a small logic that speaks Lean's protocol; nothing it accepts is checked by Lean")
    sys.setrecursionlimit(RECURSION_LIMIT)
    root = Path(options.get("--root", ["."])[-1])
    try:
        server = Server.start(Modules(root), imports, dialect)
    except ImportFailure as error:
        return _complain(f"uncaught exception: {error}")
    faults.at_start()
    serve(server, sys.stdin.buffer, sys.stdout.buffer, faults)
    return 0


def _read(argv: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the values of each option, and the modules. By getopt: argparse loads more (`shutil` too, at its first
    option), and a check starts three simulators.

    Raises:
        GetoptError: an option lacks its value, or is none of ours and sets none of Lean's.
    """
    ours = {f"--{option.rstrip('=')}" for option in _OPTIONS}
    # Core options come in any order between the others, and change nothing here.
    core = [word for word in argv if word.startswith("--") and word.partition("=")[0] not in ours]
    if bad := [word for word in core if "=" not in word]:
        raise GetoptError(f"uncaught exception: Options cannot be parsed: {bad[0]}")
    values: dict[str, list[str]] = {}
    given, imports = gnu_getopt([word for word in argv if word not in core], "", _OPTIONS)
    for name, value in given:
        values.setdefault(name, []).append(value)
    return values, imports


def _dialect(name: str) -> Dialect:
    match name:
        case "new" | "old":
            return name
    raise ValueError(f"--dialect {name}: there is new, and there is old")


def _complain(text: str) -> int:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    return 1


def serve(server: Server, source: BinaryIO, sink: BinaryIO, faults: Faults | None = None) -> None:
    """Answer requests until a blank line or the end."""
    wrong = no_faults() if faults is None else faults
    _write(sink, b"ready.")
    while line := source.readline():
        if not line.strip():
            return
        _write(sink, wrong.around(partial(_answer, server, line)))


def _write(sink: BinaryIO, line: bytes) -> None:
    sink.write(line + b"\n")
    sink.flush()


def _answer(server: Server, line: bytes) -> bytes:
    try:
        command, payload = parse_line(line)
    except Refusal as error:
        return render(error.reply(server.core.dialect))
    return render(server.answer(command, payload), pretty=server.pretty)
