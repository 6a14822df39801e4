"""What lies in the cache of builds: entries, their descriptions and their locks.

    <cache>/builds/<repository>/<sha>/build.json      what it is (`Build`)
                                      build/          the project's `.lake/build`
                                      nested/<dir>/   the same of packages that are folders of the project
                                      sources.json    hash of each source file with its imports (`sources`)
                                      lock            held shared (flock) by every job that uses the build
    <cache>/dependencies/<key>/                       see `dependencies`; the same lock

The time of `lock` is that of the last use. Locks belong to processes: a job that dies gives them back. What is done
with entries is in `builds` (store, attach, seed) and `sweeping` (remove).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

BUILDS = "builds"
DEPENDENCIES = "dependencies"
NEW = ".new-"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Build:
    """What a stored build is. `dependencies` is a key or ""; `lakefile` the hash of the project's lakefile.

    `nested` are the folders of the project that are packages of their own. `built_at` is seconds since 1970.
    """

    repository: str
    sha: str
    toolchain: str
    dependencies: str
    lakefile: str
    modules_failed: tuple[str, ...]
    nested: tuple[str, ...]
    bytes: int
    seconds: float
    built_at: float


def read_build(folder: Path) -> Build | None:
    """Return what lies in a folder of the cache, None where it is not a whole build of this version."""
    raw = read_json(folder / "build.json")
    try:
        if raw.pop("schema") != SCHEMA:
            return None
        return Build(
            **{**raw, "modules_failed": tuple(raw["modules_failed"]), "nested": tuple(raw["nested"])}
        )
    except (KeyError, TypeError):
        return None


def all_builds(cache: Path) -> Iterator[tuple[Build, Path]]:
    """Yield every whole build and its folder."""
    for folder in folders(cache / BUILDS, depth=2):
        if (build := read_build(folder)) is not None:
            yield build, folder


def folders(place: Path, *, depth: int) -> list[Path]:
    """Return the entries so many levels below a folder; hidden ones are not entries yet, or no more."""
    try:
        inside = [path for path in place.iterdir() if not path.name.startswith(".") and path.is_dir()]
    except FileNotFoundError:
        return []
    return inside if depth == 1 else [below for path in inside for below in folders(path, depth=depth - 1)]


def folder_of(cache: Path, repository: str, sha: str) -> Path:
    """Return where a commit's build is or would be."""
    slug = "+".join(quote(part, safe="") for part in repository.split("/"))
    return cache.absolute() / BUILDS / slug / sha


def last_use(folder: Path) -> float:
    """Return when an entry was last used, in seconds since 1970; 0 for one that never was whole."""
    try:
        return (folder / "lock").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def trees(nested: Collection[str]) -> list[tuple[str, str]]:
    """Return (folder of the project, where its compiled files are in an entry)."""
    return [("", "build"), *((one, f"nested/{quote(one, safe='')}") for one in nested)]


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object's content, empty where there is none to be read."""
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}


def write(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON object and have it on the disk. Names of files that are no text come back as they were."""
    with path.open("w", encoding="ascii") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())


def hold(folder: Path, held: list[IO[bytes]]) -> bool:
    """Take an entry's lock, shared, and note the use; False where the entry is not there (any more)."""
    lock = folder / "lock"
    try:
        file = lock.open("rb")
    except FileNotFoundError:
        return False
    fcntl.flock(file, fcntl.LOCK_SH)  # a sweep holds it for the length of a rename
    try:
        there = lock.stat().st_ino == os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        there = False
    if not there:
        file.close()
        return False
    os.utime(file.fileno())
    held.append(file)
    return True


@contextmanager
def alone(lock: Path) -> Iterator[bool]:
    """Hold a lock that nobody else holds; yields False where somebody does. A missing lock is nobody's."""
    try:
        file = lock.open("rb")
    except FileNotFoundError:
        yield True
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
