"""Resolve the imports of a file: files of the project, directly or not, and libraries.

Read off the text: a module with a file in one of the project's source folders is its own, any other a library's.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.lean.source.manifest import MANIFEST, path_packages
from pipeline.lean.source.scanner import SourceFile, parse
from pipeline.lean.source.worktree import read_inside

MAX_FILES = 5000
MOST_LAKEFILE_BYTES = 32 * 2**10
_KEY = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"""(?<![\w.-]){_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{100}}""")
_SOURCE_FOLDER = re.compile(r'\bsrcDir\s*:=\s*"([^"]+)"')
_OPTION = re.compile(r"[⟨{]\s*`([\w.]+)\s*,\s*\.?(?:ofNat )?(true|false|\d+)\s*[⟩}]")
_OPTION_NAME = re.compile(r"\w+(?:\.\w+)*")
_PART = re.compile(r"«[^»]*»|[^.«»]+")
CORE = frozenset({"Init", "Std", "Lean", "Lake"})


@dataclass(frozen=True, slots=True)
class Imported:
    """An imported file of the project."""

    module: str
    data: bytes
    source: SourceFile


@dataclass(frozen=True, slots=True)
class Closure:
    """The import closure. `outside` are the modules without a file here."""

    files: tuple[Imported, ...]
    outside: frozenset[str]
    complete: bool

    @property
    def core_only(self) -> bool:
        """Return whether all imports come with Lean itself."""
        return self.complete and {name.split(".")[0] for name in self.outside} <= CORE


def read_lakefile_toml(text: str) -> dict[str, Any]:
    """Parse a lakefile.toml, which is a stranger's.

    Raises:
        ValueError: it is no TOML, or could take minutes: `tomllib` takes time by the square of the parts of a key.
    """
    if len(text.encode()) > MOST_LAKEFILE_BYTES:
        raise ValueError(f"more than {MOST_LAKEFILE_BYTES} bytes")
    if _LONG_KEY.search(text):
        raise ValueError("a key of more than 100 parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("arrays or tables too deep inside each other") from error


def _tables(lakefile: dict[str, Any], *names: str) -> Iterator[dict[str, Any]]:
    for name in names:
        result = lakefile.get(name)
        yield from (one for one in result if isinstance(one, dict)) if isinstance(result, list) else ()


def source_folders(project: Path) -> tuple[str, ...]:
    """Return the folders of the project's modules, as its lakefile has them (`srcDir`); "" is its root.

    A lakefile in Lean is a program: a `srcDir := "…"` in its text is seen, a computed one is not.
    """
    result = {""}
    with suppress(OSError, ValueError):
        table = read_lakefile_toml(read_inside(project, "lakefile.toml").decode())
        base = table.get("srcDir", "")
        for one in (table, *_tables(table, "lean_lib", "lean_exe")):
            result.add(str(PurePosixPath(str(base), str(one.get("srcDir", "")) if one is not table else "")))
    with suppress(OSError, ValueError):
        result.update(_SOURCE_FOLDER.findall(read_inside(project, "lakefile.lean").decode()))
    return tuple(
        sorted({one.strip("/").removeprefix("./") for one in result if one != "."}, key=len, reverse=True)
    )


def lean_options(project: Path) -> tuple[str, ...]:
    """Return the lakefile's options for elaborating every file, as `name=value`.

    Those of its libraries hold too. A lakefile in Lean is a program: only options listed in its text are seen.
    """
    result: dict[str, str] = {}
    with suppress(OSError, ValueError):
        table = read_lakefile_toml(read_inside(project, "lakefile.toml").decode())
        for one in (table, *_tables(table, "lean_lib")):
            options = one.get("leanOptions")
            result.update(_flat(options if isinstance(options, Mapping) else {}))
    with suppress(OSError, ValueError):
        result.update(_OPTION.findall(read_inside(project, "lakefile.lean").decode()))
    return tuple(f"{name}={value}" for name, value in result.items() if _OPTION_NAME.fullmatch(name))


def _flat(options: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield options by their whole names: TOML takes the dots of a bare key for tables."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, bool):
            yield f"{before}{name}", str(value).lower()
        elif isinstance(value, int | str):
            yield f"{before}{name}", str(value)


def module_of(path: str, folders: Iterable[str] = ("",)) -> str:
    """Return the module of a file: `Demo/Logic.lean` is `Demo.Logic`, and `src/A.lean` is `A` below a folder `src`."""
    folder = next((one for one in folders if one and path.startswith(f"{one}/")), "")
    parts = path.removeprefix(f"{folder}/" if folder else "").removesuffix(".lean").split("/")
    return ".".join(part if re.fullmatch(r"[^\W\d][\w'!?]*", part) else f"«{part}»" for part in parts)


def module_path(module: str) -> PurePosixPath:
    """Return a module's place below its source folder, without its ending; quotes are no part of a file's name."""
    return PurePosixPath(*(part.strip("«»") for part in _PART.findall(module)))


def compiled_file(folder: Path, module: str) -> Path:
    """Return the place of a module's compiled file in a folder of these."""
    return folder / f"{module_path(module)}.olean"


def local_file(project: Path, module: str) -> Path | None:
    """Return the module's file if the project has one, and not by a link out of the project."""
    return next(_files_of(project, module, source_folders(project)), None)


def _files_of(project: Path, module: str, folders: Iterable[str]) -> Iterator[Path]:
    root = project.resolve()
    for folder in folders:
        try:
            file = Path(project, folder, f"{module_path(module)}.lean")
            if file.is_file() and file.resolve().is_relative_to(root):
                yield file
        except (OSError, ValueError):
            continue  # longer than any file's name, or no name at all


def _all_source_folders(project: Path) -> list[str]:
    """Return the source folders of the project and of the packages that are part of it."""
    result = list(source_folders(project))
    with suppress(OSError):
        for package in path_packages(read_inside(project, MANIFEST)):
            result += (str(PurePosixPath(package, one)) for one in source_folders(project / package))
    return list(dict.fromkeys(result))


def closure(project: Path, imports: Iterable[str]) -> Closure:
    """Follow imports through the project's files, each that a module may be: its lakefile decides which one is."""
    todo = list(dict.fromkeys(imports))
    seen = set(todo)
    files: list[Imported] = []
    outside: set[str] = set()
    unread = False
    folders = _all_source_folders(project)
    while todo and len(files) < MAX_FILES:
        module = todo.pop()
        found = list(_files_of(project, module, folders))
        if not found:
            outside.add(module)
        for file in found:
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
    return Closure(tuple(files), frozenset(outside), complete=not (todo or unread))
