"""The folder of a trainer used as a library: one to write again and again, and no chain.

It always holds a complete model, the earlier or the new one (`publish`): new files are written beside, flushed, and
renamed as a whole to `.ready`; from then on they count, and take the places of the earlier ones. If a process is killed
in between, the next one that opens the folder finishes the move (`settle`).

    <folder>/checkpoint.json    its description, with the SHA-256 of the other files
    <folder>/…                  the model, its tokenizer
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline.models.errors import CheckpointError
from pipeline.models.model_files import (
    DESCRIPTION,
    MODEL_FILES,
    file_digest,
    files_in,
    locked_folder,
    new_folder,
)
from store.files import sync

_READY = ".ready"
_LOCK = ".lock"


def lock_folder(folder: Path) -> Any:
    """Make the folder if need be and lock it; a context manager.

    Raises:
        CheckpointError: another process trains into it, or it cannot be made.
    """
    busy = f"another process trains into {folder} (it holds {folder / _LOCK}). Wait for it, or name another folder"
    return locked_folder(folder, _LOCK, busy)


def publish(folder: Path, write: Callable[[Path], object], about: Mapping[str, Any]) -> None:
    """Put a new model into a folder, in the place of the one before.

    Args:
        folder: its home; made if need be.
        write: writes the model's files into an empty folder.
        about: the content of checkpoint.json, beside "files".

    Raises:
        CheckpointError: the disk refused; the model before is as it was.
    """
    settle(folder)
    failed = (
        f"the model cannot be written to {folder}",
        "Make room, then run it again: the earlier files of the folder are unchanged",
    )
    with new_folder(folder / _READY, failed) as new:
        write(new)
        content = {**about, "files": {name: file_digest(new / name) for name in files_in(new)}}
        (new / DESCRIPTION).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    settle(folder)


def settle(folder: Path) -> None:
    """Finish a `publish` that was interrupted while files took their places; nothing otherwise.

    Raises:
        CheckpointError: the disk refused.
    """
    ready = folder / _READY
    if not ready.is_dir():
        return
    try:
        described = ready / DESCRIPTION
        if described.exists():
            new = set(json.loads(described.read_text(encoding="utf-8"))["files"])
            old = {path.name for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
            for name in old - new - {DESCRIPTION}:
                (folder / name).unlink()
            for path in sorted(ready.iterdir()):
                if path.name != DESCRIPTION:
                    path.replace(folder / path.name)
            # The description moves last: while it is in .ready, the folder's own one does not match its files.
            sync(folder)
            described.replace(folder / DESCRIPTION)
        ready.rmdir()
        sync(folder)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"the new model in {ready} cannot take its place ({error}). Give back the right to write, and try again"
        ) from error
