"""Run the simulator: `python -m pipeline.lean.simulator [module…] [--root DIR] [--key=value…]`.

Prints `ready.`, then answers one request line with one reply line until a blank line or the end of its input.
Core options (`--key=value`) are accepted and, as in the REPL, change nothing for goals.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from pipeline.lean.simulator import VERSION
from pipeline.lean.simulator.modules import ImportFailure, Modules
from pipeline.lean.simulator.server import Json, Server

RECURSION_LIMIT = 6000


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pipeline.lean.simulator", description=VERSION)
    parser.add_argument("imports", nargs="*", help="modules to import; files under --root, else built in")
    parser.add_argument("--root", type=Path, default=Path(), help="the project's folder (default: here)")
    parser.add_argument("--version", action="version", version=VERSION)
    options, core = parser.parse_known_args(argv)
    if bad := [word for word in core if not (word.startswith("--") and "=" in word)]:
        return _complain(f"Options cannot be parsed: {bad[0]}")
    _complain(f"{VERSION}: a small logic that speaks Lean's protocol; nothing it accepts is checked by Lean")
    sys.setrecursionlimit(RECURSION_LIMIT)
    modules = Modules(options.root)
    try:
        server = Server(modules, modules.environment(options.imports))
    except ImportFailure as error:
        return _complain(f"uncaught exception: {error}")
    serve(server, sys.stdin.buffer, sys.stdout.buffer)
    return 0


def _complain(text: str) -> int:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    return 1


def serve(server: Server, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until a blank line or the end."""
    _write(sink, b"ready.")
    while line := source.readline():
        if not line.strip():
            return
        _write(sink, render(_reply(server, line)))


def _write(sink: BinaryIO, line: bytes) -> None:
    sink.write(line + b"\n")
    sink.flush()


def _reply(server: Server, line: bytes) -> Json:
    try:
        text = line.decode("utf-8")
        if text.lstrip().startswith("{"):
            request = json.loads(text)
            command, payload = request.get("cmd"), request.get("payload")
        else:
            command, _, rest = text.partition(" ")
            payload = json.loads(rest) if rest.strip() else None
    except (ValueError, AttributeError) as error:
        return {"error": "command", "desc": f"Unable to parse the request: {error}"}
    payload = {} if payload is None else payload
    if not isinstance(command, str) or not isinstance(payload, dict):
        return {
            "error": "command",
            "desc": "Unable to parse the request: cmd: String and payload: object expected",
        }
    return server.answer(command, payload)


def render(reply: Json) -> bytes:
    """Return the reply as Lean prints it: compact, raw UTF-8, keys in descending order."""
    return json.dumps(_descending(reply), ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )


def _descending(value: object) -> object:
    if isinstance(value, dict):
        return {key: _descending(value[key]) for key in sorted(value, reverse=True)}
    if isinstance(value, list):
        return [_descending(item) for item in value]
    return value


if __name__ == "__main__":
    sys.exit(main())
