"""Access to files shared by two commits: by module, by a sorry in them, and git's attributes."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import PurePosixPath

from pipeline.jobs.mirror import Mirror, TreeFile
from pipeline.jobs.protocol import JobError
from pipeline.jobs.version import content
from pipeline.lean.source import attributes
from pipeline.lean.source.commands import imports_of
from pipeline.lean.source.context import NOTATIONS
from pipeline.lean.source.imports import module_path
from pipeline.meaning import Beside, Side
from pipeline.versions import Version, version_of

MOST_FILES = 5000
"""Maximum of a project's Lean files for following imports."""
MOST_READ = 300
"""Maximum of unchanged files read for one question: the basis of proofs, or the way from a statement to a change."""
MOST_NAMES = 200
"""Maximum of names looked for at once."""


class Unchanged(Beside):
    """The trees of two commits; without the later one, the staged files."""

    def __init__(self, mirror: Mirror, base: str, head: str | None) -> None:
        self._mirror, self._commits = mirror, (base, head)
        self._read: dict[str, Version] = {}
        self._header: dict[str, tuple[str, ...]] = {}
        self._imported: dict[tuple[Side, str], Collection[str] | None] = {}

    @cached_property
    def _files(self) -> tuple[dict[str, TreeFile], dict[str, TreeFile]]:
        base, head = self._commits
        listed = [
            {
                item.path: item
                for item in (self._mirror.staged_files() if sha is None else self._mirror.files(sha))
            }
            for sha in (base, head)
        ]
        return listed[0], listed[1]

    @cached_property
    def _modules(self) -> tuple[dict[str, list[TreeFile]], dict[str, list[TreeFile]]]:
        result: tuple[dict[str, list[TreeFile]], dict[str, list[TreeFile]]] = ({}, {})
        for side, files in zip(result, self._files, strict=True):
            for path, item in files.items():
                if path.endswith(".lean") and item.readable:
                    side.setdefault(PurePosixPath(path).name, []).append(item)
        return result

    def module(self, side: Side, module: str) -> Version | None:
        """Return the file of a module of the project, by its name: its source folder is not asked for."""
        file = next(iter(self._of_module(side, module)), None)
        return None if file is None else self._version(file)

    def _of_module(self, side: Side, module: str) -> list[TreeFile]:
        path = f"{module_path(module)}.lean"
        some = self._modules[side].get(PurePosixPath(path).name, ())
        return [item for item in some if f"/{item.path}".endswith(f"/{path}")]

    def imported(self, side: Side, path: str) -> Collection[str] | None:
        """Return the files that a file imports on a side, directly or not.

        None if one of them is missing here, or the project has more than `MOST_FILES`.
        """
        if sum(map(len, self._modules[side].values())) > MOST_FILES:
            return None
        key = side, path
        if key not in self._imported:
            try:
                self._imported[key] = self._closure(side, path)
            except JobError as error:
                if error.reason != "object_missing":
                    raise
                self._imported[key] = None
        return self._imported[key]

    def _closure(self, side: Side, path: str) -> set[str]:
        files = self._files[side]
        todo, seen = [path], {path}
        while todo:
            item = files.get(todo.pop())
            for module in () if item is None else self._imports(item):
                new = [one.path for one in self._of_module(side, module) if one.path not in seen]
                seen.update(new)
                todo += new
        return seen

    def _imports(self, item: TreeFile) -> tuple[str, ...]:
        if item.blob not in self._header:
            data = content(self._mirror, item) if item.readable else b""
            text = "" if isinstance(data, str) else data.decode("utf-8", "replace")
            self._header[item.blob] = imports_of(text)
        return self._header[item.blob]

    def saying(self, names: Collection[str], among: Collection[str]) -> Iterator[Version]:
        """Yield those of these files that are the same in both commits and have one of the names.

        At most `MOST_READ` files are read, and `MOST_NAMES` names looked for.
        """
        old, new = self._files
        paths = self._mirror.saying(sorted(names)[:MOST_NAMES], self._commits[1])
        same = (path for path in paths if path in among and path in new and old.get(path) == new[path])
        for path in itertools.islice(same, MOST_READ):
            yield self._version(new[path])

    def with_a_sorry(self, changed: Collection[str], *, macros: bool = False) -> Iterator[Version]:
        """Yield the later commit's unchanged files with a sorry, at most `MOST_READ`.

        With `macros`, only those that also have a word defining syntax.
        """
        files = self._files[1]
        paths = [path for path in self._mirror.saying(("sorry",), self._commits[1]) if path.endswith(".lean")]
        if macros and paths:
            having = set(self._mirror.saying(sorted(NOTATIONS), self._commits[1]))
            paths = [path for path in paths if path in having]
        for path in [path for path in paths if path in files and path not in changed][:MOST_READ]:
            yield self._version(files[path])

    def attributes(self) -> Iterator[tuple[str, str]]:
        """Yield the `.gitattributes` of the later commit: path and text."""
        for path, item in sorted(self._files[1].items()):
            if PurePosixPath(path).name == attributes.NAME:
                data = self._mirror.read(item.blob, most_bytes=attributes.MOST_BYTES)
                if isinstance(data, bytes):
                    yield path, data.decode("utf-8", "replace")

    def _version(self, item: TreeFile) -> Version:
        if item.blob not in self._read:
            self._read[item.blob] = version_of(self._mirror, item)
        return self._read[item.blob]
