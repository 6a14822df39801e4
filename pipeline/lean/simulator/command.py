"""The simulator's command line (`python -m pipeline.lean.simulator --help`) and its loop: a line, and a line back."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from pipeline.lean.simulator import VERSION
from pipeline.lean.simulator.faults import HELP, BadFault, Faults, no_faults, parse_fault
from pipeline.lean.simulator.modules import ImportFailure, Modules
from pipeline.lean.simulator.protocol import Refusal, parse_line, render
from pipeline.lean.simulator.server import Server

RECURSION_LIMIT = 6000


def main(argv: Sequence[str] | None = None) -> int:
    # Modules and core options come in any order, which argparse cannot do with positional arguments.
    options, words = _parser().parse_known_args(argv)
    imports = [word for word in words if not word.startswith("--")]
    if bad := [word for word in words if word.startswith("--") and "=" not in word]:
        return _complain(f"uncaught exception: Options cannot be parsed: {bad[0]}")
    try:
        faults = Faults(
            [parse_fault(spec) for spec in options.fault], seed=options.seed, dialect=options.dialect
        )
    except BadFault as error:
        return _complain(str(error))
    _complain(f"{VERSION}: a small logic that speaks Lean's protocol; nothing it accepts is checked by Lean")
    sys.setrecursionlimit(RECURSION_LIMIT)
    try:
        server = Server.start(Modules(options.root), imports, options.dialect)
    except ImportFailure as error:
        return _complain(f"uncaught exception: {error}")
    faults.at_start()
    serve(server, sys.stdin.buffer, sys.stdout.buffer, faults)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pipeline.lean.simulator",
        usage="%(prog)s [module ...] [--key=value ...] [options]",
        description=f"{VERSION}. Modules are files under --root, else built in; without any there is not even Init.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--root", type=Path, default=Path(), help="the project's folder (default: here)")
    parser.add_argument(
        "--dialect",
        choices=("new", "old"),
        default="new",
        help="the REPL to stand for: 0.3.8 and on, or 0.3.4",
    )
    parser.add_argument("--fault", action="append", default=[], metavar="SPEC", help="see below")
    parser.add_argument(
        "--seed", type=int, default=None, help="seed of the faults that have a probability (default: none)"
    )
    parser.add_argument("--version", action="version", version=VERSION)
    return parser


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
