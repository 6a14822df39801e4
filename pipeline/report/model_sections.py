"""What the report says of the trained models: training, evaluations, and which one is in use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pipeline.report.charts import Lane, Mark, lane_chart
from pipeline.report.gather import TRAINED_BY, ReportData
from pipeline.report.html import (
    DATA_OF,
    MADE_BY,
    SIMULATED,
    Section,
    Value,
    data_of,
    made_by,
    moment,
    paragraph,
    shortened,
    size,
    table,
)
from store.view.rows import CheckpointRow, EvaluationRow

_MOST_CHECKPOINTS, _MOST_FAILED, _MOST_EVALUATIONS = 300, 300, 2000
_STANDING = "In use, and why or why not"
_TELLING = ("against_forgetting", "lambda_value", "loss", "lr", "max_epochs")
_SHOWN = {
    "retriever": ("recall@1", "recall@10", "mrr"),
    "tactics": ("tactic@1", "tactic@8", "token_accuracy"),
    "progress": ("mae", "mse", "within_1"),
}
_CALLED = {"retriever": "retriever", "tactics": "tactic model", "progress": "progress model"}
_UNITS = {"mae": "steps", "mse": "steps squared"}


def training(data: ReportData) -> Section:
    """Checkpoints with where they come from and what became of them, and the runs that made none."""
    section = Section("training", "Training history")
    _drawn(section, data)
    left = max(0, len(data.trainings) - _MOST_CHECKPOINTS)
    shown = data.trainings[left:]
    settings = {
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
            ", ".join(f"{name} {_setting(row.config, name)}" for name in settings[row.model])
            or "the same in all",
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
    headers = (
        "Checkpoint", "Saved (UTC)", DATA_OF, "Trained from", _STANDING, "Settings", "Steps", "Seconds", "Device",
        "Seed", "Data up to", "Size", "Model",
    )  # fmt: skip
    failed: list[tuple[Value, ...]] = [
        (
            row.job,
            made_by(row.simulated),
            row.describes,
            row.attempt,
            row.state,
            row.reason,
            row.message,
            row.remedy,
        )
        for row in data.failed_trainings[:_MOST_FAILED]
    ]
    failed_left = len(data.failed_trainings) - len(failed)
    section.add(
        table(
            "Checkpoints, oldest first", headers, rows, long=(_STANDING, "Settings", "Trained from"),
            empty="a training, which is due when a traced repository has enough new theorems ([train] new_theorems)",
        ),
        paragraph(f"{left:,} older ones are left out.") if left else "",
        _whole_configuration(shown),
        paragraph(
            "The loss of a run is not recorded; what counts for a checkpoint are its evaluations below.", dim=True
        ),
        table(
            "Training runs that failed or were interrupted at their newest attempt, newest first",
            ("Job", MADE_BY, "What", "Attempt", "State", "Reason", "Message", "Remedy"),
            failed, long=("What", "Message", "Remedy"),
        ),
        paragraph(f"{failed_left:,} older ones that failed are left out.") if failed_left else "",
    )  # fmt: skip
    return section


def _drawn(section: Section, data: ReportData) -> None:
    """The runs as marks in time, a lane for each model."""
    lanes: dict[tuple[bool, str], list[Mark]] = {}
    ends: list[str] = []
    for row in data.trainings[-_MOST_CHECKPOINTS:]:
        shape = (
            "in use" if row.promoted
            else "refused" if row.refused_at is not None
            else "was in use" if row.promoted_at is not None
            else "undecided"
        )  # fmt: skip
        told = f"{row.checkpoint}, saved {moment(row.saved_at)} UTC: {shape}"
        at = datetime.fromisoformat(row.saved_at).timestamp()
        lanes.setdefault((row.simulated, row.model), []).append(Mark(at, shape, told))
        ends.append(row.saved_at)
    for job in data.failed_trainings[:_MOST_FAILED]:
        if job.ended_at is not None:
            mark = Mark(
                datetime.fromisoformat(job.ended_at).timestamp(),
                "failed or interrupted",
                shortened(f"{job.job}: {job.state}, {job.reason}"),
            )
            lanes.setdefault((job.simulated, TRAINED_BY[job.kind]), []).append(mark)
            ends.append(job.ended_at)
    if not lanes:
        return
    section.draw(
        "training",
        lane_chart(
            "training-picture",
            "Training runs by when they ended, and what became of them",
            lanes=[
                Lane(f"{SIMULATED} {model}" if simulated else model, tuple(marks))
                for (simulated, model), marks in sorted(lanes.items())
            ],
            ends=(moment(min(ends)), moment(max(ends))),
        ),
    )


def _standing(row: CheckpointRow) -> str:
    """Whether a checkpoint is or was in use, or why not."""
    if row.refused_at is not None:
        before = f" (it was put in use {moment(row.promoted_at)})" if row.promoted_at else ""
        return f"refused {moment(row.refused_at)}: {row.refused_reason}{before}"
    if row.promoted_at is None:
        return "nobody decided on it yet"
    return f"{'in use since' if row.promoted else 'was put in use'} {moment(row.promoted_at)}: {row.reason}"


def _telling(rows: Sequence[CheckpointRow]) -> list[str]:
    """The settings that tell most of a run, and those in which the runs shown differ."""
    names = sorted({name for row in rows for name in row.config})
    differ = [name for name in names if len({_setting(row.config, name) for row in rows}) > 1]
    return [name for name in names if name in _TELLING or name in differ]


def _setting(config: dict[str, object], name: str) -> str:
    return str(config[name]) if name in config else "not recorded"


def _whole_configuration(rows: Sequence[CheckpointRow]) -> str:
    if not rows:
        return ""
    newest = rows[-1]
    settings = [(name, str(value)) for name, value in sorted({**newest.config, **newest.versions}.items())]
    return table(
        f"All settings and versions of {newest.checkpoint}", ("Name", "Value"), settings, folded=True
    )


def evaluations(data: ReportData) -> Section:
    """The newest evaluations as they were recorded, in a table for each model."""
    section = Section("evaluations", "Evaluations")
    left = max(0, len(data.measurements) - _MOST_EVALUATIONS)
    shown = data.measurements[left:]
    for model, names in _SHOWN.items():
        of_model = [row for row in shown if row.model == model]
        if of_model or (model == "retriever" and not shown):
            section.add(_evaluations(f"Evaluations of the {_CALLED[model]}", names, of_model))
    section.add(paragraph(f"{left:,} older ones are left out.") if left else "")
    return section


def _evaluations(caption: str, names: Sequence[str], shown: Sequence[EvaluationRow]) -> str:
    rows: list[tuple[Value, ...]] = [
        (
            row.checkpoint,
            row.repository or "several repositories",
            row.split,
            row.dataset[:8],
            data_of(row.simulated),
            row.n,
            *(_value(row, name) for name in names),
            _others(row, names),
            moment(row.recorded_at),
        )
        for row in shown
    ]
    headers = (
        "Checkpoint", "Repository", "Split", "Dataset", DATA_OF, "Examples", *map(_headed, names),
        "Other measures", "Recorded (UTC)",
    )  # fmt: skip
    return table(
        f"{caption}, oldest first; measures in 0 to 1 where no unit is said, with their 95 % intervals where recorded",
        headers,
        rows,
        long=("Repository", "Other measures"),
        empty="a checkpoint, which is measured on every test set",
    )


def _headed(name: str) -> str:
    unit = _UNITS.get(name)
    return f"{name} ({unit})" if unit else name


def _value(row: EvaluationRow, name: str) -> str:
    value = row.metrics.get(name)
    low, high = row.metrics.get(f"{name}_low"), row.metrics.get(f"{name}_high")
    if value is None:
        return "not recorded"
    return f"{value:.4f}" + ("" if low is None or high is None else f" ({low:.4f} to {high:.4f})")


def _others(row: EvaluationRow, names: Sequence[str]) -> str:
    shown = {f"{name}{end}" for name in names for end in ("", "_low", "_high")}
    others = ", ".join(
        f"{name} {value:.4f}" for name, value in sorted(row.metrics.items()) if name not in shown
    )
    return others or "none"
