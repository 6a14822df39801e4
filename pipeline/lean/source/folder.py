"""The Lean files of a folder on this machine, scanned."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.lean.source.projects import LAKEFILES, LEAN_3
from pipeline.lean.source.scanner import scan_source
from store.domain.records import ScannedFile

SKIPPED_FOLDERS = frozenset({".git", ".lake"})


def scan_files(path: Path) -> list[ScannedFile]:
    """Scan a file, or each Lean file of a folder and those below it, in the order of their names."""
    return [_scan_one(file, name) for file, name in _lean_files(path)]


def lean_3_projects(path: Path) -> list[str]:
    """Return the files that make this folder, or one below it, a project of Lean 3, without a lakefile."""
    result = []
    for folder, folders, names in os.walk(path, followlinks=False):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        if LEAN_3 in names and not set(LAKEFILES).intersection(names):
            result.append(shown_path(Path(folder, LEAN_3).relative_to(path).as_posix()))
    return result


def _lean_files(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file with its name to show: relative to a folder, as given for a file; sorted."""
    if not path.is_dir():
        yield path, shown_path(str(path))
        return
    result = []
    for folder, folders, names in os.walk(path, followlinks=False):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        for name in names:
            file = Path(folder, name)
            # A symlinked file may lead out of the folder, or be a second name of a listed one.
            if name.endswith(".lean") and not file.is_symlink():
                result.append((file, shown_path(file.relative_to(path).as_posix())))
    yield from sorted(result, key=lambda pair: pair[1])


def _scan_one(file: Path, name: str) -> ScannedFile:
    try:
        data = file.read_bytes()
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}; check its permissions"
        return ScannedFile(path=name, error=reason, imports=(), declarations=(), sorries=())
    return scan_source(data, path=name)


def shown_path(path: str) -> str:
    """Return the path as text; file names are bytes, and � replaces those outside of UTF-8."""
    return os.fsencode(path).decode("utf-8", errors="replace")
