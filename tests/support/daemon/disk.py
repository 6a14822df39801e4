"""Disks for tests that fill up or fail for real: a small tmpfs, an ext4 image that the kernel takes out of service.

Both need the right to mount: root has it, and so has everybody inside `unshare -Urm` where the kernel allows that
(for a tmpfs; an image needs root). Where there is no such right, a limit on the size of the process's files stands in:
every write behind it fails, as on a disk that is full or failing.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

_BLOCK = b"\0" * 4096


class Disk(Protocol):
    """A disk under a folder."""

    real: bool
    """Whether the disk itself refuses, and not a limit on one process."""

    def refuse(self, pid: int) -> None:
        """From now on the writes of process `pid` fail."""

    def mend(self) -> None:
        """Writes succeed again; no process may have a file of it open."""


class SmallDisk:
    """A tmpfs; it refuses because it is full."""

    real = True

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def refuse(self, pid: int) -> None:
        """Write until nothing more fits."""
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(_BLOCK)

    def mend(self) -> None:
        """Remove what fills it."""
        self._ballast.unlink(missing_ok=True)


class FailingDisk:
    """An ext4 file system in a file; after an error the kernel remounts it read-only, open files included."""

    real = True

    def __init__(self, folder: Path, image: Path) -> None:
        self._folder = folder
        self._image = image

    def mount(self) -> None:
        """Mount the image."""
        _run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self._folder))

    def refuse(self, pid: int) -> None:
        """Make the kernel find an error in the file system."""
        device = Path(_run("findmnt", "-no", "SOURCE", str(self._folder)).strip()).name
        Path("/sys/fs/ext4", device, "trigger_fs_error").write_text("1")

    def mend(self) -> None:
        """Unmount, check, mount again."""
        _run("umount", str(self._folder))
        # 1: errors were corrected.
        done = subprocess.run(["e2fsck", "-fy", str(self._image)], capture_output=True, check=False)
        if done.returncode not in (0, 1):
            raise AssertionError(f"e2fsck ended with {done.returncode}: {done.stdout.decode()}")
        self.mount()


class LimitedFiles:
    """No disk of its own: the process may not make any file larger than the largest that it has there."""

    real = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def refuse(self, pid: int) -> None:
        """Limit that process."""
        largest = max(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest, hard))

    def mend(self) -> None:
        """The limit ended with the process."""


@contextmanager
def small_disk(folder: Path, *, size_bytes: int) -> Iterator[Disk]:
    """A disk of that size at `folder`, which is made; a limit where nothing may be mounted."""
    folder.mkdir(parents=True)
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder))
    except (OSError, AssertionError):
        yield LimitedFiles(folder)
        return
    try:
        yield SmallDisk(folder)
    finally:
        _run("umount", "--lazy", str(folder))


@contextmanager
def failing_disk(folder: Path, *, size_bytes: int) -> Iterator[Disk]:
    """A disk at `folder`, which is made, that can be made to fail; a limit where no image may be mounted."""
    folder.mkdir(parents=True)
    image = folder.with_name(f"{folder.name}.img")
    with image.open("wb") as file:
        file.truncate(size_bytes)
    disk = FailingDisk(folder, image)
    try:
        _run("mkfs.ext4", "-q", "-F", str(image))
        disk.mount()
    except (OSError, AssertionError):
        yield LimitedFiles(folder)
        return
    try:
        yield disk
    finally:
        _run("umount", "--lazy", str(folder))


def may_mount(folder: Path) -> bool:
    """Return whether this process may mount a tmpfs, by doing it at an empty folder."""
    try:
        _run("mount", "-t", "tmpfs", "-o", "size=4096", "tmpfs", str(folder))
    except (OSError, AssertionError):
        return False
    _run("umount", str(folder))
    return True


def may_unshare() -> bool:
    """Return whether this user may have mounts of their own, in a namespace."""
    return (
        shutil.which("unshare") is not None
        and subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode == 0
    )


def _run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
