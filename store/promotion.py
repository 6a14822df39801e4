"""Decide whether a trained checkpoint may replace the one in use. Pure functions; nothing is read or written.

A task is a repository (or several together) and a split. What counts is one metric of each model (`RULES`) on the same
frozen test set, which a dataset's digest tells; measurements on other examples say nothing of each other. So do
measurements of what was learned from the simulator and of what was learned from Lean: whatever the figures, the former
never takes the place of the latter, and the latter always that of the former.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from store.view.rows import EvaluationRow

if TYPE_CHECKING:
    # The report has its rules from here, and is made without pydantic.
    from store.events.models import ModelKind

Verdict = Literal["promote", "refuse", "unknown"]

_NOT_TESTS = frozenset({"train", "val"})
_ROUNDING = 1e-9
"""A loss of exactly the tolerance is within it, whatever the last bits of two measurements say."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The measure of a model. Losses and tolerances are in `unit`: `scale` of it are 1 of the metric.

    `tolerance` is how far a model may fall on a task where no one says otherwise, `widest` the largest that is taken.
    """

    metric: str
    unit: str
    scale: float
    lower_is_better: bool
    tolerance: float
    widest: float

    def lost(self, before: float, after: float) -> float:
        """Return what was lost from one value of the metric to the next, negative for a gain."""
        return self.scale * (after - before if self.lower_is_better else before - after)

    @property
    def worsens(self) -> str:
        return "rises" if self.lower_is_better else "falls"


RULES: Mapping[ModelKind, Rule] = {
    "retriever": Rule("recall@10", "points", 100, lower_is_better=False, tolerance=2, widest=100),
    "tactics": Rule("tactic@8", "points", 100, lower_is_better=False, tolerance=2, widest=100),
    "progress": Rule("mae", "steps", 1, lower_is_better=True, tolerance=0.1, widest=1000),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """A checkpoint as the rule sees it: whether it learned from the simulator, and how it did."""

    simulated: bool
    evaluations: Sequence[EvaluationRow]

    @property
    def counted(self) -> Sequence[EvaluationRow]:
        """The evaluations that count: the simulator's test sets do not measure what was learned from Lean."""
        return [row for row in self.evaluations if self.simulated or not row.simulated]


@dataclass(frozen=True, slots=True)
class TaskChange:
    """One task, measured on the examples of `dataset`."""

    repository: str | None
    split: str
    dataset: str
    before: Mapping[str, float] | None
    """the metrics of the one in use; null where it was not measured on them"""
    after: Mapping[str, float] | None
    """those of the candidate"""
    lost: float | None
    """how far the rule's metric got worse, in the rule's unit; negative for a gain"""
    problem: str
    """why that is not known"""

    @property
    def name(self) -> str:
        return task_name(self.repository, self.split)


@dataclass(frozen=True, slots=True)
class Decision:
    """The rule's decision and its reason in a sentence, with the compared tasks by name."""

    verdict: Verdict
    reason: str
    tasks: tuple[TaskChange, ...]

    @property
    def may_be_promoted(self) -> bool:
        return self.verdict == "promote"


def decide(candidate: Measured, in_use: Measured | None, *, rule: Rule, tolerance: float) -> Decision:
    """Return whether a candidate may be promoted.

    Args:
        candidate: the one that might be put in use.
        in_use: the one that is; None where there is none.
        rule: of their model.
        tolerance: how far the metric may fall on any one task of `in_use`, in the rule's unit.

    Raises:
        ValueError: a tolerance that is none.
    """
    if not 0 <= tolerance <= rule.widest:
        raise ValueError(
            f"{tolerance}: no tolerance; give {rule.unit} of {rule.metric} from 0 to {rule.widest:g}"
        )
    if in_use is None:
        return Decision("promote", "it is the first of its model: there are no earlier tasks to lose", ())
    tasks = compare(candidate.counted, in_use.counted, rule=rule)
    if candidate.simulated != in_use.simulated:
        return _of_two_sources(candidate, tasks)
    earlier = [task for task in tasks if task.before is not None]
    if not earlier:
        reason = "the checkpoint in use was measured on no test set, so what would be lost is not known"
        return Decision("unknown", reason, tasks)
    allowed = f"{tolerance:g} allowed"
    lost = [task for task in earlier if task.lost is not None and task.lost > tolerance + _ROUNDING]
    if lost:
        worst = max(lost, key=lambda task: task.lost or 0.0)
        more = f", and it {rule.worsens} too far on {_tasks(len(lost) - 1)} more" if len(lost) > 1 else ""
        return Decision("refuse", f"{_fall(worst, rule)}, with {allowed}{more}", tasks)
    unknown = [task for task in earlier if task.lost is None]
    if unknown:
        more = f", nor on {_tasks(len(unknown) - 1)} more" if len(unknown) > 1 else ""
        reason = f"what it would lose on {unknown[0].name} is not known{more}: {unknown[0].problem}"
        return Decision("unknown", reason, tasks)
    worst = max(earlier, key=lambda task: task.lost or 0.0)
    if (worst.lost or 0.0) <= 0:
        reason = f"{rule.metric} {rule.worsens} on none of {_tasks(len(earlier), earlier=True)}"
    else:
        reason = f"of {_tasks(len(earlier), earlier=True)} it loses most where {_fall(worst, rule)}, with {allowed}"
    return Decision("promote", reason, tasks)


def compare(
    after: Iterable[EvaluationRow], before: Iterable[EvaluationRow], *, rule: Rule
) -> tuple[TaskChange, ...]:
    """Set the tasks of two checkpoints side by side, by name.

    Of several test sets of one task (it grew) the newest of `before` counts, and of `after` the newest measurement
    on that same one.
    """
    old = _newest_by_task(before)
    new = [row for row in after if _is_test(row)]
    tasks = [
        _change(row, [other for other in new if _task(other) == _task(row)], rule) for row in old.values()
    ]
    tasks += [
        TaskChange(
            row.repository,
            row.split,
            row.dataset,
            None,
            row.metrics,
            None,
            "the other was not measured on it",
        )
        for task, row in _newest_by_task(new).items()
        if task not in old
    ]
    return tuple(sorted(tasks, key=lambda task: (task.repository or "", task.split)))


def measured_tasks(evaluations: Iterable[EvaluationRow]) -> list[EvaluationRow]:
    """Return the newest measurement of each task, by name."""
    return sorted(_newest_by_task(evaluations).values(), key=lambda row: (row.repository or "", row.split))


def before_last(promotions: Sequence[str]) -> str | None:
    """Return the checkpoint to roll back to, from all that one model had in use, oldest first; None if there is none.

    Promoting one again goes back to it: what came after it is no longer behind it. So each rollback goes one further
    back, and never to what was left by a rollback.
    """
    standing: list[str] = []
    for checkpoint in promotions:
        if checkpoint in standing:
            del standing[standing.index(checkpoint) :]
        standing.append(checkpoint)
    return standing[-2] if len(standing) > 1 else None


def kind_of(model: str) -> ModelKind:
    """Return a model's name as the kind that it is; KeyError where there is none of this name."""
    for kind in RULES:
        if kind == model:
            return kind
    raise KeyError(model)


def task_name(repository: str | None, split: str) -> str:
    """Name a task for people."""
    return f"{repository or 'all repositories'} ({split})"


def _of_two_sources(candidate: Measured, tasks: tuple[TaskChange, ...]) -> Decision:
    if candidate.simulated:
        reason = (
            "it learned from the simulator, and the checkpoint in use learned from Lean: what is simulated never takes "
            "the place of what is not"
        )
        return Decision("refuse", reason, tasks)
    reason = (
        "it learned from Lean, and the checkpoint in use learned from the simulator: their figures are about different "
        "things"
    )
    return Decision("promote", reason, tasks)


def _change(before: EvaluationRow, measured: Sequence[EvaluationRow], rule: Rule) -> TaskChange:
    same = [row for row in measured if row.dataset == before.dataset]
    after = max(same, key=_age).metrics if same else None
    lost, problem = None, ""
    if after is None:
        problem = "the test sets differ" if measured else "it was not measured on it"
    elif any(not math.isfinite(metrics.get(rule.metric, math.nan)) for metrics in (before.metrics, after)):
        problem = f"a measurement has no {rule.metric}"
    else:
        lost = rule.lost(before.metrics[rule.metric], after[rule.metric])
    return TaskChange(before.repository, before.split, before.dataset, before.metrics, after, lost, problem)


def _newest_by_task(rows: Iterable[EvaluationRow]) -> dict[tuple[str | None, str], EvaluationRow]:
    return {_task(row): row for row in sorted(filter(_is_test, rows), key=_age)}


def _is_test(row: EvaluationRow) -> bool:
    """A val split chose the weights, so what they score on it is no test of them."""
    return row.split.rsplit("/", 1)[-1] not in _NOT_TESTS


def _task(row: EvaluationRow) -> tuple[str | None, str]:
    return row.repository, row.split


def _age(row: EvaluationRow) -> tuple[str, str]:
    return row.recorded_at, row.evaluation


def _fall(task: TaskChange, rule: Rule) -> str:
    before, after = (rule.scale * (metrics or {})[rule.metric] for metrics in (task.before, task.after))
    moved = f"{rule.worsens} by {task.lost:.2f} {rule.unit}"
    return f"{rule.metric} on {task.name} {moved}, from {before:.2f} to {after:.2f}"


def _tasks(number: int, *, earlier: bool = False) -> str:
    return f"{number} {'earlier ' if earlier else ''}{'task' if number == 1 else 'tasks'}"
