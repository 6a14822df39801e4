"""The Lean files of a worktree and of its dependencies: each module's file, its imports, and its key.

A file's key covers everything its trace depends on: its text, the toolchain of the project and that of the tracing Lean
(a project may name none), the manifest, the tracer, and the keys of the project's files it imports. So a changed file
has another key, as have all files that reach it by imports. Read off the folders; no lakefile is evaluated. Links are
not followed, except `.lake/packages` if the daemon itself made it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.lean.source.manifest import MANIFEST
from pipeline.lean.source.projects import toolchain_text
from pipeline.lean.source.scanner import parse
from pipeline.lean.source.worktree import MOST_SOURCE_BYTES, StrangeFileError, read_inside
from store.domain.identity import git_blob
from store.events.projects import outside

MOST_BYTES = MOST_SOURCE_BYTES
"""A larger file is a gap."""
PACKAGES = ".lake/packages"
CORE = f"{PACKAGES}/lean4/src/lean"
"""Where LeanDojo has Lean's own source."""
_HEADER_BYTES = 1024
_SKIPPED = frozenset({".git", ".lake", "lake-packages"})


@dataclass(frozen=True, slots=True)
class LeanFile:
    """A Lean file: its place, git's id of it, and the modules it imports. `problem`: the reason why it is unreadable.

    `file` is `name` below `root`, a folder of ours.
    """

    path: str
    root: Path
    name: str
    blob: str
    imports: tuple[str, ...]
    problem: str | None = None

    @property
    def file(self) -> Path:
        return self.root / self.name

    def data(self) -> bytes:
        return read_inside(self.root, self.name, most_bytes=MOST_BYTES)


class Tree:
    """A Lake project in a worktree: the one in this `folder`, without the projects below it.

    `lean` is the toolchain of the tracing Lean ("" if unknown), `core` the folder with Lean's own source, None if it is
    missing. Paths of its files are the repository's, those of dependencies begin with `.lake`.
    """

    def __init__(
        self,
        worktree: Path,
        *,
        sha: str,
        tracer: str,
        lean: str,
        core: Path | None,
        folder: str = "",
        without: Collection[str] = (),
    ) -> None:
        self._root = worktree / folder
        self._folder = folder
        self._without = frozenset(without)
        self._like = sha
        self._tracer = tracer
        self._lean = lean.strip()
        self.toolchain = toolchain_text(worktree, folder)
        self._manifest = _blob(self._root, MANIFEST, like=sha)
        self.files = {item.path: item for item in self._project()}
        self._by_name: dict[str, list[str]] = {}
        for path in sorted(self.files, key=lambda path: (path.count("/"), path)):
            self._by_name.setdefault(path.rpartition("/")[2], []).append(path)
        self._libraries = list(_libraries(self._root, core=core))
        self._dependencies: dict[str, LeanFile | None] = {}
        self._keys: dict[str, str] = {}

    def find(self, module: str) -> LeanFile | None:
        """Return the file of a module: the project's own, else a dependency's, else None."""
        relative = "/".join(part.strip("«»") for part in module.split(".")) + ".lean"
        if (own := outside(relative, self._folder)) in self.files:
            return self.files[own]
        # A library may have its sources in a folder of its own (`srcDir`); the least deep one is it.
        for path in self._by_name.get(relative.rpartition("/")[2], ()):
            if path.endswith("/" + relative):
                return self.files[path]
        if relative not in self._dependencies:
            self._dependencies[relative] = self._dependency(relative)
        return self._dependencies[relative]

    def imported(self, item: LeanFile) -> list[LeanFile]:
        """Return a file's direct imports, as far as their source is here. All import `Init`."""
        modules = item.imports if item.path.startswith(f"{CORE}/") else (*item.imports, "Init")
        result = (self.find(module) for module in modules)
        return list(
            {file.path: file for file in result if file is not None and file.path != item.path}.values()
        )

    def dependencies(self, meant: Callable[[str], bool]) -> list[LeanFile]:
        """Return the dependencies' files reached by the meant files of the project, by path."""
        result: dict[str, LeanFile] = {}
        seen: set[str] = set()
        todo = [item for item in self.files.values() if meant(item.path)]
        while todo:
            item = todo.pop()
            if item.path in seen:
                continue
            seen.add(item.path)
            if item.path not in self.files:
                result[item.path] = item
            todo += self.imported(item)
        return [result[path] for path in sorted(result)]

    def key(self, item: LeanFile) -> str:
        """Return the key of a file. In a circle of imports each file's key covers all the others' texts."""
        if item.path not in self.files:
            return _digest("dependency", self._tracer, item.path, item.blob)
        stack = [(item, iter(self._own_imports(item)))]
        waiting = {item.path}
        while stack:
            file, rest = stack[-1]
            following = next(
                (one for one in rest if one.path not in self._keys and one.path not in waiting), None
            )
            if following is not None:
                waiting.add(following.path)
                stack.append((following, iter(self._own_imports(following))))
                continue
            stack.pop()
            # An unfinished one is represented by its text; Lean refuses such a circle anyway.
            below = sorted(
                self._keys.get(one.path, f"circle {one.path} {one.blob}") for one in self._own_imports(file)
            )
            self._keys[file.path] = _digest(
                "project",
                self._tracer,
                self.toolchain,
                self._lean,
                self._manifest,
                file.path,
                file.blob,
                *below,
            )
        return self._keys[item.path]

    def _own_imports(self, item: LeanFile) -> list[LeanFile]:
        return [file for file in self.imported(item) if file.path in self.files]

    def _project(self) -> Iterator[LeanFile]:
        for folder, names, files in os.walk(self._root):
            inside = Path(folder)
            top = inside == self._root
            names[:] = sorted(
                name
                for name in names
                if not (top and name in _SKIPPED)
                and not (inside / name).is_symlink()
                and (inside / name).relative_to(self._root).as_posix() not in self._without
            )
            for name in sorted(files):
                file = inside / name
                if name.endswith(".lean") and stat.S_ISREG(file.lstat().st_mode):
                    name = file.relative_to(self._root).as_posix()
                    yield self._read(self._root, name, outside(name, self._folder))

    def _dependency(self, relative: str) -> LeanFile | None:
        for folder, shown in self._libraries:
            try:
                # A package may keep its sources behind a link of its own; its target is then read.
                result = (folder / relative).resolve().relative_to(folder.resolve()).as_posix()
                if (folder / result).is_file():
                    return self._read(folder.resolve(), result, f"{shown}/{relative}")
            except (OSError, ValueError):
                continue  # it leads out, is in a circle, or is longer than any name
        return None

    def _read(self, root: Path, name: str, path: str) -> LeanFile:
        try:
            path.encode()
            data = read_inside(root, name, most_bytes=MOST_BYTES)
        except UnicodeEncodeError:
            shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            return LeanFile(shown, root, name, "name", (), "the file's name is not valid UTF-8")
        except StrangeFileError as error:
            return LeanFile(path, root, name, f"strange {error.strerror}", (), error.strerror)
        except OSError as error:
            return LeanFile(path, root, name, f"error {error.errno}", (), f"cannot be read: {error.strerror}")
        problem = None
        try:
            data.decode()
        except UnicodeDecodeError as error:
            problem = f"byte {error.start} is not valid UTF-8"
        return LeanFile(path, root, name, git_blob(data, like=self._like), header_imports(data), problem)


def header_imports(data: bytes) -> tuple[str, ...]:
    """Return the modules imported by a file, reading only its beginning."""
    size = _HEADER_BYTES
    while size < len(data):
        result = parse(data[:size])
        # Once a command follows the header and is not the last, which may be cut, the imports are complete.
        if len(result.commands) > 1:
            return result.imports
        size *= 4
    return parse(data).imports


def _libraries(worktree: Path, *, core: Path | None) -> Iterator[tuple[Path, str]]:
    """Yield the folders of dependencies' modules, and their names in a trace."""
    if core is not None:
        yield core, CORE
    packages = worktree / PACKAGES
    if (worktree / ".lake").is_symlink() or not packages.is_dir():
        return
    for package in sorted(packages.iterdir()):
        if package.is_dir() and not package.is_symlink():
            yield package, f"{PACKAGES}/{package.name}"
            if (package / "src").is_dir():
                yield package / "src", f"{PACKAGES}/{package.name}/src"


def _blob(root: Path, name: str, *, like: str) -> str:
    try:
        return git_blob(read_inside(root, name), like=like)
    except OSError:
        return ""  # missing or not a manifest: such a project was not built either


def _digest(*fields: str) -> str:
    return hashlib.sha256("\x1f".join(fields).encode("utf-8", "backslashreplace")).hexdigest()
