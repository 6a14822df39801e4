"""Whether a folder's disk takes what is written to it: asked without writing.

Standard library only, for `unsorry status`. What the daemon itself meets is in `store.errors`; this says why, also
when no daemon runs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FULL_BYTES = 2**20
"""With less than this free, the next batch of events may not fit."""

_REFUSING = frozenset({"ro", "emergency_ro", "shutdown"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing can be written, and what to do."""

    code: Literal["disk_full", "disk_read_only"]
    message: str
    remedy: str


def refusal(folder: Path) -> Refusal | None:
    """Return why the disk of a folder takes nothing; None if it does, or if there is no such folder.

    A file system that the kernel took out of service after an error is found too: it still says `rw` of itself.
    """
    try:
        found = os.statvfs(folder)
        device = folder.stat().st_dev
    except OSError:
        return None
    if found.f_flag & os.ST_RDONLY or _REFUSING & _file_system_options(device):
        return Refusal(
            "disk_read_only",
            f"{folder}: its file system is read-only",
            "look at the kernel's log, mend the disk and mount it for writing, then start the daemon",
        )
    if found.f_bavail * found.f_frsize < FULL_BYTES:
        return Refusal(
            "disk_full",
            f"{folder}: its disk is full ({found.f_bavail * found.f_frsize:,} bytes are free)",
            "free some space; a daemon that runs goes on by itself, and what was acknowledged is safe",
        )
    return None


def _file_system_options(device: int) -> frozenset[str]:
    """The options of the file system with this device number, which are not those of one mount of it."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()  # no /proc: then only what statvfs says counts
    for line in lines:
        mount, _, file_system = line.partition(" - ")
        if mount.split()[2] == number:
            return frozenset(file_system.split()[2].split(","))
    return frozenset()
