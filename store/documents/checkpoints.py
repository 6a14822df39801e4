"""A checkpoint of a model: whether it is in use and why, its origin, and its results by task."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from store.documents.document import of_row
from store.documents.lookup import one_match
from store.promotion import RULES, TaskChange, decide, kind_of, measured_tasks, read_sides, task_name
from store.text import counted
from store.view import model_queries
from store.view.rows import CheckpointRow, EvaluationRow

CHECKPOINT_STATES = ("in use", "removed", "was in use", "refused", "undecided")
"""A checkpoint's state is the first that fits."""


@dataclass(frozen=True, slots=True)
class Measured(EvaluationRow):
    """The last measurement of a checkpoint on a task."""

    SHOWN: ClassVar = ("repository", "split", "dataset", "metrics")


@dataclass(frozen=True, slots=True)
class Checkpoint(CheckpointRow):
    state: str
    """`in use`, `removed`, `was in use`, `refused` or `undecided`."""
    tasks: list[Measured]
    """The newest measurement of each."""

    @property
    def figures(self) -> str:
        """Return the metric of the model's rule: the lowest and the highest over the tasks."""
        metric = RULES[kind_of(self.model)].metric
        values = sorted(task.metrics[metric] for task in self.tasks if metric in task.metrics)
        if not values:
            return "-"
        if len(values) == 1:
            return f"{metric} {values[0]:.4f} on 1 task"
        return f"{metric} {values[0]:.4f} to {values[-1]:.4f} on {counted(len(values), 'task')}"


def describe_checkpoints(view: sqlite3.Connection, checkpoints: Sequence[CheckpointRow]) -> list[Checkpoint]:
    """Return the documents of checkpoints, in their order, with a fixed number of queries."""
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


class NotComparableError(Exception):
    """Two checkpoints cannot be compared; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Comparison:
    before: str
    """the id of A"""
    after: str
    """the id of B"""
    model: str
    """of both"""
    metric: str
    """`recall@10`, `tactic@8` or `mae`"""
    unit: str
    """of losses and tolerance: `points` (100 are all) or `steps`"""
    tolerance: float
    """in this unit"""
    verdict: str
    """`promote`, `refuse` (it loses too much) or `unknown`"""
    reason: str
    """in a sentence"""
    tasks: tuple[TaskChange, ...]
    """by name"""

    @property
    def text(self) -> str:
        """Return in a sentence whether the second may take the place of the first."""
        return f"may {'' if self.verdict == 'promote' else 'not '}be promoted: {self.reason}"

    def moved(self, task: TaskChange) -> str:
        """Return a task's change of the metric, up or down, whichever is better."""
        if task.lost is None:
            return "-"
        return f"{task.lost if RULES[kind_of(self.model)].lower_is_better else -task.lost:+.2f}"


def checkpoints_named(view: sqlite3.Connection, *prefixes: str) -> list[CheckpointRow]:
    """Return the checkpoints with these ids, or beginnings of ids."""
    rows = model_queries.checkpoints(view)
    return [
        one_match(
            [row for row in rows if row.checkpoint.startswith(prefix)],
            prefix,
            what="checkpoint",
            key="checkpoint",
            verb="models",
        )
        for prefix in prefixes
    ]


def compare_checkpoints(
    view: sqlite3.Connection,
    old: CheckpointRow,
    new: CheckpointRow,
    *,
    tolerance: float,
    read_blob: Callable[[str], bytes],
) -> Comparison:
    """Set two checkpoints of a model side by side, as the rule of promotion does.

    Raises:
        NotComparableError: they are of two models, or the tolerance is out of range.
    """
    if old.model != new.model:
        raise NotComparableError(
            f"{old.checkpoint} is a checkpoint of {old.model} and {new.checkpoint} of {new.model}; only two of one"
            " model can be compared"
        )
    rule = RULES[kind_of(old.model)]
    if tolerance > rule.widest:
        raise NotComparableError(
            f"a tolerance of {tolerance:g} is more than {rule.widest:g} {rule.unit} of {rule.metric}; name less"
        )
    decision = decide(*read_sides(view, new, old), rule=rule, tolerance=tolerance, read_blob=read_blob)
    return Comparison(
        before=old.checkpoint,
        after=new.checkpoint,
        model=old.model,
        metric=rule.metric,
        unit=rule.unit,
        tolerance=tolerance,
        verdict=decision.verdict,
        reason=decision.reason,
        tasks=decision.tasks,
    )


def _state(row: CheckpointRow) -> str:
    decided = (row.promoted, row.removed_at, row.promoted_at, row.refused_at)
    return next(
        (state for state, of in zip(CHECKPOINT_STATES, decided, strict=False) if of), CHECKPOINT_STATES[-1]
    )


def task_of(row: EvaluationRow) -> str:
    """Return the name of a measured task, for people."""
    return task_name(row.repository, row.split)
