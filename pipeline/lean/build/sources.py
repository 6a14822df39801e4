"""Hashes of a project's files: of each `.lean` file and of its import closure in the project.

If a file has the same hash in two commits, it has the same compiled module, toolchain, packages and lakefile being
equal. Reading imports off the text finds too many rather than too few (words in comments, files of equal names in
several folders), so that equal hashes are reliable.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipeline.lean.source.worktree import FileTooLargeError, StrangeFileError, read_inside

_MOST_BYTES = 256 * 2**20
_IMPORT = re.compile(rb"\bimport\s+(?:all\s+|runtime\s+)?([^\s/]+)")


@dataclass(frozen=True, slots=True)
class _Text:
    """The record of a file: its SHA-256 and its possible imports."""

    digest: bytes
    imports: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sources:
    """The project's `.lean` files by relative path: `hashes`, and direct `imports` (paths).

    A file in or above a circle of imports has the hash "", which equals no other.
    """

    hashes: Mapping[str, str]
    imports: Mapping[str, frozenset[str]]
    by_end: Mapping[str, frozenset[str]]
    """End of a path, from some folder on -> the paths with that end."""

    def files_of(self, module: str) -> frozenset[str]:
        """Return the files that may be this module's, by the end of their paths."""
        return self.by_end.get(_as_path(module), frozenset())

    def importers(self, modules: Iterable[str]) -> frozenset[str]:
        """Return the direct and indirect importers of these modules, with the modules' own files."""
        backwards: dict[str, set[str]] = defaultdict(set)
        for path, wanted in self.imports.items():
            for one in wanted:
                backwards[one].add(path)
        todo = [path for module in modules for path in self.files_of(module)]
        result = set(todo)
        while todo:
            new = backwards[todo.pop()] - result
            result |= new
            todo += new
        return frozenset(result)


def read_sources(project: Path) -> Sources:
    """Read every `.lean` file of the project outside of hidden folders; links are not followed."""
    read: dict[str, _Text] = {}
    for folder, folders, files in os.walk(project):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            relative = Path(folder, name).relative_to(project).as_posix()
            if name.endswith(".lean") and (text := _read(project, relative)) is not None:
                read[relative] = text
    by_end: dict[str, set[str]] = defaultdict(set)
    for relative in read:
        parts = PurePosixPath(relative).parts
        for start in range(len(parts)):
            by_end["/".join(parts[start:])].add(relative)
    ends = {end: frozenset(paths) for end, paths in by_end.items()}
    imports = {
        relative: frozenset(
            target for name in text.imports for target in ends.get(_as_path(name), ()) if target != relative
        )
        for relative, text in read.items()
    }
    digests = {relative: text.digest for relative, text in read.items()}
    return Sources(_hashes(digests, imports), imports, ends)


def _as_path(module: str) -> str:
    return module.replace("«", "").replace("»", "").replace(".", "/") + ".lean"


def _read(project: Path, relative: str) -> _Text | None:
    """Read one file and keep no text of it: a project's texts together may not fit into memory."""
    try:
        data = read_inside(project, relative, most_bytes=_MOST_BYTES)
    except FileTooLargeError:
        # Lean would read it, so it counts as a file, with a digest that equals no other.
        return _Text(os.urandom(32), frozenset())
    except StrangeFileError:
        return None
    names = frozenset(name.decode("utf-8", errors="replace") for name in _IMPORT.findall(data))
    return _Text(hashlib.sha256(data).digest(), names)


def _hashes(texts: Mapping[str, bytes], imports: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Hash each file after its imports; not by recursion, because chains of imports are long."""
    done: dict[str, str] = {}
    for start in texts:
        stack = [(start, iter(sorted(imports[start])))]
        entered = {start}
        while stack:
            path, rest = stack[-1]
            following = next((one for one in rest if one not in done and one not in entered), None)
            if following is not None:
                entered.add(following)
                stack.append((following, iter(sorted(imports[following]))))
                continue
            stack.pop()
            if path in done:
                continue
            parts = [(one, done.get(one, "")) for one in sorted(imports[path])]
            # An import not done yet imports this file too.
            circular = any(not value for _, value in parts)
            digest = hashlib.sha256(texts[path])
            for one, value in parts:
                digest.update(f"\0{one}\0{value}".encode())
            done[path] = "" if circular else digest.hexdigest()
    return done
