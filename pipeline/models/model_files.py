"""The files of a model in its folder: their hashes, the weights among them, and the description beside them.

    <folder>/checkpoint.json    its description, with the SHA-256 of the other files
    <folder>/…                  the model, its tokenizer

Imports no torch. Only `pipeline.models.chain` writes such a folder, once.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import platform
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from pipeline.models.curve import CURVE
from pipeline.models.errors import CheckpointError, flaw_of

DESCRIPTION = "checkpoint.json"
ADAPTERS = "adapters"
"""The folder with each repository's adapter in a checkpoint (`pipeline.models.adapters`)."""

_INDEX = "model.safetensors.index.json"
_PART = re.compile(r"model-\d+-of-\d+\.safetensors")
_ADAPTER = "adapter_model.safetensors"
_OF_A_REPOSITORY = re.compile(rf"{ADAPTERS}/[^/]+/{re.escape(_ADAPTER)}")
_WHOLE = (_ADAPTER, "model.safetensors", _INDEX, "pytorch_model.bin")

# Names by transformers, PEFT and sentence-transformers (a retriever's pooling), present and past, and ours.
MODEL_FILES = (
    *("config.json", "generation_config.json", "model*.safetensors*", "pytorch_model*.bin*", "adapter_*"),
    *(
        "tokenizer*",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.*",
        "vocab.*",
        "merges.txt",
    ),
    *("spiece.model", "modules.json", "*_Pooling/config.json", "sentence_bert_config.json"),
    *("training_args.bin", CURVE, DESCRIPTION),
)
_NO_START = (DESCRIPTION, CURVE, "training_args.bin")


def files_in(folder: Path) -> list[str]:
    """Return the paths of a folder's files at any depth, relative to it and in order."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the names of a folder's files with the weights, in order; () without any.

    An adapter's folder has the adapter, or that of each repository. A large model is in several parts, beside an index.
    """
    first = next((name for name in _WHOLE if name in names), None)
    if first is None:
        return tuple(sorted(filter(_OF_A_REPOSITORY.fullmatch, names)))
    parts = sorted(filter(_PART.fullmatch, names)) if first == _INDEX else ()
    return (first, *parts)


def weights_digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 of weights from each file's by name: one file's own, or one of all parts; "" without any."""
    names = weights_of(files)
    if len(names) < 2:
        return "".join(files[name] for name in names)
    return hashlib.sha256(json.dumps([[name, files[name]] for name in names]).encode()).hexdigest()


def begun(folder: Path) -> str:
    """Return the SHA-256 of a folder's weights, as in `checkpoint_saved`; "" without any."""
    names = weights_of([path.name for path in folder.glob("*") if path.is_file()])
    return weights_digest({name: file_digest(folder / name) for name in names})


def start_of(folder: Path) -> str:
    """Return the SHA-256 of a folder's files behind a training: weights, configuration, tokenizer; "" without any.

    Of a single file it is the file's.
    """
    if folder.is_file():
        return file_digest(folder)
    result = {path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    digests = [(path.name, file_digest(path)) for path in sorted(result) if path.name not in _NO_START]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest() if digests else ""


def versions(libraries: Sequence[str]) -> dict[str, str]:
    """Return the versions of this program, of Python, and of the libraries behind a checkpoint's weights."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("everlean", *libraries)},
    }


class Checkpoint(BaseModel):
    """A link of a chain: the content of its checkpoint.json.

    Attributes:
        checkpoint: its id.
        parent: the checkpoint it was trained from; None: it was trained from `base`.
        base: the hub name or folder at the chain's beginning.
        task: its last task: a repository's key, or the caller's name of it.
        learned: the tasks so far, its own among them, each once, as far back as they had its configuration.
        data: the SHA-256 of its training data.
        data_seq: the log position of the data; 0 where it is from no log.
        config: the training configuration, with the seed.
        steps: of the optimiser.
        files: the SHA-256 of each of its other files, by name.
        versions: of this program, Python and the libraries of the training.
        device: of the training.
        seconds: of the training; of an interrupted run, those of its last attempt.
        warnings: about the model and its training.
        about: further facts, by the kind of model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkpoint: str
    parent: str | None
    base: str
    task: str
    learned: tuple[str, ...]
    data: str
    data_seq: int
    config: dict[str, Any]
    steps: int
    files: Annotated[dict[str, str], Field(min_length=1)]
    versions: dict[str, str]
    device: str
    seconds: float
    warnings: tuple[str, ...] = ()
    about: dict[str, Any] = Field(default_factory=dict)

    @property
    def weights(self) -> str:
        """The SHA-256 of the weights' file, or of all their parts."""
        return weights_digest(self.files)

    @property
    def adapters(self) -> Mapping[str, str]:
        """The name of each repository's adapter below `ADAPTERS`; {} of one model for all."""
        names: Mapping[str, str] = self.about.get("adapters", {})
        return names


def read_checkpoint(folder: Path, *, verify: bool = False) -> Checkpoint | None:
    """Return the description of a folder's checkpoint; None without one. `verify` compares the files with it.

    Raises:
        CheckpointError: it cannot be read, or a file differs from the saved one.
    """
    path = folder / DESCRIPTION
    remedy = (
        f"Restore it from a backup, or continue from another checkpoint; without {folder} it is trained again"
    )
    try:
        found = Checkpoint.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else flaw_of(error).lstrip(".: ")
        raise CheckpointError(f"{path} cannot be read ({reason}). {remedy}") from error
    if verify and (changed := changed_file(folder, found.files)) is not None:
        name, wanted = changed
        raise CheckpointError(
            f"{folder / name} is not what was saved: its SHA-256 is not {wanted[:12]}…. {remedy}"
        )
    return found


@contextmanager
def locked_folder(folder: Path, doing: str, remedy: str) -> Iterator[None]:
    """Lock a folder, made if need be, by a file in it.

    Raises:
        CheckpointError: another process has the lock (the message says what it is `doing`), or the disk refused.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be written ({error.strerror}). Make room, or give back the right to write"
        ) from error
    with lock:
        try:
            # Not `store.files.lock`: a loader's workers would have it too, and outlive a killed process.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise CheckpointError(f"another process {doing} (it holds {lock.name}). {remedy}") from error
        yield


def changed_file(folder: Path, files: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first file that is missing or differs, and its proper SHA-256."""
    for name, wanted in files.items():
        if not (folder / name).is_file() or file_digest(folder / name) != wanted:
            return name, wanted
    return None
