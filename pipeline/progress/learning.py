"""One task of the progress model on top of a checkpoint, and how well a checkpoint does on steps."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from pipeline.durable import file_digest
from pipeline.learning.checkpoints import DESCRIPTION, checkpoint_id
from pipeline.learning.datasets import TaskData
from pipeline.progress.config import ProgressConfig
from pipeline.progress.frozen import LEARN
from pipeline.progress.model import ProgressModel
from pipeline.progress.rows import Row
from pipeline.progress.training import ProgressTrainer
from pipeline.retrieval.ranking import Interval, summarise
from pipeline.tactics.checkpoints import Chain, Link, versions
from pipeline.tactics.errors import RowsError
from pipeline.tactics.saving import read_about, settle, start_of

METRICS = ("mae", "mse", "within_1")
"""The mean absolute error and the mean squared error, in steps; the share predicted within one step, 0..1."""

_LIBRARIES = ("torch", "transformers", "accelerate")
_AT_ONCE = 1024


def learn(
    task: TaskData,
    chain: Chain,
    config: ProgressConfig,
    *,
    parent: str | None,
    on_step: Callable[[int, int], object] = lambda _done, _total: None,
) -> Link:
    """Train a task from a checkpoint (None: from `config.model_name`) and add the new one to the chain.

    One that is there already, from the same parent, data and configuration, is not made again; one that was cut off
    goes on from the last step that was saved.

    Args:
        task: with a dataset as `frozen.frozen_progress` makes it.
        chain: of progress models.
        config: how.
        parent: the checkpoint to start from.
        on_step: told (optimiser steps done, in all) after each.

    Raises:
        TacticsError: the dataset or the parent cannot be used, the loss diverged, the disk is full, or another process
            is at it.
        Yielded: the job was asked to make way, and the run is saved.
    """
    base = config.model_name if parent is None else chain.read(parent).base
    path = task.dataset / LEARN
    if not path.is_file():
        raise RowsError(f"{task.name}: {path} is not there")
    data = file_digest(path)
    identity = checkpoint_id(
        parent=parent,
        base=base,
        begun=start_of(Path(config.model_name)) if parent is None else "",
        task=task.name,
        data=data,
        config={key: value for key, value in config.to_dict().items() if key != "save_minutes"},
    )

    def make(run: Path) -> Link:
        made = run / "model"
        start = base if parent is None else str(chain.path(parent))
        about = _trained(config, start, path, made, on_step)

        def write(folder: Path) -> None:
            folder.mkdir()
            for name in about["files"]:
                shutil.copyfile(made / name, folder / name)

        def described(files: dict[str, str]) -> Link:
            return Link(
                checkpoint=identity,
                parent=parent,
                base=base,
                task=task.name,
                data=data,
                data_seq=task.data_seq,
                config=config.to_dict(),
                seed=config.seed,
                steps=int(about["steps"]),
                files=files,
                versions=versions(_LIBRARIES),
                device=str(about["device"]),
                seconds=float(about["seconds"]),
                warnings=_warnings(about),
                about={name: about[name] for name in _KEPT},
            )

        return chain.put(identity, write, described)

    return chain.once(identity, parent=parent, make=make)


_KEPT = (
    "max_length",
    "proofs",
    "rows",
    "by_side",
    "incomplete",
    "cut",
    "epochs",
    "best_epoch",
    "held_out",
    "constant",
)
"""What of `TrainedProgress` a checkpoint.json says too; `max_length` is read by `ProgressModel`."""


def _trained(
    config: ProgressConfig, start: str, data: Path, made: Path, on_step: Callable[[int, int], object]
) -> Mapping[str, Any]:
    """Return what is said of the model in the run's folder, trained if it is not there yet."""
    settle(made)
    # The run's folder is of this very parent, data and configuration.
    about = read_about(made, verify=True)
    if about is not None:
        return about
    trainer = ProgressTrainer(
        data,
        start,
        made,
        max_length=config.max_seq_len,
        batch_size=config.batch_size,
        epochs=config.epochs,
        learning_rate=config.lr,
        seed=config.seed,
        device=config.device,
    )
    trainer.train(on_step, save_every_s=60 * config.save_minutes)
    about = read_about(made)
    if about is None:
        raise AssertionError(f"{made / DESCRIPTION} was just written")
    return about


def _warnings(about: Mapping[str, Any]) -> tuple[str, ...]:
    if about["held_out"]["mse"] < about["constant"]["mse"]:
        return ()
    said = (
        f"on the proofs held out its squared error is {about['held_out']['mse']:.3g}, and that of the best constant "
        f"{about['constant']['mse']:.3g}: it has learned nothing that a search could use"
    )
    return (said,)


@dataclass(frozen=True, slots=True)
class ProgressResult:
    """How a model did on `n` steps of `proofs` proofs: `METRICS`. `dataset` is the SHA-256 of the steps."""

    metrics: Mapping[str, Interval]
    n: int
    proofs: int
    dataset: str
    seconds: float


def evaluate(
    model: ProgressModel,
    rows: Sequence[Row],
    *,
    seed: int,
    on_batch: Callable[[int, int], object] = lambda _done, _total: None,
) -> ProgressResult:
    """Ask a model for the steps that remain after each step, and rate what it says.

    Args:
        model: the model.
        rows: the steps, at least one.
        seed: of the intervals, which are over proofs.
        on_batch: told (steps done, steps in all).
    """
    started = time.monotonic()
    rated: list[tuple[float, ...]] = []
    for first in range(0, len(rows), _AT_ONCE):
        part = rows[first : first + _AT_ONCE]
        for row, said in zip(part, model.predict([row.step for row in part]), strict=True):
            off = abs(said - row.steps_remaining)
            rated.append((off, off * off, float(off <= 1)))
        on_batch(first + len(part), len(rows))
    return ProgressResult(
        metrics=summarise(rated, [row.proof for row in rows], seed=seed, names=METRICS),
        n=len(rows),
        proofs=len({row.proof for row in rows}),
        dataset=_digest(rows),
        seconds=time.monotonic() - started,
    )


def _digest(rows: Sequence[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([*astuple(row.step), row.steps_remaining]).encode())
    return digest.hexdigest()
