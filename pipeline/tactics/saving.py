"""A trained model's folder, which is always a whole model: the earlier one, or the new one.

What is new is written beside, flushed, and given its name (`.ready`) by one rename; from then on it counts, and its
files take the places of the earlier ones. A process that is killed in between leaves the rest of that to whoever opens
the folder next (`settle`).

    <folder>/checkpoint.json    what it is, with the SHA-256 of the other files
    <folder>/…                  the model, its tokenizer
    <folder>/.earlier/<n>/      models that lay here and were trained otherwise; nothing is overwritten
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pipeline.durable import file_digest, sync
from pipeline.learning.weights import weights_digest, weights_of
from pipeline.tactics.errors import CheckpointError

DESCRIPTION = "checkpoint.json"
_NEW = ".new"
_READY = ".ready"
_EARLIER = ".earlier"
_LOCK = ".lock"
# What transformers and PEFT write, or wrote once, and what is ours.
_MODEL_FILES = (
    *("config.json", "generation_config.json", "model*.safetensors*", "pytorch_model*.bin*", "adapter_*"),
    *(
        "tokenizer*",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.*",
        "vocab.*",
        "merges.txt",
    ),
    *("spiece.model", "training_args.bin", "prompt.json", "base.json", DESCRIPTION),
)
_NO_START = (DESCRIPTION, "training_args.bin", "base.json")


def begun(folder: Path) -> str:
    """Return the SHA-256 of a folder's weights, as `checkpoint_saved` has it; "" where there are none."""
    names = weights_of([path.name for path in folder.glob("*") if path.is_file()])
    return weights_digest({name: file_digest(folder / name) for name in names})


def start_of(folder: Path) -> str:
    """Return the SHA-256 of all that training from a folder follows from: the weights, each part of them, their
    configuration, the tokenizer and its template; "" of a hub's model."""
    found = {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    said = [(path.name, file_digest(path)) for path in sorted(found) if path.name not in _NO_START]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest() if said else ""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make the folder if need be and hold it for this process alone.

    Raises:
        CheckpointError: another process trains into it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("w")
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be written ({error.strerror})") from error
    with lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise CheckpointError(
                f"another process trains into {folder} (it holds {folder / _LOCK}). Wait for it, or name another folder"
            ) from error
        yield


def publish(folder: Path, write: Callable[[Path], object], about: Mapping[str, Any]) -> None:
    """Put a new model into a folder, in the place of the one before.

    Args:
        folder: its home; made if need be.
        write: writes the model's files into the folder that it is given.
        about: what checkpoint.json says, beside "files".

    Raises:
        CheckpointError: the disk refused; the model before is as it was.
    """
    settle(folder)
    beside = folder / _NEW
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        write(beside)
        files = {path.name: file_digest(path) for path in sorted(beside.iterdir())}
        described = json.dumps({**about, "files": files}, indent=2) + "\n"
        (beside / DESCRIPTION).write_text(described, encoding="utf-8")
        for path in beside.iterdir():
            sync(path)
        sync(beside)
        beside.rename(folder / _READY)
        sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(beside, ignore_errors=True)
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise CheckpointError(
            f"the model cannot be written to {folder} ({reason}). Make room, then run it again: what the folder had "
            "before is there"
        ) from error
    settle(folder)


def settle(folder: Path) -> None:
    """Finish a `publish` that was cut off while files took their places; nothing otherwise.

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
            for name in (read_about(folder) or {"files": {}})["files"]:
                if name not in new:
                    (folder / name).unlink(missing_ok=True)
            for path in sorted(ready.iterdir()):
                if path.name != DESCRIPTION:
                    path.replace(folder / path.name)
            # The last one: while it is there, what the folder says of itself is not to be believed.
            sync(folder)
            described.replace(folder / DESCRIPTION)
        ready.rmdir()
        sync(folder)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"the new model in {ready} cannot take its place ({error}). Give back the right to write, and try again"
        ) from error


def read_about(folder: Path, *, verify: bool = False) -> dict[str, Any] | None:
    """Return what checkpoint.json says; None where there is none. `verify` compares the files with it.

    Raises:
        CheckpointError: it cannot be read, or a file is not what was saved.
    """
    path = folder / DESCRIPTION
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        files: dict[str, str] = about["files"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}). Restore it from a backup, or move it away"
        ) from error
    if verify:
        for name, wanted in files.items():
            if not (folder / name).is_file() or file_digest(folder / name) != wanted:
                raise CheckpointError(
                    f"{folder / name} is not what was saved: its SHA-256 is not {wanted[:12]}…. Restore it from a "
                    f"backup; without {path} training begins anew, and keeps what is there in {_EARLIER}"
                )
    return about


def set_aside(folder: Path) -> Path | None:
    """Move the model that lies in a folder to a place of its own below it; return that, None where there was none.

    Raises:
        CheckpointError: the disk refused.
    """
    files = [path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.is_file()]
    if not files:
        return None
    try:
        number = 1
        while (place := folder / _EARLIER / str(number)).exists():
            number += 1
        place.mkdir(parents=True)
        # The description first: what is cut off half way describes no model any more.
        for path in sorted(set(files), key=lambda path: path.name != DESCRIPTION):
            os.rename(path, place / path.name)  # noqa: PTH104 - not `replace`: nothing is there
        sync(folder)
    except OSError as error:
        raise CheckpointError(f"the model in {folder} cannot be moved away ({error.strerror})") from error
    return place
