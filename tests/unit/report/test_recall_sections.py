"""The pictures and tables of a recall matrix, and what is left out of a very large one."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from pipeline.report.html import Section
from pipeline.report.recall import Cell, RecallMatrix, Task
from pipeline.report.recall_sections import recall_section

SVG = "{http://www.w3.org/2000/svg}"


def matrix(n_tasks: int, n_checkpoints: int) -> RecallMatrix:
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
    return RecallMatrix("test", False, names, tasks, None, "it is made up")


def texts(section: Section, picture: str) -> list[str | None]:
    return [node.text for node in ET.fromstring(section.pictures[picture]).iter(f"{SVG}text")]


def framed(section: Section) -> int:
    grid = ET.fromstring(section.pictures["recall-matrix"])
    return sum(node.get("class") == "first" for node in grid.iter(f"{SVG}rect"))


def test_the_first_measurement_of_each_task_is_framed() -> None:
    assert framed(recall_section(matrix(3, 5), "")) == 3 + 1, "and the one of the legend"


@pytest.mark.parametrize(("tasks", "checkpoints"), [(3, 121), (61, 61), (70, 130)])
def test_of_a_very_large_matrix_the_newest_part_is_shown_and_the_page_says_so(
    tasks: int, checkpoints: int
) -> None:
    section = recall_section(matrix(tasks, checkpoints), "")
    shown_tasks, shown = min(tasks, 60), min(checkpoints, 120)
    said = f"the newest {shown_tasks} of {tasks} test sets and {shown} of {checkpoints} checkpoints"
    assert said in section.body
    numbers = [int(text) for text in texts(section, "recall-matrix") if text and text.isdecimal()]
    assert numbers == list(range(checkpoints - shown + 1, checkpoints + 1))
    names = [text for text in texts(section, "recall-matrix") if text and text.startswith("task-")]
    assert names == [f"task-{j}" for j in range(tasks - shown_tasks, tasks)]
    begun = sum(j >= checkpoints - shown for j in range(tasks - shown_tasks, tasks))
    assert framed(section) == begun + 1
    assert len(re.findall(r'<th scope="col" class="n">\d+: k\d+</th>', section.body)) == shown


def test_of_a_matrix_that_fits_nothing_is_said_to_be_left_out() -> None:
    assert "Shown are" not in recall_section(matrix(60, 120), "").body


def test_one_checkpoint_has_no_lines_and_no_changes() -> None:
    section = recall_section(matrix(1, 1), "")
    assert list(section.pictures) == ["recall-matrix"]
    assert "measured once" in section.body
