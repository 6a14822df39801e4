"""Read files of a folder filled by strangers: a worktree, a fetched package, a build's output.

A name from a repository may be absolute, climb by `..`, be too long for a file, or lead through a link; the file may be
an endless pipe, a device, or of any size. Code outside of a sandbox reads such a file here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

MOST_SOURCE_BYTES = 16 * 1024 * 1024
"""A larger file is not read: no source written by people is so long."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe without a writer would keep us waiting.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK_BYTES = 2**20


class StrangeFileError(OSError):
    """The file is not read; `strerror` says why, and shows nothing else of it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(None, reason, name)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class FileTooLargeError(StrangeFileError):
    """The file is longer than allowed."""


def safe_path(name: str) -> bool:
    """Return whether a path from a repository stays below its folder: no `..`, not absolute."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name


def read_inside(root: Path, name: str, *, most_bytes: int = MOST_SOURCE_BYTES) -> bytes:
    """Return the whole of a regular file below `root`, reached without any link.

    Args:
        root: a folder of ours; only the files below it are a stranger's.
        name: relative to it, with `/` between its parts.
        most_bytes: a longer file is refused, and never held.

    Raises:
        StrangeFileError: the name leads out, a part of it is a link, it is no regular file, or (`FileTooLargeError`)
            it is too large.
        OSError: it is not there, or the system refused.
    """
    with _opened(root, name) as (descriptor, size):
        if size > most_bytes:
            raise FileTooLargeError(name, f"{size} bytes, more than {most_bytes}")
        # One byte more than allowed: the file may grow while it is read.
        data = bytearray()
        while len(data) <= most_bytes:
            chunk = os.read(descriptor, min(_CHUNK_BYTES, most_bytes + 1 - len(data)))
            if not chunk:
                return bytes(data)
            data += chunk
    raise FileTooLargeError(name, f"more than {most_bytes} bytes")


def read_beginning(root: Path, name: str, *, most_bytes: int) -> bytes:
    """Return up to `most_bytes` of a file, like `read_inside`; nothing if it may not be read."""
    try:
        with _opened(root, name) as (descriptor, _):
            data = bytearray()
            while len(data) < most_bytes and (chunk := os.read(descriptor, most_bytes - len(data))):
                data += chunk
            return bytes(data)
    except OSError:
        return b""


@contextmanager
def _opened(root: Path, name: str) -> Iterator[tuple[int, int]]:
    """Open the file, part by part: a link on the way is an error."""
    if not safe_path(name):
        raise StrangeFileError(name, "no path that stays inside the folder")
    *folders, last = PurePosixPath(name).parts
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            at = _step(at, folder, _FOLDER, name)
        at = _step(at, last, _FILE, name)
        result = os.fstat(at)
        if not stat.S_ISREG(result.st_mode):
            raise StrangeFileError(name, f"no regular file but {_kind(result.st_mode)}")
        yield at, result.st_size
    finally:
        os.close(at)


def _step(at: int, part: str, flags: int, name: str) -> int:
    """Open `part` in the folder `at`, closing `at` on success."""
    try:
        below = os.open(part, flags, dir_fd=at)
    except OSError as error:
        # ELOOP: the last part is a link; ENOTDIR: an earlier one is, or it is a file.
        mode = _mode(at, part)
        if stat.S_ISLNK(mode):
            raise StrangeFileError(name, "a link, or behind one") from None
        if stat.S_ISSOCK(mode):
            raise StrangeFileError(name, f"no regular file but {_kind(mode)}") from None
        raise OSError(error.errno, error.strerror, name) from None
    os.close(at)
    return below


def _mode(at: int, part: str) -> int:
    try:
        return os.lstat(part, dir_fd=at).st_mode
    except OSError:
        return 0


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
