"""Train a progress model on a task on top of a checkpoint, and measure its errors; the job `train_progress`.

The configuration is a `ProgressConfig`. The model learns the steps of the training side, and those of the val side
choose the best epoch (both in one file); the test side is in a file that only measuring reads. Proofs of earlier tasks'
training sides are replayed beside the new ones (`pipeline.models.replay`).

Metrics are "mae" and "mse", in steps and the square of them, lower being better, and "within_1", the share predicted
within one step, 0..1; each with the bounds of its bootstrap interval, "…_low" and "…_high". A split without a step has
none. A job that is started again continues from the last step that was saved.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any, ClassVar

from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import TrainSpec
from pipeline.models.chain import Checkpoint, TrainingFacts
from pipeline.models.config import ProgressConfig
from pipeline.models.datasets import TaskData
from pipeline.models.errors import DatasetError, NothingToLearnError
from pipeline.models.measures import Evaluation, by_theorem, summarise
from pipeline.models.model_files import versions
from pipeline.models.progress.model import ProgressModel
from pipeline.models.progress.steps import LEARN, TEST, Dataset, Row, file_of, read_dataset
from pipeline.models.progress.training import LIBRARIES, ProgressTrainer, TrainedProgress
from pipeline.models.ranks import world
from pipeline.models.replay import Replay, chosen, version_before
from pipeline.models.running import Saves
from pipeline.models.training_job import OnStep, TrainingJob, configured
from store.events.models import ModelKind

METRICS = ("mae", "mse", "within_1")
"""The mean absolute error and the mean squared error, in steps; the share predicted within one step, 0..1."""
_AT_ONCE = 1024


def lesson(
    task: TaskData, config: ProgressConfig, earlier: Sequence[TaskData] = ()
) -> tuple[Dataset, dict[str, int]]:
    """Return the rows to learn for a task, the replayed ones last, and how many are replayed of each task.

    Args:
        task: with a dataset of `write_steps`.
        config: how many are replayed.
        earlier: the tasks to replay; of one with the task's name, an earlier version of it, the rows that it has are
            not learned again, only replayed (`ProgressConfig.only_new`), if what is new fills a batch.

    Raises:
        DatasetError: a dataset cannot be used.
    """
    read = read_dataset(file_of(task.dataset, config.split, LEARN))
    own = read.rows
    before = version_before(task, earlier) if config.only_new else None
    again = True
    if before is not None:
        steps = {row.step for row in _trained_on(before, config)}
        new = tuple(row for row in own if row.side != "train" or row.step not in steps)
        again = sum(row.side == "train" for row in new) < config.batch_size
        own = own if again else new
    learned = {row.step for row in own}
    # One statement is on one side for life; this holds for files that are no export of ours too.
    held_out = {row.proof for row in own if row.side != "train"}

    def chosen_of(one: TaskData, most: int) -> Sequence[Row]:
        rows = [
            row for row in _trained_on(one, config) if row.step not in learned and row.proof not in held_out
        ]
        return chosen(rows, most, config.seed)

    tasks = [one for one in earlier if one.name != task.name or not again]
    size = config.replay_size if config.replay_share else 0
    replay: Replay[Row] = Replay.of_tasks(tasks, chosen_of, size=size, seed=config.seed)
    trained = sum(row.side == "train" for row in own)
    result = replay.beside(trained, config.replay_share)
    if not result and own is read.rows:
        return read, {}
    rows = (*own, *(row for _, row in result))
    digest = hashlib.sha256(f"{read.digest} {_digest(rows)}".encode()).hexdigest()
    return Dataset(rows, read.incomplete, digest), dict(Counter(name for name, _ in result))


def _trained_on(task: TaskData, config: ProgressConfig) -> list[Row]:
    """Return the rows of a task's training side."""
    rows = read_dataset(file_of(task.dataset, config.split, LEARN)).rows
    return [row for row in rows if row.side == "train"]


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
"""Fields of `TrainedProgress` that a checkpoint.json has too; `ProgressModel` reads `max_length`."""


def _warnings(made: TrainedProgress) -> tuple[str, ...]:
    error, constant = made.held_out.mse, made.constant.mse
    if error < constant:
        return ()
    text = (
        f"on the proofs held out its squared error is {error:.3g}, and that of the best constant {constant:.3g}: it "
        "has learned nothing that a search could use"
    )
    return (text,)


def evaluate(
    model: ProgressModel,
    rows: Sequence[Row],
    *,
    seed: int,
    on_batch: OnStep = lambda _done, _total: None,
) -> Evaluation:
    """Predict the steps that remain after each step, and rate the predictions.

    Args:
        model: the model.
        rows: the steps, at least one.
        seed: of the intervals, which are over proofs.
        on_batch: takes (steps done, steps in all).
    """
    started = time.monotonic()
    rated: list[tuple[float, ...]] = []
    for first in range(0, len(rows), _AT_ONCE):
        part = rows[first : first + _AT_ONCE]
        for row, predicted in zip(part, model.predict([row.step for row in part]), strict=True):
            off = abs(predicted - row.steps_remaining)
            rated.append((off, off * off, float(off <= 1)))
        on_batch(first + len(part), len(rows))
    proofs = [row.proof for row in rows]
    return Evaluation(
        metrics=summarise(rated, proofs, seed=seed, names=METRICS),
        n=len(rows),
        theorems=len(set(proofs)),
        dataset=_digest(rows),
        scores=by_theorem([off for off, _, _ in rated], [(repr(proof),) for proof in proofs]),
        seconds=time.monotonic() - started,
    )


def _digest(rows: Sequence[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([*astuple(row.step), row.steps_remaining]).encode())
    return digest.hexdigest()


_FILES = {"test": TEST, "val": LEARN}


def _rows_of(path: Path, split: str) -> list[Row]:
    if not path.stat().st_size:
        raise NothingToLearnError(f"no step is on the {split} side")
    rows = [row for row in read_dataset(path).rows if split == "test" or row.side == split]
    if not rows:
        raise NothingToLearnError(f"no step is on the {split} side")
    return rows


class ProgressJob(TrainingJob[ProgressConfig]):
    model: ClassVar[ModelKind] = "progress"
    position: ClassVar[tuple[str, ...]] = ("position",)

    def paths(self, task: TaskData, split: str) -> tuple[Path, ...]:
        return (file_of(task.dataset, self.config.split, _FILES[split]),)

    def settings(self) -> list[Any]:
        return [self.measured_with.seed]

    def measure(self, checkpoint: str, task: TaskData, split: str, on_batch: OnStep) -> Evaluation:
        (path,), config = self.paths(task, split), self.measured_with
        model = self.loaded(
            self.chain.path(checkpoint), lambda source: ProgressModel(source, device=config.device)
        )
        return evaluate(model, _rows_of(path, split), seed=config.seed, on_batch=on_batch)

    def learn(self, task: TaskData, on_step: OnStep) -> Checkpoint:
        config = self.config
        path = file_of(task.dataset, config.split, LEARN)
        if not path.is_file():
            raise DatasetError(f"{task.name}: {path} is not there")
        data, replayed = lesson(task, config, self.replayed)
        step = self.chain.step(task, config, parent=self.order.parent, data=data.digest)

        def make(run: Path) -> Checkpoint:
            saves = Saves(run / "steps", 60 * config.save_minutes, self.tensorboard)
            trainer = ProgressTrainer(
                path,
                step.start,
                run / "model",
                max_length=config.max_seq_len,
                batch_size=config.batch_size // world(),
                epochs=config.epochs,
                learning_rate=config.lr,
                seed=config.seed,
                device=config.device,
                report_to=saves.report_to,
            )
            result = trainer.fit(data, on_step, saves)
            about = {name: value for name, value in asdict(result).items() if name in _KEPT}
            about["replayed"] = replayed
            facts = TrainingFacts(
                result.steps, result.device, result.seconds, versions(LIBRARIES), _warnings(result), about
            )
            return self.chain.put(step, trainer.write, facts)

        return self.chain.once(step, make)

    def facts_of(self, folder: Path) -> dict[str, Any]:
        return {"max_length": ProgressModel(folder, device=self.config.device).max_length}


def train(spec: JobSpec[TrainSpec], reporter: Reporter) -> dict[str, Any]:
    """Train a progress model on one task and measure it on all tasks so far."""
    return ProgressJob(configured(ProgressConfig.from_dict, spec.parameters.config), spec, reporter).run()
