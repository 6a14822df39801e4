"""The sections on the trained models: what each remembers and forgets, training, and evaluations.

Each is None where there is nothing to show. The heat map has its numbers in its cells, and the evaluations have their
intervals. The prose around them is in `templates/macros.html`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from pipeline.models.curve import LOSS, Point
from pipeline.models.measures import BASELINES, METRICS, baselines_of
from pipeline.report.charts import (
    Scale,
    Series,
    change_scale,
    error_scale,
    heat_map,
    line_chart,
    rising_scale,
)
from pipeline.report.front import SIMULATED
from pipeline.report.gather import (
    ReportData,
    TrainingCurve,
)
from pipeline.report.html import (
    DATA_OF,
    MADE_BY,
    Picture,
    Section,
    Table,
    Value,
    data_of,
    figure,
    made_by,
    marked,
    measure,
    moment,
    section,
    size,
)
from pipeline.report.matrix import Forgetting, Matrix, Task
from store.text import counted
from store.view.rows import CheckpointRow, EvaluationRow

if TYPE_CHECKING:
    from store.events.models import ModelKind

_MOST_CHECKPOINTS, _MOST_FAILED, _MOST_EVALUATIONS = 300, 300, 2000
_MOST_TASKS, _MOST_LINKS = 60, 120
"""Of a matrix; of more, pictures and tables have the newest, and the measures are over all."""


# ---- matrices


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a model's matrix: `stem` begins the names of its pictures and its section."""

    stem: str
    heading: str
    trained: str
    meaning: str


_WORDS: Mapping[ModelKind, _Words] = {
    "retriever": _Words(
        "recall", "Recall and forgetting", "retriever",
        "recall@10 is the share, in percent, of the premises that a proof step uses which are among the first ten "
        "retrieved, mean over steps.",
    ),
    "tactics": _Words(
        "tactics", "Tactics and forgetting", "tactic model",
        "tactic@8 is the share, in percent, of the steps whose own tactic is among the eight likeliest that the model "
        "writes.",
    ),
    "progress": _Words(
        "progress", "Steps remaining and forgetting", "progress model",
        "mae is by how many steps the model's prediction of the steps that a proof still needs is off, mean over "
        "steps; less is better.",
    ),
}  # fmt: skip
PictureKind = Literal["matrix", "change", "over-time", "losses"]
PICTURE = (
    rf"({'|'.join(words.stem for words in _WORDS.values())})-({'|'.join(get_args(PictureKind))})"
    r"(-simulated)?(-\d+)?"
)
"""A regular expression for the names of the pictures."""
_MEASURES = {
    "FM": ("lower", "forgetting measure: best earlier figure of a task less its last, mean over tasks",
           "the script compares different tasks"),
    "WF5": ("lower", "windowed forgetting: deepest fall of a task within five evaluations, mean over tasks",
            "the script looks at the falls of the average, whose tasks grow"),
    "BWT": ("higher", "backward transfer: last figure of a task less its first, mean over tasks", ""),
    "EBWT": ("higher", "extended backward transfer: as BWT, after every later task",
             "the script leaves the last checkpoint out and counts each task's own"),
    "final_average": ("higher", "mean over all tasks at the end", ""),
    "learning_accuracy": ("higher", "mean of each task right after it was learned", ""),
    "CFR": ("higher", "", "catastrophic forgetting resilience: lowest average over highest, a ratio"),
    "WP5": ("higher", "", "windowed plasticity: gain of the average over five tasks"),
    "IP": ("higher", "", "incremental plasticity: mean change of the validation figure from task to task"),
}  # fmt: skip
_MEAN = "Mean over the tasks seen"


def matrices(data: ReportData) -> Iterator[Section]:
    """Yield a section for each matrix."""
    for model in _WORDS:
        of_model = [matrix for matrix in data.matrices if matrix.model == model]
        for simulated in (False, True):
            of_kind = [matrix for matrix in of_model if matrix.simulated == simulated]
            for number, matrix in enumerate(of_kind, start=1):
                name = ("-simulated" if simulated else "") + (f"-{number}" if len(of_kind) > 1 else "")
                yield matrix_section(matrix, name)


def _picture_name(words: _Words, kind: PictureKind, of: str = "") -> str:
    return f"{words.stem}-{kind}{of}"


def matrix_section(matrix: Matrix, name: str) -> Section:
    """Return the section of one matrix; `name` is put at the end of the names of its pictures."""
    return _MatrixSection(matrix, name).section()


class _MatrixSection:
    """One matrix as a section. `first` is the number of checkpoints of its beginning that are not shown."""

    def __init__(self, matrix: Matrix, name: str) -> None:
        self.matrix, self.name = matrix, name
        self.rule, self.words = matrix.rule, _WORDS[matrix.model]
        self.mark = f"{SIMULATED}: " if matrix.simulated else ""
        self.errors = self.rule.lower_is_better
        self.unit = "steps" if self.errors else "percent"
        # Points to one decimal, steps to two.
        self.digits = 1 if self.rule.scale > 1 else 2
        self.first = max(0, len(matrix.checkpoints) - _MOST_LINKS)
        self.columns = matrix.checkpoints[self.first :]
        self.numbers = [str(self.first + at) for at in range(1, len(self.columns) + 1)]
        self.tasks = matrix.tasks[-_MOST_TASKS:]
        self.cells = [
            [None if cell is None else cell.value * self.rule.scale for cell in task.cells[self.first :]]
            for task in self.tasks
        ]

    def section(self) -> Section:
        matrix, shown = self.matrix, ""
        if self.first or len(self.tasks) < len(matrix.tasks):
            shown = (
                f"the newest {len(self.tasks):,} of {len(matrix.tasks):,} test sets and "
                f"{len(self.columns):,} of {len(matrix.checkpoints):,} checkpoints"
            )
        scale = (error_scale if self.errors else rising_scale)(_known(self.cells))
        grid = self._heat("matrix", f"{self.rule.metric} in {self.unit}", self.cells, scale, self._plain)
        lines = change = None
        if len(self.columns) > 1:
            lines = self._lines()
            gains = [task.gains[self.first :] for task in self.tasks]
            unit, metric = self.rule.unit, self.rule.metric
            won = f"How much better {metric} became" if self.errors else f"Change of {metric}"
            scale = change_scale(_known(gains), unit=unit, step=0.5 if unit == "steps" else 5.0)
            title = f"{won} since a task's first measurement, in {unit}"
            change = self._heat("change", title, gains, scale, self._signed)
        return section(
            f"{self.words.stem}{self.name}", f"{self.mark}{self.words.heading}, split {matrix.split}", "matrix",
            one=matrix, meaning=self.words.meaning, shown=shown, grid=grid, lines=lines, change=change,
            forgetting=self._forgetting() if len(self.columns) > 1 else None,
            lifelong=matrix.forgetting and _lifelong(matrix.forgetting, self.mark),
        )  # fmt: skip

    def _heat(
        self, kind: PictureKind, title: str, cells: Sequence[Sequence[float | None]], scale: Scale, form: Any
    ) -> Picture:
        name = _picture_name(self.words, kind, self.name)
        svg = heat_map(
            f"{name}-picture",
            f"{self.mark}{title}, split {self.matrix.split}",
            rows=[task.name for task in self.tasks],
            columns=self.columns,
            cells=cells,
            scale=scale,
            form=form,
            framed=[task.begins - self.first for task in self.tasks],
            first=self.first + 1,
        )
        return Picture(name, svg)

    def _lines(self) -> Picture:
        lines = [Series(task.name, tuple(row)) for task, row in zip(self.tasks, self.cells, strict=True)]
        if len(lines) > 1:
            means = self.matrix.averages[self.first :]
            scaled = tuple(None if value is None else value * self.rule.scale for value in means)
            lines.append(Series(_MEAN, scaled, heavy=True))
        known = _known(self.cells)
        low, high = 10 * (min(known, default=0.0) // 10), max(known, default=100.0)
        name = _picture_name(self.words, "over-time", self.name)
        begins = "" if self.errors else f", from {low:g} on"
        svg = line_chart(
            f"{name}-picture",
            f"{self.mark}{self.rule.metric} per task over the chain, split {self.matrix.split}",
            positions=self.numbers,
            lines=lines,
            unit=f"{self.unit}{begins}; across: checkpoints of the chain",
            ends=None if self.errors else (low, min(100.0, 10 * math.ceil((high + 0.01) / 10))),
        )
        return Picture(name, svg)

    def _forgetting(self) -> Table:
        since, lost = "Change since the first", "Forgotten: best earlier less last"
        if self.errors:
            since, lost = "Better since the first by", "Forgotten: last less best earlier"
        units = self.unit if self.unit == self.rule.unit else f"{self.unit} and {self.rule.unit}"
        return Table(
            f"{self.mark}Forgetting, task by task, in {units}",
            ("Task", "First", "Best", "Last", since, lost),
            [self._kept(task) for task in self.tasks],
        )

    def _kept(self, task: Task) -> tuple[Value, ...]:
        first, last = task.known[0].value, task.known[-1].value
        values = (task.name, *map(self._scaled, (first, task.best(task.known), last)))
        if task.forgotten is None:
            return (*values, "measured once", "measured once")
        return (*values, self._signed(self.rule.lost(last, first)), self._plain(task.forgotten))

    def _scaled(self, value: float) -> str:
        """Write a value as it was measured in the unit of the page."""
        return self._plain(value * self.rule.scale)

    def _plain(self, value: float) -> str:
        return f"{value:.{self.digits}f}"

    def _signed(self, value: float) -> str:
        return f"{value:+.{self.digits}f}" if abs(value) >= 0.5 * 10**-self.digits else self._plain(0)


def _known(cells: Sequence[Sequence[float | None]]) -> list[float]:
    return [value for row in cells for value in row if value is not None]


def _lifelong(found: Forgetting, mark: str) -> Table:
    def value(form: Mapping[str, float | None], name: str) -> str:
        return measure(form[name]) if name in form else "no such measure"

    meant = "What it is"
    return Table(
        f"{mark}Lifelong measures over {counted(found.n_tasks, 'task')}, in points of percent (CFR: a ratio)",
        ("Measure", "Textbook", "LeanAgent's script", "Better when", meant),
        [
            (name, value(found.textbook, name), value(found.leanagent, name), better, "; ".join(filter(None, said)))
            for name, (better, *said) in _MEASURES.items()
        ],
        long=(meant,),
        folded=False,
    )  # fmt: skip


# ---- training and evaluations

_STANDING = "In use, and why or why not"
_TELLING = ("against_forgetting", "lambda_value", "loss", "lr", "max_epochs")
_SHOWN = {
    "retriever": METRICS,
    "tactics": ("tactic@1", "tactic@8", "token_accuracy"),
    "progress": ("mae", "mse", "within_1"),
}
_UNITS = {"mae": "steps", "mse": "steps squared"}


def training(data: ReportData) -> Section | None:
    """List checkpoints with their origin and state, and the runs that made none."""
    if not (data.trainings or data.failed_trainings):
        return None
    left = max(0, len(data.trainings) - _MOST_CHECKPOINTS)
    shown = data.trainings[left:]
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
    failed = Table(
        "Training runs that failed or were interrupted at their newest attempt, newest first",
        ("Job", MADE_BY, "What", "Attempt", "State", "Reason", "Message", "Remedy"),
        [
            (
                row.job, made_by(row.simulated), row.describes, row.attempt, row.state, row.reason, row.message,
                row.remedy,
            )
            for row in data.failed_trainings[:_MOST_FAILED]
        ],
        long=("What", "Message", "Remedy"),
    )  # fmt: skip
    settings = None
    if shown:
        every = sorted({**shown[-1].config, **shown[-1].versions}.items())
        settings = Table(
            f"All settings and versions of {shown[-1].checkpoint}", ("Name", "Value"),
            [(name, str(value)) for name, value in every], folded=True,
        )  # fmt: skip
    return section(
        "training", "Training history", "training",
        checkpoints=checkpoints, left=left, settings=settings, failed=failed,
        failed_left=max(0, len(data.failed_trainings) - _MOST_FAILED),
    )  # fmt: skip


_ALONG = 100
"""Parts of a run at which its loss is drawn."""


def losses(data: ReportData) -> Iterator[Section]:
    """Yield a section for each model that was trained: how the losses of its newest trainings fell."""
    for model, words in _WORDS.items():
        shown = [one for one in data.curves if one.row.model == model]
        if not shown:
            continue
        name = _picture_name(words, "losses")
        lines = [
            Series(marked(one.row.checkpoint, one.row.simulated), along, one.row.simulated)
            for one in shown
            if (along := _along(one.measures.get(LOSS, ())))
        ]
        svg = line_chart(
            f"{name}-picture",
            f"Loss of the {words.trained} along its newest trainings",
            positions=[f"{percent} %" for percent in range(1, _ALONG + 1)],
            lines=lines,
            unit="loss; across: the part of the training's steps",
        )
        runs = Table(
            f"Losses of the {words.trained}, oldest training first",
            ("Checkpoint", DATA_OF, "Steps", "First loss", "Lowest", "Last", "Other measures at the end", "Not drawn"),
            [_run(one) for one in shown],
            long=("Other measures at the end", "Not drawn"),
        )  # fmt: skip
        left = sum(row.model == model and row.curve is not None for row in data.trainings) - len(shown)
        yield section(
            name, f"Losses of the {words.trained}", "losses",
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


def evaluations(data: ReportData) -> Section | None:
    """List the newest evaluations as they were recorded, in a table for each model."""
    if not data.measurements:
        return None
    left = max(0, len(data.measurements) - _MOST_EVALUATIONS)
    shown = data.measurements[left:]
    tables = []
    for model, words in _WORDS.items():
        of_model = [row for row in shown if row.model == model]
        if of_model:
            tables.append(_evaluations_of(f"Evaluations of the {words.trained}", _SHOWN[model], of_model))
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
