"""Resolve the imports of a file: files of the project, directly or not, and libraries.

Read off the text: a module that is a file under the project's root is the project's own, any other a library's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.lean.source.scanner import SourceFile, parse
from pipeline.lean.source.worktree import read_inside

MAX_FILES = 5000
CORE = frozenset({"Init", "Std", "Lean", "Lake"})


@dataclass(frozen=True, slots=True)
class Imported:
    """A file of the project that is imported."""

    module: str
    data: bytes
    source: SourceFile


@dataclass(frozen=True, slots=True)
class Closure:
    """The import closure. `libraries` are the first parts of the names that are no files here."""

    files: tuple[Imported, ...]
    libraries: frozenset[str]
    complete: bool

    @property
    def core_only(self) -> bool:
        """Return whether nothing but what comes with Lean itself is imported."""
        return self.complete and self.libraries <= CORE


def local_file(project: Path, module: str) -> Path | None:
    """Return the module's file if the project has one, and not by a link that leads out of it."""
    try:
        file = project.joinpath(*module.split(".")).with_suffix(".lean")
        inside = file.is_file() and file.resolve().is_relative_to(project.resolve())
    except (OSError, ValueError):
        return None  # longer than any file's name, or no name at all
    return file if inside else None


def closure(project: Path, imports: Iterable[str]) -> Closure:
    """Follow imports through the project's files."""
    todo = list(dict.fromkeys(imports))
    seen = set(todo)
    files: list[Imported] = []
    libraries: set[str] = set()
    unread = False
    while todo and len(files) < MAX_FILES:
        module = todo.pop()
        file = local_file(project, module)
        if file is None:
            libraries.add(module.split(".")[0])
            continue
        try:
            data = read_inside(file.resolve().parent, file.resolve().name)
        except OSError:
            unread = True
            continue
        source = parse(data)
        files.append(Imported(module, data, source))
        new = [name for name in source.imports if name not in seen]
        seen.update(new)
        todo += new
    return Closure(tuple(files), frozenset(libraries), complete=not (todo or unread))
