"""What a program and all that it started take at this moment: memory, processes, disk. Looks once; changes nothing.

Who looks how often, and what becomes of it, is in `pipeline.lean.sandbox.bounded`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_SMALLEST_FILE_BYTES = 4096
"""What an entry of a folder counts at least: empty files take no block, and all the same a disk runs out of them."""
_DEEPEST = 200
"""Folders inside each other; a program that goes deeper hides what it writes below, or breaks what walks there."""


@dataclass(frozen=True, slots=True)
class Tree:
    memory_bytes: int
    processes: int
    deleted_bytes: int


def look_at_tree(pid: int, devices: frozenset[int], *, most: int | None = None) -> Tree:
    """Return what the processes below `pid` hold, itself not counted.

    Files that were deleted and are still open are seen through their descriptors: on `devices` they are disk, memory
    files (memfd) are memory. Where there are more than `most` processes, only their number is looked at: they may
    become more faster than one can look.
    """
    memory = disk = 0
    below: list[psutil.Process] = []
    seen: set[tuple[int, int]] = set()
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(pid).children(recursive=True)
    if most is not None and len(below) > most:
        return Tree(0, len(below), 0)
    for process in below:
        memory += _own_memory(process.pid)
        for name, stat in _deleted_files(process.pid):
            if (stat.st_dev, stat.st_ino) in seen:
                continue
            seen.add((stat.st_dev, stat.st_ino))
            if name.startswith("/memfd:"):
                memory += 512 * stat.st_blocks
            elif stat.st_dev in devices:
                disk += 512 * stat.st_blocks
    return Tree(memory, len(below), disk)


def _deleted_files(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                name = os.readlink(entry.path)  # noqa: PTH115 - what it says is no path
                if name.endswith(" (deleted)"):
                    yield name, os.stat(entry.path)  # noqa: PTH116 - through the descriptor, not by name


def _own_memory(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return 0
    kib = (line.split()[1] for line in status.splitlines() if line.startswith((b"RssAnon:", b"RssShmem:")))
    return 1024 * sum(map(int, kib))


def taken_by(about: os.stat_result) -> int:
    """Return what a file or folder counts towards a bound of disk space."""
    return max(512 * about.st_blocks, _SMALLEST_FILE_BYTES)


def taken_below(folders: Sequence[Path]) -> int | None:
    """Return what the folders take, links not followed, or None where one may not be looked into.

    What vanishes meanwhile counts as gone.
    """
    total = 0
    todo = [(str(folder), 0) for folder in folders]
    while todo:
        place, depth = todo.pop()
        if depth > _DEEPEST:
            return None
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        total += taken_by(entry.stat(follow_symlinks=False))
                        if entry.is_dir(follow_symlinks=False):
                            todo.append((entry.path, depth + 1))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # closed to us, or a path that is too long
            return None
    return total
