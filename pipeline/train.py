"""The training job: one task on top of a checkpoint, and how the new one does on every task so far.

`python -m pipeline.train --spec spec.json`. Parameters:

    events_db, database_db
                the log and its view, read only
    repository  the task: the key of the repository whose newest trace is learned from
    simulated   whether the simulator's traces count (optional, false)
    chain       the folder of checkpoints (`pipeline.retrieval.chain`)
    parent      the checkpoint to start from; null: from the configuration's `model_name`
    config      fields of `pipeline.retrieval.config.TrainingConfig`; the others have their defaults
    indices     the folder of embedding indices
    tasks       the earlier tasks, [{"name": a repository's key, "dataset": its frozen folder}]
    keep        the other jobs whose datasets are still needed: of the chain's checkpoints, and of those that are not
                ended; the rest was given up and is removed (optional: null, and nothing is)
    alone       whether no other job of training is unfinished, so that what other runs have saved is of no use
                (optional, false)

The task's dataset is exported once for the job, whatever the number of its attempts, into the chain's folder, and stays
there read-only (`pipeline.retrieval.frozen.dataset_of(chain, job)`): with its checkpoint it becomes one of the later
jobs' `tasks`.

What is recorded is `simulated` where the simulator's traces count, or the parent is.

Emits `checkpoint_saved`, then one `evaluation_finished` for each test split, the earlier tasks' first and its own last,
and one for its own val split; a split without a step that uses a premise has none and stands in the result's
`unmeasured`. Metrics are in 0..1: "recall@1", "recall@10", "mrr", each with the bounds of its bootstrap interval,
"…_low" and "…_high". A job that is started again goes on from the last step that was saved, and measures what was not
measured yet. Fails with the `reason` of a RetrievalError; no failure makes a checkpoint, and none touches another.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.protocol import JobError, JobSpec, Recorded, Reporter, run_job
from pipeline.retrieval.chain import Chain, Checkpoint
from pipeline.retrieval.config import TrainingConfig, for_a_job
from pipeline.retrieval.encoder import WEIGHTS
from pipeline.retrieval.frozen import forget, forget_others, frozen
from pipeline.retrieval.jobs import (
    MODEL,
    STREAM,
    Measuring,
    Told,
    Unmeasured,
    failures,
    read_parameters,
)
from pipeline.retrieval.lifelong import TaskData, learn
from store import model_queries, queries
from store.model_events import CheckpointSaved


@dataclass(frozen=True, slots=True)
class Order:
    """The job's parameters."""

    events_db: Path
    database_db: Path
    repository: str
    simulated: bool
    chain: Chain
    parent: str | None
    config: TrainingConfig
    indices: Path
    tasks: tuple[TaskData, ...]
    keep: tuple[str, ...] | None
    alone: bool

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> Order:
        parent, keep = parameters["parent"], parameters.get("keep")
        return cls(
            events_db=Path(parameters["events_db"]),
            database_db=Path(parameters["database_db"]),
            repository=str(parameters["repository"]),
            simulated=bool(parameters.get("simulated", False)),
            chain=Chain(Path(parameters["chain"])),
            parent=None if parent is None else str(parent),
            config=for_a_job(parameters["config"]),
            indices=Path(parameters["indices"]),
            tasks=tuple(TaskData(str(item["name"]), Path(item["dataset"])) for item in parameters["tasks"]),
            keep=None if keep is None else tuple(map(str, keep)),
            alone=bool(parameters.get("alone", False)),
        )


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Train a retriever on one task and measure it on all tasks so far."""
    order = read_parameters("train", lambda: Order.read(spec.parameters))
    try:
        with failures(order.repository):
            task = _exported(order, spec.job)
            made = learn(
                task,
                order.chain,
                order.config,
                parent=order.parent,
                on_step=Told(reporter, f"training on {task.name}"),
            )
    except JobError as error:
        if error.deterministic:
            with failures(order.repository):
                forget(order.chain.folder, spec.job)
        raise
    with failures(order.repository):
        if order.keep is not None:
            forget_others(order.chain.folder, {spec.job, *order.keep})
        if order.alone:
            order.chain.drop_runs()
    with failures(made.checkpoint):
        simulated = order.simulated or _parent_simulated(order)
        reporter.events([_saved(made, order.chain, spec.job, simulated=simulated)])
        measuring = Measuring(
            order.chain,
            made.checkpoint,
            order.config,
            order.indices,
            spec.job,
            reporter,
            simulated=simulated,
        )
        measured = _measure(measuring, [*order.tasks, task])
    return {
        "checkpoint": made.checkpoint,
        "dataset": str(task.dataset),
        "warnings": list(made.warnings),
        **measured,
    }


def _exported(order: Order, job: str) -> TaskData:
    dataset, position = frozen(
        order.chain.folder,
        job,
        events_db=order.events_db,
        database_db=order.database_db,
        repository=order.repository,
        simulated=order.simulated,
    )
    return TaskData(order.repository, dataset, position)


def _parent_simulated(order: Order) -> bool:
    with closing(queries.connect(order.database_db)) as view:
        known = model_queries.checkpoints(view, MODEL)
    return any(row.simulated for row in known if row.checkpoint == order.parent)


def _saved(made: Checkpoint, chain: Chain, job: str, *, simulated: bool) -> Recorded:
    body = CheckpointSaved(
        model=MODEL,
        checkpoint=made.checkpoint,
        parent=made.parent,
        base=made.base,
        data_seq=made.data_seq,
        config=made.config,
        seed=made.seed,
        steps=made.steps,
        weights=made.weights,
        size_bytes=(chain.path(made.checkpoint) / WEIGHTS).stat().st_size,
        fisher=made.fisher,
        versions=made.versions,
        device=made.device,
        seconds=made.seconds,
        job=job,
        simulated=simulated,
    )
    # By the job too: another one whose data is the same leads to the same checkpoint.
    return Recorded(STREAM, body, (made.checkpoint, job))


def _measure(measuring: Measuring, tasks: Sequence[TaskData]) -> dict[str, Any]:
    """Measure on the test set of every task, the newest one last, and on the val set of that."""
    wanted = [*((task, "test") for task in tasks), (tasks[-1], "val")]
    evaluations, unmeasured = [], []
    for number, (one, split) in enumerate(wanted):
        measuring.reporter.progress(number, len(wanted), f"measuring {one.name}, {split}")
        found = measuring.tell(one, split, repository=one.name)
        if isinstance(found, Unmeasured):
            unmeasured.append(found.as_json())
        else:
            evaluations.append(found.evaluation)
    return {"evaluations": evaluations, "unmeasured": unmeasured}


if __name__ == "__main__":
    sys.exit(run_job(work))
