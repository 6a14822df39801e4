"""Stand-ins for kernels that judge exports: each takes the words of the real one's command line, and no others.

    make_kernel(folder / "nanoda_bin", says="refuse")
    bring_kernels(tools / "bin", refuse=("con-ron",))         # as Lean 4.35 brings them

They read the export as our own reader does, and say and end as the real ones do. `refuse` refuses every export that
holds `only` (""; every one), `look` a theorem that has its own statement as its proof. `decline`, `crash`, `hang` and
`memory` are the ways not to judge, `silent` ends well without a word. nanoda permits only the axioms of its
configuration.
"""

# ruff: noqa: T201 - a program prints
from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Says = Literal["accept", "refuse", "look", "decline", "crash", "hang", "memory", "silent"]


@dataclass(frozen=True, slots=True)
class _Speech:
    """How a program is asked, and what it says and ends with; `option` stands before the export's path."""

    option: tuple[str, ...]
    accepts: str
    refuses: str
    status: int
    declines: str = "Declined: something unknown"


_LEAN_S = _Speech(
    ("--from-export",),
    "Lean default kernel accepts the solution",
    # A name in it, which the project chooses, speaks of what an error of the machine would.
    "Lean default kernel rejects the solution: (kernel) declaration type mismatch, '«out of memory»'",
    1,
)
_SPEECHES = {
    "leanchecker": _LEAN_S,
    "leanchecker-paranoid": _LEAN_S,
    "lean4lean": _Speech(
        ("--import",), "checked {} declarations", "uncaught exception: declaration type mismatch", 1
    ),
    "con-leche": _Speech(
        (),
        "con-leche: accepted {} declarations (--verified)",
        "con-leche: invalid: type mismatch in theorem mine",
        1,
        "con-leche: not implemented yet: something unknown",
    ),
    "con-ron": _Speech(
        (),
        "con-ron: accepted {} declarations (--verified)",
        "con-ron: rejected: type mismatch in declaration",
        1,
        "con-ron: declined: something unknown",
    ),
}
KERNELS = (*_SPEECHES, "nanoda_bin")
"""The programs that Lean 4.35 brings."""
_WRONG = re.compile(r'"type":(\d+),"value":\1\b')
_ANY = _Speech((), "Checked {} declarations with no errors", "thread 'main' panicked: type mismatch", 101)


def make_kernel(
    program: Path, *, says: Says = "accept", only: str = "", name: str = "", replay: Path | None = None
) -> Path:
    """Write the program and return its path.

    `name` is what it calls itself, by default its file's; `replay` the program that it is when it is given modules.
    """
    from tests.support.lean import scripts  # which the program itself does without

    scripts.write(program, __name__, says, only, "0.0.1", name or program.name, str(replay or ""))
    return program


def bring_kernels(folder: Path, *, says: Mapping[str, Says] | None = None, only: str = "") -> None:
    """Put into a toolchain's programs the kernels that Lean 4.35 brings; its replay of modules stays what it was."""
    modules = folder / "leanchecker-modules"
    if not modules.exists():
        (folder / "leanchecker").rename(modules)
    for name in KERNELS:
        replay = modules if name == "leanchecker" else None
        make_kernel(folder / name, says=(says or {}).get(name, "accept"), only=only, replay=replay)


def main(arguments: Sequence[str]) -> int:
    """Be the program: what it says, of which theorems, its version, its name, what replays modules, and its call."""
    says, only, version, name, replay, *given = arguments
    if replay and given[:1] != ["--from-export"]:
        os.execv(replay, [replay, *given])
    speech = _SPEECHES.get(name, _ANY)
    if speech is _ANY and given == ["--help"]:
        print(f"{name} {version}\n\nA stand-in for a kernel")
        return 0
    *option, file = given
    if tuple(option) != speech.option:
        print(f"usage: {name} {' '.join(speech.option)} FILE", file=sys.stderr)
        return 3
    if says == "hang":
        time.sleep(600)
    if says == "memory":
        print("INTERNAL PANIC: out of memory")
        return 1
    if says == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if says == "decline":
        print(speech.declines)
        return 2
    if says == "silent":
        return 0
    permitted, export = None, Path(file)
    if "nanoda" in name:
        configuration = json.loads(export.read_text("utf-8"))
        permitted, export = configuration["permitted_axioms"], Path(configuration["export_file_path"])
    text = export.read_text("utf-8")
    refuses = (says == "refuse" and only in text) or (says == "look" and _WRONG.search(text) is not None)
    return _judge(text, permitted, refuses, speech)


def _judge(text: str, permitted: list[str] | None, refuses: bool, speech: _Speech) -> int:
    from pipeline.lean.export import read_export

    export = read_export(text.split("\n")[:-1])
    axioms = [".".join(name) for name in export.axioms]
    if permitted is not None and not set(axioms) <= set(permitted):
        print(f"export file declares unpermitted axiom {axioms}")
        return 1
    if export.undeclared:
        print(f"not declared: {sorted(export.undeclared)}")
        return 101
    if refuses:
        if speech.option == ("--import",) and os.environ.get("LEAN_ABORT_ON_PANIC"):
            os.abort()  # so does lean4lean, whose printer of errors panics
        print(speech.refuses)
        return speech.status
    print(speech.accepts.format(len(export.declared)))
    return 0
