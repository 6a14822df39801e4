"""Ask the project's own toolchain: build a module, name a constant's axioms, write its statement out, replay it.

`lake build` is what applies the project's own options; it evaluates the lakefile, which is code, so it writes into
`.lake` of the job's own worktree and nowhere else. The questions are asked by `lean` alone, of what was built, in a
process that can write into one new folder with a random name: nothing of the project runs beside the module's own
initializers, and in `Questions.lean` not even those. Where there is no lake the caller records "not checked";
nothing here guesses. What the answers mean is read in `answers.py`.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.gate.answers import (
    Answer,
    TypeText,
    end_of,
    one_message,
    read_answer,
    read_axioms,
    read_type,
)
from pipeline.lean.build.lake import MOST_PROCESSES, Bounds, LakeRunner, Outcome
from pipeline.lean.client.launch import lean_path
from pipeline.lean.sandbox.command import SandboxError

_DISK_BYTES = 4 * 2**30
"""By how much what the runner may write can grow; one file is compiled, or asked about."""
BUILD_BOUNDS = Bounds(timeout_s=1500.0, processes=MOST_PROCESSES, disk_bytes=_DISK_BYTES)
ASK_BOUNDS = Bounds(timeout_s=600.0, processes=MOST_PROCESSES, disk_bytes=_DISK_BYTES)
OWN_CHECKER = "leanchecker"
"""The kernel replay that comes with a toolchain; a project that has built one may have built another."""
QUESTIONS = Path(__file__).with_name("Questions.lean")
_WHOLE = ("pp.all true", "pp.deepTerms true", "pp.maxSteps 10000000", "pp.proofs true")
_MAX_ANSWER_BYTES = 256 * 1024 * 1024
# What a build leaves of one module: its files in the folder of its library, and those of its native code.
_OUTPUTS = re.compile(r"\.(?:olean|ilean|ir|trace|hash|setup|c|bc|o)\b.*")


@dataclass(frozen=True, slots=True)
class Checker:
    """A kernel replay: how it is called in evidence, and its program."""

    name: str
    program: Path


def leads_outside(runner: LakeRunner) -> str | None:
    """Say why the worktree may not be built in, None where it may: what is built must be the worktree's own.

    Asked again after a build: evaluating a lakefile runs code, which may write into `.lake`, links too.
    """
    project = runner.project.resolve()
    place = runner.project / ".lake"
    for folder in (
        place,
        place / "build",
        place / "build" / "lib",
        place / "build" / "ir",
        place / "unsorry",
    ):
        if not folder.resolve().is_relative_to(project):
            return f"{folder} leads out of the worktree, and a build of a candidate must not reach what others use"
    return None


def build(runner: LakeRunner, *modules: str) -> Outcome:
    """Have lake build modules of the worktree, with the project's own options."""
    place = runner.project / ".lake"
    place.mkdir(exist_ok=True)
    # `+`: a module, not the library or package of that name.
    return runner.with_(writable=(place,)).run(
        "build", *(f"+{name}" for name in modules), bounds=BUILD_BOUNDS
    )


def module_of(path: str) -> str:
    """Return the module name of a file of the project: `Demo/Logic.lean` is `Demo.Logic`."""
    parts = path.removesuffix(".lean").split("/")
    return ".".join(part if re.fullmatch(r"[^\W\d][\w'!?]*", part) else f"«{part}»" for part in parts)


@contextmanager
def patched_in_place(project: Path, path: str, patched: bytes) -> Iterator[None]:
    """Have the patched bytes in the worktree, and nothing built of the old ones, for the length of the block.

    What the build has of the file is put aside, so that lake has to build the patched bytes, and put back afterwards:
    nothing that was built from a candidate stays.
    """
    file = project / path
    before = file.read_bytes()
    with _outputs_aside(project, path):
        try:
            _write(file, patched)
            yield
        finally:
            _write(file, before)


@contextmanager
def _outputs_aside(project: Path, path: str) -> Iterator[None]:
    aside = _new_folder(project)
    try:
        kept = {output: aside / str(number) for number, output in enumerate(_outputs(project, path))}
        for output, place in kept.items():
            output.replace(place)
        try:
            yield
        finally:
            for output in _outputs(project, path):
                output.unlink()
            for output, place in kept.items():
                # Where the build took them away, or put a link to another place, nothing of ours is to be put back.
                if _own(project, place) and _own(project, output.parent):
                    place.replace(output)
    finally:
        _remove(project, aside)


def _outputs(project: Path, path: str) -> list[Path]:
    """Return the files that a build has made of one file, in each place that lakes put them."""
    stem = Path(path).with_suffix("")
    found: list[Path] = []
    for place in ("lib/lean", "lib", "ir"):
        folder = project.joinpath(".lake", "build", place, stem.parent)
        if folder.is_dir() and _own(project, folder):
            names = (one for one in sorted(folder.iterdir()) if one.is_file() and not one.is_symlink())
            found += [
                one
                for one in names
                if one.name.startswith(f"{stem.name}.") and _OUTPUTS.fullmatch(one.name[len(stem.name) :])
            ]
    return found


def not_built_here(project: Path, path: str) -> str | None:
    """Say why the file's module is not what the last build made, where `patched_in_place` had put aside what was there.

    A lakefile can have its build elsewhere; a package's module of the same name would then answer for this one.
    """
    made = [one for one in _outputs(project, path) if one.suffix == ".olean" and "lib" in one.parts]
    if made:
        return None
    return f"lake build left no {Path(path).stem}.olean in {project / '.lake' / 'build' / 'lib'}: it builds elsewhere"


def ask_exactly(runner: LakeRunner, *, module: str, declaration: str) -> Answer | str:
    """Run `Questions.lean` on the built module; a text says why there is no answer.

    The answer is a file in a folder that is made for the question and that only its process can write to.
    """
    folder = _new_folder(runner.project)
    try:
        script, answer, nonce = folder / QUESTIONS.name, folder / "answer", secrets.token_hex(16)
        script.write_bytes(QUESTIONS.read_bytes())
        ran = _lean(runner, folder, "--run", str(script), str(answer), nonce, module, declaration)
        if not ran.ok:
            return f"{QUESTIONS.name}: {ran.explain(ASK_BOUNDS)}: {end_of(ran.output)}"
        if answer.is_symlink() or not answer.is_file():
            return f"{QUESTIONS.name} wrote no answer: {end_of(ran.output)}"
        if answer.stat().st_size > _MAX_ANSWER_BYTES:
            return f"{QUESTIONS.name}: an answer of {answer.stat().st_size} bytes"
        try:
            text = answer.read_bytes().decode()
        except UnicodeDecodeError as error:
            return f"{QUESTIONS.name}: the answer is no UTF-8: {error}"
        return read_answer(text, nonce=nonce, constant=declaration)
    finally:
        _remove(runner.project, folder)


def axioms_of(runner: LakeRunner, *, module: str, declaration: str) -> tuple[str, ...] | str:
    """Ask another process, which imports the built module, for the constant's axioms; a text says why not.

    The candidate's own file could redefine `#print`; the asking file holds nothing of it.
    """
    said = _message(runner, module=module, commands=(f"#print axioms {declaration}",))
    return read_axioms(said.text, declaration) if isinstance(said, TypeText) else said


def type_of(runner: LakeRunner, *, module: str, declaration: str) -> TypeText | str:
    """Ask for the constant's type, printed whole, in the same way; a text says why there is none."""
    options = tuple(f"set_option {option} in" for option in _WHOLE)
    said = _message(runner, module=module, commands=(*options, f"#check @{declaration}"))
    return read_type(said.text, declaration) if isinstance(said, TypeText) else said


def _message(runner: LakeRunner, *, module: str, commands: tuple[str, ...]) -> TypeText | str:
    """Return the one message that the last of these commands makes."""
    folder = _new_folder(runner.project)
    try:
        file = folder / f"Q{secrets.token_hex(16)}.lean"
        file.write_text("\n".join((f"import {module}", *commands, "")), encoding="utf-8")
        ran = _lean(runner, folder, "--json", str(file))
        if not ran.ok:
            return f"lean: {ran.explain(ASK_BOUNDS)}: {end_of(ran.output)}"
        # `set_option … in` is one command with what follows; its message may be placed at either.
        data = one_message(ran.output, file_name=file.name, lines=range(2, len(commands) + 2))
        return f"lean answered: {end_of(ran.output)}" if data is None else TypeText(data)
    finally:
        _remove(runner.project, folder)


def find_checker(runner: LakeRunner) -> Checker | str:
    """Return the kernel replay that is here: the toolchain's own, or the one that the project has built."""
    own = runner.program.parent / OWN_CHECKER
    if own.is_file():
        return Checker(OWN_CHECKER, own)
    built = (
        runner.project / ".lake" / "packages" / "lean4checker" / ".lake" / "build" / "bin" / "lean4checker"
    )
    if built.is_file():
        return Checker("lean4checker", built)
    return f"{own.parent} has no {OWN_CHECKER}, and the project no lean4checker among its packages"


def replay(runner: LakeRunner, checker: Checker, *, module: str) -> Outcome:
    """Have the kernel check every declaration of the built module again, in a fresh process."""
    asking = runner.with_(writable=(), environment={"LEAN_PATH": lean_path(runner.project)})
    return asking.execute((str(checker.program), module), bounds=ASK_BOUNDS)


def _lean(runner: LakeRunner, folder: Path, *arguments: str) -> Outcome:
    """Run lean by itself on what is built, with one folder to write into."""
    asking = runner.with_(writable=(folder,), environment={"LEAN_PATH": lean_path(runner.project)})
    return asking.execute((str(runner.program.with_name("lean")), *arguments), bounds=ASK_BOUNDS)


def _new_folder(project: Path) -> Path:
    folder = project / ".lake" / "unsorry" / secrets.token_hex(16)
    folder.mkdir(parents=True)
    if not _own(project, folder):
        folder.rmdir()
        raise SandboxError(f"{folder.parent} leads out of the worktree; a build has put a link there")
    return folder


def _own(project: Path, path: Path) -> bool:
    """Say whether it is there and is the worktree's: what lies behind a link out of it is somebody else's."""
    return path.exists() and path.resolve().is_relative_to(project.resolve())


def _remove(project: Path, folder: Path) -> None:
    if _own(project, folder):
        shutil.rmtree(folder)


def _write(file: Path, data: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(file)
