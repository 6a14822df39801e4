"""The matrix of each model's chain, how it is shown, and what is said of forgetting that cannot be known."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from pipeline.models.measures import lifelong_metrics
from pipeline.report.html import Section
from pipeline.report.matrix import Cell, Matrix, Task, chain, matrices
from pipeline.report.model_sections import matrix_section
from store.events.models import ModelKind
from store.promotion import RULES
from store.view.rows import CheckpointRow, EvaluationRow

TEST = [[0.5, 0.6, 0.4], [0.7, 0.75], [0.8]]
VALIDATION = [0.55, 0.65, 0.85]


def checkpoint(
    identity: str,
    parent: str | None,
    *,
    promoted: bool = False,
    simulated: bool = False,
    model: str = "retriever",
) -> CheckpointRow:
    return CheckpointRow(
        checkpoint=identity, model=model, parent=parent, base="b", data_seq=1, config={}, seed=1, steps=1,
        weights="w", size_bytes=1, fisher=None, curve=None, versions={}, device="cpu", seconds=1.0, job="train-1",
        simulated=simulated, saved_at="2026-01-01", promoted=promoted, promoted_at=None, reason="", refused_at=None,
        refused_reason="", removed_at=None, removed_reason="",
    )  # fmt: skip


def evaluation(at: str, task: int, recall: float, **changes: Any) -> EvaluationRow:
    fields: dict[str, Any] = {
        "evaluation": f"{at}-{task}-{changes.get('split', 'test')}", "model": "retriever", "checkpoint": at,
        "repository": f"r{task}", "split": "test", "dataset": str(task) * 64, "metrics": {"recall@10": recall},
        "n": 9, "seconds": 1.0, "job": "evaluate-1", "simulated": False, "recorded_at": f"2026-01-0{task + 1}",
    }  # fmt: skip
    return EvaluationRow(**(fields | changes))


LINKS = (checkpoint("k0", None), checkpoint("k1", "k0"), checkpoint("k2", "k1", promoted=True))
TESTS = [
    evaluation(f"k{j + offset}", j, recall) for j, row in enumerate(TEST) for offset, recall in enumerate(row)
]
VALIDATIONS = [
    evaluation(f"k{k}", k, recall, split="val", dataset="v" * 64) for k, recall in enumerate(VALIDATION)
]


def test_the_chain_leads_to_the_checkpoint_in_use_and_not_to_a_newer_one_that_was_not_promoted() -> None:
    rejected = checkpoint("k3", "k1")
    assert chain([*LINKS, rejected]) == LINKS
    unused = [checkpoint("k0", None), checkpoint("k1", "k0")]
    assert [row.checkpoint for row in chain(unused)] == ["k0", "k1"]
    assert chain([]) == ()


def test_a_chain_that_bites_its_tail_ends() -> None:
    assert {row.checkpoint for row in chain([checkpoint("a", "b"), checkpoint("b", "a")])} == {"a", "b"}


def test_the_matrix_has_tasks_as_rows_and_the_chain_as_columns() -> None:
    (matrix,) = matrices(LINKS, [*TESTS, *VALIDATIONS])
    assert (matrix.split, matrix.simulated) == ("test", False)
    assert matrix.checkpoints == ("k0", "k1", "k2")
    assert [task.name for task in matrix.tasks] == ["r0", "r1", "r2"]
    assert matrix.tasks[0].cells == (Cell(0.5), Cell(0.6), Cell(0.4))
    assert matrix.tasks[1].cells == (None, Cell(0.7), Cell(0.75))


def test_each_task_says_what_changed_since_it_was_first_measured_and_what_was_forgotten() -> None:
    first, second, third = matrices(LINKS, TESTS)[0].tasks
    assert first.gains == pytest.approx((0.0, 10.0, -10.0))
    assert first.forgotten == pytest.approx(20.0)
    assert second.gains[0] is None
    assert second.forgotten == pytest.approx(-5.0)
    assert third.forgotten is None


def test_the_average_is_over_the_tasks_seen_and_unknown_where_one_of_them_was_not_measured() -> None:
    (whole,) = matrices(LINKS, TESTS)
    assert whole.averages == pytest.approx((0.5, (0.6 + 0.7) / 2, (0.4 + 0.75 + 0.8) / 3))
    (holed,) = matrices(LINKS, [row for row in TESTS if row.evaluation != "k1-0-test"])
    assert [value is None for value in holed.averages] == [False, True, False]


def test_what_was_simulated_has_a_matrix_of_its_own_and_never_stands_beside_what_was_not() -> None:
    odd = [evaluation("k1", 0, 0.9, simulated=True, evaluation="odd")]
    real, simulated = matrices(LINKS, [*TESTS, *odd])
    assert real == matrices(LINKS, TESTS)[0]
    assert (simulated.simulated, simulated.checkpoints) == (True, ("k1",))
    assert simulated.tasks[0].cells == (Cell(0.9),)


def test_the_simulator_s_chain_and_the_other_one_are_both_followed_whichever_is_in_use() -> None:
    rows = [
        checkpoint("r0", None),
        checkpoint("r1", "r0"),
        checkpoint("s0", "r1", simulated=True),
        checkpoint("s1", "s0", promoted=True, simulated=True),
    ]
    measured = [
        evaluation("r0", 0, 0.5),
        evaluation("r1", 0, 0.4),
        evaluation("s0", 0, 0.3, simulated=True),
        evaluation("s1", 0, 0.2, simulated=True),
    ]
    real, simulated = matrices(rows, measured)
    assert (real.checkpoints, real.tasks[0].cells) == (("r0", "r1"), (Cell(0.5), Cell(0.4)))
    assert (simulated.checkpoints, simulated.tasks[0].cells) == (("s0", "s1"), (Cell(0.3), Cell(0.2)))


def test_forgetting_is_what_the_lifelong_measures_say_and_what_they_leave_undefined_is_none() -> None:
    (matrix,) = matrices(LINKS, [*TESTS, *VALIDATIONS])
    expected = lifelong_metrics(
        [[v * 100 for v in row] for row in TEST], [value * 100 for value in VALIDATION]
    )
    assert matrix.forgetting is not None
    assert matrix.forgetting.textbook == expected.textbook
    known = {name: None if math.isnan(value) else value for name, value in expected.leanagent.items()}
    assert matrix.forgetting.leanagent == known
    assert known["WF5"] is None
    assert known["IP"] is not None


def test_without_validation_recalls_only_the_measure_of_them_is_undefined() -> None:
    (whole,) = matrices(LINKS, [*TESTS, *VALIDATIONS])
    (matrix,) = matrices(LINKS, [*TESTS, *VALIDATIONS[1:]])
    assert whole.forgetting is not None
    assert matrix.forgetting is not None
    assert matrix.forgetting.leanagent == {**whole.forgetting.leanagent, "IP": None}


@pytest.mark.parametrize(
    ("evaluations", "words"),
    [
        ([row for row in TESTS if row.evaluation != "k2-0-test"], "not measured at every later checkpoint"),
        ([*TESTS, evaluation("k0", 1, 0.1)], "exactly one new test set at each"),
    ],
    ids=["a hole", "a task measured before it was learned"],
)
def test_forgetting_that_cannot_be_known_says_why(evaluations: list[EvaluationRow], words: str) -> None:
    (matrix,) = matrices(LINKS, evaluations)
    assert matrix.forgetting is None
    assert words in matrix.why_not


def test_another_dataset_of_a_repository_is_another_task_and_a_repeated_measurement_counts_once() -> None:
    rows = [
        evaluation("k0", 0, 0.5),
        evaluation("k1", 0, 0.9, dataset="d" * 64),
        evaluation("k1", 0, 0.2),
        evaluation("k1", 0, 0.3, evaluation="again"),
    ]
    (matrix,) = matrices(LINKS[:2], rows)
    assert [task.name for task in matrix.tasks] == ["r0 (00000000)", "r0 (dddddddd)"]
    assert matrix.tasks[0].cells == (Cell(0.5), Cell(0.3))


def test_each_test_split_has_its_own_matrix_and_checkpoints_off_the_chain_have_no_place_in_one() -> None:
    rows = [
        evaluation("k0", 0, 0.5, split="random/test"),
        evaluation("k0", 0, 0.4, split="novel_premises/test"),
        evaluation("elsewhere", 0, 0.4, split="other"),
        evaluation("k0", 0, 0.4, split="random/val"),
    ]
    assert [matrix.split for matrix in matrices(LINKS, rows)] == [
        "novel_premises/test",
        "random/test",
    ]


def of_model(
    model: str, metric: str, values: list[list[float]]
) -> tuple[list[CheckpointRow], list[EvaluationRow]]:
    """A chain of a model of three links, and what was measured of task j from link j on."""
    links = [
        checkpoint(f"{model}{at}", f"{model}{at - 1}" if at else None, promoted=at == 2, model=model)
        for at in range(3)
    ]
    measured = [
        evaluation(f"{model}{j + offset}", j, 0.0, model=model, metrics={metric: value, "recall@10": 0.9})
        for j, row in enumerate(values)
        for offset, value in enumerate(row)
    ]
    return links, measured


def test_each_model_has_a_matrix_of_what_its_rule_looks_at_along_its_own_chain() -> None:
    tactics, tried = of_model("tactics", "tactic@8", TEST)
    progress, off = of_model("progress", "mae", [[2.5, 1.5, 3.0], [4.0, 0.5]])
    found = matrices([*LINKS, *progress, *tactics], [*TESTS, *off, *tried])
    assert [matrix.model for matrix in found] == ["retriever", "tactics", "progress"]
    assert found[0] == matrices(LINKS, TESTS)[0]
    assert found[1].checkpoints == ("tactics0", "tactics1", "tactics2")
    assert [task.known for task in found[1].tasks] == [task.known for task in found[0].tasks]
    assert found[1].forgetting == found[0].forgetting
    assert found[2].tasks[0].cells == (Cell(2.5), Cell(1.5), Cell(3.0))


def test_of_an_error_less_is_better_and_no_share_is_made_of_it() -> None:
    (matrix,) = matrices(*of_model("progress", "mae", [[2.5, 1.5, 3.0], [4.0, 0.5]]))
    first, second = matrix.tasks
    assert first.gains == pytest.approx((0.0, 1.0, -0.5)), "in steps, and below 0 is a loss"
    assert first.best(first.known) == 1.5
    assert first.forgotten == pytest.approx(1.5)
    assert second.forgotten == pytest.approx(-3.5)
    assert matrix.forgetting is None
    assert "mae is an error" in matrix.why_not


@pytest.mark.parametrize(
    ("model", "metric", "value"),
    [
        *(("retriever", "recall@10", value) for value in (math.nan, -0.1, 1.5)),
        *(("progress", "mae", value) for value in (math.nan, math.inf, -0.1)),
    ],
)
def test_what_is_no_share_or_no_error_counts_as_not_measured(model: str, metric: str, value: float) -> None:
    links, measured = of_model(model, metric, [[0.5, 0.25], [0.75]])
    odd = evaluation(f"{model}2", 2, 0.0, model=model, metrics={metric: value})
    assert matrices(links, [*measured, odd]) == matrices(links, measured) != ()


# ---- as a section


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
        for node in ET.fromstring({one.name: one.svg for one in section.pictures}[picture]).iter(
            "{http://www.w3.org/2000/svg}text"
        )
    ]


def framed(section: Section) -> int:
    grid = ET.fromstring(section.pictures[0].svg)
    return sum(node.get("class") == "first" for node in grid.iter("{http://www.w3.org/2000/svg}rect"))


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


def test_of_a_matrix_that_fits_nothing_is_said_to_be_left_out() -> None:
    assert "Shown are" not in matrix_section(matrix(60, 120), "").html


def test_one_checkpoint_has_no_lines_and_no_changes() -> None:
    section = matrix_section(matrix(1, 1), "")
    assert [one.name for one in section.pictures] == ["recall-matrix"]
    assert "Forgetting</h3>" not in section.html


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
    assert "tactic@8 in percent, split test" in texts(section, "tactics-matrix-simulated")
    assert "Forgetting, task by task, in percent and points" in section.html
    assert "recall" not in section.html.split("<h3>Forgetting")[0]
