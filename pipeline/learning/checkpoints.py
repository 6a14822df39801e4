"""Checkpoints as links of a chain: each is a folder named by its id, whole or not there, and knows its parent.

    <folder>/<id>/checkpoint.json       what it is, with the SHA-256 of its other files
    <folder>/<id>/…                     the model
    <folder>/.runs/<id>/                what a run has written so far; gone when its checkpoint is there

The id is a hash of what the checkpoint follows from, so a run that is repeated makes the same checkpoint, and one that
was cut off is found again. Nothing here looks at a file's age, or imports torch.
"""

from __future__ import annotations

import abc
import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from safetensors import SafetensorError

from pipeline.durable import file_digest, make_durable, sync
from pipeline.learning.errors import LearningError

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
