"""The pictures and tables of a matrix, in its model's unit, and what is left out of a very large one."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from pipeline.report.html import Section
from pipeline.report.matrix import Cell, Matrix, Task
from pipeline.report.model_sections import matrix_section
from store.events.models import ModelKind
from store.promotion import RULES

SVG = "{http://www.w3.org/2000/svg}"


def matrix(n_tasks: int, n_checkpoints: int) -> Matrix:
    """Task j is measured from checkpoint j on."""
    tasks = tuple(
        Task(
            name=f"task-{j}",
            dataset=f"{j:064}",
            n=10,
            cells=tuple(Cell(0.5) if at >= j else None for at in range(n_checkpoints)),
        )
        for j in range(n_tasks)
    )
    names = tuple(f"k{at}" for at in range(n_checkpoints))
    return Matrix("retriever", "test", False, names, tasks, None, "it is made up")


def texts(section: Section, picture: str) -> list[str | None]:
    return [
        node.text
        for node in ET.fromstring({one.name: one.svg for one in section.pictures}[picture]).iter(f"{SVG}text")
    ]


def framed(section: Section) -> int:
    grid = ET.fromstring(section.pictures[0].svg)
    return sum(node.get("class") == "first" for node in grid.iter(f"{SVG}rect"))


def test_the_first_measurement_of_each_task_is_framed() -> None:
    assert framed(matrix_section(matrix(3, 5), "")) == 3 + 1, "and the one of the legend"


@pytest.mark.parametrize(("tasks", "checkpoints"), [(3, 121), (61, 61), (70, 130)])
def test_of_a_very_large_matrix_the_newest_part_is_shown_and_the_page_says_so(
    tasks: int, checkpoints: int
) -> None:
    section = matrix_section(matrix(tasks, checkpoints), "")
    shown_tasks, shown = min(tasks, 60), min(checkpoints, 120)
    said = f"the newest {shown_tasks} of {tasks} test sets and {shown} of {checkpoints} checkpoints"
    assert said in section.html
    numbers = [int(text) for text in texts(section, "recall-matrix") if text and text.isdecimal()]
    assert numbers == list(range(checkpoints - shown + 1, checkpoints + 1))
    names = [text for text in texts(section, "recall-matrix") if text and text.startswith("task-")]
    assert names == [f"task-{j}" for j in range(tasks - shown_tasks, tasks)]
    begun = sum(j >= checkpoints - shown for j in range(tasks - shown_tasks, tasks))
    assert framed(section) == begun + 1
    assert len(re.findall(r'<th scope="col" class="n">\d+: k\d+</th>', section.html)) == shown


def test_of_a_matrix_that_fits_nothing_is_said_to_be_left_out() -> None:
    assert "Shown are" not in matrix_section(matrix(60, 120), "").html


def test_one_checkpoint_has_no_lines_and_no_changes() -> None:
    section = matrix_section(matrix(1, 1), "")
    assert [one.name for one in section.pictures] == ["recall-matrix"]
    assert "measured once" in section.html


def small(model: ModelKind, *rows: tuple[float | None, ...]) -> Matrix:
    tasks = tuple(
        Task(f"task-{j}", f"{j:064}", 10, tuple(None if v is None else Cell(v) for v in row), RULES[model])
        for j, row in enumerate(rows)
    )
    return Matrix(model, "test", False, tuple(f"k{at}" for at in range(len(rows[0]))), tasks, None, "so")


def test_errors_are_told_in_steps_and_an_error_that_grew_is_a_loss() -> None:
    section = matrix_section(small("progress", (1.25, 0.5, 2.0), (None, 3.0, 3.0)), "")
    assert [one.name for one in section.pictures] == [
        "progress-matrix",
        "progress-over-time",
        "progress-change",
    ]
    assert section.identity == "progress"
    grid = texts(section, "progress-matrix")
    assert "mae in steps, split test" in grid
    assert {"1.25", "0.50", "2.00", "3.00"} <= set(grid)
    assert "percent" not in section.html
    change = texts(section, "progress-change")
    assert "How much better mae became since a task's first measurement, in steps, split test" in change
    assert {"+0.75", "-0.75", "0.00"} <= set(change)
    for cell in ("1.25", "0.50", "2.00", "-0.75", "1.50"):
        assert f">{cell}<" in section.html.rpartition("Forgetting, task by task, in steps")[2]


def test_tactics_are_told_in_percent_with_pictures_of_their_own() -> None:
    section = matrix_section(small("tactics", (0.5, 0.25)), "-simulated")
    assert [one.name for one in section.pictures] == [
        f"tactics-{kind}-simulated" for kind in ("matrix", "over-time", "change")
    ]
    assert "Tactic matrix: tactic@8 in percent" in section.html
    assert "Forgetting, task by task, in percent and points" in section.html
    assert "recall" not in section.html.split("<h3>Forgetting")[0]
