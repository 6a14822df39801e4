"""The cache of built commits: store a build, attach it to a job's worktree, seed the next build, stay within a limit.

    <cache>/builds/<repository>/<sha>/build.json      description (`Build`)
                                      build/          the project's `.lake/build`
                                      nested/<dir>/   the same of packages that are folders of the project
                                      sources.json    hash of each source file with its imports (`sources`)
                                      lock            held shared (flock) by every job that uses the build
    <cache>/builds/<repository>/<sha>-<hash>/         the same of a Lake project below the root, by its folder
    <cache>/dependencies/<key>/                       see `dependencies`; the same lock

An entry appears and vanishes by one rename. The modification time of `lock` is the time of the last use. Locks belong
to processes, so a job that dies releases them. Nothing here runs Lean; the daemon imports this module for `present`,
`usage` and `sweep`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import quote

from pipeline.lean.build.sources import Sources
from pipeline.lean.build.trees import copy_tree, remove_tree
from pipeline.lean.sandbox.bounded import taken_by
from pipeline.lean.source.projects import project_folder
from store.domain.identity import short_hash, slug
from store.files import HeldError, Lock, lock, sync

# ---- entries


BUILDS = "builds"
DEPENDENCIES = "dependencies"
CONSTANTS = "constants"
"""The meaning of Lean's own constants (`pipeline.gate.vouched`): small files, made anew when missing."""
_CONSTANTS_S = 90 * 86400.0
NEW = ".new-"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Build:
    """The identity of a stored build. `dependencies` is a key or ""; `lakefile` the hash of the project's lakefile.

    `project` is the project's folder in the repository; `nested` are its folders that are packages themselves.
    `built_at` is seconds since 1970.
    """

    repository: str
    sha: str
    project: str
    toolchain: str
    dependencies: str
    lakefile: str
    modules_failed: tuple[str, ...]
    nested: tuple[str, ...]
    bytes: int
    seconds: float
    built_at: float

    @property
    def key(self) -> BuildKey:
        return BuildKey(self.repository, self.sha, self.project)


class BuildKey(NamedTuple):
    """The subject of a build: a commit, and the folder of a Lake project in it ("" is the root)."""

    repository: str
    sha: str
    project: str = ""


def read_build(folder: Path) -> Build | None:
    """Return the build in a folder of the cache; None for an unfinished one, or another version's."""
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
    """Return the entries `depth` levels below a folder, without hidden ones, which are unfinished or removed."""
    try:
        inside = [path for path in place.iterdir() if not path.name.startswith(".") and path.is_dir()]
    except FileNotFoundError:
        return []
    return inside if depth == 1 else [below for path in inside for below in folders(path, depth=depth - 1)]


def folder_of(cache: Path, key: BuildKey) -> Path:
    """Return a build's folder, whether it exists or not."""
    name = f"{key.sha}-{short_hash('project', key.project)}" if key.project else key.sha
    return cache.absolute() / BUILDS / slug(key.repository) / name


def last_use(folder: Path) -> float:
    """Return the time of an entry's last use, in seconds since 1970; 0 for an entry never whole."""
    try:
        return (folder / "lock").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def trees(nested: Collection[str]) -> list[tuple[str, str]]:
    """Return pairs of a folder of the project and the place of its compiled files in an entry."""
    return [("", "build"), *((one, f"nested/{quote(one, safe='')}") for one in nested)]


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object's content, empty if it cannot be read."""
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}


def write(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON object and have it on the disk. Names of files that are no text come back as they were."""
    path.write_text(json.dumps(content), encoding="ascii")
    sync(path)


def hold(folder: Path, held: list[Lock]) -> bool:
    """Acquire an entry's lock, shared, and note the use; False if the entry is gone."""
    try:
        # A sweep holds it during a rename.
        one = lock(folder / "lock", shared=True, create=False)
    except FileNotFoundError:
        return False
    if not one.is_of(folder / "lock"):
        one.release()
        return False
    os.utime(one.descriptor)
    held.append(one)
    return True


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Hold a lock exclusively; yields False if someone else holds it. A missing lock is held by no one."""
    with ExitStack() as stack:
        try:
            stack.enter_context(lock(path, wait_s=0, create=False))
        except FileNotFoundError:
            pass
        except HeldError:
            yield False
            return
        yield True


# ---- settling
# Later readers of a build run outside a sandbox. So only plain files and folders with plain rights are kept; sockets,
# devices, pipes and links out of the folder are removed. No writer may still be running.


def settle(folder: Path, *, keep: bool) -> int:
    """Clean a folder and all below it; return its size in bytes.

    With `keep` everything becomes read-only, and relative links within it stay; else everything becomes writable for
    us, and no link stays.

    Raises:
        OSError: something cannot be looked into or changed; nothing is silently left out.
    """
    total = 0
    root = folder.resolve()
    folder.chmod(0o755)
    for place, folders, files in os.walk(folder, onerror=_raise):
        for name in (*folders, *files):
            path = Path(place, name)
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode):
                # Before the walk gets there: it would pass over a folder closed to us.
                path.chmod(0o755)
                total += taken_by(about)
            elif stat.S_ISREG(about.st_mode):
                path.chmod(about.st_mode & 0o555 | 0o444 if keep else about.st_mode & 0o755 | 0o600)
                total += taken_by(about)
            elif not (keep and stat.S_ISLNK(about.st_mode) and _stays_inside(path, root)):
                path.unlink()
        if keep and place != str(folder):
            Path(place).chmod(0o555)
    return total


def _stays_inside(link: Path, root: Path) -> bool:
    return not link.readlink().is_absolute() and link.resolve().is_relative_to(root)


def _raise(error: OSError) -> None:
    raise error


# ---- removal
# A folder is renamed to `.trash-*` at once and then deleted, whatever the rights of its files; the next sweep deletes
# the rest after a crash. No writer may still be running.


TRASH = ".trash-"


def put_aside(folder: Path) -> None:
    """Remove a folder of the cache, if it is there: it vanishes at once under its own name."""
    aside = folder.with_name(f"{TRASH}{uuid.uuid4().hex}")
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return
    remove_tree(aside)


# ---- sweep
# The entry used longest ago goes first; one in use never goes.


_FORSAKEN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The size of the cache: bytes and number of entries."""

    bytes: int
    builds: int
    dependencies: int


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep. `kept_in_use` is the number of entries due for removal but in use."""

    removed_builds: tuple[tuple[str, str], ...]
    removed_dependencies: tuple[str, ...]
    freed_bytes: int
    left_bytes: int
    kept_in_use: int


def usage(cache: Path) -> Usage:
    """Return the size of builds and packages, as measured when they were stored."""
    entries = _entries(cache)
    return Usage(
        sum(entry.bytes for entry in entries),
        sum(not entry.key for entry in entries),
        sum(bool(entry.key) for entry in entries),
    )


def sweep(cache: Path, limit_bytes: int, in_use: Collection[tuple[str, str]] = ()) -> SweepResult:
    """Remove unfinished and old files, then builds and packages by last use until the rest fits the limit.

    Nothing held by a process is removed, nor the builds of the commits `in_use` (jobs about to start) and their
    packages. Builds go with their packages.
    """
    _remove_leftovers(cache)
    entries = sorted(_entries(cache), key=lambda entry: entry.last_use)
    targets = set(in_use)
    needed = {entry.build.dependencies for entry in entries if entry.build and entry.commit in targets}
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
        protected = entry.commit in targets or entry.key in needed
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
    return SweepResult(tuple(builds), tuple(keys), total - left, left, kept)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A build, or with `key` a folder of packages. `broken`: without its description."""

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
    result = []
    for folder in folders(cache / BUILDS, depth=2):
        build = read_build(folder)
        result.append(_Entry(folder, "", build, build.bytes if build else 0, last_use(folder)))
    for folder in folders(cache / DEPENDENCIES, depth=1):
        size = read_json(folder / "dependency.json").get("bytes", 0)
        result.append(
            _Entry(folder, folder.name, None, size if isinstance(size, int) else 0, last_use(folder))
        )
    return result


def _remove_unless_held(folder: Path, dependents: list[Path]) -> bool:
    """Remove an entry and its dependents, or nothing if one of them is in use."""
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
    for file in (cache / CONSTANTS).glob("*/*"):
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > _CONSTANTS_S:
                file.unlink()


__all__ = [
    "Build",
    "BuildInUse",
    "BuildKey",
    "BuildMissingError",
    "SweepResult",
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
"""The places in a build of a module's files by its name; `lib/lean` since Lean 4.9, `lib` before."""


class BuildMissingError(Exception):
    """The cache has no build of this commit, or lacks its packages; the message has the remedy."""


class BuildInUse:
    """A build in use. Until `close`, or the end of the process, no sweep removes it or its packages."""

    def __init__(self, build: Build, packages: Path | None, held: list[Lock]) -> None:
        self.build = build
        self.packages = packages
        """The folder of the fetched packages in the cache, the target of `.lake/packages`; None without any."""
        self._held = held

    def close(self) -> None:
        for one in self._held:
            one.release()
        self._held.clear()

    def __enter__(self) -> BuildInUse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def attach(worktree: Path, cache: Path, key: BuildKey) -> BuildInUse:
    """Give a project in a worktree of its commit its compiled files and packages, and hold them.

    The worktree's own `.lake` is removed first: the repository may have brought it. Its new content is a writable copy
    (blocks are shared if the file system can), the packages are a link into the cache.

    Raises:
        BuildMissingError: the cache has no such build, or the worktree no such project.
    """
    folder = folder_of(cache, key)
    try:
        project = project_folder(worktree, key.project)
    except OSError as error:
        raise BuildMissingError(f"{key.repository} at {key.sha}: {key.project}: {error.strerror}") from error
    held: list[Lock] = []
    try:
        build = read_build(folder) if hold(folder, held) else None
        if build is None:
            raise BuildMissingError(
                f"{key.repository} at {key.sha}{_where(key.project)}: no build in {cache / BUILDS}; it is made by a"
                " build job, see `everlean jobs`"
            )
        packages = hold_packages(cache, build.dependencies, held)
        for tree, stored in trees(build.nested):
            lake = empty_lake(project, tree)
            if (folder / stored).is_dir():
                copy_tree(folder / stored, lake / "build")
        if packages is not None:
            (project / ".lake" / "packages").symlink_to(packages)
    except BaseException:
        for one in held:
            one.release()
        raise
    return BuildInUse(build, packages, held)


def _where(project: str) -> str:
    return f", {project}" if project else ""


def hold_packages(cache: Path, key: str, held: list[Lock]) -> Path | None:
    """Hold the packages of a key while the file added to `held` is open; None for the key "".

    Raises:
        BuildMissingError: they are not there.
    """
    if not key:
        return None
    folder = cache.absolute() / DEPENDENCIES / key
    if not hold(folder, held):
        raise BuildMissingError(
            f"{folder}: the packages are gone; `everlean jobs retry` the build, and they are fetched"
        )
    return folder / "packages"


def store(cache: Path, worktree: Path, build: Build, sources: Sources) -> Build:
    """Move a project's compiled files into the cache; return the build with its size in bytes.

    Links and special files are left out: readers here are not in a sandbox. An earlier build of the commit is replaced.
    """
    place = cache.absolute() / BUILDS
    place.mkdir(parents=True, exist_ok=True)
    temporary = place / f"{NEW}{uuid.uuid4().hex}"
    temporary.mkdir()
    try:
        with lock(temporary / "lock"):
            taken = 0
            for tree, stored in trees(build.nested):
                source = worktree / tree / ".lake" / "build"
                if _is_own_folder(worktree, source):
                    target = temporary / stored
                    target.parent.mkdir(parents=True, exist_ok=True)
                    _move(source, target)
                    taken += settle(target, keep=False)
            result = dataclasses.replace(build, bytes=taken)
            write(temporary / "sources.json", dict(sources.hashes))
            write(temporary / "build.json", {"schema": SCHEMA, **asdict(result)})
            folder = folder_of(cache, build.key)
            folder.parent.mkdir(parents=True, exist_ok=True)
            put_aside(folder)
            temporary.rename(folder)
    finally:
        remove_tree(temporary)
    return result


def seed(
    worktree: Path, cache: Path, like: Build, sources: Sources, *, is_ancestor: Callable[[str], bool]
) -> str:
    """Copy the still valid part of an ancestor's newest build into a worktree; return its sha, "" for none.

    Valid are the files of modules whose source, with that of the project's imports, is byte for byte the same, under
    the same toolchain, packages and lakefile. So a failing build leaves nothing stale.

    A module elaborated by lake may write every compiled file of its commit, so a build is as trustworthy as all code
    of its commit. `is_ancestor` says whether a sha is in this commit's history: an unmerged branch gives nothing to
    others.
    """
    result = [
        (build, folder)
        for build, folder in all_builds(cache)
        if (build.repository, build.project) == (like.repository, like.project)
        and (build.toolchain, build.dependencies, build.lakefile, build.nested)
        == (like.toolchain, like.dependencies, like.lakefile, like.nested)
    ]
    for build, folder in sorted(result, key=lambda pair: pair[0].built_at, reverse=True):
        if not is_ancestor(build.sha):
            continue
        held: list[Lock] = []
        try:
            if not hold(folder, held):
                continue
            before = read_json(folder / "sources.json")
            same = {path for path, value in sources.hashes.items() if value and before.get(path) == value}
            for tree, stored in trees(build.nested):
                target = worktree / tree / ".lake" / "build"
                if (folder / stored).is_dir():
                    copy_tree(folder / stored, target)
                    _keep_only(target, tree, same, sources)
            return build.sha
        finally:
            for one in held:
                one.release()
    return ""


def present(cache: Path) -> set[BuildKey]:
    """Return the keys of all builds that a job could use, with packages."""
    return {
        build.key
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
    """Return whether the path is a folder without a link below the worktree."""
    return path.is_dir() and path.resolve() == worktree.resolve() / path.relative_to(worktree)


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError:  # another file system
        copy_tree(source, target)
        remove_tree(source)


def _keep_only(build: Path, tree: str, same: set[str], sources: Sources) -> None:
    """Remove everything from a build except the compiled forms of these source files."""
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


# ---- history


_TIMEOUT_S = 60.0


def is_ancestor(worktree: Path, older: str, newer: str) -> bool:
    """Return whether the commit `newer` has `older` in its history; False too if git cannot tell.

    Both are full commit ids. Git reads the mirror alone, nothing writable by the repository.
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CEILING_DIRECTORIES": str(worktree.absolute().parent),
    }
    try:
        asked = subprocess.run(
            ["git", "merge-base", "--is-ancestor", older, newer],
            cwd=worktree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return False  # the build starts from nothing, which is right and slower
    return asked.returncode == 0
