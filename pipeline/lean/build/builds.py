"""The cache of built commits: store a build, give it to a job's worktree, seed the next build with it.

What lies where is in `entries`. An entry appears by one rename. The daemon imports this module for `present`,
`usage` and `sweep`; nothing here runs Lean.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO

from pipeline.lean.build.entries import (
    BUILDS,
    DEPENDENCIES,
    NEW,
    SCHEMA,
    Build,
    all_builds,
    folder_of,
    hold,
    read_build,
    read_json,
    trees,
    write,
)
from pipeline.lean.build.settling import settle
from pipeline.lean.build.sources import Sources
from pipeline.lean.build.sweeping import Swept, Usage, sweep, usage
from pipeline.lean.build.trash import put_aside, remove_tree

__all__ = [
    "Attached",
    "Build",
    "BuildMissingError",
    "Swept",
    "Usage",
    "attach",
    "empty_lake",
    "hold_packages",
    "present",
    "seed",
    "store",
    "sweep",
    "usage",
]

_ROOTS = (("lib", "lean"), ("lib",), ("ir",))
"""Where in a build a module's files lie by its name; `lib/lean` since Lean 4.9, `lib` before."""


class BuildMissingError(Exception):
    """The cache has no build of this commit, or not the packages that it needs; the message says how to get one."""


class Attached:
    """A build in use. Until `close`, or the end of the process, no sweep removes it or its packages."""

    def __init__(self, build: Build, packages: Path | None, held: list[IO[bytes]]) -> None:
        self.build = build
        self.packages = packages
        """The folder of the fetched packages in the cache, which `.lake/packages` leads to; None without any."""
        self._held = held

    def close(self) -> None:
        for file in self._held:
            file.close()
        self._held.clear()

    def __enter__(self) -> Attached:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def attach(worktree: Path, cache: Path, repository: str, sha: str) -> Attached:
    """Give a worktree of the commit its compiled files and packages, and hold them.

    What `.lake` held in the worktree is removed first: the repository itself may have brought it. Its new content is a
    copy that the job may write (blocks are shared where the file system can), the packages are a link into the cache.

    Raises:
        BuildMissingError: there is none.
    """
    folder = folder_of(cache, repository, sha)
    held: list[IO[bytes]] = []
    try:
        build = read_build(folder) if hold(folder, held) else None
        if build is None:
            raise BuildMissingError(
                f"{repository} at {sha}: no build in {cache / BUILDS}; it is made by a build job, see `unsorry jobs`"
            )
        packages = hold_packages(cache, build.dependencies, held)
        for tree, stored in trees(build.nested):
            lake = empty_lake(worktree, tree)
            if (folder / stored).is_dir():
                _copy(folder / stored, lake / "build")
        if packages is not None:
            (worktree / ".lake" / "packages").symlink_to(packages)
    except BaseException:
        for file in held:
            file.close()
        raise
    return Attached(build, packages, held)


def hold_packages(cache: Path, key: str, held: list[IO[bytes]]) -> Path | None:
    """Hold the packages of a key for as long as the file that is added to `held` is open; None for the key "".

    Raises:
        BuildMissingError: they are not there.
    """
    if not key:
        return None
    folder = cache.absolute() / DEPENDENCIES / key
    if not hold(folder, held):
        raise BuildMissingError(
            f"{folder}: the packages are gone; `unsorry jobs retry` the build, and they are fetched"
        )
    return folder / "packages"


def store(cache: Path, worktree: Path, build: Build, sources: Sources) -> Build:
    """Move a worktree's compiled files into the cache; return the build with the bytes that it takes.

    Links and what is no file are left out: those who read here are not in a sandbox. An earlier build of the commit
    is replaced.
    """
    place = cache.absolute() / BUILDS
    place.mkdir(parents=True, exist_ok=True)
    temporary = place / f"{NEW}{uuid.uuid4().hex}"
    temporary.mkdir()
    try:
        with (temporary / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            taken = 0
            for tree, stored in trees(build.nested):
                source = worktree / tree / ".lake" / "build"
                if _is_own_folder(worktree, source):
                    target = temporary / stored
                    target.parent.mkdir(parents=True, exist_ok=True)
                    _move(source, target)
                    taken += settle(target, keep=False)
            done = dataclasses.replace(build, bytes=taken)
            write(temporary / "sources.json", dict(sources.hashes))
            write(temporary / "build.json", {"schema": SCHEMA, **asdict(done)})
            folder = folder_of(cache, build.repository, build.sha)
            folder.parent.mkdir(parents=True, exist_ok=True)
            put_aside(folder)
            temporary.rename(folder)
    finally:
        remove_tree(temporary)
    return done


def seed(
    worktree: Path, cache: Path, like: Build, sources: Sources, *, is_ancestor: Callable[[str], bool]
) -> str:
    """Copy what is still valid of the newest build of an ancestor into a worktree; return its sha, "" for none.

    Valid are the files of modules whose source and whose project's imports are byte for byte the same, with the same
    toolchain, packages and lakefile. So nothing stale can be left where the new build fails.

    A module that lake elaborates may write every compiled file of its commit, so a build is worth what all of its
    commit's code is. `is_ancestor` says of a sha whether this commit has it in its history: a branch that nobody has
    merged gives nothing to the others.
    """
    found = [
        (build, folder)
        for build, folder in all_builds(cache)
        if build.repository == like.repository
        and (build.toolchain, build.dependencies, build.lakefile, build.nested)
        == (like.toolchain, like.dependencies, like.lakefile, like.nested)
    ]
    for build, folder in sorted(found, key=lambda pair: pair[0].built_at, reverse=True):
        if not is_ancestor(build.sha):
            continue
        held: list[IO[bytes]] = []
        try:
            if not hold(folder, held):
                continue
            before = read_json(folder / "sources.json")
            same = {path for path, value in sources.hashes.items() if value and before.get(path) == value}
            for tree, stored in trees(build.nested):
                target = worktree / tree / ".lake" / "build"
                if (folder / stored).is_dir():
                    _copy(folder / stored, target)
                    _keep_only(target, tree, same, sources)
            return build.sha
        finally:
            for file in held:
                file.close()
    return ""


def present(cache: Path) -> set[tuple[str, str]]:
    """Return (repository, sha) of every build that a job could be given, packages included."""
    return {
        (build.repository, build.sha)
        for build, _ in all_builds(cache)
        if not build.dependencies or (cache / DEPENDENCIES / build.dependencies / "dependency.json").is_file()
    }


def empty_lake(worktree: Path, tree: str = "") -> Path:
    """Return an empty `.lake` of the worktree (or of a folder in it), whatever was there.

    Raises:
        BuildMissingError: the folder leads out of the worktree by a link.
    """
    lake = worktree / tree / ".lake"
    if not lake.parent.resolve().is_relative_to(worktree.resolve()):
        raise BuildMissingError(f"{lake}: leads out of the worktree; the worktree has to be made anew")
    if lake.is_symlink() or lake.is_file():
        lake.unlink()
    else:
        remove_tree(lake)
    lake.mkdir(parents=True)
    return lake


def _is_own_folder(worktree: Path, path: Path) -> bool:
    """Whether the path is a folder and no part of it below the worktree is a link."""
    return path.is_dir() and path.resolve() == worktree.resolve() / path.relative_to(worktree)


def _copy(source: Path, target: Path) -> None:
    """Copy a tree, sharing blocks where the file system can, never files: the copy will be written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["cp", "-a", "--reflink=auto", "--no-target-directory", "--", str(source), str(target)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", errors="replace").strip()
        raise OSError(f"{source}: cannot be copied to {target}: {said[-500:]}")


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError:  # another file system
        _copy(source, target)
        remove_tree(source)


def _keep_only(build: Path, tree: str, same: set[str], sources: Sources) -> None:
    """Remove from a build all that is not the compiled form of one of these source files."""
    for place, _, files in os.walk(build):
        for name in files:
            path = Path(place, name)
            if not _is_valid(path.relative_to(build).parts, tree, same, sources):
                path.unlink()


def _is_valid(parts: tuple[str, ...], tree: str, same: set[str], sources: Sources) -> bool:
    for root in _ROOTS:
        if parts[: len(root)] == root:
            *folders, name = parts[len(root) :]
            module = ".".join([*folders, name.partition(".")[0]])
            files = [path for path in sources.files_of(module) if not tree or path.startswith(f"{tree}/")]
            return bool(files) and all(path in same for path in files)
    return False
