"""Jobs that train and measure: one task on top of a checkpoint, then measurements on all tasks so far.

Each model has a `TrainingJob`; its parameters are a `TrainSpec`.

The job's inputs are the task's dataset. Its first attempt copies them into the chain's folder, where they stay
(`pipeline.models.datasets.dataset_of`): with its checkpoint the dataset becomes one of the later jobs' `tasks`.

It emits `checkpoint_saved`, then one `evaluation_finished` for each test split, the earlier tasks' first and its own
last, one for its own val split, and one of the checkpoint it began from, on its own test split; a split with nothing to
measure has none and is listed in the result's `unmeasured`. A job started again repeats its measurements word for word,
and makes the missing ones: they lie beside its dataset.

A job with a folder in its specification does not train: it takes the model in the folder (`pipeline.models.added`), and
measures it in the same way.

Fails with the `reason` of a LearningError; no failure makes a checkpoint, and none changes another.
"""

from __future__ import annotations

import abc
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import TypeAdapter

from pipeline.jobs.child import DAEMON_PID, key_pipe
from pipeline.jobs.protocol import BAD_INPUT, JobError, JobKey, JobSpec, Recorded, Reporter
from pipeline.jobs.spec import HUB_KEY
from pipeline.jobs.specs import DATASET, TrainSpec
from pipeline.models.adapters import model_for
from pipeline.models.added import add
from pipeline.models.chain import Chain
from pipeline.models.config import Config
from pipeline.models.curve import CURVE
from pipeline.models.datasets import TaskData, dataset_of, exported_position
from pipeline.models.errors import (
    CheckpointError,
    ConfigError,
    DatasetError,
    LearningError,
    ModelError,
)
from pipeline.models.measures import Evaluation
from pipeline.models.model_files import Checkpoint, weights_of
from pipeline.models.ranks import is_first, join, leave, start, stop, world
from store.domain.identity import short_hash
from store.errors import LogError
from store.events.models import CheckpointSaved, EvaluationFinished, ModelKind
from store.files import folder_written_whole, write_whole

_REPORT_EVERY_S = 1.0
T = TypeVar("T")
C = TypeVar("C", bound=Config)
M = TypeVar("M")
OnStep = Callable[[int, int], object]
"""Takes (steps done, steps in all)."""
_MEASUREMENT = TypeAdapter(tuple[Evaluation, float])


@contextmanager
def failures(what: str) -> Iterator[None]:
    """Turn errors of training, the log and the disk into the job's failure, with the name `what`.

    Raises:
        JobError: with the `reason` of a LearningError; "dataset_not_exported" of the log; "disk" of the system.
    """
    try:
        yield
    except LearningError as error:
        raise JobError(error.reason, f"{what}: {error}", deterministic=error.for_good) from error
    except LogError as error:
        raise JobError("dataset_not_exported", f"{what}: {error}", remedy="see `everlean doctor`") from error
    except OSError as error:
        raise JobError(
            "disk", f"{what}: {error}", remedy="make room, or give back the right to write, and retry the job"
        ) from error


@contextmanager
def helped(count: int, spec: Path, device: str) -> Iterator[None]:
    """Be the first process of a job's training to the end of the block; its program runs again for each further GPU.

    Unlike torchrun's agent, which takes a process that has saved and ended for a failed one and kills the others
    meanwhile, nothing stands between the processes: one SIGTERM to the job is enough. The others end with the block.

    Args:
        count: of all, at least two.
        spec: the job's specification, for all.
        device: of the training.
    """
    # Their lines go to the job's log: standard output is that already (`run_job`).
    command = [sys.executable, "-P", "-m", "pipeline.models", "--spec", str(spec)]

    def launch(environment: dict[str, str]) -> Popen[bytes]:
        # The hub's key goes by a pipe.
        with key_pipe(JobKey(environment.pop(HUB_KEY.variable, None), hub=True)) as handed:
            # With this process it ends, as this one does with the daemon.
            own = {**environment, **handed.variables, DAEMON_PID: str(os.getpid())}
            return Popen(command, stdin=DEVNULL, env=own, pass_fds=handed.descriptors)

    helpers: list[Popen[bytes]] = []
    try:
        start(helpers, count, spec.with_name("ranks"), launch)
        join(device)
        yield
        leave()
    finally:
        stop(helpers)


class StepReports:
    """Reports progress: the first step, the last, and at most one a second between."""

    def __init__(self, reporter: Reporter, note: str) -> None:
        self._reporter = reporter
        self._note = note
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next or done == total:
            self._next = now + _REPORT_EVERY_S
            self._reporter.progress(done, total, self._note)


class TrainingJob(abc.ABC, Generic[C, M]):
    """A job that trains one model; see the module. `C` is its configuration, `M` the loaded model."""

    model: ClassVar[ModelKind]

    def __init__(self, config: C, spec: JobSpec[TrainSpec], reporter: Reporter) -> None:
        self.order = order = spec.parameters
        self.chain = Chain(order.chain)
        # Every checkpoint answers the same questions, drawn by the seed.
        self.measured_with = config
        seed = (config.seed + order.refused) % 2**32
        self.config: C = replace(config, seed=seed)  # type: ignore[type-var]  # subclasses are dataclasses
        self.spec = spec
        self.reporter = reporter
        self._loaded: tuple[str, M] | None = None

    @property
    def replayed(self) -> list[TaskData]:
        """The earlier tasks to replay, an earlier version of this one among them."""
        return [TaskData(one.name, one.dataset) for one in self.order.tasks if one.replayed]

    @property
    def tensorboard(self) -> Path | None:
        """The folder for TensorBoard's files of this training; None: there are none."""
        return None if self.order.tensorboard is None else self.order.tensorboard / self.spec.job

    def task(self) -> TaskData:
        """Return the task, with its dataset made of the job's inputs at the first call.

        Raises:
            DatasetError: the existing dataset is damaged.
            JobError: an input is missing or damaged.
            OSError: the chain's folder cannot be written.
        """
        place = dataset_of(self.order.chain, self.spec.job)
        if not place.exists():
            inputs = self.spec.inputs.files
            if not inputs:
                raise JobError(
                    BAD_INPUT, f"there are no inputs {DATASET}…", remedy="nothing: they are frozen anew"
                )
            with folder_written_whole(place) as new:
                for one in inputs:
                    target = new / one.name.removeprefix(DATASET)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(self.spec.input(one.name), target)
        return TaskData(self.order.repository, place, exported_position(place))

    @abc.abstractmethod
    def learn(self, task: TaskData, on_step: OnStep) -> Checkpoint:
        """Return the task's checkpoint, made if need be.

        Raises:
            LearningError: the dataset or the parent cannot be used, the loss diverged, the disk is full, or another
                process makes the same checkpoint.
        """

    @abc.abstractmethod
    def measure(self, checkpoint: str, task: TaskData, split: str, on_batch: OnStep) -> Evaluation:
        """Measure a checkpoint on one split of a task.

        Raises:
            NothingToLearnError: there is nothing to measure.
            LearningError: the dataset or the checkpoint cannot be used.
        """

    @abc.abstractmethod
    def load(self, source: str) -> M:
        """Load a model's folder, to measure it.

        Raises:
            LearningError: it holds no such model.
        """

    def facts_of(self, model: M) -> dict[str, Any]:  # noqa: ARG002
        """Return the facts about a taken model, for its checkpoint."""
        return {}

    def loaded(self, checkpoint: str, task: TaskData) -> M:
        """Return a checkpoint's model for a task; the last one stays loaded."""
        source = model_for(self.chain.path(checkpoint), task.name)
        if self._loaded is None or self._loaded[0] != source:
            # Before the next is loaded: the GPU might not hold two.
            self._loaded = None
            self._loaded = source, self.load(source)
        return self._loaded[1]

    def _made(self, task: TaskData) -> Checkpoint:
        """Train the task, or take the model in the specification."""
        folder = self.order.taken
        if folder is None:
            reports = StepReports(self.reporter, f"training on {task.name}")
            if not is_first():
                return self.learn(task, lambda _done, _total: None)
            count, spec = len(self.spec.gpus), self.spec.directory / "spec.json"
            with helped(count, spec, self.config.device) if count > 1 else nullcontext():
                return self.learn(task, reports)
        self.reporter.progress(0, 1, f"taking {folder}")
        parent = self.order.parent
        if parent is not None and self.chain.read(parent).adapters:
            raise ConfigError(
                f"the checkpoint in use, {parent}, has an adapter for each repository (lora_by_repository), and "
                f"{folder} is one model for all. Set lora_by_repository = false, and begin another chain of checkpoints"
            )
        try:
            facts = self.facts_of(self.load(str(folder)))
        except (CheckpointError, ModelError) as error:
            # In its place it would fail again.
            raise ConfigError(str(error)) from error
        return add(
            folder,
            task if self.order.learned else replace(task, data_seq=0),
            self.chain,
            self.config.to_dict(),
            parent=self.order.parent,
            facts=facts,
        )

    def run(self) -> dict[str, Any]:
        """Train and measure; return the job's summary. A process that helps does its part of the training alone.

        Raises:
            JobError: an input is missing or damaged.
            LearningError: see `learn` and `measure`.
            OSError: the chain's folder cannot be written.
        """
        if world() > 1:
            join(self.config.device)
            self._made(self.task())
            leave()
            return {}
        task = self.task()
        made = self._made(task)
        self._record(self._saved(made), made.checkpoint)
        earlier = (TaskData(one.name, one.dataset) for one in self.order.tasks)
        unmeasured = self._measure_all(made.checkpoint, [*earlier, task])
        return {
            "checkpoint": made.checkpoint,
            "dataset": str(task.dataset),
            "warnings": list(made.warnings),
            "unmeasured": unmeasured,
        }

    def _saved(self, made: Checkpoint) -> CheckpointSaved:
        folder = self.chain.path(made.checkpoint)
        curve = folder / CURVE
        return CheckpointSaved(
            model=self.model,
            checkpoint=made.checkpoint,
            parent=made.parent,
            base=made.base,
            data_seq=made.data_seq,
            config=made.config,
            seed=made.config.get("seed", 0),
            steps=made.steps,
            weights=made.weights,
            size_bytes=sum((folder / name).stat().st_size for name in weights_of(made.files)),
            curve=self.reporter.stage(curve.read_bytes()) if curve.is_file() else None,
            versions=made.versions,
            device=made.device,
            seconds=made.seconds,
            job=self.spec.job,
        )

    def _measure_all(self, made: str, tasks: Sequence[TaskData]) -> list[dict[str, str]]:
        """Measure on every task's test set, the newest last, and on the newest val set; return what is unmeasured.

        The checkpoint in use is measured on the newest test set too: the comparison shows a failure to learn.
        """
        new, parent = tasks[-1], self.order.parent
        wanted = [*((made, task, "test") for task in tasks), (made, new, "val")]
        wanted += [] if parent is None else [(parent, new, "test")]
        unmeasured = []
        for number, (checkpoint, task, split) in enumerate(wanted):
            self.reporter.progress(number, len(wanted), f"measuring {task.name}, {split}")
            try:
                if checkpoint != made:
                    self.chain.read(checkpoint, verify=True)
                body = self._evaluated(checkpoint, task, split)
                self._record(body, body.evaluation)
            except (DatasetError, CheckpointError, ModelError) as error:
                # A new model may also replace a damaged one.
                if checkpoint == made and not isinstance(error, DatasetError):
                    raise
                unmeasured.append({"task": task.name, "split": split, "reason": str(error)})
        return unmeasured

    def _measured(self, checkpoint: str, task: TaskData, split: str) -> tuple[Evaluation, float]:
        """Return a measurement, made by the first attempt that comes to it, and the seconds that it took."""
        place = dataset_of(self.order.chain, self.spec.job) / "measured"
        path = place / f"{short_hash('measurement', checkpoint, task.name, split)}.json"
        if not path.exists():
            reports = StepReports(self.reporter, f"measuring {task.name}, {split}")
            started = time.monotonic()
            found = self.measure(checkpoint, task, split, reports)
            place.mkdir(exist_ok=True)
            write_whole(path, _MEASUREMENT.dump_json((found, time.monotonic() - started)))
        try:
            return _MEASUREMENT.validate_json(path.read_bytes())
        except ValueError as error:
            raise CheckpointError(
                f"{path}, a measurement, cannot be read ({error}). Remove it: it is made again"
            ) from error

    def _evaluated(self, checkpoint: str, task: TaskData, split: str) -> EvaluationFinished:
        found, seconds = self._measured(checkpoint, task, split)
        return EvaluationFinished(
            model=self.model,
            evaluation=short_hash("evaluation", checkpoint, task.name, split, found.dataset),
            checkpoint=checkpoint,
            repository=task.name,
            split=self.measured_with.task_split(split),
            dataset=found.dataset,
            metrics=dict(found.metrics),
            n=found.n,
            scores=self.reporter.stage(json.dumps(found.scores).encode()),
            seconds=seconds,
            job=self.spec.job,
        )

    def _record(self, body: CheckpointSaved | EvaluationFinished, key: str) -> None:
        # With the job: another one with the same checkpoint or measurement records its own event.
        self.reporter.events([Recorded(f"model:{self.model}", body, (key, self.spec.job))])
