"""The sections on the trained models: checkpoints, losses and evaluations.

Each is None where there is nothing to show. The prose around them is in `templates/macros.html`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.models.curve import LOSS, Point, read_curve
from pipeline.models.measures import BASELINES, baselines_of
from pipeline.report.charts import Series, line_chart
from pipeline.report.html import (
    Picture,
    Section,
    Table,
    Value,
    figure,
    moment,
    section,
)
from store.documents.checkpoints import Checkpoint, describe_checkpoints
from store.errors import LogError
from store.promotion import task_name
from store.text import size
from store.view import model_queries
from store.view.rows import CheckpointRow

if TYPE_CHECKING:
    from store.events.models import ModelKind

Blob = Callable[[str], bytes]
"""Returns a payload of the log by its hash, as does `LogReader.blob`."""
MOST_CURVES = 8
"""Maximum of trainings with drawn losses for each model, the newest."""
_MOST_CHECKPOINTS, _MOST_EVALUATIONS = 300, 2000
_NAMES: Mapping[ModelKind, str] = {
    "retriever": "retriever", "tactics": "tactic model", "progress": "progress model"
}  # fmt: skip
PICTURE = rf"({'|'.join(_NAMES)})-losses"
"""A regular expression for the names of the pictures."""


def training(view: sqlite3.Connection) -> Section | None:
    """List the newest checkpoints with their origin, state and measures."""
    saved = model_queries.checkpoints(view)
    if not saved:
        return None
    shown = describe_checkpoints(view, saved[-_MOST_CHECKPOINTS:])
    rows: list[tuple[Value, ...]] = [
        (
            one.checkpoint, one.model, moment(one.saved_at), one.parent or f"base: {one.base}",
            one.state, one.refused_reason if one.state == "refused" else one.reason, one.figures, one.steps,
            one.seconds, one.device, size(one.size_bytes),
        )
        for one in shown
    ]  # fmt: skip
    measured = [row for one in shown for row in _measured(one)]
    return section(
        "training", "Checkpoints", "training",
        checkpoints=Table(
            "Checkpoints, oldest first",
            ("Checkpoint", "Model", "Saved (UTC)", "Trained from", "State", "Why", "Measured", "Steps",
             "Seconds", "Device", "Size"),
            rows, long=("Trained from", "Why", "Measured"),
        ),
        left=len(saved) - len(shown),
        evaluations=Table(
            "Evaluations, the newest of each checkpoint on each task; from 0 to 1 where no unit is said",
            ("Checkpoint", "Task", "Dataset", "Of", "Measures"),
            measured[-_MOST_EVALUATIONS:], long=("Task", "Measures"),
        ),
        evaluations_left=max(0, len(measured) - _MOST_EVALUATIONS),
    )  # fmt: skip


def _measured(one: Checkpoint) -> Iterator[tuple[Value, ...]]:
    for task in one.tasks:
        name = task_name(task.repository, task.split)
        for who, metrics in baselines_of(task.metrics).items():
            measures = ", ".join(f"{metric} {value:.4f}" for metric, value in sorted(metrics.items()))
            yield one.checkpoint, name, task.dataset[:8], BASELINES.get(who, "the model"), measures


_ALONG = 100
"""Maximum of points in the drawing of a run's loss."""


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """A training's measurements, by name: (step, value), by step. Without any, `problem` is the reason."""

    row: CheckpointRow
    measures: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    problem: str = ""


def _curve(row: CheckpointRow, blob: Blob | None) -> TrainingCurve:
    if blob is None:
        return TrainingCurve(row, problem="it is in the log, which cannot be read")
    try:
        return TrainingCurve(row, read_curve(blob(row.curve or "")))
    except (LogError, ValueError, RecursionError) as error:
        # Damage costs this curve alone.
        return TrainingCurve(row, problem=f"it cannot be read: {error}")


def losses(view: sqlite3.Connection, blob: Blob | None) -> Iterator[Section]:
    """Yield a section for each trained model: the losses of its newest trainings."""
    checkpoints = model_queries.checkpoints(view)
    for model, trained in _NAMES.items():
        with_one = [row for row in checkpoints if row.model == model and row.curve is not None]
        shown = [_curve(row, blob) for row in with_one[-MOST_CURVES:]]
        if not shown:
            continue
        name = f"{model}-losses"
        lines = [
            Series(one.row.checkpoint, along)
            for one in shown
            if (along := _along(one.measures.get(LOSS, ())))
        ]
        svg = line_chart(
            f"{name}-picture",
            f"Loss of the {trained} along its newest trainings",
            positions=[f"{percent} %" for percent in range(1, _ALONG + 1)],
            lines=lines,
            unit="loss; across: the part of the training's steps",
        )
        runs = Table(
            f"Losses of the {trained}, oldest training first",
            ("Checkpoint", "Steps", "First loss", "Lowest", "Last", "Other measures at the end", "Not drawn"),
            [_run(one) for one in shown],
            long=("Other measures at the end", "Not drawn"),
        )  # fmt: skip
        left = len(with_one) - len(shown)
        yield section(
            name, f"Losses of the {trained}", "losses",
            runs=runs, drawn=Picture(name, svg) if lines else None, left=left,
        )  # fmt: skip


def _along(points: Sequence[Point]) -> tuple[float | None, ...]:
    """Return the last value at each part of a run; None before the first."""
    if not points:
        return ()
    last, result, at = points[-1][0], [], 0
    for part in range(1, _ALONG + 1):
        while at < len(points) and points[at][0] * _ALONG <= last * part:
            at += 1
        result.append(points[at - 1][1] if at else None)
    return tuple(result)


def _run(one: TrainingCurve) -> tuple[Value, ...]:
    values = [value for _, value in one.measures.get(LOSS, ())]
    first, lowest, last = map(figure, (values[0], min(values), values[-1])) if values else (None,) * 3
    others = ", ".join(
        f"{name} {figure(points[-1][1])}" for name, points in one.measures.items() if name != LOSS and points
    )
    missing = one.problem or ("" if values else "no step was logged")
    row = one.row
    return (row.checkpoint, row.steps, first, lowest, last, others or "none", missing)
