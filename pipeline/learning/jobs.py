"""What jobs of training and measuring share: their parameters' reading, their failures, and how a measurement is told.

A measurement is kept in the chain's folder by what it follows from, so that a job that was cut off tells the same
again, word for word, and measures only what it had not measured yet:

    <chain>/.evaluations/<evaluation>.json      the measurement, as the event has it
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from pipeline.durable import file_digest, write_text_whole
from pipeline.jobs.protocol import JobError, Recorded, Reporter
from pipeline.learning.datasets import TaskData
from pipeline.learning.errors import LearningError
from store.domain.identity import short_hash
from store.errors import LogError
from store.events.models import EvaluationFinished, ModelKind

_EVALUATIONS = ".evaluations"
_TELL_EVERY_S = 1.0

T = TypeVar("T")


def stream_of(model: ModelKind) -> str:
    """Return the stream of a model's events."""
    return f"model:{model}"


def read_parameters(kind: str, read: Callable[[], T]) -> T:
    """Return what `read` makes of a job's parameters.

    Raises:
        JobError: one is missing or malformed, or the training configuration is not taken.
    """
    try:
        return read()
    except LearningError as error:
        raise JobError(error.reason, str(error), deterministic=True) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JobError(
            "bad_spec",
            f"the {kind} job's parameters cannot be read: {type(error).__name__}: {error}",
            remedy=f"see pipeline/{kind}.py for what they are",
            deterministic=True,
        ) from error


@contextmanager
def failures(what: str) -> Iterator[None]:
    """Turn what training, the log and the disk say into the job's failure, which names `what`.

    Raises:
        JobError: with the `reason` of a LearningError; "dataset_not_exported" of the log; "disk" of the system.
    """
    try:
        yield
    except LearningError as error:
        raise JobError(error.reason, f"{what}: {error}", deterministic=error.for_good) from error
    except LogError as error:
        raise JobError("dataset_not_exported", f"{what}: {error}", remedy="see `unsorry doctor`") from error
    except OSError as error:
        raise JobError(
            "disk", f"{what}: {error}", remedy="make room, or give back the right to write, and retry the job"
        ) from error


class Told:
    """Progress of something with many steps: the first, the last, and one a second between."""

    def __init__(self, reporter: Reporter, note: str) -> None:
        self._reporter = reporter
        self._note = note
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next or done == total:
            self._next = now + _TELL_EVERY_S
            self._reporter.progress(done, total, self._note)


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A split that says nothing of a checkpoint, and why."""

    task: str
    split: str
    reason: str

    def as_json(self) -> dict[str, str]:
        return {"task": self.task, "split": self.split, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement's numbers: `dataset` is the SHA-256 of the `n` examples that were asked."""

    metrics: Mapping[str, float]
    dataset: str
    n: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Teller:
    """In whose name measurements are told: the job's id, its reporter, and whether the simulator had a part in them."""

    job: str
    reporter: Reporter
    simulated: bool


class Measuring(abc.ABC):
    """Measures one checkpoint, and tells each measurement as an event.

    Attributes:
        model: which model the checkpoint is of.
        empty: what `measure` raises where a split has nothing to measure.
    """

    model: ClassVar[ModelKind]
    empty: ClassVar[tuple[type[LearningError], ...]]

    def __init__(self, chain: Path, checkpoint: str, teller: Teller) -> None:
        """Args:
        chain: the folder of checkpoints.
        checkpoint: the id of one.
        teller: tells.
        """
        self.chain = chain
        self.checkpoint = checkpoint
        self.teller = teller

    @abc.abstractmethod
    def files(self, task: TaskData, split: str) -> tuple[Path, ...]:
        """Return the files of a dataset that a measurement reads."""

    @abc.abstractmethod
    def settings(self) -> str:
        """Return what else decides what a measurement says, as text."""

    @abc.abstractmethod
    def measure(self, task: TaskData, split: str, on_batch: Callable[[int, int], object]) -> Measured:
        """Measure the checkpoint on one split of a task.

        Raises:
            LearningError: the dataset or the checkpoint cannot be used; one of `empty`: there is nothing to measure.
        """

    def tell(self, task: TaskData, split: str, *, repository: str | None) -> EvaluationFinished | Unmeasured:
        """Measure the checkpoint on one split of a task, and report it; or say why there is nothing to report.

        Raises:
            LearningError: the dataset or the checkpoint cannot be used.
            OSError: the measurement cannot be written, or the dataset not be read.
        """
        try:
            body = self._measured(task, split, repository)
        except self.empty as error:
            return Unmeasured(task.name, split, str(error))
        # By the job too: another one that measures the same says so in its own name.
        key = (body.evaluation, self.teller.job)
        self.teller.reporter.events([Recorded(stream_of(self.model), body, key)])
        return body

    def _measured(self, task: TaskData, split: str, repository: str | None) -> EvaluationFinished:
        read = [file_digest(path) for path in self.files(task, split)]
        evaluation = short_hash("evaluation", self.checkpoint, task.name, split, *read, self.settings())
        path = self.chain / _EVALUATIONS / f"{evaluation}.json"
        kept = _read_kept(path)
        if kept is not None:
            about = {
                "repository": repository,
                "job": self.teller.job,
                "simulated": self.teller.simulated,
            }
            return kept.model_copy(update=about)
        found = self.measure(task, split, Told(self.teller.reporter, f"measuring {task.name}, {split}"))
        body = EvaluationFinished(
            model=self.model,
            evaluation=evaluation,
            checkpoint=self.checkpoint,
            repository=repository,
            split=split,
            dataset=found.dataset,
            metrics=dict(found.metrics),
            n=found.n,
            seconds=found.seconds,
            job=self.teller.job,
            simulated=self.teller.simulated,
        )
        write_text_whole(path, body.model_dump_json())
        return body


M = TypeVar("M")


class MeasuringOneFile(Measuring, Generic[M]):
    """Measures a model that is loaded once, on splits that are a file each.

    Attributes:
        missing: what is raised where a split's file is not there.
    """

    missing: ClassVar[type[LearningError]]

    @abc.abstractmethod
    def file(self, task: TaskData, split: str) -> Path:
        """Return where a split's file is, there or not."""

    @abc.abstractmethod
    def load(self) -> M:
        """Return the checkpoint's model.

        Raises:
            LearningError: it cannot be loaded.
        """

    @cached_property
    def loaded(self) -> M:
        """The model, loaded when it is first asked for."""
        return self.load()

    def files(self, task: TaskData, split: str) -> tuple[Path, ...]:
        """Return the split's file.

        Raises:
            LearningError: (`missing`) it is not there.
        """
        path = self.file(task, split)
        if not path.is_file():
            raise self.missing(f"{task.name}: {path} is not there")
        return (path,)


class _KeptError(LearningError):
    reason = "bad_checkpoint"


def _read_kept(path: Path) -> EvaluationFinished | None:
    try:
        return EvaluationFinished.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _KeptError(
            f"{path}, a measurement, cannot be read ({error}). Remove it: it is made again"
        ) from error
