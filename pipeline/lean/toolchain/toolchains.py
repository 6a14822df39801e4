"""The cache of REPL builds, one a Lean version: what is there, whether it is sound, who uses it, taking one away.

A build is a folder `<cache>/toolchains/<version>/` with `pantograph-repl`, `lean-toolchain` and `toolchain.json`,
which says what it was made of and the size, time and sha256 of each file. It gets there by one rename
(`pipeline.lean.repl_install`) and is never changed. Locks lie beside the builds, in `.locks/`: a user of a build
holds a shared one, a command that removes or replaces it an exclusive one.

Standard library only and no process started: the daemon asks at its start. A look compares sizes and times; `check`
reads the files and compares the hashes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.lean.toolchain import standins
from store.files import HeldError, Lock, lock
from store.text import shown

# ---- Lean versions
# Two names of one version are equal (`4.21.0`, `v4.21.0`, `leanprover/lean4:v4.21.0`), by elan's rules. Only releases
# of the Lean developers are accepted: a toolchain decides what counts as proved, so a fork's is refused. So are
# channels (`stable`, `nightly`), which mean another version tomorrow.


PANTOGRAPH = "https://github.com/leanprover/Pantograph.git"
RELEASES = "leanprover/lean4"
NIGHTLIES = "leanprover/lean4-nightly"
CHANNELS = ("stable", "beta", "nightly", "lean-toolchain")

_NUMBERED = re.compile(r"v?(\d{1,3}\.\d{1,4}\.\d{1,4}(?:-rc\d{1,3})?)", re.ASCII)
_NIGHTLY = re.compile(r"nightly-\d{4}-\d\d-\d\d(?:-rev\d{1,3})?", re.ASCII)
_SHA = re.compile(r"[0-9a-f]{40}")


class VersionError(ValueError):
    """A text names no Lean version that can be installed; the message says why."""


@dataclass(frozen=True, slots=True)
class LeanVersion:
    """One Lean version. `release` is what its folder in our cache is called: `v4.21.0`, `nightly-2025-08-01`."""

    origin: str
    release: str

    @property
    def toolchain(self) -> str:
        """The full name, as written in `lean-toolchain`: `leanprover/lean4:v4.21.0`."""
        return f"{self.origin}:{self.release}"

    @property
    def elan_folder(self) -> str:
        """Return elan's name for the folder below `$ELAN_HOME/toolchains`."""
        return self.toolchain.replace("/", "--").replace(":", "---")

    def __str__(self) -> str:
        return self.release


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit of Pantograph for one Lean version, and how that is known.

    `certain` means that the `lean-toolchain` of that very commit was read; the others are what upstream's notes say
    of the release. Building checks it in any case, so that a wrong entry here is a refusal and not a wrong build.
    """

    release: str
    sha: str
    pantograph: str
    certain: bool
    source: str


def parse_version(text: str) -> LeanVersion:
    """Read a version as a person or a `lean-toolchain` file names it.

    Raises:
        VersionError: it is no version, a channel, or a toolchain that is not the Lean developers'.
    """
    name = text.strip()
    origin, colon, release = name.rpartition(":")
    if release in CHANNELS:
        raise VersionError(
            f"{shown(name)}: a channel, which means another version from day to day; name the version itself"
            " (v4.21.0, v4.22.0-rc3, nightly-2025-08-01)"
        )
    numbered, nightly = _NUMBERED.fullmatch(release), _NIGHTLY.fullmatch(release)
    if origin.endswith("/lean") and release.startswith("3."):
        raise VersionError(f"{shown(name)}: Lean 3, another language, whose projects are scanned and no more")
    if numbered is None and nightly is None:
        raise VersionError(
            f"{shown(name)}: no Lean version; write it like v4.21.0, v4.22.0-rc3 or nightly-2025-08-01"
        )
    # elan looks for nightlies in the repository of nightlies, whatever was written.
    expected = (RELEASES,) if numbered else (RELEASES, NIGHTLIES)
    if colon and origin not in expected:
        raise VersionError(
            f"{shown(name)}: not a toolchain of {expected[-1]}; what another compiler accepts is no proof"
        )
    return LeanVersion(RELEASES, f"v{numbered[1]}") if numbered else LeanVersion(NIGHTLIES, release)


def is_at_most(one: str, other: str) -> bool:
    """Return whether a toolchain is another or comes before it, as Lake has it: of one sort, by number or date."""
    try:
        first, second = parse_version(one), parse_version(other)
    except VersionError:
        return one == other
    return first.origin == second.origin and _order(first.release) <= _order(second.release)


def _order(release: str) -> tuple[list[int], float]:
    numbers, _, candidate = release.removeprefix("v").partition("-rc")
    if not candidate and not numbers[0].isdigit():
        return [int(one) for one in re.findall(r"\d+", release)], 0
    return [int(one) for one in numbers.split(".")], float(candidate or "inf")


def parse_sha(text: str) -> str:
    """Return a full commit id in lower case.

    Raises:
        VersionError: it is not one; an abbreviation or a branch may come to mean another commit.
    """
    sha = text.strip().lower()
    if _SHA.fullmatch(sha) is None:
        raise VersionError(f"{shown(text)}: not a full commit id (40 hexadecimal digits)")
    return sha


def revision_for(version: LeanVersion) -> Revision | None:
    """Return the revision that is built for a version, or None where none is known."""
    return _BY_RELEASE.get(version.release)


def install_command(version: LeanVersion) -> str:
    """Return the command that gets what runs a version: a REPL where one can be built, else Lean with its server."""
    known = revision_for(version) is not None
    return f"everlean toolchain install {version}" if known else f"elan toolchain install {version.toolchain}"


def known_releases() -> tuple[str, ...]:
    """Return every release with a revision, oldest first."""
    return tuple(_BY_RELEASE)


_READ = "lean-toolchain and Pantograph/Version.lean of that commit"
_NOTES = "stanford-centaur/PyPantograph: its src submodule, and "

# Where several commits fit, the last of a release of Pantograph was taken.
REVISIONS = (
    Revision("v4.9.0", "f19395bbea83812aa6f31acc3d64e196e5a44345", "0.3.2", True, _READ),
    Revision("v4.17.0", "3c07188cdf81e5e8266506a8f05e8dca4095bb71", "0.3.0", True, _READ),
    Revision("v4.18.0", "120eb9029106b999d8eea6ef9f5675144bacd13d", "0.3.1", True, _READ),
    Revision("v4.19.0", "8fd3649f32c426805fb2f1a079480399950d7e3e", "0.3.2", True, _READ),
    Revision("v4.20.1", "4c7f77b7ca0d3d82c921061cbc68ce1352355321", "0.3.3", True, _READ),
    Revision("v4.21.0", "757db11a77dfb9f2f62330c596a7e42565b3b143", "0.3.4", True, _READ),
    Revision(
        "v4.22.0", "f6d34efd989cf37c6d564f427bbd6b0dbd3e9795", "0.3.7", False, _NOTES + "pull request 139"
    ),
    Revision(
        "v4.23.0", "03513a2017fa33f7d8404c85ca4e57c90a2f9ec1", "0.3.9", False, _NOTES + "pull request 159"
    ),
    Revision("v4.25.2", "8daf04aa5522701647e3b805271aa283588dccfb", "0.3.11", False, _NOTES + "issue 164"),
    Revision(
        "v4.27.0", "5fcb75427604cd93219aca547feb75d79433d9e3", "0.3.13", False, _NOTES + "pull request 169"
    ),
    Revision(
        "v4.29.1", "842c0fe6e76b0771cc7f7939604c7a0b90e17433", "0.3.15", False, _NOTES + "pull request 171"
    ),
)
_BY_RELEASE = {revision.release: revision for revision in REVISIONS}


REPL = "pantograph-repl"
MARKER = "lean-toolchain"
RECORD = "toolchain.json"
SCHEMA = 1
_LOCKS = ".locks"
_TEMPORARY = ".installing-"
_REMOVED = ".removed-"
_LOCKED_INODE = re.compile(
    r"^\d+: FLOCK\s+ADVISORY\s+\w+\s+(\d+)\s+[0-9a-f]+:[0-9a-f]+:(\d+)\s", re.MULTILINE
)


class ToolchainError(Exception):
    """Something asked of the cache cannot be done; the message names the build, the reason and the remedy."""


class ToolchainBusyError(ToolchainError):
    """Another process holds the lock that is needed."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of a build as it was when it was made; `mtime_ns` is nanoseconds since 1970."""

    name: str
    sha256: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A build in the cache. `problem` is "" or why it must not be used; then the facts may be missing too.

    `sysroot` is the folder of elan's toolchain that it was built with and needs to run; `says` what the REPL
    answered to `--version`; `built_at` is ISO 8601, UTC.
    """

    version: LeanVersion
    folder: Path
    problem: str = ""
    sysroot: str = ""
    revision: str = ""
    source: str = ""
    says: str = ""
    built_at: str = ""
    built_with: str = ""
    seconds: float = 0.0
    files: tuple[FileRecord, ...] = ()

    @property
    def repl(self) -> Path:
        return self.folder / REPL

    @property
    def toolchain(self) -> str:
        return self.version.toolchain

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def record(self) -> dict[str, Any]:
        """The content of `toolchain.json`."""
        return {
            "schema": SCHEMA,
            "toolchain": self.toolchain,
            "sysroot": self.sysroot,
            "revision": self.revision,
            "source": self.source,
            "says": self.says,
            "built_at": self.built_at,
            "built_with": self.built_with,
            "seconds": self.seconds,
            "files": [asdict(file) for file in self.files],
        }


class Toolchains:
    """The folder of builds. Nothing is made before it is needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def installed(self) -> tuple[Toolchain, ...]:
        """Return every build, damaged ones with their problem; compares sizes and times only."""
        if not self.folder.is_dir():
            return ()
        found = []
        for path in sorted(self.folder.iterdir()):
            if path.name.startswith(".") or not path.is_dir() or path.is_symlink():
                continue
            with contextlib.suppress(VersionError):  # a folder that is none of ours
                version = parse_version(path.name)
                if version.release == path.name:
                    found.append(self._look(version))
        return tuple(found)

    def find(self, version: LeanVersion) -> Toolchain | None:
        """Return the build for a version, sound or not, or None."""
        path = self.folder / version.release
        return self._look(version) if path.is_dir() and not path.is_symlink() else None

    def check(self, toolchain: Toolchain) -> str:
        """Read every file of a build and compare; return "" or what is wrong."""
        if toolchain.problem:
            return toolchain.problem
        for file in toolchain.files:
            path = toolchain.folder / file.name
            try:
                digest = sha256_of(path)
            except OSError as error:
                return f"{path}: {error.strerror}"
            if digest != file.sha256:
                return f"{path}: not the file that was built (sha256 {digest[:12]}…, not {file.sha256[:12]}…)"
        return ""

    @contextlib.contextmanager
    def in_use(self, version: LeanVersion) -> Iterator[Toolchain]:
        """Hold a build for the length of the block: no one removes or replaces it meanwhile.

        Raises:
            ToolchainError: there is no sound build for this version (any more), or it is being replaced.
        """
        with self._lock(version, exclusive=False):
            found = self.find(version)
            if found is None:
                raise ToolchainError(
                    f"{version.toolchain}: not installed; run `everlean toolchain install {version}`"
                )
            if found.problem:
                raise ToolchainError(f"{found.problem}; run `everlean toolchain install {version}` again")
            yield found

    def users(self, version: LeanVersion) -> tuple[int, ...]:
        """Return the process ids that hold a lock on a build, as far as the system tells."""
        return _holders(self.folder / _LOCKS / f"{version.release}.lock")

    def remove(self, version: LeanVersion) -> Toolchain:
        """Remove a build: only what an installation made, and only if no one uses it.

        Raises:
            ToolchainError: it is not installed, or its folder holds something that is not part of it.
            ToolchainBusyError: it is in use.
        """
        with self.exclusively(version):
            found = self.find(version)
            if found is None:
                known = ", ".join(each.version.release for each in self.installed()) or "none"
                raise ToolchainError(f"{version}: not installed in {self.folder} (installed: {known})")
            ours = {REPL, MARKER, RECORD}
            foreign = sorted(path.name for path in found.folder.iterdir() if path.name not in ours)
            if foreign:
                raise ToolchainError(
                    f"{found.folder}: holds {', '.join(foreign[:3])}, which no installation made;"
                    " move it elsewhere first"
                )
            # Gone at once under its name, however long the deleting takes or whatever ends it.
            aside = self.folder / f"{_REMOVED}{version.release}-{os.getpid()}"
            found.folder.rename(aside)
            shutil.rmtree(aside)
            return found

    @contextlib.contextmanager
    def exclusively(self, version: LeanVersion) -> Iterator[None]:
        """Hold a build against all users, for replacing or removing it.

        Raises:
            ToolchainBusyError: someone uses it; the message says which processes.
        """
        with self._lock(version, exclusive=True):
            yield

    def sweep(self) -> None:
        """Delete what interrupted installations and removals left. Call with the installing lock held."""
        for path in self.folder.glob(".*"):
            if path.name.startswith((_TEMPORARY, _REMOVED)) and not path.is_symlink():
                # What a process that survived its installation still writes into resists; the next one gets it.
                shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def installing(self, what: str) -> Iterator[None]:
        """Hold the right to install in this cache; `what` describes the installation to others.

        Raises:
            ToolchainBusyError: another installation is at work; the message says which.
        """
        try:
            held = _take(self._locks() / "install.lock")
        except HeldError as error:
            raise ToolchainBusyError(
                f"{self.folder}: {error.note or 'another installation'} is at work here; wait for its end"
            ) from error
        with held:
            _leave_note(held, f"process {os.getpid()} ({what})")
            try:
                yield
            finally:
                _leave_note(held, "")

    def temporary(self, what: str) -> Path:
        """Return where an installation works; swept away when that was interrupted."""
        return self.folder / f"{_TEMPORARY}{what}-{os.getpid()}"

    def _locks(self) -> Path:
        locks = self.folder / _LOCKS
        try:
            locks.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ToolchainError(
                f"{locks}: {error.strerror or error}; give this user write permission there, or run this as the"
                " daemon's user"
            ) from error
        return locks

    @contextlib.contextmanager
    def _lock(self, version: LeanVersion, *, exclusive: bool) -> Iterator[None]:
        path = self._locks() / f"{version.release}.lock"
        try:
            held = _take(path, shared=not exclusive)
        except HeldError as error:
            # Several may hold it, so that no note says which.
            pids = ", ".join(map(str, _holders(path)))
            who = f"process {pids}" if pids else "another process"
            what = "is used" if exclusive else "is being replaced or removed"
            raise ToolchainBusyError(f"{version.toolchain}: {what} by {who}; wait for its end") from error
        with held:
            yield

    def _look(self, version: LeanVersion) -> Toolchain:
        folder = self.folder / version.release
        try:
            toolchain = _from_record(version, folder, json.loads((folder / RECORD).read_text("utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = error.strerror if isinstance(error, OSError) else f"not readable ({error})"
            return Toolchain(version, folder, f"{folder / RECORD}: {why}")
        return replace(toolchain, problem=_differs(toolchain))


def elan_home() -> Path:
    """Return where elan keeps its toolchains: `$ELAN_HOME`, else `~/.elan`."""
    return Path(os.environ.get("ELAN_HOME") or Path.home() / ".elan").absolute()


def find_elan() -> Path | None:
    """Return the program elan, on PATH or where its installer puts it."""
    found = shutil.which("elan") or shutil.which(elan_home() / "bin" / "elan")
    return Path(found).absolute() if found else None


def sha256_of(path: Path) -> str:
    """Hash a file without holding it in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_record(path: Path) -> FileRecord:
    """Describe a file as it is now."""
    found = path.stat()
    return FileRecord(path.name, sha256_of(path), found.st_size, found.st_mtime_ns)


def _from_record(version: LeanVersion, folder: Path, raw: dict[str, Any]) -> Toolchain:
    if raw["schema"] != SCHEMA:
        raise ValueError(f"schema {raw['schema']!r}, this everlean reads {SCHEMA}")
    if raw["toolchain"] != version.toolchain:
        raise ValueError(f"made for {raw['toolchain']!r}")
    return Toolchain(
        version=version,
        folder=folder,
        sysroot=str(raw["sysroot"]),
        revision=str(raw["revision"]),
        source=str(raw["source"]),
        says=str(raw["says"]),
        built_at=str(raw["built_at"]),
        built_with=str(raw["built_with"]),
        seconds=float(raw["seconds"]),
        files=tuple(
            FileRecord(str(one["name"]), str(one["sha256"]), int(one["size_bytes"]), int(one["mtime_ns"]))
            for one in raw["files"]
        ),
    )


def _differs(toolchain: Toolchain) -> str:
    """Return what changed since the build was made, by sizes, times and permissions only."""
    if {file.name for file in toolchain.files} != {REPL, MARKER}:
        return f"{toolchain.folder / RECORD}: does not list {REPL} and {MARKER}"
    for file in toolchain.files:
        path = toolchain.folder / file.name
        try:
            found = path.lstat()
        except OSError as error:
            return f"{path}: {error.strerror}"
        if not stat.S_ISREG(found.st_mode):
            return f"{path}: not a regular file"
        if (found.st_size, found.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
            return f"{path}: changed since it was built"
    if not os.access(toolchain.repl, os.X_OK):
        return f"{toolchain.repl}: not executable by this user"
    if not Path(toolchain.sysroot, "bin", "lean").exists():
        return f"{toolchain.sysroot}: the Lean that this build needs is gone (elan's folder)"
    return stand_in_problem(toolchain.repl, sysroot=Path(toolchain.sysroot), says=toolchain.says)


def stand_in_problem(repl: Path, *, sysroot: Path, says: str) -> str:
    """Return "" or why a REPL and its toolchain must not be taken for Lean: one of them is a stand-in for tests."""
    if standins.says_so(says) and not standins.allowed():
        return f"{repl}: {standins.REFUSED} (it says: {says})"
    return standins.refusal((repl, *(sysroot / "bin" / name for name in ("lean", "lake"))))


def _take(path: Path, *, shared: bool = False) -> Lock:
    """Acquire a lock; a file that another user (an administrator, with sudo) made can be locked without writing."""
    try:
        read_only = path.exists() and not os.access(path, os.W_OK)
        return lock(path, shared=shared, wait_s=0, create=not read_only)
    except OSError as error:
        raise ToolchainError(f"{path}: {error.strerror}; give this user write permission there") from error


def _leave_note(held: Lock, text: str) -> None:
    """Leave a note for people in a lock file; a full disk or another user's file is no reason to stop."""
    with contextlib.suppress(OSError):
        held.leave_note(text)


def _holders(path: Path) -> tuple[int, ...]:
    """Return who holds this file by the kernel's list of locks; empty if that is silent (a container, another user)."""
    try:
        inode = path.stat().st_ino
        listed = Path("/proc/locks").read_text("ascii", errors="replace")
    except OSError:
        return ()
    pids = {int(pid) for pid, number in _LOCKED_INODE.findall(listed) if int(number) == inode}
    return tuple(sorted(pid for pid in pids if pid > 0))
