"""The Lake projects of a repository: folders with a lakefile, each with a toolchain and a manifest of its own.

Hidden folders are skipped, and packages that a project's manifest names by path belong to that project. A repository
without any lakefile counts as one project at its root, or as its projects of Lean 3 (`leanpkg.toml`): their toolchain
says so, and nothing here builds them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from pipeline.lean.source.manifest import MANIFEST, path_packages
from pipeline.lean.source.worktree import read_beginning, read_inside
from store.events.projects import Project, outside, plain_folder

LAKEFILES = ("lakefile.lean", "lakefile.toml")
TOOLCHAIN = "lean-toolchain"
LEAN_3 = "leanpkg.toml"
NAMES = frozenset({*LAKEFILES, TOOLCHAIN, MANIFEST, LEAN_3})
"""The files that show a repository's projects."""
MOST_PROJECTS = 100
MOST_TOOLCHAIN_BYTES = 1024
_OLD_PACKAGES = "lake-packages"
_LEAN_3_VERSION = re.compile(rb'^\s*lean_version\s*=\s*"([^"\n]{1,200})"', re.MULTILINE)


def find_projects(files: Mapping[str, str], read: Callable[[str], bytes]) -> tuple[Project, ...]:
    """Return the projects of a commit, by folder; of very many the least deep.

    Args:
        files: the blobs of the commit's files of these `NAMES`, by path.
        read: returns a blob's bytes, none if it is too large.
    """
    folders = {
        _folder(path)
        for path in files
        if PurePosixPath(path).name in LAKEFILES
        and plain_folder(_folder(path))
        and _OLD_PACKAGES not in PurePosixPath(path).parts
    }
    packages = {
        outside(name, folder)
        for folder in folders
        if (manifest := outside(MANIFEST, folder)) in files
        for name in path_packages(read(files[manifest]))
    }
    own = sorted(folders - packages, key=lambda folder: (len(PurePosixPath(folder).parts), folder))
    result = [] if own else _of_lean_3(files, read)
    for folder in own[:MOST_PROJECTS] or ([] if result else [""]):
        named = next((path for path in toolchain_files(folder) if path in files), None)
        manifest = outside(MANIFEST, folder)
        result.append(
            Project(
                folder=folder,
                toolchain="" if named is None else one_line_of(read(files[named])),
                manifest=files.get(manifest, ""),
            )
        )
    return tuple(sorted(result, key=lambda one: one.folder))


def _of_lean_3(files: Mapping[str, str], read: Callable[[str], bytes]) -> list[Project]:
    named = sorted(
        path for path in files if PurePosixPath(path).name == LEAN_3 and plain_folder(_folder(path))
    )
    return [
        Project(folder=_folder(path), toolchain=one_line_of(version.group(1)), manifest="")
        for path in named[:MOST_PROJECTS]
        if (version := _LEAN_3_VERSION.search(read(files[path])))
    ]


def toolchain_files(folder: str) -> Iterator[str]:
    """Yield the places of a project's `lean-toolchain`, as elan looks: its folder, then those above."""
    for one in (PurePosixPath(folder), *PurePosixPath(folder).parents):
        yield str(one / TOOLCHAIN)


def project_folder(worktree: Path, folder: str) -> Path:
    """Return a project's folder in a worktree, reached without any link.

    Raises:
        NotADirectoryError: it is none.
    """
    place = worktree / folder
    if folder and not (
        plain_folder(folder) and place.is_dir() and place.resolve() == worktree.resolve() / folder
    ):
        raise NotADirectoryError(20, "no folder, or behind a link", folder)
    return place


def worktree_of(project: Path, folder: str) -> Path:
    """Return the worktree of a project in this folder."""
    return project.parents[len(PurePosixPath(folder).parts) - 1] if folder else project


def toolchain_file(worktree: Path, folder: str) -> str:
    """Return the path of a project's `lean-toolchain` in a worktree, or the path that is missing at its root.

    A link is stored as a text with the path of its target (`core.symlinks`): mostly the next one above.
    """
    there = (one for one in toolchain_files(folder) if os.path.lexists(worktree / one))
    link = f"/{TOOLCHAIN}".encode()
    names = (one for one in there if not _beginning(worktree, one).endswith(link))
    return next(names, TOOLCHAIN)


def read_toolchain(worktree: Path, folder: str = "") -> tuple[str, bytes]:
    """Return the path of a project's `lean-toolchain` in a worktree, and its content.

    Raises:
        FileNotFoundError: it has none.
        OSError: it is not read (`pipeline.lean.source.worktree`).
    """
    path = toolchain_file(worktree, folder)
    return path, read_inside(worktree, path, most_bytes=MOST_TOOLCHAIN_BYTES)


def toolchain_text(worktree: Path, folder: str = "") -> str:
    """Return the beginning of a project's `lean-toolchain`, of any size and content; "" without a readable one."""
    return _beginning(worktree, toolchain_file(worktree, folder)).decode("utf-8", errors="replace").strip()


def _beginning(worktree: Path, path: str) -> bytes:
    return read_beginning(worktree, path, most_bytes=MOST_TOOLCHAIN_BYTES)


def one_line_of(data: bytes) -> str:
    """Return the text of a `lean-toolchain`; "" unless it is one line of text."""
    text = data.decode("utf-8", "replace").strip()
    return text if text.isprintable() else ""


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
