"""A folder, or a file, written whole or not at all, in the place of an earlier one.

A folder grows under a temporary name beside its place, everything in it is made durable, and then the two
names are exchanged in one step of the file system. On a file system without such a step, the old folder is
put aside and the new one in its place; a kill between the two leaves the old one aside, and the next use puts
it back.

A folder made here has a marker file in it. One without the marker, and with anything in it, is never
replaced.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from store.errors import DatabaseLockedError, LogError
from store.files import HeldError, Lock, lock, sync, sync_tree, written_whole
from store.sqlite import translated

MARKER = ".everlean-export.json"

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_HERE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


class NotReplaceableError(LogError):
    """The folder or file at the place was not made by an export."""


@contextmanager
def replaced(place: Path, marker: Mapping[str, Any]) -> Iterator[Path]:
    """Give a new folder to fill; at the end of the block, without an error, it is moved to `place`.

    A wrong place is refused before the block begins. After an error, or a kill, `place` is unchanged.
    `marker` is written into the folder, as JSON. Two concurrent writers of one place each leave a whole
    folder; the later one stays.

    Raises:
        NotReplaceableError: something else lies there.
        LogError: the disk refused.
    """
    place = place.resolve()
    if not place.parent.is_dir():
        raise LogError(f"{place}: its folder does not exist; create {place.parent}")
    with translated(place), contextlib.ExitStack() as held:
        with _alone(place.parent):
            _tidy(place)
            check_replaceable(place)
            new = place.with_name(f".{place.name}.{secrets.token_hex(6)}.new")
            new.mkdir()
            held.enter_context(_alone(new))
            held.callback(_remove, new)
        yield new
        (new / MARKER).write_text(json.dumps(dict(marker), indent=2) + "\n", encoding="utf-8")
        sync_tree(new)
        with _alone(place.parent):
            check_replaceable(place)
            _put(new, place)
            sync(place.parent)


def check_replaceable(place: Path) -> None:
    """Refuse a place with anything but an export.

    Raises:
        NotReplaceableError: a file, or a folder with other things in it.
    """
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise NotReplaceableError(f"{place}: is a file; name a folder that does not exist yet")
    if not (place / MARKER).is_file() and any(place.iterdir()):
        raise NotReplaceableError(
            f"{place}: is not empty, and no export made it (it has no {MARKER}); name another folder, or remove "
            "this one yourself"
        )


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False if the system or the file system cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    try:
        function = library.renameat2
    except AttributeError:
        return False
    result = function(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE)
    )
    if result == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_HERE:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def _put(new: Path, place: Path) -> None:
    if not place.exists():
        new.rename(place)
    elif exchange(new, place):
        _remove(new)  # the old one now
    else:
        aside = new.with_suffix(".old")
        place.rename(aside)
        new.rename(place)
        _remove(aside)


def _tidy(place: Path) -> None:
    """Put back, or remove, the remains of killed exports to this place; the parent is locked."""
    for aside in sorted(place.parent.glob(f".{glob.escape(place.name)}.*.old")):
        if place.exists():
            _remove(aside)
        else:
            aside.rename(place)
    for left in place.parent.glob(f".{glob.escape(place.name)}.*.new"):
        with contextlib.suppress(HeldError), _alone(left, wait_s=0):
            _remove(left)


@contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path`, durably, at the end of the block.

    The second of two concurrent writers is refused; a killed one's file is overwritten.
    """
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.new")
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666
    try:
        # The previous holder may have put it into its place, where it must not be written any more.
        while not (held := lock(os.open(temporary, os.O_WRONLY | os.O_CREAT, mode), wait_s=0)).is_of(
            temporary
        ):
            held.release()
    except HeldError:
        raise DatabaseLockedError(f"{target}: another process writes it; try again when it is done") from None
    with held, written_whole(target, temporary=temporary) as out:
        yield out


def _alone(folder: Path, *, wait_s: float | None = None) -> Lock:
    """Hold a folder's lock; only exports look at it."""
    return lock(folder, wait_s=wait_s, create=False)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
