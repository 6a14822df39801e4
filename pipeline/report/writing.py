"""The report as files: its pages and its pictures."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pipeline.report import FIRST
from pipeline.report.charts import ORIGIN
from pipeline.report.page import NAMES, Report
from store.files import write_whole

_BEGINNING_BYTES = 1000
"""Bytes of a file read to see whether a report made it."""


class NotOursError(Exception):
    """A file from elsewhere is in the way; the message names the remedy."""


def write(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write the pages and the pictures; return their paths, `index.html` first.

    Each file is replaced in one step, `index.html` last. Old files of an earlier report are then removed; other files
    in the folder stay.

    Raises:
        NotOursError: a file of that name is not a report's; nothing was written.
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The first page last: it leads to the others.
    texts = dict(reversed({**report.html, **report.pictures}.items()))
    for name in texts:
        if not _may_be_replaced(folder / name):
            raise NotOursError(
                f"{folder / name}: no report wrote it, so it is not overwritten; remove it, or name another folder "
                "with --out"
            )
    for name, text in texts.items():
        write_whole(folder / name, text, flush_folder=False)  # a lost report is made again
    for path in folder.iterdir():
        if path.name not in texts and NAMES.fullmatch(path.name) and _is_ours(path):
            path.unlink(missing_ok=True)
    return (folder / FIRST, *(folder / name for name in reversed(texts) if name != FIRST))


def _may_be_replaced(path: Path) -> bool:
    return not os.path.lexists(path) or _is_ours(path)


def _is_ours(path: Path) -> bool:
    # The user made the link, so its target is respected.
    if not stat.S_ISREG(path.lstat().st_mode):
        return False
    with path.open("rb") as file:
        return ORIGIN.encode() in file.read(_BEGINNING_BYTES)
