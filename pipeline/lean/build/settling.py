"""Make what strangers' programs wrote fit to be kept: those who read it later are not in a sandbox.

Only files and folders stay, with plain rights; sockets, devices, pipes and links that lead elsewhere go. Nothing may
still be running that can write there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pipeline.lean.sandbox.watch import taken_by


def settle(folder: Path, *, keep: bool) -> int:
    """Clean a folder and all below it; return the bytes that it takes.

    With `keep` everything becomes read-only, and relative links that stay inside are left; else everything may be
    written by us, and no link is left.

    Raises:
        OSError: something cannot be looked into or changed; nothing is silently left out.
    """
    total = 0
    root = folder.resolve()
    folder.chmod(0o755)
    for place, folders, files in os.walk(folder, onerror=_raise):
        for name in (*folders, *files):
            path = Path(place, name)
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode):
                # Before the walk gets there: what a program has closed to us would be passed over.
                path.chmod(0o755)
                total += taken_by(about)
            elif stat.S_ISREG(about.st_mode):
                path.chmod(about.st_mode & 0o555 | 0o444 if keep else about.st_mode & 0o755 | 0o600)
                total += taken_by(about)
            elif not (keep and stat.S_ISLNK(about.st_mode) and _stays_inside(path, root)):
                path.unlink()
        if keep and place != str(folder):
            Path(place).chmod(0o555)
    return total


def _stays_inside(link: Path, root: Path) -> bool:
    return not link.readlink().is_absolute() and link.resolve().is_relative_to(root)


def _raise(error: OSError) -> None:
    raise error
