"""What the jobs `train` and `evaluate` share: their parameters' reading, their failures, and how a measurement is told.

A measurement is kept in the chain's folder by what it follows from, so that a job that was cut off tells the same
again, word for word, and measures only what it had not measured yet:

    <chain>/.evaluations/<evaluation>.json      the measurement, as the event has it
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pipeline.protocol import JobError, Recorded, Reporter
from pipeline.retrieval.chain import Chain, file_digest
from pipeline.retrieval.config import ConfigError, TrainingConfig
from pipeline.retrieval.errors import (
    CheckpointError,
    CorpusError,
    DatasetError,
    DivergedError,
    EmptySplitError,
    NothingToMeasureError,
    RetrievalError,
)
from pipeline.retrieval.lifelong import TaskData, measure
from pipeline.retrieval.saving import sync
from store.errors import LogError
from store.identity import short_hash
from store.model_events import EvaluationFinished

MODEL = "retriever"
STREAM = f"model:{MODEL}"

_EVALUATIONS = ".evaluations"
_TELL_EVERY_S = 1.0
_FOLLOWS_FROM = ("max_seq_len", "data_max_seq_len", "num_retrieved", "seed")
"""What of a configuration decides what a measurement says."""

# What is wrong with data and settings stays so, and a repeated run diverges at the same step. A checkpoint that cannot
# be written or read is another matter: room on the disk, a backup, or the other process's end mends it.
_FOR_GOOD = (CorpusError, DatasetError, ConfigError, DivergedError)

T = TypeVar("T")


def read_parameters(kind: str, read: Callable[[], T]) -> T:
    """Return what `read` makes of a job's parameters.

    Raises:
        JobError: one is missing or malformed, or the training configuration is not taken.
    """
    try:
        return read()
    except RetrievalError as error:
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
    """Turn what the retriever, the log and the disk say into the job's failure, which names `what`.

    Raises:
        JobError: with the `reason` of a RetrievalError; "dataset_not_exported" of the log; "disk" of the system.
    """
    try:
        yield
    except RetrievalError as error:
        raise JobError(
            error.reason, f"{what}: {error}", deterministic=isinstance(error, _FOR_GOOD)
        ) from error
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
class Measuring:
    """Measures one checkpoint, and tells each measurement as an event.

    `job` is the id of the job that does so, `indices` the folder of embedding indices, `simulated` whether the
    checkpoint or the data comes from the simulator.
    """

    chain: Chain
    checkpoint: str
    config: TrainingConfig
    indices: Path
    job: str
    reporter: Reporter
    simulated: bool

    def tell(self, task: TaskData, split: str, *, repository: str | None) -> EvaluationFinished | Unmeasured:
        """Measure the checkpoint on one split of a task, and report it; or say why there is nothing to report.

        Raises:
            RetrievalError: the dataset or the checkpoint cannot be used.
            OSError: the measurement cannot be written.
        """
        try:
            body = self._measured(task, split, repository)
        except (EmptySplitError, NothingToMeasureError) as error:
            return Unmeasured(task.name, split, str(error))
        # By the job too: another one that measures the same says so in its own name.
        key = (body.evaluation, self.job)
        self.reporter.events([Recorded(STREAM, body, key)])
        return body

    def _measured(self, task: TaskData, split: str, repository: str | None) -> EvaluationFinished:
        evaluation = self._identity(task, split)
        path = self.chain.folder / _EVALUATIONS / f"{evaluation}.json"
        kept = _read_kept(path)
        if kept is not None:
            about = {"repository": repository, "job": self.job, "simulated": self.simulated}
            return kept.model_copy(update=about)
        found = measure(
            self.chain.path(self.checkpoint),
            task,
            self.config,
            split=split,
            indices=self.indices,
            on_batch=Told(self.reporter, f"measuring {task.name}, {split}"),
        )
        metrics: dict[str, float] = {}
        for name, interval in found.metrics.items():
            metrics |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
        body = EvaluationFinished(
            model=MODEL,
            evaluation=evaluation,
            checkpoint=self.checkpoint,
            repository=repository,
            split=split,
            dataset=found.dataset,
            metrics=metrics,
            n=found.n,
            seconds=found.seconds,
            job=self.job,
            simulated=self.simulated,
        )
        _write_whole(path, body.model_dump_json())
        return body

    def _identity(self, task: TaskData, split: str) -> str:
        files = ("corpus.jsonl", f"random/{split}.json")
        try:
            read = [file_digest(task.dataset / name) for name in files]
        except OSError as error:
            raise DatasetError(f"{task.name}: {error.filename} cannot be read ({error.strerror})") from error
        settings = json.dumps([getattr(self.config, name) for name in _FOLLOWS_FROM])
        return short_hash("evaluation", self.checkpoint, task.name, split, *read, settings)


def _read_kept(path: Path) -> EvaluationFinished | None:
    try:
        return EvaluationFinished.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CheckpointError(
            f"{path}, a measurement, cannot be read ({error}). Remove it: it is made again"
        ) from error


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        sync(beside)
        beside.replace(path)
        sync(path.parent)
    finally:
        beside.unlink(missing_ok=True)
