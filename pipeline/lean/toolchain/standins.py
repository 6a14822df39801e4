"""Stand-ins for Lean in the tests, and their refusal everywhere else.

A stand-in accepts what Lean would not, so one in Lean's place would make false proofs. Each declares itself: its answer
to `--version` holds `MARK`, and the script that starts it names its package. Such a program in the place of the REPL,
of lake or of lean is refused, unless the environment holds `SWITCH`, set by the tests, the benchmarks, and `make demo`
for its own stand-in for lake.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline.lean.sandbox.command import bubblewrap

SWITCH = "EVERLEAN_TESTS_RUN_STAND_INS"
MARK = "not Lean"
REFUSED = "a stand-in for tests, not Lean: what it accepts is no proof; put Lean's own program in its place"
_NAMED_IN_SCRIPTS = (b"tests.support", b"tests/support", MARK.encode())
_LOOKED_AT_BYTES = 64 * 1024
_PATIENCE_S = 30.0


def allowed() -> bool:
    """Return whether the tests' switch is on."""
    return os.environ.get(SWITCH) == "1"


def says_so(version: str) -> bool:
    """Return whether this answer to `--version` is a stand-in's."""
    return MARK in version


def is_stand_in(program: Path) -> bool:
    """Return whether a program is a stand-in; Lean's own programs are compiled, so only scripts are read.

    A missing or unreadable file is none; its caller will report it.
    """
    try:
        with program.open("rb") as file:
            start = file.read(_LOOKED_AT_BYTES)
    except OSError:
        return False
    return start.startswith(b"#!") and any(word in start for word in _NAMED_IN_SCRIPTS)


def refusal(programs: Iterable[Path]) -> str:
    """Return "" or why these programs must not be taken for Lean: the first stand-in among them, by its path."""
    if allowed():
        return ""
    return next((f"{program}: {REFUSED}" for program in programs if is_stand_in(program)), "")


def refusal_of_answer(argv: Sequence[str], *, sysroot: str, sandboxed: bool) -> str:
    """Run a REPL's `--version`, as it is run later; return "" or why it must not be taken for Lean.

    A REPL without an answer is not judged here: it does not start either, and that has its own error.

    Raises:
        pipeline.lean.sandbox.command.SandboxError: there is no sandbox to run it in.
    """
    if allowed():
        return ""
    environment = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    readable = [Path(argv[0])]
    if sysroot:
        environment["LEAN_SYSROOT"] = sysroot
        readable.append(Path(sysroot))
    with tempfile.TemporaryDirectory(prefix="everlean-version-") as folder:
        command: Sequence[str] = (*argv, "--version")
        if sandboxed:
            command = bubblewrap(command, project=Path(folder), readable=readable, environment=environment)
        try:
            result = subprocess.run(
                command,
                cwd=folder,
                env={} if sandboxed else environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_PATIENCE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
    text = " ".join(result.stdout.decode("utf-8", errors="replace").split())
    return f"{argv[0]}: {REFUSED} (it says: {text[:200]})" if says_so(text) else ""
