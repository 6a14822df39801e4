"""Puts questions to the project's own Lean, by `Questions.lean`, and reads the answers.

`lean` alone answers each, in a process with one writable folder of a random name. The program is compiled once for each
Lean, and runs none of a module's initializers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.gate.answers import Answer, Constants, read_answer, read_constants
from pipeline.lean.build.lake import MOST_PROCESSES, Bounds, LakeRunner, Outcome
from pipeline.lean.client.process import built_folders, lean_path
from pipeline.lean.export import Name
from pipeline.lean.program_text import program_text
from pipeline.lean.sandbox.command import SandboxError
from store.text import end_of

_DISK_BYTES = 4 * 2**30
"""Bytes the runner's writable folders may grow by: it compiles or examines one file."""
ASK_BOUNDS = Bounds(timeout_s=600.0, processes=MOST_PROCESSES, disk_bytes=_DISK_BYTES)
QUESTIONS = Path(__file__).with_name("Questions.lean")
_COMPILED = "EverleanQuestions"
"""The module name of the compiled `Questions.lean`."""
_compiled: dict[tuple[object, ...], bytes] = {}
Scope = Literal["statement", "closure"]
"""An export's content: everything below the statement in its module, or everything below the proof."""
MOST_BYTES: Mapping[Scope, int] = {"statement": 256 * 2**20, "closure": 8 * 2**30}
"""The largest export of each, Mathlib's being 6 GB; a larger closure gets no second kernel."""
CLOSURE_BOUNDS = dataclasses.replace(
    ASK_BOUNDS, timeout_s=3600.0, disk_bytes=MOST_BYTES["closure"] + _DISK_BYTES
)
"""Of writing everything below a proof."""
MOST_ANSWER_BYTES = 256 * 2**20


@contextmanager
def asked_exactly(
    runner: LakeRunner,
    *,
    module: str,
    declaration: str,
    scope: Scope = "statement",
    trusted: Sequence[Path] = (),
) -> Iterator[tuple[Answer, Path] | str]:
    """Run `Questions.lean` on the built module; yield the answer and the export's file, or why there is no answer.

    `trusted` are folders of packages' modules nobody can have changed.

    Both are files in a new folder, writable by the question's process alone. They exist for the length of the block.
    """
    words = (
        module,
        declaration,
        str(runner.project / ".lake/build"),
        *(str(folder) for folder in (runner.library,) if folder is not None),
        *(str(one.absolute()) for one in built_folders(runner.project) if one.resolve() in trusted),
    )
    folder = new_folder(runner.project)
    try:
        path = search_path(runner)["LEAN_PATH"]
        asked = _ask(runner, folder, scope, MOST_BYTES[scope], *words, path=path)
        if isinstance(asked, str):
            yield asked
            return
        with asked.export.open(encoding="utf-8", newline="\n") as lines:
            read = read_answer(asked.answer, _whole(lines), nonce=asked.nonce, constant=declaration)
        yield read if isinstance(read, str) else (read, asked.export)
    except UnicodeDecodeError as error:
        yield f"{QUESTIONS.name}: the export is no UTF-8: {error}"
    finally:
        remove(runner.project, folder)


def ask_constants(
    runner: LakeRunner,
    *,
    folders: Sequence[Path],
    modules: Iterable[str],
    names: Sequence[Name],
    write: bool,
) -> Constants | str:
    """Return the names these modules declare, with `write` also their meaning; a text is the reason of a failure.

    The process finds the compiled modules of `folders` and nothing of the project.
    """
    if any("\0" in part for name in names for part in name):
        # Older Leans end a line there, and take what follows for the next one, or for the end of the file.
        return f"{QUESTIONS.name}: a name with a zero character cannot be asked about; name it otherwise"
    folder = new_folder(runner.project)
    try:
        asked_for = folder / "asked"
        kind = "write" if write else "constant"
        lines = [*(("module", one) for one in modules), *((kind, *name) for name in names)]
        asked_for.write_text("".join("\t".join(map(_escaped, line)) + "\n" for line in lines), "utf-8")
        path = ":".join(str(one.absolute()) for one in folders)
        alone = runner.with_(project=folder, readable=tuple(folders), mounts={})
        asked = _ask(alone, folder, "constants", MOST_BYTES["closure"], str(asked_for), path=path)
        if isinstance(asked, str):
            return asked
        with asked.export.open(encoding="utf-8", newline="\n") as text:
            return read_constants(asked.answer, _whole(text), nonce=asked.nonce, names=names)
    except UnicodeDecodeError as error:
        return f"{QUESTIONS.name}: the export is no UTF-8: {error}"
    finally:
        remove(runner.project, folder)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The text of an answer, the file of its export, and the question's mark."""

    answer: str
    export: Path
    nonce: str


def _ask(runner: LakeRunner, folder: Path, scope: str, most: int, *words: str, path: str) -> _Asked | str:
    """Run `Questions.lean` with these words in a folder of its own; a text is the reason of a failure.

    `most` is the largest export, `path` the search path for modules.
    """
    compiled = _questions(runner)
    if isinstance(compiled, str):
        return compiled
    script, answer, export = folder / "Ask.lean", folder / "answer", folder / "export.ndjson"
    (folder / f"{_COMPILED}.olean").write_bytes(compiled)
    script.write_text(f"import {_COMPILED}\ndef main := Questions.main\n", "utf-8")
    nonce = secrets.token_hex(16)
    bounds = ASK_BOUNDS if scope == "statement" else CLOSURE_BOUNDS
    given = ("--run", str(script), str(answer), str(export), nonce, scope, str(most), *words)
    ran = run_lean(runner, folder, *given, path=f"{folder}:{path}", bounds=bounds)
    if not ran.ok:
        return f"{QUESTIONS.name}: {ran.explain(bounds)}: {end_of(ran.output)}"
    for file, bound in ((answer, MOST_ANSWER_BYTES), (export, most)):
        if file.is_symlink() or not file.is_file():
            return f"{QUESTIONS.name} wrote no {file.stem}: {end_of(ran.output)}"
        if file.stat().st_size > bound:
            return f"{QUESTIONS.name}: an {file.stem} of {file.stat().st_size} bytes"
    try:
        return _Asked(answer.read_bytes().decode(), export, nonce)
    except UnicodeDecodeError as error:
        return f"{QUESTIONS.name}: the answer is no UTF-8: {error}"


def _questions(runner: LakeRunner) -> bytes | str:
    """Return `Questions.lean` compiled by the project's Lean; a text is the reason of a failure.

    Compiling takes seconds, so a process does it once for each Lean. The bytes are kept in memory, out of reach of any
    build of a project, and nothing of a project is on the search path.
    """
    lean, text = runner.program.with_name("lean"), program_text(QUESTIONS, "Nodes", "Printer")
    state = lean.stat() if lean.is_file() else None
    key = (lean, state and (state.st_ino, state.st_mtime_ns), hashlib.sha256(text).digest())
    if key not in _compiled:
        folder = new_folder(runner.project)
        try:
            script, output = folder / QUESTIONS.name, folder / f"{_COMPILED}.olean"
            script.write_bytes(text)
            alone = runner.with_(writable=(folder,), environment={})
            ran = alone.execute((str(lean), "-o", str(output), str(script)), bounds=ASK_BOUNDS)
            if not ran.ok or not output.is_file():
                return f"{QUESTIONS.name}: {ran.explain(ASK_BOUNDS)}: {end_of(ran.output)}"
            _compiled[key] = output.read_bytes()
        finally:
            remove(runner.project, folder)
    return _compiled[key]


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without their ends; a line cut off by the end of the file is marked, so it is no record."""
    for line in lines:
        yield line[:-1] if line.endswith("\n") else f"{line} (cut off)"


def ask_exactly(
    runner: LakeRunner, *, module: str, declaration: str, trusted: Sequence[Path] = ()
) -> Answer | str:
    """Return the answer about the built module; see `asked_exactly`."""
    with asked_exactly(runner, module=module, declaration=declaration, trusted=trusted) as found:
        return found if isinstance(found, str) else found[0]


def search_path(runner: LakeRunner) -> dict[str, str]:
    """Return the variable by which Lean finds the builds of the project and its packages."""
    return {"LEAN_PATH": lean_path(runner.project, library=runner.library)}


def _escaped(field: str) -> str:
    for text, escape in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        field = field.replace(text, escape)
    return field


def run_lean(
    runner: LakeRunner, folder: Path, *arguments: str, path: str, bounds: Bounds = ASK_BOUNDS
) -> Outcome:
    """Run lean by itself with this search path and one folder to write into."""
    asking = runner.with_(writable=(folder,), environment={"LEAN_PATH": path})
    return asking.execute((str(runner.program.with_name("lean")), *arguments), bounds=bounds)


def new_folder(project: Path) -> Path:
    folder = project / ".lake" / "everlean" / secrets.token_hex(16)
    folder.mkdir(parents=True)
    if not is_own(project, folder):
        folder.rmdir()
        raise SandboxError(f"{folder.parent} leads out of the worktree; a build has put a link there")
    return folder


def is_own(project: Path, path: Path) -> bool:
    """Return whether it exists inside the worktree: a link out of it leads to another project's files."""
    return path.exists() and path.resolve().is_relative_to(project.resolve())


def remove(project: Path, folder: Path) -> None:
    if is_own(project, folder):
        shutil.rmtree(folder)
