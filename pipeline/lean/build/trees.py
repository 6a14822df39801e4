"""Copy and remove folders filled by strangers."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import uuid
from pathlib import Path

_MOST_TRIES = 100


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree, sharing blocks if the file system can, never files: the copy will be written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["cp", "-a", "--reflink=auto", "--no-target-directory", "--", str(source), str(target)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if result.returncode != 0:
        text = result.stderr.decode("utf-8", errors="replace").strip()
        raise OSError(f"{source}: cannot be copied to {target}: {text[-500:]}")


def remove_tree(folder: Path) -> None:
    """Remove a folder that may be read-only, may not be there, and may hold anything, however deep.

    Folders in it are first moved to its top, so that no path gets too long for the system and nothing here recurses: a
    thousand folders inside each other are enough to end `shutil.rmtree` with a RecursionError.

    Raises:
        OSError: something in it cannot be removed; a link or a file in its place is left alone.
    """
    try:
        _open_to_us(folder)
    except FileNotFoundError:
        return
    for _ in range(_MOST_TRIES):
        try:
            _empty(folder)
            folder.rmdir()
        except OSError as error:
            if not os.path.lexists(folder):
                return
            if error.errno != errno.ENOTEMPTY:
                raise
            # Another remover has moved folders to its top meanwhile.
        else:
            return
    raise OSError(errno.ENOTEMPTY, "something is written there while it is removed", str(folder))


def _empty(folder: Path) -> None:
    todo = [folder]
    while todo:
        place = todo.pop()
        with contextlib.suppress(FileNotFoundError):  # someone else removes it too
            _open_to_us(place)
            with os.scandir(place) as entries:
                inside = list(entries)
            for entry in inside:
                with contextlib.suppress(FileNotFoundError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)  # noqa: PTH108 - names here may be no text
                    elif place == folder:
                        todo.append(Path(entry.path))
                    else:
                        # Moving a folder writes in it (its `..`), so open it to us first.
                        _open_to_us(Path(entry.path))
                        moved = folder / uuid.uuid4().hex
                        os.rename(entry.path, moved)  # noqa: PTH104
                        todo.append(moved)
            if place != folder:
                place.rmdir()


def _open_to_us(folder: Path) -> None:
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise NotADirectoryError(f"{folder}: no folder")
    folder.chmod(stat.S_IRWXU)
