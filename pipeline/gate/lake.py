"""Checks 3 to 6 by the project's own toolchain: `lake build` of the patched module, `#print axioms`,
the constant's type, replay.

The patched file is put into the worktree copy that the job was given (nobody else uses it) and taken out again.
Everything runs in bubblewrap with the worktree as the only place to write, or without it where the settings say
so. Where there is no lake the caller records "not checked"; nothing here guesses.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.lean.backend import LeanBackend
from pipeline.lean.sandbox import bubblewrap

ALLOWED_AXIOMS = frozenset({"propext", "Classical.choice", "Quot.sound"})
BUILD_TIMEOUT_S = 1500.0
PRIVATE_TMP = "/tmp"  # noqa: S108 - the sandbox's own, empty
_PRINTED = re.compile(r"'(?P<name>[^']+(?:'[^' ]*)*)' depends on axioms: \[(?P<axioms>[^\]]*)\]")
_PRINTED_NONE = re.compile(r"'(?P<name>[^']+(?:'[^' ]*)*)' does not depend on any axioms")
_KEPT_OUTPUT = 2000
_WHOLE = ("pp.all true", "pp.deepTerms true", "pp.maxSteps 10000000", "pp.proofs true")
_ELIDED = "⋯"


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished program: its exit status (None: it ran out of time) and the end of what it printed."""

    returncode: int | None
    output: str


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake to call: where it is and what it may see."""

    program: Path
    backend: LeanBackend
    project: Path

    @classmethod
    def find(cls, backend: LeanBackend, *, project: Path) -> Lake | str:
        """Return the lake of the backend's toolchain, or one sentence on why there is none to use."""
        if backend.kind != "pantograph":
            return "no Lean here: the backend is " + backend.kind
        if not any((project / name).is_file() for name in ("lakefile.toml", "lakefile.lean")):
            return "the project has no lakefile"
        own = Path(backend.sysroot) / "bin" / "lake" if backend.sysroot else None
        if own is not None and own.is_file():
            return cls(own, backend, project)
        found = shutil.which("lake")
        if found is None:
            return "lake is not installed"
        return cls(Path(found), backend, project)

    def run(self, *arguments: str, timeout_s: float = BUILD_TIMEOUT_S) -> Ran:
        """Run lake in the worktree."""
        environment = {
            "LANG": "C.UTF-8",
            "PATH": f"{self.program.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": PRIVATE_TMP,
        }
        command: Sequence[str] = (str(self.program), *arguments)
        if self.backend.sandbox == "bubblewrap":
            toolchain = [self.program.parent.parent] if self.backend.sysroot else [self.program]
            argv = list(
                bubblewrap(command, project=self.project, readable=toolchain, environment=environment)
            )
            # The build writes into the worktree, and nowhere else.
            place = argv.index("--chdir")
            argv[place:place] = ["--bind", str(self.project.absolute()), str(self.project.absolute())]
            command, environment = argv, {}
        else:
            environment["HOME"] = os.environ.get("HOME", PRIVATE_TMP)
        try:
            done = subprocess.run(
                command,
                cwd=self.project,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ran(None, f"no end after {timeout_s:g} s")
        return Ran(done.returncode, done.stdout.decode("utf-8", errors="replace"))


def module_of(path: str) -> str:
    """Return the module name of a file of the project: `Demo/Logic.lean` is `Demo.Logic`."""
    parts = path.removesuffix(".lean").split("/")
    return ".".join(part if re.fullmatch(r"[^\W\d][\w'!?]*", part) else f"«{part}»" for part in parts)


@contextmanager
def patched_in_place(file: Path, patched: bytes) -> Iterator[None]:
    """Have the patched bytes in the worktree for the length of the block."""
    before = file.read_bytes()
    try:
        _write(file, patched)
        yield
    finally:
        _write(file, before)


def axioms_of(lake: Lake, *, module: str, declaration: str) -> tuple[str, ...] | str:
    """Ask another process, which imports the built module, for the constant's axioms; a text says why not.

    The candidate's own file could redefine `#print`; the asking file holds nothing of it.
    """
    ran = _ask(lake, f"import {module}\n#print axioms {declaration}\n")
    return read_axioms(ran.output, declaration) if ran.returncode == 0 else _end(ran.output)


@dataclass(frozen=True, slots=True)
class TypeText:
    """A constant's type with everything printed, universe parameters included: equal texts, equal types."""

    text: str


def type_of(lake: Lake, *, module: str, declaration: str) -> TypeText | str:
    """Ask for the constant's type in the same way; a text says why there is none."""
    options = "".join(f"set_option {option} in\n" for option in _WHOLE)
    ran = _ask(lake, f"import {module}\n{options}#check @{declaration}\n")
    if ran.returncode != 0:
        return _end(ran.output)
    text = " ".join(ran.output.split())
    if not text.removeprefix("@").startswith(declaration):
        return f"`#check @{declaration}` answered: {_end(ran.output)}"
    if _ELIDED in text:
        return f"`#check @{declaration}` left something out: the type is too large to print"
    return TypeText(text)


def _ask(lake: Lake, question: str) -> Ran:
    folder = lake.project / ".lake" / "unsorry"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".lean", dir=folder, encoding="utf-8") as file:
        file.write(question)
        file.flush()
        return lake.run("env", "lean", file.name)


def read_axioms(output: str, declaration: str) -> tuple[str, ...] | str:
    """Read the answer of `#print axioms`; a text says why it could not be read. Nothing is read into silence."""
    text = " ".join(output.split())  # Lean wraps long lists
    found = list(_PRINTED.finditer(text)) + list(_PRINTED_NONE.finditer(text))
    if len(found) == 1 and found[0]["name"] == declaration:
        axioms = found[0].groupdict().get("axioms") or ""
        return tuple(name.strip() for name in axioms.split(",") if name.strip())
    return f"`#print axioms` answered: {_end(output)}"


def _write(file: Path, data: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(file)


def _end(output: str) -> str:
    return " ".join(output[-_KEPT_OUTPUT:].split()) or "nothing"
