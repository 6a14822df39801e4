"""`lake build` for `real_gate`: compiles modules of the folder with `lean`, what they import of it first."""

# ruff: noqa: T201 - a program prints
from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

_IMPORT = re.compile(r"^\s*(?:public\s+)?(?:meta\s+)?import\s+(?:all\s+)?([\w.«»'-]+)", re.MULTILINE)
_LIBRARY = Path(".lake", "build", "lib", "lean")


def main(arguments: Sequence[str]) -> int:
    """Run `build +MODULE…` with the toolchain in the first argument's folder."""
    sysroot, command, *modules = arguments
    if command != "build":
        print(f"error: unknown command '{command}'")
        return 1
    done: dict[str, bool] = {}
    built = [_built(Path(sysroot), one.removeprefix("+"), done) for one in modules]
    return 0 if all(built) else 1


def _built(sysroot: Path, module: str, done: dict[str, bool]) -> bool:
    """Compile a module if anything of it is newer than its compiled file; False if it has an error."""
    if module in done:
        return done[module]
    path = Path(*(part.strip("«»") for part in re.findall(r"«[^»]*»|[^.«»]+", module))).with_suffix(".lean")
    if not path.is_file():
        done[module] = True  # a library's, or nobody's: Lean says so
        return True
    imports = _IMPORT.findall(path.read_text("utf-8"))
    built = [_built(sysroot, one, done) for one in imports]
    done[module] = all(built)
    if not done[module]:
        return False
    compiled = _LIBRARY / path.with_suffix(".olean")
    if compiled.is_file() and compiled.stat().st_mtime_ns >= path.stat().st_mtime_ns:
        return True
    compiled.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "LEAN_PATH": str(_LIBRARY.absolute())}
    command = (str(sysroot / "bin" / "lean"), "--json", "-o", str(compiled), str(path))
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    for line in ran.stdout.splitlines():
        message = json.loads(line)
        place = f"{path}:{message['pos']['line']}:{message['pos']['column']}"
        print(f"{message['severity']}: {place}: {message['data']}")
    print(ran.stderr, end="")
    done[module] = ran.returncode == 0
    return done[module]
