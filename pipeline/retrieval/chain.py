"""Checkpoints as links of a chain: each is a folder named by its id, whole or not there, and knows its parent.

    <folder>/<id>/checkpoint.json       what it is (`Checkpoint`)
    <folder>/<id>/model.safetensors     the encoder's weights, with config.json and the tokenizer beside them
    <folder>/<id>/fisher.safetensors    what EWC keeps, or replay.jsonl what replay keeps, where either does
    <folder>/.runs/<id>/                what a run has written so far; gone when its checkpoint is there

The id is a hash of what the checkpoint follows from, so a run that is repeated makes the same checkpoint, and one that
was cut off is found again. Nothing here looks at a file's age.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pipeline.retrieval.config import TrainingConfig
from pipeline.retrieval.encoder import WEIGHTS, weights_digest
from pipeline.retrieval.errors import CheckpointError
from pipeline.retrieval.fisher import FISHER
from pipeline.retrieval.retriever import PremiseRetriever
from pipeline.retrieval.saving import make_durable, sync
from pipeline.retrieval.strategies import Kept

DESCRIPTION = "checkpoint.json"
_RUNS = ".runs"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A link of a chain.

    Attributes:
        checkpoint: its id.
        parent: the checkpoint that it was trained from; None where that was `base`.
        base: the hub name or folder that the chain began with.
        task: what it was trained on last: a repository's key, or what the caller calls it.
        data: the SHA-256 of the corpus, the training examples, and those that chose the best epoch.
        data_seq: the log position of the data; 0 where it is from no log.
        config: the training configuration.
        seed: of the run.
        steps: of the optimiser.
        files: the SHA-256 of each of its other files, by name.
        digest: the SHA-256 of the weights by name and value (`encoder.weights_digest`).
        versions: of this program, Python and the libraries that made it.
        device: what it was trained on.
        seconds: how long that took; of a run that was cut off, its last attempt.
        warnings: what a reader should know of what it keeps for the next task.
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
    digest: str
    versions: dict[str, str]
    device: str
    seconds: float
    warnings: tuple[str, ...]

    @property
    def weights(self) -> str:
        """The SHA-256 of the weights' file."""
        return self.files[WEIGHTS]

    @property
    def fisher(self) -> str | None:
        """The SHA-256 of the Fisher information's file, if there is one."""
        return self.files.get(FISHER)


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

    @contextmanager
    def making(self, checkpoint: str) -> Iterator[Path]:
        """Hold the run's folder of a checkpoint, made if need be, for this process alone.

        Raises:
            CheckpointError: another process has it, or it cannot be made.
        """
        run = self.run(checkpoint)
        try:
            run.mkdir(parents=True, exist_ok=True)
            lock = (run / "lock").open("w")
        except OSError as error:
            raise CheckpointError(f"{run} cannot be written ({error.strerror})") from error
        with lock:
            try:
                # Not `flock`: the loader's workers would inherit it, and outlive a process that is killed.
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:
                raise CheckpointError(
                    f"another process is making the checkpoint {checkpoint} (it holds {run / 'lock'}). Wait for it: "
                    "what it makes is what this one would"
                ) from error
            yield run

    def drop_runs(self) -> None:
        """Remove what runs have written that no process is at: those of data and settings that nobody has any more."""
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
            found = _described((path / DESCRIPTION).read_bytes())
        except FileNotFoundError as error:
            raise CheckpointError(
                f"no checkpoint {checkpoint} in {self.folder}. `unsorry models list` names those that there are"
            ) from error
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CheckpointError(
                f"{path / DESCRIPTION} cannot be read ({error}). {_remedy(path)}"
            ) from error
        if found.checkpoint != checkpoint:
            raise CheckpointError(
                f"{path} is the checkpoint {found.checkpoint} under another's name. {_remedy(path)}"
            )
        if verify:
            for name, wanted in found.files.items():
                if _digest_if_there(path / name) != wanted:
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
                    f"the checkpoint {parent} goes back to itself: a {DESCRIPTION} in {self.folder} was changed. "
                    "Restore it from a backup"
                )
            seen.add(parent)
            found.append(self.read(parent))
        return found

    def save(
        self,
        checkpoint: str,
        model: PremiseRetriever,
        kept: Kept,
        *,
        parent: str | None,
        base: str,
        task: str,
        data: str,
        data_seq: int,
        config: TrainingConfig,
        steps: int,
        device: str,
        seconds: float,
    ) -> Checkpoint:
        """Write a checkpoint: first beside, then into its place by one rename; then its run's folder goes.

        Raises:
            CheckpointError: it could not be written (a full disk): there is no checkpoint then, and the run's folder
                stays, so that a repeated run only writes.
        """
        place = self.path(checkpoint)
        beside = self.folder / f".new-{checkpoint}"
        try:
            shutil.rmtree(beside, ignore_errors=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            model.save(beside)
            kept.save(beside)
            files = {path.name: file_digest(path) for path in sorted(beside.iterdir())}
            made = Checkpoint(
                checkpoint=checkpoint,
                parent=parent,
                base=base,
                task=task,
                data=data,
                data_seq=data_seq,
                config=config.to_dict(),
                seed=config.seed,
                steps=steps,
                files=files,
                digest=weights_digest(model.encoder.state_dict()),
                versions=versions(),
                device=device,
                seconds=seconds,
                warnings=kept.warnings,
            )
            (beside / DESCRIPTION).write_text(json.dumps(asdict(made), indent=2) + "\n", encoding="utf-8")
            make_durable(beside)
            if place.exists():
                # Without a description: a copy of this very checkpoint that was cut off. Nothing goes over a whole one.
                shutil.rmtree(place)
            beside.rename(place)
            sync(self.folder)
        except (OSError, SafetensorError, CheckpointError) as error:
            shutil.rmtree(beside, ignore_errors=True)
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            raise CheckpointError(
                f"the checkpoint {checkpoint} cannot be written to {self.folder} ({reason}). Make room, then run it "
                "again: what was trained is kept"
            ) from error
        shutil.rmtree(self.run(checkpoint), ignore_errors=True)
        return made


def checkpoint_id(
    *, parent: str | None, base: str, begun: str, task: str, data: str, config: Mapping[str, Any]
) -> str:
    """Return the id of the checkpoint that follows from these: 16 hexadecimal digits.

    `begun` is the SHA-256 of the weights that the chain began with, where they are in a folder, as a folder may be
    given other weights under its name.
    """
    # How often a run is saved, how it is watched and what an evaluation takes at once do not change what it makes.
    named = {key: value for key, value in config.items() if key not in _NOT_ITS_CONTENT}
    about = [parent, base, begun, task, data, named]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def _described(text: bytes) -> Checkpoint:
    found = json.loads(text)
    if not isinstance(found, dict) or WEIGHTS not in found.get("files", {}):
        raise ValueError("it describes no checkpoint")
    return Checkpoint(**{**found, "warnings": tuple(found["warnings"])})


def _remedy(path: Path) -> str:
    return f"Restore it from a backup, or go on from another checkpoint; without the folder {path} it is trained again"


_ID = re.compile("[0-9a-f]{16}")
_NOT_ITS_CONTENT = frozenset(
    {"num_workers", "timeout_seconds", "log_every_n_steps", "checkpoint_every_n_steps", "eval_batch_size"}
)


def versions() -> dict[str, str]:
    """Return the versions of what decides a checkpoint's weights: this program, Python, and who computes and draws."""
    names = ("unsorry", "torch", "transformers", "pytorch-lightning", "numpy")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_if_there(path: Path) -> str | None:
    try:
        return file_digest(path)
    except FileNotFoundError:
        return None
