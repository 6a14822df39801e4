"""What the report says of recall and forgetting."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.report.charts import Line, line_chart
from pipeline.report.data import ReportData
from pipeline.report.heat import Scale, change_scale, heat_map, rising_scale
from pipeline.report.html import SIMULATED, UNDEFINED, Section, Value, measure, paragraph, table
from pipeline.report.recall import MEASURE, Cell, Forgetting, RecallMatrix, Task
from pipeline.report.svg import percent

_MOST_TASKS, _MOST_CHECKPOINTS = 60, 120
"""Of more, pictures and tables have the newest; the measures are over all."""
_MEASURES = {
    "FM": ("lower", "forgetting measure: best earlier recall of a task less its last, mean over tasks",
           "the script compares different tasks"),
    "WF5": ("lower", "windowed forgetting: deepest fall of a task within five evaluations, mean over tasks",
            "the script looks at the falls of the average, whose tasks grow"),
    "BWT": ("higher", "backward transfer: last recall of a task less its first, mean over tasks", ""),
    "EBWT": ("higher", "extended backward transfer: as BWT, after every later task",
             "the script leaves the last checkpoint out and counts each task's own"),
    "final_average": ("higher", "mean recall over all tasks at the end", ""),
    "learning_accuracy": ("higher", "mean recall of each task right after it was learned", ""),
    "CFR": ("higher", "", "catastrophic forgetting resilience: lowest average over highest, a ratio"),
    "WP5": ("higher", "", "windowed plasticity: gain of the average over five tasks"),
    "IP": ("higher", "", "incremental plasticity: mean change of validation recall from task to task"),
}  # fmt: skip


def recall(data: ReportData) -> list[Section]:
    """A section for each matrix of recalls."""
    if not data.matrices:
        missing = paragraph("No checkpoint in the retriever's chain was measured on a test set yet.")
        return [Section("recall", "Recall and forgetting", missing)]
    sections = []
    for simulated in (False, True):
        of_kind = [matrix for matrix in data.matrices if matrix.simulated == simulated]
        for number, matrix in enumerate(of_kind, start=1):
            name = ("-simulated" if simulated else "") + (f"-{number}" if len(of_kind) > 1 else "")
            sections.append(recall_section(matrix, name))
    return sections


def recall_section(matrix: RecallMatrix, name: str) -> Section:
    """Return the section of one matrix; `name` is put at the end of the names of its pictures."""
    return _Drawn(matrix, name).section


class _Drawn:
    """One matrix as a section. `first` is the number of checkpoints of its beginning that are not shown."""

    def __init__(self, matrix: RecallMatrix, name: str) -> None:
        self.matrix, self.name = matrix, name
        self.mark = f"{SIMULATED}: " if matrix.simulated else ""
        self.first = max(0, len(matrix.checkpoints) - _MOST_CHECKPOINTS)
        self.columns = matrix.checkpoints[self.first :]
        self.numbers = [str(self.first + index) for index in range(1, len(self.columns) + 1)]
        self.tasks = matrix.tasks[-_MOST_TASKS:]
        self.section = Section(f"recall{name}", f"{self.mark}Recall and forgetting, split {matrix.split}")
        self._introduce()
        self._recalls()
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
                f"of the chain that leads to the one in use, by its number. {MEASURE} is the share, in percent, of the "
                "premises that a proof step uses which are among the first ten retrieved, mean over steps."
            )
        )
        if self.first or len(self.tasks) < len(self.matrix.tasks):
            self.section.add(
                paragraph(
                    f"Shown are the newest {len(self.tasks):,} of {len(self.matrix.tasks):,} test sets and "
                    f"{len(self.columns):,} of {len(self.matrix.checkpoints):,} checkpoints; the measures are over all."
                )
            )

    def _recalls(self) -> None:
        cells = [
            [None if cell is None else cell.recall * 100 for cell in task.cells[self.first :]]
            for task in self.tasks
        ]
        known = _known(cells)
        self._heat("recall-matrix", f"{MEASURE} in percent", cells, rising_scale(known))
        self.section.add(self._table())
        if len(self.columns) < 2:
            return
        lines = [Line(task.name, tuple(row)) for task, row in zip(self.tasks, cells, strict=True)]
        if len(lines) > 1:
            means = self.matrix.averages[self.first :]
            percents = tuple(None if value is None else value * 100 for value in means)
            lines.append(Line("Mean over the tasks seen", percents, heavy=True))
        low, high = 10 * (min(known, default=0.0) // 10), max(known, default=100.0)
        self.section.draw(
            f"recall-over-time{self.name}",
            line_chart(
                f"recall-over-time{self.name}-picture",
                f"{self.mark}{MEASURE} per task over the chain, split {self.matrix.split}",
                positions=self.numbers,
                lines=lines,
                unit=f"percent, from {low:g} on; across: checkpoints of the chain",
                ends=(low, min(100.0, -10 * (-(high + 0.01) // 10))),
            ),
        )

    def _forgetting(self) -> None:
        if len(self.columns) > 1:
            changes = [task.changes[self.first :] for task in self.tasks]
            title = f"Change of {MEASURE} since a task's first measurement, in points"
            self._heat("recall-change", title, changes, change_scale(_known(changes)))
        headers = (
            "Task",
            "First",
            "Best",
            "Last",
            "Change since the first",
            "Forgotten: best earlier less last",
        )
        caption = f"{self.mark}Forgetting, task by task, in percent and points"
        self.section.add(table(caption, headers, [*map(_kept, self.tasks)]))
        if self.matrix.forgetting is None:
            self.section.add(paragraph(f"The lifelong measures are {UNDEFINED}: {self.matrix.why_not}."))
        else:
            self.section.add(_lifelong(self.matrix.forgetting, self.mark))

    def _heat(self, kind: str, title: str, cells: Sequence[Sequence[float | None]], scale: Scale) -> None:
        picture = heat_map(
            f"{kind}{self.name}-picture",
            f"{self.mark}{title}, split {self.matrix.split}",
            rows=[task.name for task in self.tasks],
            columns=self.columns,
            cells=cells,
            scale=scale,
            form=_plain if scale.rising else _signed,
            framed=[task.begins - self.first for task in self.tasks],
            first=self.first + 1,
        )
        self.section.draw(f"{kind}{self.name}", picture)

    def _table(self) -> str:
        rows: list[tuple[Value, ...]] = [
            (task.name, task.dataset[:8], task.n, *map(_cell, task.cells[self.first :]))
            for task in self.tasks
        ]
        if len(rows) > 1:
            means = self.matrix.averages[self.first :]
            averages = ["not measured" if value is None else percent(value) for value in means]
            examples = sum(task.n for task in self.matrix.tasks)
            rows.append(("Mean over the tasks seen", "", examples, *averages))
        names = [
            f"{number}: {checkpoint}" for number, checkpoint in zip(self.numbers, self.columns, strict=True)
        ]
        caption = (
            f"{self.mark}Recall matrix: {MEASURE} in percent, with its 95 % interval where one was recorded"
        )
        return table(caption, ("Task", "Dataset", "Examples", *names), rows, folded=len(names) > 6)


def _known(cells: Sequence[Sequence[float | None]]) -> list[float]:
    return [value for row in cells for value in row if value is not None]


def _kept(task: Task) -> tuple[Value, ...]:
    first, last = task.known[0].recall, task.known[-1].recall
    best = max(cell.recall for cell in task.known)
    once = "measured once" if task.forgotten is None else ""
    return (
        task.name, percent(first), percent(best), percent(last), once or _signed((last - first) * 100),
        once or _plain(task.forgotten or 0.0),
    )  # fmt: skip


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
    caption = f"{mark}Lifelong measures over {found.n_tasks} tasks, in points of percent (CFR: a ratio)"
    headers = ("Measure", "Textbook", "LeanAgent's script", "Better when", "What it is")
    return table(caption, headers, rows, long=headers[-1:], folded=False) + paragraph(
        "Textbook: the definitions of the literature. LeanAgent's script computes something else under the same names; "
        f"it is here so that numbers can be laid beside the paper's. What is {UNDEFINED} takes more tasks, or "
        "validation recalls that were not recorded.",
        dim=True,
    )


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "not measured"
    return percent(cell.recall) + (f" ({' to '.join(map(percent, cell.interval))})" if cell.interval else "")


def _plain(value: float) -> str:
    return f"{value:.1f}"


def _signed(value: float) -> str:
    return f"{value:+.1f}" if abs(value) >= 0.05 else "0.0"
