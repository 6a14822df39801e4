"""Checkpoints as links of a chain: each is a folder named by its id, is complete or absent, and names its parent.

    <folder>/<id>/checkpoint.json       its description, with the SHA-256 of its other files
    <folder>/<id>/…                     the model, and `curve.json`
    <folder>/.runs/<id>/                the files of a run in progress; removed once its checkpoint exists

The id is a hash of everything that the checkpoint follows from, so a run that is repeated makes the same checkpoint,
and an interrupted one is found again. No file's age matters here. Imports no torch: the daemon looks here whether a
checkpoint's weights exist.

A trainer that is used as a library writes one folder again and again instead (`publish`). That folder always holds a
complete model, the earlier or the new one: new files are written beside, flushed, and renamed as a whole to `.ready`;
from then on they count, and take the places of the earlier ones. If a process is killed in between, the next one
that opens the folder finishes the move (`settle`).

    <folder>/checkpoint.json    its description, with the SHA-256 of the other files
    <folder>/…                  the model, its tokenizer
    <folder>/.earlier/<n>/      models of other settings that lay here before; nothing is overwritten
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from pipeline.models.config import Config
from pipeline.models.curve import CURVE
from pipeline.models.datasets import TaskData
from pipeline.models.errors import CheckpointError, ConfigError, disk_reason
from store.files import sync, sync_tree

# ----------------------------------------------------------------------------------------------------
# Files that are known by their content. Standard library only.


def files_in(folder: Path) -> list[str]:
    """Return the paths of a folder's files, those in its folders among them, relative to it and in order."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


DESCRIPTION = "checkpoint.json"
ADAPTERS = "adapters"
"""The folder of a checkpoint that has an adapter for each repository (`pipeline.models.tactics.adapters`)."""
FISHER = "fisher.safetensors"
_RUNS = ".runs"
_ID = re.compile("[0-9a-f]{16}")

_INDEX = "model.safetensors.index.json"
_PART = re.compile(r"model-\d+-of-\d+\.safetensors")
_ADAPTER = "adapter_model.safetensors"
_OF_A_REPOSITORY = re.compile(rf"{ADAPTERS}/[^/]+/{re.escape(_ADAPTER)}")
_WHOLE = (_ADAPTER, "model.safetensors", _INDEX, "pytorch_model.bin")

_NEW = ".new"
_READY = ".ready"
_EARLIER = ".earlier"
_LOCK = ".lock"
# Names that transformers and PEFT write, or wrote once, and ours.
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
    *("spiece.model", "training_args.bin", "prompt.json", "base.json", CURVE, DESCRIPTION),
)
_NO_START = (DESCRIPTION, CURVE, "training_args.bin", "base.json")


# ---- a model's files


def weights_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the names of a folder's files with the weights, in order; () without any.

    An adapter's folder has the adapter, or that of each repository. A large model is in several parts, beside an index
    that names them.
    """
    first = next((name for name in _WHOLE if name in names), None)
    if first is None:
        return tuple(sorted(filter(_OF_A_REPOSITORY.fullmatch, names)))
    parts = sorted(filter(_PART.fullmatch, names)) if first == _INDEX else ()
    return (first, *parts)


def weights_digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 of weights from that of each file, by name: the file's own, or one of all parts' names and
    digests; "" where no file is weights."""
    names = weights_of(files)
    if len(names) < 2:
        return "".join(files[name] for name in names)
    return hashlib.sha256(json.dumps([[name, files[name]] for name in names]).encode()).hexdigest()


def begun(folder: Path) -> str:
    """Return the SHA-256 of a folder's weights, as `checkpoint_saved` has it; "" where there are none."""
    names = weights_of([path.name for path in folder.glob("*") if path.is_file()])
    return weights_digest({name: file_digest(folder / name) for name in names})


def start_of(folder: Path) -> str:
    """Return the SHA-256 of all that training from a folder follows from: the weights, each part of them, their
    configuration, the tokenizer and its template; "" of a hub's model."""
    found = {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    digests = [(path.name, file_digest(path)) for path in sorted(found) if path.name not in _NO_START]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest() if digests else ""


def versions(libraries: Sequence[str]) -> dict[str, str]:
    """Return the versions of this program, of Python, and of the libraries that a checkpoint's weights follow from."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("everlean", *libraries)},
    }


# ---- the chain


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A link of a chain.

    Attributes:
        checkpoint: its id.
        parent: the checkpoint that it was trained from; None where that was `base`.
        base: the hub name or folder that the chain began with.
        task: its last task: a repository's key, or the caller's name of it.
        data: the SHA-256 of the data that it was trained on.
        data_seq: the log position of the data; 0 where it is from no log.
        config: the training configuration.
        seed: of the run.
        steps: of the optimiser.
        files: the SHA-256 of each of its other files, by name.
        versions: of this program, Python and the libraries that made it.
        device: of the training.
        seconds: of the training; of an interrupted run, those of its last attempt.
        warnings: about the model and what it keeps for the next task.
        about: the other fields of its checkpoint.json.
    """

    checkpoint: str
    parent: str | None
    base: str
    task: str
    data: str
    data_seq: int
    config: dict[str, Any]
    seed: int
    steps: int
    files: dict[str, str]
    versions: dict[str, str]
    device: str
    seconds: float
    warnings: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> str:
        """The SHA-256 of the weights' file, or of all their parts."""
        return weights_digest(self.files)

    @property
    def fisher(self) -> str | None:
        """The SHA-256 of the Fisher information's file, if there is one."""
        return self.files.get(FISHER)

    @property
    def digest(self) -> str:
        """The SHA-256 of a retriever's weights by name and value (`libraries.tensors_digest`)."""
        return str(self.about["digest"])

    def as_json(self) -> dict[str, Any]:
        """Return the content of checkpoint.json."""
        content = asdict(self)
        about: dict[str, Any] = content.pop("about")
        return {**about, **content}

    @classmethod
    def of_json(cls, content: Any) -> Checkpoint:
        """Read the content of a checkpoint.json.

        Raises:
            ValueError, TypeError, KeyError: it describes no checkpoint.
        """
        if not isinstance(content, dict) or not weights_of(content.get("files", {})):
            raise ValueError("it describes no checkpoint")
        known = {key: value for key, value in content.items() if key in _FIELDS}
        about = {key: value for key, value in content.items() if key not in _FIELDS}
        return cls(**{**known, "warnings": tuple(content["warnings"])}, about=about)


_FIELDS = frozenset(item.name for item in fields(Checkpoint)) - {"about"}


@dataclass(frozen=True, slots=True)
class Step:
    """A task on top of a checkpoint: the id of the checkpoint that it leads to, made or not, and its origin.

    `start` is the folder or hub name of the model to train from.
    """

    checkpoint: str
    parent: str | None
    base: str
    start: str
    task: TaskData
    data: str
    config: dict[str, Any]
    seed: int


@dataclass(frozen=True, slots=True)
class TrainingFacts:
    """The facts of a training that are known when it has ended, for the checkpoint's description."""

    steps: int
    device: str
    seconds: float
    versions: dict[str, str]
    warnings: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)


class Chain:
    """The checkpoints of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, checkpoint: str) -> Path:
        """Return the folder of a checkpoint, there or not."""
        return self.folder / checkpoint

    def run(self, checkpoint: str) -> Path:
        """Return the folder in which a checkpoint is being made, there or not."""
        return self.folder / _RUNS / checkpoint

    def has(self, checkpoint: str) -> bool:
        return (self.path(checkpoint) / DESCRIPTION).exists()

    def start(self, config: Config, parent: str | None) -> str:
        """Return the folder or hub name of the model that a task on top of `parent` is trained from.

        Raises:
            CheckpointError: the parent cannot be read.
            ConfigError: it learned from another split.
        """
        if parent is None:
            return config.model_name
        learned = self.read(parent).config["split"]
        if learned != config.split:
            # The sides of one split are not those of the other: what was learned from may be what is measured on.
            raise ConfigError(
                f"split is {config.split!r}, and the checkpoint {parent} learned from {learned!r}, whose training side "
                f"has theorems of the other's test side. Set split = {learned!r}, or begin another chain of checkpoints"
            )
        return str(self.path(parent))

    def step(
        self,
        task: TaskData,
        config: Config,
        *,
        parent: str | None,
        data: str,
        begun: Callable[[Path], str] = start_of,
    ) -> Step:
        """Return the step that a task is on top of a checkpoint (None: on top of `config.model_name`).

        Args:
            task: with its name.
            config: of the training.
            parent: the checkpoint's id.
            data: the SHA-256 of the data to train on.
            begun: hashes a folder that a chain begins with.

        Raises:
            CheckpointError, ConfigError: as `start`.
        """
        base = config.model_name if parent is None else self.read(parent).base
        identity = checkpoint_id(
            parent=parent,
            base=base,
            begun=begun(Path(config.model_name)) if parent is None else "",
            task=task.name,
            data=data,
            config=config.content(),
        )
        start = self.start(config, parent)
        return Step(identity, parent, base, start, task, data, config.to_dict(), config.seed)

    @contextmanager
    def making(self, checkpoint: str) -> Iterator[Path]:
        """Lock the folder of a checkpoint's run, made if need be.

        Raises:
            CheckpointError: another process has it, or it cannot be made.
        """
        run = self.run(checkpoint)
        busy = (
            f"another process is making the checkpoint {checkpoint} (it holds {run / 'lock'}). Wait for it: it makes "
            "the same as this one would"
        )
        with _locked(run, "lock", busy):
            yield run

    def remove(self, checkpoint: str, indices: Path) -> None:
        """Remove a checkpoint's files, and the embeddings that it made, in a folder of indices; what is gone is gone.

        Raises:
            OSError: something cannot be removed.
        """
        folder = self.path(checkpoint)
        with suppress(CheckpointError):
            # A damaged description names no weights; the embeddings stay then.
            made = (read_about(folder) or {}).get("digest")
            for described in indices.glob("*/index.json") if made else ():
                if json.loads(described.read_bytes()).get("weights") == made:
                    shutil.rmtree(described.parent)
        if folder.exists():
            shutil.rmtree(folder)

    def drop_runs(self) -> None:
        """Remove the files of runs that no process is working on: their data and settings are out of date."""
        for run in self.folder.glob(f"{_RUNS}/*"):
            with suppress(CheckpointError), self.making(run.name):
                shutil.rmtree(run, ignore_errors=True)

    def read(self, checkpoint: str, *, verify: bool = False) -> Checkpoint:
        """Return a checkpoint's description; `verify` also compares its files with it.

        Raises:
            CheckpointError: it is not there, or is damaged.
        """
        path = self.path(checkpoint)
        try:
            if not _ID.fullmatch(checkpoint):
                raise FileNotFoundError(checkpoint)
            found = Checkpoint.of_json(json.loads((path / DESCRIPTION).read_bytes()))
        except FileNotFoundError as error:
            raise CheckpointError(
                f"no checkpoint {checkpoint} in {self.folder}. `everlean models list` names those that there are"
            ) from error
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CheckpointError(
                f"{path / DESCRIPTION} cannot be read ({error}). {_remedy(path)}"
            ) from error
        if found.checkpoint != checkpoint:
            raise CheckpointError(
                f"{path} is the checkpoint {found.checkpoint} under another's name. {_remedy(path)}"
            )
        if verify and (changed := _changed(path, found.files)) is not None:
            name, wanted = changed
            raise CheckpointError(
                f"{path / name} is not what was saved: its SHA-256 is not {wanted[:12]}…. {_remedy(path)}"
            )
        return found

    def ancestors(self, checkpoint: str) -> list[Checkpoint]:
        """Return a checkpoint and those it was trained from, the newest first.

        Raises:
            CheckpointError: a link is missing, or is an ancestor of itself.
        """
        found = [self.read(checkpoint)]
        seen = {checkpoint}
        while (parent := found[-1].parent) is not None:
            if parent in seen:
                raise CheckpointError(
                    f"the checkpoint {parent} goes back to itself: a checkpoint.json in {self.folder} was changed. "
                    "Restore it from a backup"
                )
            seen.add(parent)
            found.append(self.read(parent))
        return found

    def once(self, step: Step, make: Callable[[Path], Checkpoint], *, hold: bool = True) -> Checkpoint:
        """Return a step's checkpoint; where it does not exist, `make` it in its run's folder.

        Without `hold` this process joins a run whose lock another one has.

        Raises:
            CheckpointError: the checkpoint or its parent is damaged, or another process is making it. And what `make`
                raises.
        """
        if self.has(step.checkpoint):
            return self.read(step.checkpoint, verify=True)
        if step.parent is not None:
            self.read(step.parent, verify=True)
        with self.making(step.checkpoint) if hold else nullcontext(self.run(step.checkpoint)) as run:
            if self.has(step.checkpoint):
                return self.read(step.checkpoint, verify=True)
            return make(run)

    def put(self, step: Step, write: Callable[[Path], object], facts: TrainingFacts) -> Checkpoint:
        """Write a step's checkpoint: first beside, then into its place by one rename; then its run's folder goes.

        Args:
            step: of the chain.
            write: writes the model's files into an empty folder.
            facts: of the training.

        Raises:
            CheckpointError: it could not be written (a full disk): there is no checkpoint then, and the run's folder
                stays, so that a repeated run continues from it.
        """
        place = self.path(step.checkpoint)
        beside = self.folder / f".new-{step.checkpoint}"

        def described(files: dict[str, str]) -> Checkpoint:
            return Checkpoint(
                checkpoint=step.checkpoint,
                parent=step.parent,
                base=step.base,
                task=step.task.name,
                data=step.data,
                data_seq=step.task.data_seq,
                config=step.config,
                seed=step.seed,
                steps=facts.steps,
                files=files,
                versions=facts.versions,
                device=facts.device,
                seconds=facts.seconds,
                warnings=facts.warnings,
                about=facts.about,
            )

        failed = (
            f"the checkpoint {step.checkpoint} cannot be written to {self.folder}",
            "Make room, then run it again: it continues from the saved files of its run",
        )
        with writing(beside, failed):
            made = Checkpoint.of_json(_write_model(beside, write, lambda files: described(files).as_json()))
            if place.exists():
                # Without a description: an interrupted copy of this very checkpoint. Nothing replaces a whole one.
                shutil.rmtree(place)
            beside.rename(place)
            sync(self.folder)
        shutil.rmtree(self.run(step.checkpoint), ignore_errors=True)
        return made


def checkpoint_id(
    *, parent: str | None, base: str, begun: str, task: str, data: str, config: Mapping[str, Any]
) -> str:
    """Return the id of the checkpoint that follows from these: 16 hexadecimal digits.

    `begun` is the SHA-256 of the model that the chain began with, where that is in a folder, as a folder may be given
    other weights under its name. `config` has the fields of a configuration that decide the weights.
    """
    about = [parent, base, begun, task, data, dict(config)]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


# ---- a trainer's folder


def lock_folder(folder: Path) -> Any:
    """Make the folder if need be and lock it; a context manager.

    Raises:
        CheckpointError: another process trains into it, or it cannot be made.
    """
    busy = f"another process trains into {folder} (it holds {folder / _LOCK}). Wait for it, or name another folder"
    return _locked(folder, _LOCK, busy)


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
    beside = folder / _NEW
    failed = (
        f"the model cannot be written to {folder}",
        "Make room, then run it again: the earlier files of the folder are unchanged",
    )
    with writing(beside, failed):
        _write_model(beside, write, lambda files: {**about, "files": files})
        beside.rename(folder / _READY)
        sync(folder)
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
            for name in (read_about(folder) or {"files": {}})["files"]:
                if name not in new:
                    (folder / name).unlink(missing_ok=True)
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


def read_about(folder: Path, *, verify: bool = False) -> dict[str, Any] | None:
    """Return the content of checkpoint.json; None without one. `verify` compares the files with it.

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
    if verify and (changed := _changed(folder, files)) is not None:
        name, wanted = changed
        raise CheckpointError(
            f"{folder / name} is not what was saved: its SHA-256 is not {wanted[:12]}…. Restore it from a backup; "
            f"without {path} training begins anew, and keeps the present files in {_EARLIER}"
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
        # The description first: a half-moved model has none.
        for path in sorted(set(files), key=lambda path: path.name != DESCRIPTION):
            os.rename(path, place / path.name)  # noqa: PTH104 - not `replace`: nothing is there
        sync(folder)
    except OSError as error:
        raise CheckpointError(f"the model in {folder} cannot be moved away ({error.strerror})") from error
    return place


# ---- shared by both


def _write_model(
    folder: Path, write: Callable[[Path], object], describe: Callable[[dict[str, str]], dict[str, Any]]
) -> dict[str, Any]:
    """Write a model and its description into a new folder, flushed; return the description."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write(folder)
    content = describe({name: file_digest(folder / name) for name in files_in(folder)})
    (folder / DESCRIPTION).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    sync_tree(folder)
    return content


@contextmanager
def writing(beside: Path, failed: tuple[str, str]) -> Iterator[None]:
    """Turn a disk's error into a CheckpointError with `failed` (message, remedy), and remove the folder `beside`."""
    # Not at the top: the daemon imports this module, and has no safetensors.
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError, CheckpointError) as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise CheckpointError(f"{failed[0]} ({disk_reason(error)}). {failed[1]}") from error


@contextmanager
def _locked(folder: Path, name: str, busy: str) -> Iterator[None]:
    """Lock a file in a folder, made if need be; `busy` is the error message if another process has the lock."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / name).open("w")
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be written ({error.strerror})") from error
    with lock:
        try:
            # Not `store.files.lock`: a loader's workers would have it too, and outlive a process that is killed.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise CheckpointError(busy) from error
        yield


def _changed(folder: Path, files: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first file that is missing or not what was saved, and the SHA-256 that it should have."""
    for name, wanted in files.items():
        if not (folder / name).is_file() or file_digest(folder / name) != wanted:
            return name, wanted
    return None


def _remedy(path: Path) -> str:
    return (
        f"Restore it from a backup, or continue from another checkpoint; without {path} it is trained again"
    )
