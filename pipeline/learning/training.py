"""The frame of every job that trains: one task on top of a checkpoint, and how the new one does on all tasks so far.

What is special to a model (its dataset, its training, its measurements) is in a `TrainingJob` of its own. The
parameters that all have:

    events_db, database_db
                the log and its view, read only
    repository  the task: the key of the repository whose newest trace is learned from
    simulated   whether the simulator's traces count (optional, false)
    trace       the id of the repository's trace that is learned from and measured with (optional: its newest one)
    chain       the folder of checkpoints (`pipeline.learning.checkpoints`)
    parent      the checkpoint to start from; null: from the configuration's `model_name`
    config      fields of the model's configuration; the others have their defaults
    tasks       the earlier tasks, [{"name": a repository's key, "dataset": its frozen folder}]
    keep        the other jobs whose datasets are still needed: of the chain's checkpoints, and of those that are not
                ended; the rest was given up and is removed (optional: null, and nothing is)
    alone       whether no other job of training is unfinished, so that what other runs have saved is of no use
                (optional, false)

The task's dataset is exported once for the job, whatever the number of its attempts, into the chain's folder, and stays
there read-only (`pipeline.learning.datasets.dataset_of(chain, job)`): with its checkpoint it becomes one of the later
jobs' `tasks`.

What is recorded is `simulated` where the simulator's traces count, or the parent is. Emitted are `checkpoint_saved`,
then one `evaluation_finished` for each test split, the earlier tasks' first and its own last, and one for its own val
split; a split with nothing to measure has none and stands in the result's `unmeasured`. A job that is started again
measures what was not measured yet. Fails with the `reason` of a LearningError; no failure makes a checkpoint, and none
touches another.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter
from pipeline.learning.checkpoints import Checkpoints, Described
from pipeline.learning.datasets import TaskData, forget, forget_others
from pipeline.learning.jobs import Measuring, Teller, Told, Unmeasured, failures, stream_of
from pipeline.learning.weights import weights_digest, weights_of
from store.events.models import CheckpointSaved, ModelKind
from store.view.queries import basic as queries
from store.view.queries import models as model_queries


@dataclass(frozen=True, slots=True)
class Order:
    """The parameters that every job of training has, but its configuration."""

    events_db: Path
    database_db: Path
    repository: str
    simulated: bool
    chain: Path
    parent: str | None
    tasks: tuple[TaskData, ...]
    keep: tuple[str, ...] | None
    alone: bool
    trace: str | None = None

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> Order:
        """Read a job's parameters.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: one is missing or malformed.
        """
        parent, keep, trace = parameters["parent"], parameters.get("keep"), parameters.get("trace")
        return cls(
            events_db=Path(parameters["events_db"]),
            database_db=Path(parameters["database_db"]),
            repository=str(parameters["repository"]),
            simulated=bool(parameters.get("simulated", False)),
            chain=Path(parameters["chain"]),
            parent=None if parent is None else str(parent),
            tasks=tuple(TaskData(str(item["name"]), Path(item["dataset"])) for item in parameters["tasks"]),
            keep=None if keep is None else tuple(map(str, keep)),
            alone=bool(parameters.get("alone", False)),
            trace=None if trace is None else str(trace),
        )


T = TypeVar("T", bound=Described)
C = TypeVar("C")


class TrainingJob(abc.ABC, Generic[T, C]):
    """A job that trains one model; see the module. `C` is the model's configuration."""

    model: ClassVar[ModelKind]

    def __init__(
        self, order: Order, config: C, chain: Checkpoints[T], spec: JobSpec, reporter: Reporter
    ) -> None:
        self.order = order
        self.config = config
        self.chain = chain
        self.spec = spec
        self.reporter = reporter

    @abc.abstractmethod
    def frozen(self) -> tuple[Path, int]:
        """Return the task's dataset, exported if it is not there yet, and the log position that it shows.

        Raises:
            LearningError, LogError, OSError: there is none.
        """

    @abc.abstractmethod
    def learn(self, task: TaskData, on_step: Callable[[int, int], object]) -> T:
        """Return the checkpoint that the task leads to, made if need be.

        Raises:
            LearningError: the dataset or the parent cannot be used, the loss diverged, the disk is full, or another
                process is at it.
        """

    @abc.abstractmethod
    def measuring(self, checkpoint: str, teller: Teller) -> Measuring:
        """Return what measures the checkpoint."""

    def run(self) -> dict[str, Any]:
        """Train and measure; return the job's summary.

        Raises:
            JobError: as the module says.
        """
        order = self.order
        try:
            with failures(order.repository):
                dataset, position = self.frozen()
                task = TaskData(order.repository, dataset, position)
                made = self.learn(task, Told(self.reporter, f"training on {task.name}"))
        except JobError as error:
            if error.deterministic:
                with failures(order.repository):
                    forget(order.chain, self.spec.job)
            raise
        with failures(order.repository):
            if order.keep is not None:
                forget_others(order.chain, {self.spec.job, *order.keep})
            if order.alone:
                self.chain.drop_runs()
        with failures(made.checkpoint):
            simulated = order.simulated or self._parent_simulated()
            body = self._saved(made, simulated=simulated)
            # By the job too: another one whose data is the same leads to the same checkpoint.
            key = (made.checkpoint, self.spec.job)
            self.reporter.events([Recorded(stream_of(self.model), body, key)])
            teller = Teller(self.spec.job, self.reporter, simulated)
            measured = self._measure(self.measuring(made.checkpoint, teller), [*order.tasks, task])
        return {
            "checkpoint": made.checkpoint,
            "dataset": str(task.dataset),
            "warnings": list(made.warnings),
            **measured,
        }

    def _saved(self, made: T, *, simulated: bool) -> CheckpointSaved:
        folder = self.chain.path(made.checkpoint)
        return CheckpointSaved(
            model=self.model,
            checkpoint=made.checkpoint,
            parent=made.parent,
            base=made.base,
            data_seq=made.data_seq,
            config=made.config,
            seed=made.seed,
            steps=made.steps,
            weights=weights_digest(made.files),
            size_bytes=sum((folder / name).stat().st_size for name in weights_of(made.files)),
            fisher=made.fisher,
            versions=made.versions,
            device=made.device,
            seconds=made.seconds,
            job=self.spec.job,
            simulated=simulated,
        )

    def _parent_simulated(self) -> bool:
        with closing(queries.connect(self.order.database_db)) as view:
            known = model_queries.checkpoints(view, self.model)
        return any(row.simulated for row in known if row.checkpoint == self.order.parent)

    def _measure(self, measuring: Measuring, tasks: Sequence[TaskData]) -> dict[str, Any]:
        """Measure on the test set of every task, the newest one last, and on the val set of that."""
        wanted = [*((task, "test") for task in tasks), (tasks[-1], "val")]
        evaluations, unmeasured = [], []
        for number, (one, split) in enumerate(wanted):
            self.reporter.progress(number, len(wanted), f"measuring {one.name}, {split}")
            found = measuring.tell(one, split, repository=one.name)
            if isinstance(found, Unmeasured):
                unmeasured.append(found.as_json())
            else:
                evaluations.append(found.evaluation)
        return {"evaluations": evaluations, "unmeasured": unmeasured}
