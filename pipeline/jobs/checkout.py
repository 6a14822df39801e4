"""Put a commit's files into a folder: the one way for a job, an agent and a request of the server to get a worktree.

The files come from the commit's blobs, not from git's checkout: no attribute, filter or hook changes Lean's input, and
the mirror keeps no record. Links and submodules are not made. Paths that lead outside are skipped, as are the commit's
`.git` and `.lake`: Lean imports nothing built elsewhere.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pipeline.jobs.mirror import Mirror, TreeFile
from pipeline.jobs.protocol import JobError
from pipeline.lean.build.trees import remove_tree

T = TypeVar("T")
_MOST_TREE_BYTES = 4 * 2**30
_NOT_ITS_OWN = (".git", ".lake")
_NO_PATH = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
"""Errors due to a commit's file, not to the machine."""


class LeftError(Exception):
    """Nobody waits for the worktree any more."""


@contextmanager
def worktree(folder: Path, *, mirror: Path, sha: str, left: threading.Event) -> Iterator[None]:
    """Write the files of a commit into a new `folder`, and remove it after the block.

    Args:
        left: once set, no further file is written, and the worktree is given up.

    Raises:
        JobError: the mirror lacks the commit or a part of it, or the commit is too large.
        OSError: the system refused, or the folder exists.
        LeftError: `left` was set.
    """
    folder.mkdir(parents=True)
    try:
        _write_out(folder, mirror, sha, left)
        yield
    finally:
        remove_tree(folder)


def _write_out(folder: Path, path: Path, sha: str, left: threading.Event) -> None:
    room = _MOST_TREE_BYTES
    with Mirror(path) as mirror:
        mirror.require_commit(sha, reason="unknown_commit")
        for entry in mirror.files(sha):
            if left.is_set():
                raise LeftError
            if not _is_wanted(entry):
                continue
            try:
                room -= mirror.copy(entry.blob, place(folder, entry.path), most_bytes=room)
            except OSError as error:
                if error.errno not in _NO_PATH:
                    raise
                raise JobError(
                    "strange_commit",
                    f"{path} at {sha[:10]}: {entry.path} cannot be written: {error.strerror}",
                    remedy="rename the file in the repository",
                    deterministic=True,
                ) from error
            if room < 0:
                raise JobError(
                    "too_large",
                    f"{path} at {sha[:10]} has more than {_MOST_TREE_BYTES >> 30} GiB",
                    remedy="no project has that much Lean",
                    deterministic=True,
                )
            if entry.executable:
                (folder / entry.path).chmod(0o755)


def _is_wanted(entry: TreeFile) -> bool:
    parts = {part.lower() for part in PurePosixPath(entry.path).parts}
    return entry.readable and parts.isdisjoint(_NOT_ITS_OWN)


def place(folder: Path, path: str) -> Path:
    """Return the place of a commit's file, and make the folders above it: none of them is a link.

    Raises:
        OSError: a file is in the place of a folder.
    """
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


# ---- Make one beside the event loop


@asynccontextmanager
async def in_a_thread(make: Callable[[threading.Event], AbstractContextManager[T]]) -> AsyncIterator[T]:
    """Enter a context in a thread and leave it in one, even if cancelled during the entry.

    Args:
        make: gets an event that is set once nobody waits any more.
    """
    held, left = ExitStack(), threading.Event()
    result = asyncio.ensure_future(asyncio.to_thread(held.enter_context, make(left)))
    try:
        yield await asyncio.shield(result)
    finally:
        left.set()
        await to_its_end(_closed(result, held))


async def _closed(made: asyncio.Future[T], held: ExitStack) -> None:
    await asyncio.wait({made})  # a thread cannot be interrupted; it polls `left`
    if not made.cancelled():
        made.exception()
    await asyncio.to_thread(held.close)


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work. A cancellation takes effect after the end of the work.

    Raises:
        CancelledError: this was cancelled meanwhile; the work's failure is its cause.
        Exception: the work's own.
    """
    working = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if working.cancelled() else working.exception())
    return working.result()
