"""Stand-ins for Lean's programs as scripts that begin an interpreter, and forks in their place.

write(folder / "bin" / "lake", "tests.support.lean.credulous_programs", "lake", str(folder))
with patch("pipeline.lean.sandbox.bounded.subprocess", forked()):
    ...                                                     # each is a fork of this process: a fifth of what it costs

A script calls `main` of a module with these words and what it is given itself.
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

from tests.support import programs
from tests.support.daemon import forks
from tests.support.lean import lake

_BEGIN = f"\nexec {shlex.quote(sys.executable)} -I -S -B -c "
_START = "import sys; sys.path.insert(0, {root!r}); from {module} import main; sys.exit(main(sys.argv[1:]))"

_MOST_BYTES = 8192


def write(program: Path, module: str, *words: str, first: str = "") -> None:
    """Write the script; `first` is what the shell does before."""
    start = _START.format(root=str(programs.ROOT), module=module)
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\n{first}{_BEGIN}{shlex.join([start, *words])} "$@"\n', "utf-8")
    program.chmod(0o755)


def forked() -> SimpleNamespace:
    """Return `subprocess` for `pipeline.lean.sandbox.bounded`, in which a script that `write` wrote is a fork.

    And so is the stand-in for lake.
    """

    def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        for place, word in enumerate(command):
            found = _program(Path(word))
            if found is not None and "-o" not in command[place + 1 : place + 2]:
                program, words = found
                return _fork(program, [word, *words, *command[place + 1 :]], command, **options)
        return subprocess.Popen(command, **options)

    return SimpleNamespace(**{**vars(subprocess), "Popen": popen})


@functools.cache
def _lake() -> tuple[bytes, CodeType]:
    source = Path(lake.__file__).read_bytes()
    return source, compile(source, lake.__file__, "exec")


def _program(file: Path) -> tuple[str | CodeType, list[str]] | None:
    """Return what a script runs and with which words; None if it is no stand-in of ours."""
    if not file.is_absolute() or not file.is_file():
        return None
    source, code = _lake()
    if file.name == "lake" and file.read_bytes().partition(b"\n")[2] == source:
        return code, []
    with file.open("rb") as opened:
        before, _, rest = opened.read(_MOST_BYTES).partition(_BEGIN.encode())
    if not rest or not before.startswith(b"#!/bin/sh\n"):
        return None
    start, *words = shlex.split(rest.decode())
    return start, words[:-1]


def _fork(
    program: str | CodeType, words: Sequence[str], command: Sequence[str], **options: Any
) -> subprocess.Popen[bytes]:
    read, write = os.pipe()

    def be_it() -> None:
        os.setsid()
        for number, descriptor in enumerate((options["stdin"].fileno(), write, write)):
            os.dup2(descriptor, number)
        os.chdir(options["cwd"])
        os.environ.clear()
        os.environ.update(options["env"])
        sys.argv[:] = words
        programs.forget_pytest()
        exec(program, {"__name__": "__main__", "__file__": words[0]})

    pid = programs.forked(be_it)
    os.close(write)
    return forks.Adopted(pid, command, os.fdopen(read, "rb"))
