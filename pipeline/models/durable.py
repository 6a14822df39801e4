"""Files that stay: having the disk hold them, and knowing them by their content. Standard library only."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def sync(path: Path) -> None:
    """Have the disk hold a file's content, or a folder's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable(folder: Path) -> None:
    """Have the disk hold a folder and the content of its files."""
    for path in folder.iterdir():
        sync(path)
    sync(folder)


def write_text_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole and on the disk, or as it was before; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        sync(beside)
        beside.replace(path)
        sync(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
