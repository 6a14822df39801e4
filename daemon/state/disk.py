"""Check that the disks of the daemon's folders accept writes, without writing.

Standard library only, for `everlean status`. `store.errors` has the daemon's own errors; this explains them,
also without a running daemon.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from daemon.place.paths import Paths

FULL_BYTES = 2**20
"""With less free space, the next batch of events may not fit."""

_REFUSING = frozenset({"ro", "emergency_ro", "shutdown"})
_Folder = Literal["state", "cache", "runtime"]
Code = Literal["disk_full", "disk_read_only"]
_ROOM: dict[_Folder, str] = {
    "state": "free some space there; a running daemon then resumes, and every acknowledged event is safe",
    "cache": "free some space there; a running daemon then resumes. While no daemon runs, all files there may be"
    " removed: they are made again",
    "runtime": "free some space there: a daemon that starts waits for it, and no job takes a GPU without",
}
_MEND = "look at the kernel's log, mend the disk and mount it for writing, then start the daemon"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A folder that refuses writes, with the reason and the remedy."""

    code: Code
    folder: Path
    message: str
    remedy: str


def refusals(paths: Paths) -> list[Refusal]:
    """Return the disks that refuse the daemon's writes; one entry for each, the state folder's first.

    This includes a file system taken out of service by the kernel after an error, although its mount still
    reads `rw`.
    """
    folders: dict[_Folder, Path] = {"state": paths.state, "cache": paths.cache, "runtime": paths.runtime}
    on_one: dict[tuple[Code, int], list[_Folder]] = {}
    words: dict[tuple[Code, int], str] = {}
    for name, folder in folders.items():
        if (refused := _refused(folder)) is not None:
            code, disk, how = refused
            on_one.setdefault((code, disk), []).append(name)
            words.setdefault((code, disk), how)  # free space may change from one look to the next
    return [
        Refusal(
            code,
            folders[names[0]],
            f"{folders[names[0]]}: the disk of the {' and '.join(names)} folder is {words[code, disk]}",
            _ROOM[names[0]] if code == "disk_full" else _MEND,
        )
        for (code, disk), names in on_one.items()
    ]


def _refused(folder: Path) -> tuple[Code, int, str] | None:
    """Return the fault of a folder's disk, its number, and the words for it; None without a fault."""
    try:
        result = os.statvfs(folder)
        device = folder.stat().st_dev
    except OSError:
        return None  # not made yet, or not ours to look at: the daemon itself reports errors there
    if result.f_flag & os.ST_RDONLY or _REFUSING & _file_system_options(device):
        return "disk_read_only", device, "read-only"
    free_bytes = result.f_bavail * result.f_frsize
    # A tmpfs without a limit reports no size.
    if result.f_blocks and free_bytes < FULL_BYTES:
        return "disk_full", device, f"full ({free_bytes:,} bytes are free)"
    return None


def _file_system_options(device: int) -> frozenset[str]:
    """Return the options of the file system with this device number, as opposed to those of one mount of
    it."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()  # without /proc only statvfs counts
    for line in lines:
        mount, _, file_system = line.partition(" - ")
        if mount.split()[2] == number:
            return frozenset(file_system.split()[2].split(","))
    return frozenset()
