"""Files that a power cut leaves whole or unchanged, and file locks that end with their holder.

Standard library only, and little of it: every job and command imports this.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

# ---- Durable files


def sync(file: Path | int) -> None:
    """Flush to the disk: a file's content, a folder's names, or the writes to an open descriptor."""
    if isinstance(file, int):
        os.fsync(file)
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # File systems with their names elsewhere, such as CIFS, flush no folder.
        if error.errno != errno.EINVAL or not file.is_dir():
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Flush a folder to the disk, and all files and folders in it."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


@contextmanager
def written_whole(
    path: Path, *, temporary: Path | None = None, mode: int = 0o666, flush_folder: bool = True
) -> Iterator[BinaryIO]:
    """Open a file that replaces `path`, durably, at the end of the block; after an error nothing has changed.

    Two concurrent writers of one path each leave a whole file; the later one stays.

    Args:
        temporary: the growing file; an existing one is overwritten. None: a new name beside `path`, left
            behind by a kill; a large file therefore has a name of its own, for the next run to overwrite.
        mode: the permissions of the new file, less the umask.
        flush_folder: False for a name that need not outlast a power cut: `path` may then be as before.
    """
    beside = temporary or path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if temporary is None else os.O_TRUNC)
    descriptor = os.open(beside, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            sync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if flush_folder:
        sync(path.parent)


def write_whole(path: Path, content: str | bytes, *, flush_folder: bool = True) -> None:
    """Write a file durably, whole or not at all; see `written_whole`."""
    with written_whole(path, flush_folder=flush_folder) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def beside(place: Path) -> Path:
    """Return the folder of a writer of `place` (`folder_written_whole`)."""
    return place.with_name(f".new-{place.name}")


@contextmanager
def folder_written_whole(place: Path) -> Iterator[Path]:
    """Make a folder that gets the name `place`, durably, at the end of the block; after an error there is none.

    `place` does not exist yet. A killed writer leaves a folder `beside` it, which the next one removes.
    """
    new = beside(place)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        sync_tree(new)
        new.rename(place)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    sync(place.parent)


# ---- Locks

_NOTE_BYTES = 200
_LOOK_S = 0.05


class HeldError(Exception):
    """Someone else holds the lock. `note` is the last note left, perhaps by an earlier holder."""

    def __init__(self, note: str) -> None:
        super().__init__(f"held by {note or 'another process'}")
        self.note = note


class Lock:
    """A held lock (`flock`): until its release, its garbage collection, or the end of its last process.

    A forked child has it too; a started program does not.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; safe to repeat. The file stays: removing it would race with the next holder."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def leave_note(self, text: str) -> None:
        """Write the holder into the lock file, over the previous note.

        In one write and always of one length: a full disk has room for no new block, but for that.
        """
        os.pwrite(self.descriptor, text.encode()[: _NOTE_BYTES - 1].ljust(_NOTE_BYTES - 1) + b"\n", 0)

    def is_of(self, path: Path) -> bool:
        """Return whether the path still names the locked file, neither removed nor replaced."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), path.stat())
        except FileNotFoundError:
            return False

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


def lock(file: Path | int, *, shared: bool = False, wait_s: float | None = None, create: bool = True) -> Lock:
    """Acquire the lock of a file, or of a folder.

    Args:
        file: a path, or an open descriptor, owned by the lock from then on.
        shared: others may have it too, if they share it.
        wait_s: the time to wait for it; None: without limit.
        create: make the file if it is missing. False is for a folder, and for a read-only file.

    Raises:
        HeldError: someone else has it, and kept it for `wait_s`.
        OSError: the file cannot be opened, or its file system has no locks.
    """
    if isinstance(file, Path):
        file = os.open(file, os.O_RDWR | os.O_CREAT if create else os.O_RDONLY, 0o666)
    held = Lock(file)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = None if wait_s is None else time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(held.descriptor, kind if deadline is None else kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if deadline is None or time.monotonic() >= deadline:
                    raise HeldError(_note(held.descriptor)) from None
                time.sleep(_LOOK_S)
            else:
                return held
    except BaseException:
        held.release()
        raise


def _note(descriptor: int) -> str:
    with suppress(OSError):  # a folder has none
        return os.pread(descriptor, _NOTE_BYTES, 0).decode(errors="replace").strip()
    return ""
