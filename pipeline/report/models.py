"""The sections on the trained models: training, losses and evaluations.

Each is None where there is nothing to show. The prose around them is in `templates/macros.html`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.models.curve import LOSS, Point, read_curve
from pipeline.models.measures import BASELINES, METRICS, baselines_of
from pipeline.report.charts import Series, line_chart
from pipeline.report.html import (
    DATA_OF,
    Picture,
    Section,
    Table,
    Value,
    data_of,
    figure,
    marked,
    moment,
    section,
)
from store.errors import LogError
from store.text import size
from store.view import model_queries
from store.view.rows import CheckpointRow, EvaluationRow

if TYPE_CHECKING:
    from store.events.models import ModelKind

Blob = Callable[[str], bytes]
"""Returns a payload of the log by its hash, as `LogReader.blob` does."""
MOST_CURVES = 8
"""Of each model, the newest trainings whose losses are drawn."""
_MOST_CHECKPOINTS, _MOST_EVALUATIONS = 300, 2000
_NAMES: Mapping[ModelKind, tuple[str, str]] = {
    "retriever": ("recall", "retriever"),
    "tactics": ("tactics", "tactic model"),
    "progress": ("progress", "progress model"),
}
"""Of each model: the beginning of the name of its picture, and its name."""
PICTURE = rf"({'|'.join(stem for stem, _ in _NAMES.values())})-losses"
"""A regular expression for the names of the pictures."""
_STANDING = "In use, and why or why not"
_TELLING = ("against_forgetting", "lambda_value", "loss", "lr", "max_epochs")
_SHOWN = {
    "retriever": METRICS,
    "tactics": ("tactic@1", "tactic@8", "token_accuracy"),
    "progress": ("mae", "mse", "within_1"),
}
_UNITS = {"mae": "steps", "mse": "steps squared"}


def training(view: sqlite3.Connection) -> Section | None:
    """List checkpoints with their origin and state."""
    saved = model_queries.checkpoints(view)
    if not saved:
        return None
    left = max(0, len(saved) - _MOST_CHECKPOINTS)
    shown = saved[left:]
    telling = {
        model: _telling([row for row in shown if row.model == model])
        for model in {row.model for row in shown}
    }
    rows: list[tuple[Value, ...]] = [
        (
            row.checkpoint,
            moment(row.saved_at),
            data_of(row.simulated),
            row.parent or f"base: {row.base}",
            _standing(row),
            ", ".join(f"{name} {_setting(row, name)}" for name in telling[row.model]) or "the same in all",
            row.steps,
            row.seconds,
            row.device,
            str(row.seed),
            f"event {row.data_seq}",
            size(row.size_bytes),
            row.model,
        )
        for row in shown
    ]
    checkpoints = Table(
        "Checkpoints, oldest first",
        ("Checkpoint", "Saved (UTC)", DATA_OF, "Trained from", _STANDING, "Settings", "Steps", "Seconds", "Device",
         "Seed", "Data up to", "Size", "Model"),
        rows, long=(_STANDING, "Settings", "Trained from"),
    )  # fmt: skip
    newest = shown[-1]
    settings = Table(
        f"All settings and versions of {newest.checkpoint}", ("Name", "Value"),
        [(name, str(value)) for name, value in sorted({**newest.config, **newest.versions}.items())], folded=True,
    )  # fmt: skip
    return section(
        "training", "Training history", "training", checkpoints=checkpoints, left=left, settings=settings
    )


_ALONG = 100
"""Parts of a run at which its loss is drawn."""


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """What a training measured, by name: (step, value), by step. Without any `problem` says why."""

    row: CheckpointRow
    measures: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    problem: str = ""


def _curve(row: CheckpointRow, blob: Blob | None) -> TrainingCurve:
    if blob is None:
        return TrainingCurve(row, problem="it is in the log, which was not at hand")
    try:
        return TrainingCurve(row, read_curve(blob(row.curve or "")))
    except (LogError, ValueError, RecursionError) as error:
        # What is damaged costs this curve alone.
        return TrainingCurve(row, problem=f"it cannot be read: {error}")


def losses(view: sqlite3.Connection, blob: Blob | None) -> Iterator[Section]:
    """Yield a section for each model that was trained: how the losses of its newest trainings fell."""
    checkpoints = model_queries.checkpoints(view)
    for model, (stem, trained) in _NAMES.items():
        with_one = [row for row in checkpoints if row.model == model and row.curve is not None]
        shown = [_curve(row, blob) for row in with_one[-MOST_CURVES:]]
        if not shown:
            continue
        name = f"{stem}-losses"
        lines = [
            Series(marked(one.row.checkpoint, one.row.simulated), along, one.row.simulated)
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
            ("Checkpoint", DATA_OF, "Steps", "First loss", "Lowest", "Last", "Other measures at the end", "Not drawn"),
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
    last, found, at = points[-1][0], [], 0
    for part in range(1, _ALONG + 1):
        while at < len(points) and points[at][0] * _ALONG <= last * part:
            at += 1
        found.append(points[at - 1][1] if at else None)
    return tuple(found)


def _run(one: TrainingCurve) -> tuple[Value, ...]:
    values = [value for _, value in one.measures.get(LOSS, ())]
    first, lowest, last = map(figure, (values[0], min(values), values[-1])) if values else (None,) * 3
    others = ", ".join(
        f"{name} {figure(points[-1][1])}" for name, points in one.measures.items() if name != LOSS and points
    )
    missing = one.problem or ("" if values else "no step was logged")
    row = one.row
    return (row.checkpoint, data_of(row.simulated), row.steps, first, lowest, last, others or "none", missing)


def _standing(row: CheckpointRow) -> str:
    """Return whether a checkpoint is or was in use, or why not."""
    if row.refused_at is not None:
        before = f" (it was put in use {moment(row.promoted_at)})" if row.promoted_at else ""
        return f"refused {moment(row.refused_at)}: {row.refused_reason}{before}"
    if row.promoted_at is None:
        return "no decision on it yet"
    return f"{'in use since' if row.promoted else 'was put in use'} {moment(row.promoted_at)}: {row.reason}"


def _telling(rows: Sequence[CheckpointRow]) -> list[str]:
    """Return the settings that tell most of a run, and those in which these runs differ."""
    names = sorted({name for row in rows for name in row.config})
    return [name for name in names if name in _TELLING or len({_setting(row, name) for row in rows}) > 1]


def _setting(row: CheckpointRow, name: str) -> str:
    return str(row.config[name]) if name in row.config else "not recorded"


def evaluations(view: sqlite3.Connection) -> Section | None:
    """List the newest evaluations as they were recorded, in a table for each model."""
    measured = model_queries.evaluations(view)
    if not measured:
        return None
    left = max(0, len(measured) - _MOST_EVALUATIONS)
    shown = measured[left:]
    tables = []
    for model, (_, trained) in _NAMES.items():
        of_model = [row for row in shown if row.model == model]
        if of_model:
            tables.append(_evaluations_of(f"Evaluations of the {trained}", _SHOWN[model], of_model))
    return section("evaluations", "Evaluations", "evaluations", tables=tables, left=left)


def _evaluations_of(caption: str, names: Sequence[str], shown: Sequence[EvaluationRow]) -> Table:
    headed = [f"{name} ({_UNITS[name]})" if name in _UNITS else name for name in names]
    return Table(
        f"{caption}, oldest first; measures in 0 to 1 where no unit is said, with their 95 % intervals where recorded",
        ("Checkpoint", "Repository", "Split", "Dataset", DATA_OF, "Examples", *headed, "Other measures",
         "Recorded (UTC)"),
        [
            (
                who, row.repository or "several repositories", row.split, row.dataset[:8],
                data_of(row.simulated), row.n, *(_measured(metrics, name) for name in names), _others(metrics, names),
                moment(row.recorded_at),
            )
            for who, row, metrics in _rows(shown)
        ],
        long=("Repository", "Other measures"),
    )  # fmt: skip


def _rows(shown: Sequence[EvaluationRow]) -> Iterator[tuple[str, EvaluationRow, Mapping[str, float]]]:
    """Yield who was measured, the measurement and the measures: checkpoints, and once a dataset the baselines."""
    told: set[str] = set()
    for row in shown:
        of = baselines_of(row.metrics)
        yield row.checkpoint, row, of.pop("")
        if of and row.dataset not in told:
            told.add(row.dataset)
            for name, metrics in of.items():
                yield f"{BASELINES[name]} (baseline)", row, metrics


def _measured(metrics: Mapping[str, float], name: str) -> str:
    value = metrics.get(name)
    low, high = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
    if value is None:
        return "not recorded"
    return f"{value:.4f}" + ("" if low is None or high is None else f" ({low:.4f} to {high:.4f})")


def _others(metrics: Mapping[str, float], names: Sequence[str]) -> str:
    shown = {f"{name}{end}" for name in names for end in ("", "_low", "_high")}
    others = [f"{name} {value:.4f}" for name, value in sorted(metrics.items()) if name not in shown]
    return ", ".join(others) or "none"
