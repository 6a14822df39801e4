"""What the report says of the matrices: how each model does on each task over its chain, and what it forgot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.report.charts import Line, Scale, change_scale, error_scale, heat_map, line_chart, rising_scale
from pipeline.report.gather import ReportData
from pipeline.report.html import SIMULATED, UNDEFINED, Section, Value, measure, paragraph, table
from pipeline.report.matrix import Cell, Forgetting, Matrix, Task
from store.promotion import Rule

if TYPE_CHECKING:
    from store.events.models import ModelKind

_MOST_TASKS, _MOST_CHECKPOINTS = 60, 120
"""Of more, pictures and tables have the newest; the measures are over all."""
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


@dataclass(frozen=True, slots=True)
class _Words:
    """How a model's matrix is told: `stem` begins the names of its pictures and of its section, `caption` its table."""

    stem: str
    heading: str
    caption: str
    meaning: str
    trained: str


_WORDS: Mapping[ModelKind, _Words] = {
    "retriever": _Words(
        "recall",
        "Recall and forgetting",
        "Recall matrix",
        "recall@10 is the share, in percent, of the premises that a proof step uses which are among the first ten "
        "retrieved, mean over steps.",
        "retriever",
    ),
    "tactics": _Words(
        "tactics",
        "Tactics and forgetting",
        "Tactic matrix",
        "tactic@8 is the share, in percent, of the steps whose own tactic is among the eight likeliest that the model "
        "writes.",
        "tactic model",
    ),
    "progress": _Words(
        "progress",
        "Steps remaining and forgetting",
        "Error matrix",
        "mae is by how many steps the model's prediction of the steps that a proof still needs is off, mean over "
        "steps; less is better.",
        "progress model",
    ),
}


def sections(data: ReportData) -> list[Section]:
    """A section for each matrix; where a model has none, one that says so, if there is such a model at all."""
    found = []
    for model, words in _WORDS.items():
        of_model = [matrix for matrix in data.matrices if matrix.model == model]
        if not of_model and (model == "retriever" or any(row.model == model for row in data.trainings)):
            missing = f"No checkpoint in the {words.trained}'s chain was measured on a test set yet."
            found.append(Section(words.stem, words.heading, paragraph(missing)))
        for simulated in (False, True):
            of_kind = [matrix for matrix in of_model if matrix.simulated == simulated]
            for number, matrix in enumerate(of_kind, start=1):
                name = ("-simulated" if simulated else "") + (f"-{number}" if len(of_kind) > 1 else "")
                found.append(matrix_section(matrix, name))
    return found


def matrix_section(matrix: Matrix, name: str) -> Section:
    """Return the section of one matrix; `name` is put at the end of the names of its pictures."""
    return _Drawn(matrix, name).section


class _Drawn:
    """One matrix as a section. `first` is the number of checkpoints of its beginning that are not shown."""

    def __init__(self, matrix: Matrix, name: str) -> None:
        self.matrix, self.name = matrix, name
        self.rule, self.words = matrix.rule, _WORDS[matrix.model]
        self.mark = f"{SIMULATED}: " if matrix.simulated else ""
        self.unit = "steps" if self.rule.lower_is_better else "percent"
        self.measured = f"{self.rule.metric} in {self.unit}"
        self.first = max(0, len(matrix.checkpoints) - _MOST_CHECKPOINTS)
        self.columns = matrix.checkpoints[self.first :]
        self.numbers = [str(self.first + index) for index in range(1, len(self.columns) + 1)]
        self.tasks = matrix.tasks[-_MOST_TASKS:]
        heading = f"{self.mark}{self.words.heading}, split {matrix.split}"
        self.section = Section(f"{self.words.stem}{name}", heading)
        self._introduce()
        self._values()
        self.section.add("<h3>Forgetting</h3>")
        self._forgetting()

    def _introduce(self) -> None:
        if self.matrix.simulated:
            self.section.add(
                paragraph(
                    f"{SIMULATED}: the simulator, and not Lean, made what was learned from or measured on."
                )
            )
        self.section.add(
            paragraph(
                "A row is a frozen test set, in the order in which they were first measured; a column is a checkpoint "
                f"of the chain that leads to the one in use, by its number. {self.words.meaning}"
            )
        )
        if self.first or len(self.tasks) < len(self.matrix.tasks):
            self.section.add(
                paragraph(
                    f"Shown are the newest {len(self.tasks):,} of {len(self.matrix.tasks):,} test sets and "
                    f"{len(self.columns):,} of {len(self.matrix.checkpoints):,} checkpoints; the measures are over all."
                )
            )

    def _values(self) -> None:
        scale = self.rule.scale
        cells = [
            [None if cell is None else cell.value * scale for cell in task.cells[self.first :]]
            for task in self.tasks
        ]
        known = _known(cells)
        errors = self.rule.lower_is_better
        self._heat(
            "matrix", self.measured, cells, error_scale(known) if errors else rising_scale(known), self._plain
        )
        self.section.add(self._table())
        if len(self.columns) < 2:
            return
        lines = [Line(task.name, tuple(row)) for task, row in zip(self.tasks, cells, strict=True)]
        if len(lines) > 1:
            means = self.matrix.averages[self.first :]
            scaled = tuple(None if value is None else value * scale for value in means)
            lines.append(Line("Mean over the tasks seen", scaled, heavy=True))
        low, high = 10 * (min(known, default=0.0) // 10), max(known, default=100.0)
        picture = f"{self.words.stem}-over-time{self.name}"
        across = "across: checkpoints of the chain"
        self.section.draw(
            picture,
            line_chart(
                f"{picture}-picture",
                f"{self.mark}{self.rule.metric} per task over the chain, split {self.matrix.split}",
                positions=self.numbers,
                lines=lines,
                unit=f"{self.unit}; {across}" if errors else f"{self.unit}, from {low:g} on; {across}",
                ends=None if errors else (low, min(100.0, -10 * (-(high + 0.01) // 10))),
            ),
        )

    def _forgetting(self) -> None:
        metric, unit = self.rule.metric, self.rule.unit
        won = (
            f"How much better {metric} became since"
            if self.rule.lower_is_better
            else f"Change of {metric} since"
        )
        if len(self.columns) > 1:
            gains = [task.gains[self.first :] for task in self.tasks]
            title = f"{won} a task's first measurement, in {unit}"
            scale = change_scale(_known(gains), unit=unit, step=0.5 if unit == "steps" else 5.0)
            self._heat("change", title, gains, scale, self._signed)
        headers = (
            "Task",
            "First",
            "Best",
            "Last",
            "Better since the first by" if self.rule.lower_is_better else "Change since the first",
            "Forgotten: last less best earlier"
            if self.rule.lower_is_better
            else "Forgotten: best earlier less last",
        )
        units = unit if self.unit == unit else f"{self.unit} and {unit}"
        caption = f"{self.mark}Forgetting, task by task, in {units}"
        self.section.add(table(caption, headers, [*map(self._kept, self.tasks)]))
        if self.matrix.forgetting is None:
            self.section.add(paragraph(f"The lifelong measures are {UNDEFINED}: {self.matrix.why_not}."))
        else:
            self.section.add(_lifelong(self.matrix.forgetting, self.mark))

    def _heat(
        self,
        kind: str,
        title: str,
        cells: Sequence[Sequence[float | None]],
        scale: Scale,
        form: Callable[[float], str],
    ) -> None:
        name = f"{self.words.stem}-{kind}{self.name}"
        picture = heat_map(
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
        self.section.draw(name, picture)

    def _table(self) -> str:
        rows: list[tuple[Value, ...]] = [
            (task.name, task.dataset[:8], task.n, *map(self._cell, task.cells[self.first :]))
            for task in self.tasks
        ]
        if len(rows) > 1:
            means = self.matrix.averages[self.first :]
            averages = ["not measured" if value is None else self._shown(value) for value in means]
            examples = sum(task.n for task in self.matrix.tasks)
            rows.append(("Mean over the tasks seen", "", examples, *averages))
        names = [
            f"{number}: {checkpoint}" for number, checkpoint in zip(self.numbers, self.columns, strict=True)
        ]
        caption = (
            f"{self.mark}{self.words.caption}: {self.measured}, with its 95 % interval where one was recorded"
        )
        return table(caption, ("Task", "Dataset", "Examples", *names), rows, folded=len(names) > 6)

    def _kept(self, task: Task) -> tuple[Value, ...]:
        first, last = task.known[0].value, task.known[-1].value
        once = "measured once" if task.forgotten is None else ""
        return (
            task.name,
            *map(self._shown, (first, task.best(task.known), last)),
            once or self._signed(self.rule.lost(last, first)),
            once or self._plain(task.forgotten or 0.0),
        )

    def _cell(self, cell: Cell | None) -> str:
        if cell is None:
            return "not measured"
        return self._shown(cell.value) + (
            f" ({' to '.join(map(self._shown, cell.interval))})" if cell.interval else ""
        )

    def _shown(self, value: float) -> str:
        """Return a value as it was measured in the unit that it is told in."""
        return self._plain(value * self.rule.scale)

    def _plain(self, value: float) -> str:
        return f"{value:.{_digits(self.rule)}f}"

    def _signed(self, value: float) -> str:
        digits = _digits(self.rule)
        return f"{value:+.{digits}f}" if abs(value) >= 0.5 * 10**-digits else f"{0:.{digits}f}"


def _digits(rule: Rule) -> int:
    """Return to how many decimals a value is told: points to one, steps to two."""
    return 1 if rule.scale > 1 else 2


def _known(cells: Sequence[Sequence[float | None]]) -> list[float]:
    return [value for row in cells for value in row if value is not None]


def _lifelong(found: Forgetting, mark: str) -> str:
    def value(form: dict[str, float | None], name: str) -> str:
        return measure(form[name]) if name in form else "no such measure"

    textbook, leanagent = dict(found.textbook), dict(found.leanagent)
    rows = [
        (
            name,
            value(textbook, name),
            value(leanagent, name),
            better,
            "; ".join(part for part in said if part),
        )
        for name, (better, *said) in _MEASURES.items()
    ]
    tasks = "1 task" if found.n_tasks == 1 else f"{found.n_tasks} tasks"
    caption = f"{mark}Lifelong measures over {tasks}, in points of percent (CFR: a ratio)"
    headers = ("Measure", "Textbook", "LeanAgent's script", "Better when", "What it is")
    return table(caption, headers, rows, long=headers[-1:], folded=False) + paragraph(
        "Textbook: the definitions of the literature. LeanAgent's script computes something else under the same names; "
        f"it is here so that numbers can be laid beside the paper's. What is {UNDEFINED} takes more tasks, or "
        "validation figures that were not recorded.",
        dim=True,
    )
