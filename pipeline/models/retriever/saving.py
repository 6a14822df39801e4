"""Check the files of `torch.save`: `torch.load` ignores their checksums."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

UNREADABLE = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    EOFError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
)
"""Errors of `check_whole` and `torch.load` for a file that is truncated, damaged, or of another kind."""


def check_whole(path: Path) -> None:
    """Check the checksums in a file of `torch.save`.

    Raises:
        One of UNREADABLE: the file is missing, truncated or damaged.
    """
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"{damaged} in it is damaged")
