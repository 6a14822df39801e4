"""Checkpoints as links of a chain: each is a folder named by its id, is complete or absent, and names its parent.

    <folder>/<id>/checkpoint.json       its description, with the SHA-256 of its other files
    <folder>/<id>/…                     the model
    <folder>/.runs/<id>/                the files of a run in progress; removed once its checkpoint exists

The id is a hash of everything that the checkpoint follows from, so a run that is repeated makes the same checkpoint,
and an interrupted one is found again. No file's age matters here. Imports no torch: the daemon looks here whether a
checkpoint's weights exist.

A trainer that is used as a library writes one folder again and again instead (`publish`). That folder always holds a
complete model, the earlier or the new one: new files are written beside, flushed, and renamed as a whole to `.ready`;
from then on they count, and take the places of the earlier ones. A process that is killed in between leaves the rest
of that to the next one that opens the folder (`settle`).

    <folder>/checkpoint.json    its description, with the SHA-256 of the other files
    <folder>/…                  the model, its tokenizer
    <folder>/.earlier/<n>/      models of other settings that lay here before; nothing is overwritten
"""

from __future__ import annotations

import abc
import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pipeline.durable import file_digest, make_durable, sync
from pipeline.models.errors import CheckpointError, LearningError

_INDEX = "model.safetensors.index.json"
_PART = re.compile(r"model-\d+-of-\d+\.safetensors")
_WHOLE = ("adapter_model.safetensors", "model.safetensors", _INDEX, "pytorch_model.bin")


def weights_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the names of a folder's files with the weights, in order; () where there is none.

    An adapter's folder has the adapter. A large model is in several parts, beside an index that names them.
    """
    first = next((name for name in _WHOLE if name in names), None)
    if first is None:
        return ()
    parts = sorted(filter(_PART.fullmatch, names)) if first == _INDEX else ()
    return (first, *parts)


def weights_digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 of weights from that of each file, by name: the file's own, or one of all parts' names and
    digests; "" where no file is weights."""
    names = weights_of(files)
    if len(names) < 2:
        return "".join(files[name] for name in names)
    return hashlib.sha256(json.dumps([[name, files[name]] for name in names]).encode()).hexdigest()


DESCRIPTION = "checkpoint.json"
_RUNS = ".runs"
_ID = re.compile("[0-9a-f]{16}")


class Described(Protocol):
    """What every checkpoint.json says; `files` are the SHA-256 of each of the other files, by name."""

    @property
    def checkpoint(self) -> str: ...

    @property
    def parent(self) -> str | None: ...

    @property
    def base(self) -> str: ...

    @property
    def data_seq(self) -> int: ...

    @property
    def config(self) -> dict[str, Any]: ...

    @property
    def seed(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def files(self) -> Mapping[str, str]: ...

    @property
    def fisher(self) -> str | None: ...

    @property
    def versions(self) -> dict[str, str]: ...

    @property
    def device(self) -> str: ...

    @property
    def seconds(self) -> float: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...

    def as_json(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Described)


class Checkpoints(abc.ABC, Generic[T]):
    """The checkpoints of one folder. `error` is what its methods raise for what is missing, damaged or held."""

    error: ClassVar[type[LearningError]]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abc.abstractmethod
    def described(self, found: Any) -> T:
        """Return what a checkpoint.json says.

        Raises:
            ValueError, TypeError, KeyError: it describes no checkpoint of this kind.
        """

    def path(self, checkpoint: str) -> Path:
        """Return the folder of a checkpoint, there or not."""
        return self.folder / checkpoint

    def run(self, checkpoint: str) -> Path:
        """Return the folder in which a checkpoint is being made, there or not."""
        return self.folder / _RUNS / checkpoint

    def has(self, checkpoint: str) -> bool:
        return (self.path(checkpoint) / DESCRIPTION).exists()

    @contextmanager
    def making(self, checkpoint: str) -> Iterator[Path]:
        """Hold the run's folder of a checkpoint, made if need be, for this process alone.

        Raises:
            LearningError: (`error`) another process has it, or it cannot be made.
        """
        run = self.run(checkpoint)
        try:
            run.mkdir(parents=True, exist_ok=True)
            lock = (run / "lock").open("w")
        except OSError as error:
            raise self.error(f"{run} cannot be written ({error.strerror})") from error
        with lock:
            try:
                # Not `flock`: the loader's workers would inherit it, and outlive a process that is killed.
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:
                raise self.error(
                    f"another process is making the checkpoint {checkpoint} (it holds {run / 'lock'}). Wait for it: "
                    "what it makes is what this one would"
                ) from error
            yield run

    def drop_runs(self) -> None:
        """Remove what runs have written that no process is at: those of data and settings that nobody has any more."""
        for run in self.folder.glob(f"{_RUNS}/*"):
            with suppress(self.error), self.making(run.name):
                shutil.rmtree(run, ignore_errors=True)

    def read(self, checkpoint: str, *, verify: bool = False) -> T:
        """Return a checkpoint's description; `verify` also compares its files with it.

        Raises:
            LearningError: (`error`) it is not there, or is damaged.
        """
        path = self.path(checkpoint)
        try:
            if not _ID.fullmatch(checkpoint):
                raise FileNotFoundError(checkpoint)
            found = self.described(json.loads((path / DESCRIPTION).read_bytes()))
        except FileNotFoundError as error:
            raise self.error(
                f"no checkpoint {checkpoint} in {self.folder}. `unsorry models list` names those that there are"
            ) from error
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise self.error(f"{path / DESCRIPTION} cannot be read ({error}). {_remedy(path)}") from error
        if found.checkpoint != checkpoint:
            raise self.error(
                f"{path} is the checkpoint {found.checkpoint} under another's name. {_remedy(path)}"
            )
        if verify:
            for name, wanted in found.files.items():
                if _digest_if_there(path / name) != wanted:
                    raise self.error(
                        f"{path / name} is not what was saved: its SHA-256 is not {wanted[:12]}…. {_remedy(path)}"
                    )
        return found

    def once(self, checkpoint: str, *, parent: str | None, make: Callable[[Path], T]) -> T:
        """Return a checkpoint; where it is not there, `make` it, in the run's folder that it is given.

        Raises:
            LearningError: (`error`) the checkpoint or its parent is damaged, or another process is making it. And what
                `make` raises.
        """
        if self.has(checkpoint):
            return self.read(checkpoint, verify=True)
        if parent is not None:
            self.read(parent, verify=True)
        with self.making(checkpoint) as run:
            if self.has(checkpoint):
                return self.read(checkpoint, verify=True)
            return make(run)

    def put(
        self, checkpoint: str, write: Callable[[Path], object], describe: Callable[[dict[str, str]], T]
    ) -> T:
        """Write a checkpoint: first beside, then into its place by one rename; then its run's folder goes.

        Args:
            checkpoint: its id.
            write: makes a folder with the model's files.
            describe: says what checkpoint.json has, given the SHA-256 of each of them.

        Raises:
            LearningError: (`error`) it could not be written (a full disk): there is no checkpoint then, and the run's
                folder stays, so that a repeated run goes on from what is there.
        """
        # Not at the top: the daemon imports this module, and has no safetensors.
        from safetensors import SafetensorError

        place = self.path(checkpoint)
        beside = self.folder / f".new-{checkpoint}"
        try:
            shutil.rmtree(beside, ignore_errors=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            write(beside)
            made = describe({path.name: file_digest(path) for path in sorted(beside.iterdir())})
            text = json.dumps(made.as_json(), indent=2) + "\n"
            (beside / DESCRIPTION).write_text(text, encoding="utf-8")
            make_durable(beside)
            if place.exists():
                # Without a description: a copy of this very checkpoint that was cut off. Nothing goes over a whole one.
                shutil.rmtree(place)
            beside.rename(place)
            sync(self.folder)
        except (OSError, SafetensorError, self.error) as error:
            shutil.rmtree(beside, ignore_errors=True)
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            raise self.error(
                f"the checkpoint {checkpoint} cannot be written to {self.folder} ({reason}). Make room, then run it "
                "again: it goes on from what its run has saved"
            ) from error
        shutil.rmtree(self.run(checkpoint), ignore_errors=True)
        return made


def checkpoint_id(
    *, parent: str | None, base: str, begun: str, task: str, data: str, config: Mapping[str, Any]
) -> str:
    """Return the id of the checkpoint that follows from these: 16 hexadecimal digits.

    `begun` is the SHA-256 of what the chain began with, where that is in a folder, as a folder may be given other
    weights under its name. `config` is what of a configuration decides the weights.
    """
    about = [parent, base, begun, task, data, dict(config)]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def _remedy(path: Path) -> str:
    return f"Restore it from a backup, or go on from another checkpoint; without the folder {path} it is trained again"


def _digest_if_there(path: Path) -> str | None:
    try:
        return file_digest(path)
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a chain.

    Attributes:
        checkpoint: its id.
        parent: the checkpoint that it was trained from; None where that was `base`.
        base: the hub name or folder that the chain began with.
        task: the repository's key.
        data: the SHA-256 of what it was trained on.
        data_seq: the log position of the data.
        config: the training configuration.
        seed: of the run.
        steps: of the optimiser.
        files: the SHA-256 of each of its other files, by name.
        versions: of this program, Python and the libraries that made it.
        device: what it was trained on.
        seconds: how long that took; of a run that was cut off, its last attempt.
        warnings: what a reader should know of it.
        about: what else its checkpoint.json says.
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
    def fisher(self) -> None:
        """No Fisher information: these models are not kept from forgetting by it."""
        return None

    def as_json(self) -> dict[str, Any]:
        said = asdict(self)
        about: dict[str, Any] = said.pop("about")
        return {**about, **said}


_FIELDS = frozenset(item.name for item in fields(Link)) - {"about"}


class Chain(Checkpoints[Link]):
    """The checkpoints of one folder."""

    error: ClassVar[type[LearningError]] = CheckpointError

    def described(self, found: Any) -> Link:
        """Return what a checkpoint.json says."""
        if not isinstance(found, dict) or not weights_of(found.get("files", {})):
            raise ValueError("it describes no checkpoint")
        known = {key: value for key, value in found.items() if key in _FIELDS}
        about = {key: value for key, value in found.items() if key not in _FIELDS}
        return Link(**{**known, "warnings": tuple(found["warnings"])}, about=about)


def versions(libraries: Sequence[str]) -> dict[str, str]:
    """Return the versions of this program, of Python, and of the libraries that a checkpoint's weights follow from."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("unsorry", *libraries)},
    }


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
    from safetensors import SafetensorError

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
