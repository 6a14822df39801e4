"""Stand-ins for Lean's programs as scripts that begin this interpreter, and forks in their place.

write(folder / "bin" / "lake", "tests.support.lean.credulous_programs", "lake", str(folder))
with patch("pipeline.lean.sandbox.bounded.subprocess", forked()):
    ...                                                     # each is a fork of this process: a fifth of what it costs

A script calls `main` of a module with these words and what it is given itself.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support import programs
from tests.support.daemon import forks

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
    """Return `subprocess` for `pipeline.lean.sandbox.bounded`, in which a script that `write` wrote is a fork."""

    def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        for place, word in enumerate(command):
            if (words := _words(Path(word))) and "-o" not in command[place + 1 : place + 2]:
                return _fork([*words, *command[place + 1 :]], command, **options)
        return subprocess.Popen(command, **options)

    return SimpleNamespace(**{**vars(subprocess), "Popen": popen})


def _words(program: Path) -> list[str]:
    """Return a script's program and words; none of what is no such script."""
    if not program.is_absolute() or not program.is_file():
        return []
    with program.open("rb") as file:
        before, _, rest = file.read(_MOST_BYTES).partition(_BEGIN.encode())
    return shlex.split(rest.decode())[:-1] if before.startswith(b"#!/bin/sh\n") else []


def _fork(words: Sequence[str], command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    read, write = os.pipe()

    def be_it() -> None:
        os.setsid()
        for number, descriptor in enumerate((options["stdin"].fileno(), write, write)):
            os.dup2(descriptor, number)
        os.chdir(options["cwd"])
        os.environ.clear()
        os.environ.update(options["env"])
        sys.argv = ["-c", *words[1:]]
        programs.forget_pytest()
        exec(words[0], {"__name__": "__main__"})

    pid = programs.forked(be_it)
    os.close(write)
    return forks.Adopted(pid, command, os.fdopen(read, "rb"))
