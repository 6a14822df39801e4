"""A checkpoint of a model: whether it is in use and why, what it came from, and how it did on which task."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from store.documents.document import of_row
from store.promotion import RULES, kind_of, measured_tasks, task_name
from store.text import counted
from store.view import model_queries
from store.view.rows import CheckpointRow, EvaluationRow

CHECKPOINT_STATES = ("in use", "removed", "was in use", "refused", "undecided")
"""The first that fits is the one that a checkpoint is in."""


@dataclass(frozen=True, slots=True)
class Measured(EvaluationRow):
    """How a checkpoint did on a task, when it was measured last."""

    SHOWN: ClassVar = ("repository", "split", "dataset", "metrics", "simulated")


@dataclass(frozen=True, slots=True)
class Checkpoint(CheckpointRow):
    state: str
    """`in use`, `removed`, `was in use`, `refused` or `undecided`."""
    tasks: list[Measured]
    """The newest measurement of each."""

    @property
    def state_text(self) -> str:
        """Return the state, marked where it learned from the simulator."""
        return marked(self.state, simulated=self.simulated)

    @property
    def figures(self) -> str:
        """Return the measure that the model's rule compares: the lowest and the highest over the tasks."""
        metric = RULES[kind_of(self.model)].metric
        values = sorted(item.metrics[metric] for item in self.tasks if metric in item.metrics)
        if not values:
            return "-"
        if len(values) == 1:
            return f"{metric} {values[0]:.4f} on 1 task"
        return f"{metric} {values[0]:.4f} to {values[-1]:.4f} on {counted(len(values), 'task')}"


def describe_checkpoints(view: sqlite3.Connection, checkpoints: Sequence[CheckpointRow]) -> list[Checkpoint]:
    """Return the documents of checkpoints, in their order; the number of questions does not grow with theirs."""
    only = checkpoints[0].checkpoint if len(checkpoints) == 1 else None
    measured: dict[str, list[EvaluationRow]] = defaultdict(list)
    for row in model_queries.evaluations(view, only):
        measured[row.checkpoint].append(row)
    return [
        of_row(
            Checkpoint,
            row,
            state=_state(row),
            tasks=[of_row(Measured, item) for item in measured_tasks(measured[row.checkpoint])],
        )
        for row in checkpoints
    ]


def _state(row: CheckpointRow) -> str:
    decided = (row.promoted, row.removed_at, row.promoted_at, row.refused_at)
    return next(
        (state for state, of in zip(CHECKPOINT_STATES, decided, strict=False) if of), CHECKPOINT_STATES[-1]
    )


def marked(text: str, *, simulated: bool) -> str:
    """Return the mark beside what the simulator made."""
    return f"{text} SIMULATED" if simulated else text


def task_of(row: EvaluationRow) -> str:
    """Return the name of a measured task, for people."""
    return marked(task_name(row.repository, row.split), simulated=row.simulated)
