"""A matrix for each of our models: how every task's test set was answered after every training run of its chain.

What counts of a model, and which way is better, is what the rule that decides on its checkpoints looks at
(`store.promotion.RULES`): recall@10 of a retriever, tactic@8 of a tactic model, the mean error of a progress
model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from pipeline.models.measures import LifelongMetrics, lifelong_metrics
from store.promotion import RULES, Rule
from store.view.rows import CheckpointRow, EvaluationRow

if TYPE_CHECKING:
    from store.events.models import ModelKind

_VALIDATION = ("val", "validation")


@dataclass(frozen=True, slots=True)
class Cell:
    """The measure of one task at one checkpoint, and its interval if one was recorded."""

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A row of the matrix: one frozen test set. `cells` has one entry a checkpoint, None where it was not measured.

    What is won and lost is told in the unit of `rule`: in points of 0..100, or in steps.
    """

    name: str
    dataset: str
    n: int
    cells: tuple[Cell | None, ...]
    rule: Rule = RULES["retriever"]

    @property
    def known(self) -> tuple[Cell, ...]:
        """The measurements, oldest first."""
        return tuple(cell for cell in self.cells if cell is not None)

    @property
    def begins(self) -> int:
        """The index of the first cell that was measured."""
        return next(index for index, cell in enumerate(self.cells) if cell is not None)

    @property
    def gains(self) -> tuple[float | None, ...]:
        """The gain of each cell over the first one measured; below 0 is a loss."""
        first = self.known[0].value
        return tuple(None if cell is None else self.rule.lost(cell.value, first) for cell in self.cells)

    @property
    def forgotten(self) -> float | None:
        """The loss of the last cell against the best earlier one; None after a single measurement."""
        *earlier, last = self.known
        return self.rule.lost(self.best(earlier), last.value) if earlier else None

    def best(self, cells: Sequence[Cell]) -> float:
        """Return the best value of some of its cells."""
        values = [cell.value for cell in cells]
        return min(values) if self.rule.lower_is_better else max(values)


@dataclass(frozen=True, slots=True)
class Forgetting:
    """The lifelong measures by form and name, in points of percent (CFR: a ratio); None where undefined."""

    n_tasks: int
    textbook: Mapping[str, float | None]
    leanagent: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A model and one kind of test split: tasks in the order in which they came, checkpoints from the chain's first to
    its last.

    All of it was measured (`simulated` false) or made by the simulator (true). `forgetting` is None where the matrix
    does not say what was learned when; `why_not` says what it lacks.
    """

    model: ModelKind
    split: str
    simulated: bool
    checkpoints: tuple[str, ...]
    tasks: tuple[Task, ...]
    forgetting: Forgetting | None
    why_not: str

    @property
    def rule(self) -> Rule:
        return RULES[self.model]

    @property
    def averages(self) -> tuple[float | None, ...]:
        """The mean over the tasks seen until each checkpoint; None where one of them was not measured."""
        found: list[float | None] = []
        for at in range(len(self.checkpoints)):
            seen = [
                task.cells[at]
                for task in self.tasks
                if any(cell is not None for cell in task.cells[: at + 1])
            ]
            known = [cell.value for cell in seen if cell is not None]
            found.append(math.fsum(known) / len(known) if known and len(known) == len(seen) else None)
        return tuple(found)


def chain(checkpoints: Sequence[CheckpointRow], *, simulated: bool = False) -> tuple[CheckpointRow, ...]:
    """Return the checkpoint in use and what it was trained from, oldest first; before any is in use, the newest's.

    Args:
        checkpoints: of one model, oldest first.
        simulated: whether the chain is wanted that leads to one of the simulator's; if there is none, any.
    """
    by_id = {row.checkpoint: row for row in checkpoints}
    ends = [row for row in checkpoints if row.simulated == simulated] or checkpoints
    at = next((row for row in ends if row.promoted), ends[-1] if ends else None)
    found: dict[str, CheckpointRow] = {}
    while at is not None and at.checkpoint not in found:
        found[at.checkpoint] = at
        at = by_id.get(at.parent) if at.parent is not None else None
    return tuple(reversed(found.values()))


def matrices(
    checkpoints: Sequence[CheckpointRow], evaluations: Sequence[EvaluationRow]
) -> tuple[Matrix, ...]:
    """Return a matrix for every model and test split that a link of its chain was measured on, by the split's name.

    What the simulator made has a chain and matrices of its own, after the others of the model.

    Args:
        checkpoints: oldest first.
        evaluations: oldest first; of a repeated one the newest counts.
    """
    return tuple(
        matrix
        for model in RULES
        for matrix in _of_model(
            model,
            [row for row in checkpoints if row.model == model],
            [row for row in evaluations if row.model == model],
        )
    )


def _of_model(
    model: ModelKind, checkpoints: Sequence[CheckpointRow], evaluations: Sequence[EvaluationRow]
) -> list[Matrix]:
    rule = RULES[model]
    found = []
    for simulated in (False, True):
        rows = [row for row in evaluations if row.simulated == simulated]
        at = {row.checkpoint for row in rows}
        links = chain(checkpoints, simulated=simulated)
        columns = [row for row in links if row.simulated == simulated or row.checkpoint in at]
        order = {row.checkpoint: index for index, row in enumerate(columns)}
        measured = [
            row
            for row in rows
            if row.checkpoint in order and _is_measured(row.metrics.get(rule.metric), rule)
        ]
        splits = sorted({row.split for row in measured if not is_validation(row.split)})
        found += [_matrix(model, split, order, measured, simulated=simulated) for split in splits]
    return found


def is_validation(split: str) -> bool:
    """Return whether a split is used during training, as "val" and "random/val" are."""
    return split.rsplit("/", 1)[-1] in _VALIDATION


def _matrix(
    model: ModelKind,
    split: str,
    order: Mapping[str, int],
    measured: Sequence[EvaluationRow],
    *,
    simulated: bool,
) -> Matrix:
    rule = RULES[model]
    # Another dataset is another task: answers to different questions cannot be laid side by side.
    rows: dict[tuple[str | None, str], dict[int, EvaluationRow]] = {}
    for row in measured:
        if row.split == split:
            rows.setdefault((row.repository, row.dataset), {})[order[row.checkpoint]] = row
    by_first = sorted(
        rows.items(), key=lambda item: (min(item[1]), item[1][min(item[1])].recorded_at, item[0][1])
    )
    sets = Counter(repository for repository, _ in rows)
    tasks = tuple(
        Task(
            name=_name(repository, dataset, alone=sets[repository] == 1),
            dataset=dataset,
            n=max(row.n for row in found.values()),
            cells=tuple(_cell(found.get(index), rule.metric) for index in range(len(order))),
            rule=rule,
        )
        for (repository, dataset), found in by_first
    )
    validation = {
        (row.repository, order[row.checkpoint]): row.metrics[rule.metric]
        for row in measured
        if is_validation(row.split) and row.split.rpartition("/")[0] == split.rpartition("/")[0]
    }
    repositories = [repository for (repository, _), _ in by_first]
    forgetting: Forgetting | None = None
    why_not = f"they are made of shares, of which more is better, and {rule.metric} is an error"
    if not rule.lower_is_better:
        forgetting, why_not = _forgetting(tasks, repositories, validation)
    return Matrix(model, split, simulated, tuple(order), tasks, forgetting, why_not)


def _is_measured(value: float | None, rule: Rule) -> bool:
    """A value outside 0..1 was not measured, nor an error that is no number from 0; the table of evaluations shows
    it as it was recorded."""
    return value is not None and 0 <= value <= (math.inf if rule.lower_is_better else 1) and value < math.inf


def _name(repository: str | None, dataset: str, *, alone: bool) -> str:
    name = repository or "several repositories"
    return name if alone else f"{name} ({dataset[:8]})"


def _cell(row: EvaluationRow | None, metric: str) -> Cell | None:
    if row is None:
        return None
    low, high = row.metrics.get(f"{metric}_low"), row.metrics.get(f"{metric}_high")
    return Cell(row.metrics[metric], None if low is None or high is None else (low, high))


def _forgetting(
    tasks: Sequence[Task],
    repositories: Sequence[str | None],
    validation: Mapping[tuple[str | None, int], float],
) -> tuple[Forgetting | None, str]:
    """Return the measures over the checkpoints that were measured at all, or why there are none."""
    columns = [at for at in range(len(tasks[0].cells)) if any(task.cells[at] is not None for task in tasks)]
    firsts = [next(at for at in columns if task.cells[at] is not None) for task in tasks]
    if firsts != columns:
        return None, (
            f"{len(tasks)} test sets were first measured at {len(set(firsts))} of {len(columns)} measured checkpoints: "
            "forgetting takes exactly one new test set at each"
        )
    test: list[list[float]] = []
    for task, first in zip(tasks, firsts, strict=True):
        later = [task.cells[at] for at in columns if at >= first]
        known = [cell.value * 100 for cell in later if cell is not None]
        if len(known) < len(later):
            return None, f"{task.name} was not measured at every later checkpoint"
        test.append(known)
    checked = [validation.get((repository, at)) for repository, at in zip(repositories, firsts, strict=True)]
    present = [value * 100 for value in checked if value is not None]
    complete = len(present) == len(checked)
    found = lifelong_metrics(test, present if complete else [0.0] * len(test))
    # IP alone looks at the validation figures, so without them it alone is undefined.
    return _defined(found, without=() if complete else ("IP",)), ""


def _defined(found: LifelongMetrics, *, without: tuple[str, ...]) -> Forgetting:
    def mapped(values: Mapping[str, float]) -> Mapping[str, float | None]:
        return MappingProxyType(
            {name: None if math.isnan(value) else value for name, value in values.items()}
        )

    leanagent = {name: math.nan if name in without else value for name, value in found.leanagent.items()}
    return Forgetting(found.n_tasks, mapped(found.textbook), mapped(leanagent))
