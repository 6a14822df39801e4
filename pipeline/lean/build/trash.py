"""Take folders of a cache away so that nobody ever sees half of one: first another name, then the removal.

A name that begins with `.trash-` is nobody's; what a crash leaves under one is removed by the next sweep.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import uuid
from pathlib import Path

TRASH = ".trash-"


def put_aside(folder: Path) -> None:
    """Remove a folder of the cache, if it is there: it vanishes at once under its own name."""
    aside = folder.with_name(f"{TRASH}{uuid.uuid4().hex}")
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return
    remove_tree(aside)


def remove_tree(folder: Path) -> None:
    """Remove a folder that may be read-only, may not be there, and may hold anything.

    Raises:
        OSError: something in it cannot be removed.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except PermissionError:
        for path, _folders, _files in os.walk(folder):
            with contextlib.suppress(FileNotFoundError):
                Path(path).chmod(stat.S_IRWXU)
        shutil.rmtree(folder)
