"""The full names that a project, its packages and its toolchain declare, by their last part, read without Lean."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.lean.source.scanner import scan_source
from pipeline.lean.source.worktree import MOST_SOURCE_BYTES

MOST_FILES = 20_000


def declared(project: Path, sysroot: str) -> dict[str, list[str]]:
    """Return the names, of at most so many files: the project's first, then its packages', then the toolchain's."""
    found: dict[str, dict[str, None]] = {}
    folders = [project, project / ".lake" / "packages"]
    if sysroot:
        folders.append(Path(sysroot) / "src" / "lean")
    files = (path for folder in folders for path in _files(folder))
    for _, path in zip(range(MOST_FILES), files, strict=False):
        try:
            if path.is_symlink() or path.stat().st_size > MOST_SOURCE_BYTES:
                continue
            scanned = scan_source(path.read_bytes(), path=path.name)
        except OSError:
            continue  # a name less to try
        for one in scanned.declarations:
            found.setdefault(one.name.rpartition(".")[2], {})[one.name] = None
    return {last: [*names] for last, names in found.items()}


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in (".lake", ".git"))
        yield from (Path(place, name) for name in sorted(files) if name.endswith(".lean"))
