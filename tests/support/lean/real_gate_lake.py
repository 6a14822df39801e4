"""`lake build` for `real_gate`: compiles modules with `lean`, what they import of the project first.

One file with nothing but Python's own library, for it is copied into a toolchain's folder as `bin/lake`: a stand-in for
tests, not Lean's.
"""

# ruff: noqa: T201 - a program prints
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

_IMPORT = re.compile(r"^\s*(?:public\s+)?(?:meta\s+)?import\s+(?:all\s+)?([\w.«»'-]+)", re.MULTILINE)
_LIBRARY = Path(".lake", "build", "lib", "lean")


def main(arguments: Sequence[str]) -> int:
    """Run `build [MODULE…]`, `+MODULE` too, in this folder with the toolchain that this program lies in."""
    sysroot, command, *modules = arguments
    if command != "build":
        print(f"error: unknown command '{command}'")
        return 1
    lakefile = Path("lakefile.toml")
    table = tomllib.loads(lakefile.read_text("utf-8")) if lakefile.is_file() else {}
    libraries = table.get("lean_lib", ())
    folders = tuple(dict.fromkeys(("", *(one.get("srcDir", "") for one in libraries))))
    wanted = modules or table.get("defaultTargets", ())
    done: dict[str, bool] = {}
    built = [_built(Path(sysroot), one.removeprefix("+"), folders, done) for one in wanted]
    return 0 if all(built) else 1


def _built(sysroot: Path, module: str, folders: Sequence[str], done: dict[str, bool]) -> bool:
    """Compile a module if anything of it is newer than its compiled file; False if it has an error."""
    if module in done:
        return done[module]
    name = Path(*(part.strip("«»") for part in re.findall(r"«[^»]*»|[^.«»]+", module))).with_suffix(".lean")
    path = next((found for folder in folders if (found := Path(folder, name)).is_file()), None)
    if path is None:
        done[module] = True  # a library's, or nobody's: Lean says so
        return True
    imports = _IMPORT.findall(path.read_text("utf-8"))
    built = [_built(sysroot, one, folders, done) for one in imports]
    done[module] = all(built)
    if not done[module]:
        return False
    compiled = _LIBRARY / name.with_suffix(".olean")
    said = compiled.with_suffix(".said")
    if compiled.is_file() and compiled.stat().st_mtime_ns >= path.stat().st_mtime_ns:
        print(said.read_text("utf-8") if said.is_file() else "", end="")  # as lake does
        return True
    compiled.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "LEAN_PATH": str(_LIBRARY.absolute())}
    references = ("-i", str(compiled.with_suffix(".ilean")))
    command = (str(sysroot / "bin" / "lean"), "--json", "-o", str(compiled), *references, str(path))
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = []
    for message in map(json.loads, ran.stdout.splitlines()):
        place = f"{path}:{message['pos']['line']}:{message['pos']['column']}"
        lines.append(f"{message['severity']}: {place}: {message['data']}\n")
    print("".join(lines) + ran.stderr, end="")
    said.write_text("".join(lines), "utf-8")
    done[module] = ran.returncode == 0
    return done[module]


if __name__ == "__main__":
    sys.exit(main((str(Path(__file__).resolve().parent.parent), *sys.argv[1:])))
