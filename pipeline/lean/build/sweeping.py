"""Keep the cache of builds within its limit: what is used longest ago goes first, what is in use never.

Standard library only: the daemon calls it. An entry vanishes by one rename, so a sweep that is killed leaves nothing
half there; the next one clears up.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pipeline.lean.build.entries import (
    BUILDS,
    DEPENDENCIES,
    NEW,
    Build,
    alone,
    folders,
    last_use,
    read_build,
    read_json,
)
from pipeline.lean.build.trash import TRASH, put_aside, remove_tree

_FORSAKEN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What the cache takes: bytes and number of entries."""

    bytes: int
    builds: int
    dependencies: int


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed and what is left. `kept_in_use` is how many had to stay although it was their turn."""

    removed_builds: tuple[tuple[str, str], ...]
    removed_dependencies: tuple[str, ...]
    freed_bytes: int
    left_bytes: int
    kept_in_use: int


def usage(cache: Path) -> Usage:
    """Return what the builds and packages take, by what was measured when they were stored."""
    entries = _entries(cache)
    return Usage(
        sum(entry.bytes for entry in entries),
        sum(not entry.key for entry in entries),
        sum(bool(entry.key) for entry in entries),
    )


def sweep(cache: Path, limit_bytes: int, in_use: Collection[tuple[str, str]] = ()) -> Swept:
    """Remove what was left unfinished, then builds and packages by last use until the rest fits the limit.

    Nothing that a process holds is removed, and nothing of the commits `in_use` (jobs that are about to start) with
    their packages. Builds whose packages go, go with them.
    """
    _remove_leftovers(cache)
    entries = sorted(_entries(cache), key=lambda entry: entry.last_use)
    wanted = set(in_use)
    needed = {entry.build.dependencies for entry in entries if entry.build and entry.commit in wanted}
    left = sum(entry.bytes for entry in entries)
    total = left
    builds: list[tuple[str, str]] = []
    keys: list[str] = []
    kept = 0
    gone: set[Path] = set()
    for entry in entries:
        if left <= limit_bytes and not entry.broken:
            continue
        if entry.folder in gone:
            continue
        dependents = [
            one for one in entries if entry.key and one.build and one.build.dependencies == entry.key
        ]
        protected = entry.commit in wanted or entry.key in needed
        alive = [one for one in dependents if one.folder not in gone]
        if protected or not _remove_unless_held(entry.folder, [one.folder for one in alive]):
            kept += 1
            continue
        for one in (entry, *alive):
            gone.add(one.folder)
            left -= one.bytes
            if one.key:
                keys.append(one.key)
            elif one.build:
                builds.append(one.commit)
    return Swept(tuple(builds), tuple(keys), total - left, left, kept)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A build, or with `key` a folder of packages. `broken`: it does not say what it is."""

    folder: Path
    key: str
    build: Build | None
    bytes: int
    last_use: float

    @property
    def broken(self) -> bool:
        return self.build is None and not (self.key and (self.folder / "dependency.json").is_file())

    @property
    def commit(self) -> tuple[str, str]:
        return (self.build.repository, self.build.sha) if self.build else ("", "")


def _entries(cache: Path) -> list[_Entry]:
    found = []
    for folder in folders(cache / BUILDS, depth=2):
        build = read_build(folder)
        found.append(_Entry(folder, "", build, build.bytes if build else 0, last_use(folder)))
    for folder in folders(cache / DEPENDENCIES, depth=1):
        size = read_json(folder / "dependency.json").get("bytes", 0)
        found.append(
            _Entry(folder, folder.name, None, size if isinstance(size, int) else 0, last_use(folder))
        )
    return found


def _remove_unless_held(folder: Path, dependents: list[Path]) -> bool:
    """Take an entry and its dependents away, or nothing where one of them is in use."""
    with ExitStack() as locks:
        if not all(locks.enter_context(alone(one / "lock")) for one in (*dependents, folder)):
            return False
        for one in (*dependents, folder):
            put_aside(one)
        return True


def _remove_leftovers(cache: Path) -> None:
    for place in (cache / BUILDS, cache / DEPENDENCIES):
        if not place.is_dir():
            continue
        for path in (*place.glob(f"{TRASH}*"), *(place.glob(f"*/{TRASH}*") if place.name == BUILDS else ())):
            remove_tree(path)
        for path in place.glob(f"{NEW}*"):
            own = path / "lock" if place.name == BUILDS else place / f".{path.name.removeprefix(NEW)}.lock"
            young = not own.exists() and time.time() - path.stat().st_mtime < _FORSAKEN_S
            with alone(own) as free:
                if free and not young:
                    remove_tree(path)
