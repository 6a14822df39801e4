"""What two commits have beside the files that differ: the files of modules, those with a sorry, git's attributes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import PurePosixPath

from pipeline.jobs.mirror import Mirror, TreeFile
from pipeline.lean.source import attributes
from pipeline.lean.source.context import NOTATIONS
from pipeline.lean.source.imports import module_path
from pipeline.meaning import Side
from pipeline.versions import Version, version_of

MOST_READ = 300
"""Unchanged files with a sorry that are read, to say what proofs rest on."""


class Unchanged:
    """The trees of two commits; without the later one it is what is staged."""

    def __init__(self, mirror: Mirror, base: str, head: str | None) -> None:
        self._mirror, self._commits = mirror, (base, head)
        self._read: dict[str, Version] = {}

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
        found: tuple[dict[str, list[TreeFile]], dict[str, list[TreeFile]]] = ({}, {})
        for side, files in zip(found, self._files, strict=True):
            for path, item in files.items():
                if path.endswith(".lean") and item.readable:
                    side.setdefault(PurePosixPath(path).name, []).append(item)
        return found

    def module(self, side: Side, module: str) -> Version | None:
        """Return the file of a module of the project, by its name: its source folder is not asked for."""
        path = f"{module_path(module)}.lean"
        some = self._modules[side].get(PurePosixPath(path).name, ())
        file = next((item for item in some if f"/{item.path}".endswith(f"/{path}")), None)
        return None if file is None else self._version(file)

    def with_a_sorry(self, changed: Collection[str], *, macros: bool = False) -> Iterator[Version]:
        """Yield the unchanged files of the later commit that say sorry, `MOST_READ` of them at most.

        With `macros` only those that also say one of the words that give syntax a meaning.
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
