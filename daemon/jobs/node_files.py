"""The files of a node: where they lie, and how what attempts left of them is removed."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from daemon.jobs.local import end_attempt
from daemon.paths import Paths
from pipeline.lean.build.build_cache import remove_tree
from store.files import HeldError, lock

FOLDER = "EVERLEAN_NODE_FOLDER"
"""The environment variable with the folder that a node works in."""
LOCK = "node.lock"
"""In an attempt's folder: its process holds it as long as it lives."""
_YOUNG_S = 60.0


def node_paths() -> Paths:
    """Return the places of this node."""
    named = os.environ.get(FOLDER)
    folder = Path(named).absolute() if named else Path.home() / ".cache" / "everlean-node"
    return Paths(state=folder, cache=folder / "cache", runtime=folder / "run")


def remove(paths: Paths, directory: Path) -> None:
    """End what runs of an attempt, and remove its folder and its worktree."""
    if directory.is_dir():
        end_attempt(directory)
        remove_tree(directory)
        with contextlib.suppress(OSError):
            directory.parent.rmdir()  # of the job's other attempts there may be something
    remove_tree(paths.worktrees / f"{directory.parent.name}-{directory.name}")


def remove_earlier(paths: Paths, directory: Path) -> None:
    """Wait for an earlier attempt's lock in this directory, then remove its files.

    `daemon.jobs.orphans` waits for the same lock and kills by directory name: it would kill the new attempt.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(FileNotFoundError):
            held.enter_context(lock(directory / LOCK, create=False))
        remove(paths, directory)


def remove_what_is_left(paths: Paths) -> None:
    """Remove what attempts left whose process is gone: a living one holds its folder's lock."""
    for directory in paths.jobs.glob("*/*"):
        with contextlib.suppress(FileNotFoundError):
            place = directory / LOCK
            # One that is empty is about to be held.
            held = place.is_file() and place.stat().st_size > 0
            if held or time.time() - directory.stat().st_mtime > _YOUNG_S:
                with contextlib.suppress(HeldError), lock(place, wait_s=0):
                    remove(paths, directory)
