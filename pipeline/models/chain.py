"""Checkpoints as links of a chain: each is a folder named by its id, is complete or absent, and names its parent.

    <folder>/<id>/checkpoint.json       its description, with the SHA-256 of its other files
    <folder>/<id>/…                     the model, and `curve.json`
    <folder>/.runs/<id>/                the files of a run in progress; removed once its checkpoint exists

The id is a hash of everything the checkpoint follows from, so a repeated run makes the same checkpoint, and an
interrupted one is found again. No file's age matters here. Imports no torch: the daemon looks here whether a
checkpoint's weights exist. `pipeline.models.model_files` describes such a folder.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.models.adapters import base_of, model_for, write_adapters
from pipeline.models.config import Config
from pipeline.models.datasets import TaskData
from pipeline.models.errors import CheckpointError, ConfigError, writing
from pipeline.models.model_files import (
    DESCRIPTION,
    Checkpoint,
    file_digest,
    files_in,
    locked_folder,
    read_checkpoint,
    start_of,
)
from pipeline.models.ranks import is_first, meet
from store.files import beside, folder_written_whole

_RUNS = ".runs"
_ID = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Step:
    """A task on top of a checkpoint: the id of the resulting checkpoint, made or not, and its origin.

    `start` is the folder or hub name of the model to train from, `learned` the checkpoint's tasks (`Checkpoint`).
    """

    checkpoint: str
    parent: str | None
    base: str
    start: str
    task: TaskData
    learned: tuple[str, ...]
    data: str
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The result of a training. `write` writes the model's files into an empty folder; the rest describes it."""

    write: Callable[[Path], object]
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
        """Return the folder of a checkpoint's run, there or not."""
        return self.folder / _RUNS / checkpoint

    def has(self, checkpoint: str) -> bool:
        return (self.path(checkpoint) / DESCRIPTION).exists()

    def step(self, task: TaskData, config: Config, *, parent: str | None, data: str) -> Step:
        """Return a task's step on top of a checkpoint (None: on top of `config.model_name`).

        With LoRA by repository it starts from the repository's own adapter, else from the base.

        Args:
            task: with its name.
            config: of the training.
            parent: the checkpoint's id.
            data: the SHA-256 of the data to train on.

        Raises:
            CheckpointError, ModelError: the parent cannot be read.
            ConfigError: it learned from another split, or is of the other kind; or a chain of adapters would begin with
                an adapter, or with LeanDojo's `.ckpt` file.
        """
        known: tuple[str, ...] = ()
        if parent is None:
            _check_first(config)
            base = start = config.model_name
            begun = start_of(Path(start))
        else:
            before = self.read(parent)
            _check_parent(config, before)
            base, start, begun = before.base, model_for(self.path(parent), task.name), ""
            known = before.learned if config.made(before.config) else ()
        identity = checkpoint_id(
            parent=parent, base=base, begun=begun, task=task.name, data=data, config=config.content()
        )
        learned = tuple(dict.fromkeys((*known, task.name)))
        return Step(identity, parent, base, start, task, learned, data, config.to_dict())

    @contextmanager
    def making(self, checkpoint: str) -> Iterator[Path]:
        """Lock the folder of a checkpoint's run, made if need be.

        Raises:
            CheckpointError: another process has it, or it cannot be made.
        """
        run = self.run(checkpoint)
        remedy = "Wait for it: it makes the same as this one would"
        with locked_folder(run, f"is making the checkpoint {checkpoint}", remedy):
            yield run

    def remove(self, checkpoint: str, indices: Path) -> None:
        """Remove a checkpoint's files, and its own embeddings in a folder of indices; missing files are no error.

        Raises:
            OSError: something cannot be removed.
        """
        folder = self.path(checkpoint)
        with suppress(CheckpointError):
            # A damaged description names no weights; the embeddings stay then.
            made = _digests(folder)
            if made:
                others = (
                    path.parent for path in self.folder.glob(f"*/{DESCRIPTION}") if path.parent != folder
                )
                made = made.difference(*map(_digests, others))
            for index in (path for weights in made for path in indices.glob(f"{weights}-*")):
                index.unlink(missing_ok=True)
        if folder.exists():
            shutil.rmtree(folder)

    def drop_runs(self) -> None:
        """Remove the files of runs without a process: their data and settings are out of date.

        A process killed while it wrote its checkpoint has left a part of that too.
        """
        for run in self.folder.glob(f"{_RUNS}/*"):
            with suppress(CheckpointError), self.making(run.name):
                shutil.rmtree(beside(self.path(run.name)), ignore_errors=True)
                shutil.rmtree(run, ignore_errors=True)

    def keep_only(self, checkpoint: str) -> None:
        """Remove the others, parts of them from an interrupted removal too, and the runs without a process.

        Raises:
            OSError: something cannot be removed.
        """
        for other in self.folder.glob("*"):
            if _ID.fullmatch(other.name) and other.name != checkpoint:
                shutil.rmtree(other)
        self.drop_runs()

    def read(self, checkpoint: str, *, verify: bool = False) -> Checkpoint:
        """Return a checkpoint's description; `verify` also compares its files with it.

        Raises:
            CheckpointError: it is missing or damaged.
        """
        path = self.path(checkpoint)
        found = read_checkpoint(path, verify=verify) if _ID.fullmatch(checkpoint) else None
        if found is None:
            raise CheckpointError(
                f"no checkpoint {checkpoint} in {self.folder}. `everlean models list` names those that there are"
            )
        if found.checkpoint != checkpoint:
            raise CheckpointError(
                f"{path} is the checkpoint {found.checkpoint} under another's name. Restore it from a backup, or "
                "continue from another checkpoint"
            )
        return found

    def make(
        self, step: Step, train: Callable[[Path], TrainingResult], *, from_parent: bool = True
    ) -> Checkpoint:
        """Return a step's checkpoint, after its training if it does not exist.

        Of processes that learn together the first one has the lock of the run's folder, and writes.

        Args:
            step: of the chain.
            train: trains in the folder of the run.
            from_parent: it needs the parent's weights, whole.

        Raises:
            CheckpointError: the checkpoint or its parent is damaged, another process is making it, or it cannot be
                written: the run's folder stays for a repeated run. And the errors of `train`.
        """
        if self.has(step.checkpoint):
            return self.read(step.checkpoint, verify=True)
        if step.parent is not None and from_parent:
            self.read(step.parent, verify=True)
        with self.making(step.checkpoint) if is_first() else nullcontext(self.run(step.checkpoint)) as run:
            if self.has(step.checkpoint):
                return self.read(step.checkpoint, verify=True)
            return self._put(step, train(run))

    def _put(self, step: Step, result: TrainingResult) -> Checkpoint:
        """Write a step's checkpoint: first beside, then into its place by one rename; then its run's folder goes."""
        if not is_first():
            meet()
            return self.read(step.checkpoint)
        place = self.path(step.checkpoint)
        remedy = "Make room, then run it again: it continues from the saved files of its run"
        with writing(f"the checkpoint {place}", remedy), folder_written_whole(place) as new:
            about = result.about
            if step.config.get("lora_by_repository"):
                parent = None if step.parent is None else self.path(step.parent)
                about = {**about, "adapters": write_adapters(new, step.task.name, result.write, parent)}
            else:
                result.write(new)
            made = Checkpoint(
                checkpoint=step.checkpoint,
                parent=step.parent,
                base=step.base,
                task=step.task.name,
                learned=step.learned,
                data=step.data,
                data_seq=step.task.data_seq,
                config=step.config,
                steps=result.steps,
                files={name: file_digest(new / name) for name in files_in(new)},
                versions=result.versions,
                device=result.device,
                seconds=result.seconds,
                warnings=result.warnings,
                about=about,
            )
            (new / DESCRIPTION).write_text(made.model_dump_json(indent=2) + "\n", encoding="utf-8")
            if place.exists():
                # Without a description: an interrupted copy of this very checkpoint. Nothing replaces a whole one.
                shutil.rmtree(place)
        shutil.rmtree(self.run(step.checkpoint), ignore_errors=True)
        meet()
        return made


def _check_first(config: Config) -> None:
    if not config.lora_by_repository:
        return
    if base_of(config.model_name) != config.model_name:
        raise ConfigError(
            f"model_name is {config.model_name}, an adapter: with lora_by_repository a chain begins with a whole "
            "model. Name the adapter's base, or merge the adapter into it"
        )
    if Path(config.model_name).is_file():
        # An adapter names its base, and PEFT loads that from a folder.
        raise ConfigError(
            f"model_name is {config.model_name}, a file: with lora_by_repository a chain begins with a folder or a "
            "model of the hub. Learn a repository without lora_by_repository, and name its checkpoint"
        )


def _check_parent(config: Config, parent: Checkpoint) -> None:
    learned = parent.config["split"]
    if learned != config.split:
        # The sides of one split are not those of the other: training data may be on the other's test side.
        raise ConfigError(
            f"split is {config.split!r}, and the checkpoint {parent.checkpoint} learned from {learned!r}, whose "
            f"training side has theorems of the other's test side. Set split = {learned!r}, or begin another chain of "
            "checkpoints"
        )
    if bool(parent.adapters) != config.lora_by_repository:
        held = "an adapter for each repository" if parent.adapters else "one model for all repositories"
        raise ConfigError(
            f"lora_by_repository is {str(config.lora_by_repository).lower()}, and the checkpoint {parent.checkpoint} "
            f"holds {held}. Set it to {str(not config.lora_by_repository).lower()}, or begin another chain of "
            "checkpoints"
        )


def checkpoint_id(
    *, parent: str | None, base: str, begun: str, task: str, data: str, config: Mapping[str, Any]
) -> str:
    """Return a checkpoint's id from its origin: 16 hexadecimal digits.

    `begun` is the SHA-256 of the chain's first model, if that is a folder: its weights may change under the same name.
    `config` has the fields of a configuration that decide the weights.
    """
    about = [parent, base, begun, task, data, dict(config)]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def _digests(folder: Path) -> frozenset[str]:
    """Return the retrievers' digests in a folder's description: the one, or those of each repository's adapter."""
    found = read_checkpoint(folder)
    about = {} if found is None else found.about
    return frozenset([*about.get("digests", {}).values(), *([about["digest"]] if "digest" in about else [])])
