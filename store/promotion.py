"""Decide whether a trained checkpoint may replace the one in use. Nothing is written.

A task is a repository (or several together) and a split. Each model has one metric (`RULES`), compared on the
same frozen test set, by the dataset's digest, or, if the set has grown meanwhile, on the theorems in both.

Both models answer the same steps. They are compared in pairs, and by theorem, since the steps of one theorem
resemble each other: d is a theorem's difference. A loss above the tolerance refuses if chance alone would
hardly cause it. Between equally good models chance loses as much as it gains: a task's own gains, and the
changes on the other tasks, estimate its losses by chance. With L lost and G gained over n steps, in units of
u = sum(d²) / sum(|d|), the size of a change,

    chance = (I(L, G + a + 1) + I(L + 1, G + a)) / 2   at x = 1 / (2 + b),   a = m² / v,   b = m u / (n v)

where I is the regularised incomplete beta function. The rate of a task, half of its losses and gains in a
step, has a gamma distribution over the tasks, of mean m and variance v (Clayton and Kaldor 1987): m is the
rate of the other tasks together; v is the variance from task to task less that of sampling, plus the sampling
variance of m. Given G, the loss by chance is then negative binomial: the second term is P(more than L), the
first P(L or more) with G + 1 for G, as in McNemar's test (1947), and their mean its mid-p (Fagerland,
Lydersen and Laake 2013).

If the other tasks are alike, their rate decides. If they differ much, a and b are near 0, and without other
tasks they are 0: this is McNemar's test. That test alone finds fewer losses, since it takes the loss itself
as a sign of large chance.

The tests of one decision share `LEVEL` (Bonferroni). They are

- of each task with at least `FEW` steps, at the tolerance;
- of the smaller tasks together, at the tolerance;
- of all tasks together, at half of it.

Small losses would add up. Therefore the first two are made again, at twice the tolerance, against each
checkpoint ever in use. These share `LEVEL_BEFORE`: the best of many looks better than it is, and their number
allows for it.

The model in use is measured on the candidate's own test set too. A candidate learned nothing if it is better
at no theorem of it, and no better on all tasks together.

A task without single scores is judged by its figure alone.
"""

from __future__ import annotations

import json
import math
import sqlite3
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from store.text import counted
from store.view import model_queries
from store.view.rows import CheckpointRow, EvaluationRow

if TYPE_CHECKING:
    # The report takes its rules from here, and must import no pydantic.
    from store.events.models import ModelKind

Verdict = Literal["promote", "refuse", "unknown"]

_NOT_TESTS = frozenset({"train", "val"})
LEVEL = 0.04
"""How often a model as good as the one in use may be refused; measured in benchmarks/promotion.py."""
LEVEL_BEFORE = 0.01
"""How often a model as good as all ever in use may be refused for those."""
FEW = 100
"""With fewer steps, a task alone tells too little."""
_ROUNDING = 1e-9
"""A loss of exactly the tolerance is within it, whatever the last bits of two measurements."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The measure of a model. Losses and tolerances are in `unit`: 1 of the metric is `scale` of it.

    `tolerance` is the allowed fall on a task, without a setting; `widest` the largest setting.
    """

    metric: str
    unit: str
    scale: float
    lower_is_better: bool
    tolerance: float
    widest: float

    def lost(self, before: float, after: float) -> float:
        """Return the loss from one value of the metric to the next, negative for a gain."""
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
    """A checkpoint's results, as the rule needs them."""

    evaluations: Sequence[EvaluationRow]
    once_in_use: Sequence[EvaluationRow] = ()
    """of all checkpoints of its model ever in use"""
    job: str = ""
    """its training, also of the measurement of the model in use on its test set"""


@dataclass(frozen=True, slots=True)
class TaskChange:
    """One task, measured on the examples of `dataset`."""

    repository: str | None
    split: str
    dataset: str
    before: Mapping[str, float] | None
    """the metrics of the checkpoint in use; null if it was not measured on them"""
    after: Mapping[str, float] | None
    """those of the candidate"""
    lost: float | None
    """the fall of the rule's metric, in the rule's unit; negative for a gain"""
    problem: str
    """why the loss is unknown"""
    steps: int | None = None
    """the number of steps answered by both; null without single scores"""
    chance: float | None = None
    """how often equally good models lose at least as much, 0..1; null if `steps` is"""

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


def read_sides(
    db: sqlite3.Connection, candidate: CheckpointRow, in_use: CheckpointRow | None
) -> tuple[Measured, Measured | None]:
    """Read the rule's evidence on a candidate and on the checkpoint in use from the view.

    The checkpoint in use is measured on everything candidates learned, refused ones too. Tasks outside its
    own chain are nothing to lose: they count only if the candidate was measured on them. A training of one
    repository's adapter (`lora_by_repository`) leaves the others as they are: that repository alone decides.
    """
    measured = Measured(model_queries.evaluations(db, candidate.checkpoint), job=candidate.job)
    if in_use is None:
        return measured, None
    checkpoints = model_queries.learned(db, in_use.model)
    chain = model_queries.ancestry(checkpoints, in_use.checkpoint)
    not_learned = {checkpoint.repository for checkpoint in checkpoints} - {one.repository for one in chain}
    tasks = {_task(row) for row in measured.evaluations}
    rows = [
        row
        for row in model_queries.evaluations(db, in_use.checkpoint)
        if row.repository not in not_learned or _task(row) in tasks
    ]
    own = {row.repository for row in checkpoints if row.checkpoint == candidate.checkpoint}
    if own and candidate.parent == in_use.checkpoint and candidate.config.get("lora_by_repository"):
        measured = replace(
            measured, evaluations=[row for row in measured.evaluations if row.repository in own]
        )
        rows = [row for row in rows if row.repository in own]
    return measured, Measured(rows, model_queries.once_in_use(db, in_use.model))


def decide(
    candidate: Measured,
    in_use: Measured | None,
    *,
    rule: Rule,
    tolerance: float,
    read_blob: Callable[[str], bytes],
) -> Decision:
    """Return whether a candidate may be promoted.

    Args:
        candidate: the checkpoint to judge.
        in_use: the present one; None if there is none.
        rule: of their model.
        tolerance: the metric's allowed fall on any one task of `in_use`, in the rule's unit.
        read_blob: returns the scores of an evaluation, by their hash.

    Raises:
        ValueError: the tolerance is out of range.
        BlobError: scores are not in the log.
    """
    if not 0 <= tolerance <= rule.widest:
        raise ValueError(
            f"{tolerance}: no tolerance; give {rule.unit} of {rule.metric} from 0 to {rule.widest:g}"
        )
    if in_use is None:
        return Decision("promote", "it is the first of its model: there are no earlier tasks to lose", ())
    compared = _compare_tasks(candidate.evaluations, in_use.evaluations, rule, read_blob)
    tasks = tuple(task for task, _ in compared)
    earlier = [task for task in tasks if task.before is not None]
    if not earlier:
        reason = "the checkpoint in use was measured on no test set, so what would be lost is not known"
        return Decision("unknown", reason, tasks)
    tests = _tests(compared, rule, tolerance)
    failed = _failures(tests, LEVEL)
    failed += _failures(
        _tests_before(candidate.evaluations, in_use, rule, tolerance, read_blob), LEVEL_BEFORE
    )
    if failed:
        worst = max(failed, key=lambda test: test.lost)
        others = len(failed) - 1
        more = f", and so in {others} more {'comparison' if others == 1 else 'comparisons'}" if others else ""
        return Decision("refuse", f"{worst}{more}", tasks)
    if nothing := _learned_nothing(compared, candidate, in_use):
        return Decision("refuse", nothing, tasks)
    unknown = [task for task in earlier if task.lost is None]
    if unknown:
        more = f", nor on {counted(len(unknown) - 1, 'task')} more" if len(unknown) > 1 else ""
        reason = f"what it would lose on {unknown[0].name} is not known{more}: {unknown[0].problem}"
        return Decision("unknown", reason, tasks)
    worst = max(tests, key=lambda test: test.lost)
    if worst.lost <= 0:
        reason = f"{rule.metric} {rule.worsens} on none of {counted(len(earlier), 'earlier task')}"
    else:
        reason = f"of {counted(len(earlier), 'earlier task')} it loses most where {worst}"
    return Decision("promote", reason, tasks)


def measured_tasks(evaluations: Iterable[EvaluationRow]) -> list[EvaluationRow]:
    """Return the newest measurement of each task, by name."""
    return sorted(_newest_by_task(evaluations).values(), key=lambda row: (row.repository or "", row.split))


WORDS = "bm25"
"""The premise finder without a trained retriever, or beside one; its metrics are in a retriever's
evaluations."""


def ladder_models(db: sqlite3.Connection) -> dict[str, str]:
    """Return the models of the ladder: the checkpoints in use, and for the retriever the premise finder."""
    result = model_queries.in_use(db)
    if "retriever" in result:
        result["retriever"] = finds_premises(
            result["retriever"], model_queries.evaluations(db, result["retriever"])
        )
    return result


def finds_premises(checkpoint: str, evaluations: Iterable[EvaluationRow]) -> str:
    """Return the premise finder beside a retriever's checkpoint in use: the best on its test sets.

    Returns:
        "bm25", the checkpoint, or "<checkpoint>+bm25" for both rankings together; a checkpoint without a
            comparison with BM25 counts as better.
    """
    tests = [row for row in measured_tasks(evaluations) if f"{WORDS} {_FOUND}" in row.metrics]

    def recall(who: str) -> float:
        return sum(row.n * row.metrics.get(f"{who}{_FOUND}", 0.0) for row in tests)

    own, words, both = recall(""), recall(f"{WORDS} "), recall("fused ")
    if tests and max(own, both) <= words:
        return WORDS
    return f"{checkpoint}+{WORDS}" if both > own else checkpoint


_FOUND = "recall@10"


def before_last(promotions: Sequence[str]) -> str | None:
    """Return the checkpoint to roll back to, from one model's promotions, oldest first; None without one.

    Promoting a checkpoint again returns to it and drops its successors. Each rollback therefore goes one
    further back, and never to a checkpoint already rolled back.
    """
    standing = _standing(promotions)
    return standing[-2] if len(standing) > 1 else None


def needed(
    checkpoints: Sequence[CheckpointRow],
    promotions: Sequence[str],
    once_in_use: Iterable[EvaluationRow],
    *,
    keep: int,
) -> set[str]:
    """Return the checkpoints of one model whose files may still be needed.

    Args:
        checkpoints: all of the model's.
        promotions: those put in use, oldest first.
        once_in_use: their evaluations.
        keep: how many to keep of the last ones in use, and of the next targets of rollbacks, the one in use
            included.
    Needed are these; the undecided ones; those refused in favour of the one in use, since a person may still
    promote them; and the best of each task, on its newest examples.
    """
    in_use = next((row.checkpoint for row in checkpoints if row.promoted), None)
    ids = {row.checkpoint for row in checkpoints if row.promoted_at is None and row.refused_at is None}
    ids |= {row.checkpoint for row in checkpoints if row.refused_at is not None and row.parent == in_use}
    there = {row.checkpoint: row for row in checkpoints if row.removed_at is None}
    used = [promotion for promotion in promotions if promotion in there]
    ids |= {*_standing(used)[-keep:], *list(dict.fromkeys(reversed(used)))[:keep]}
    rows = [row for row in once_in_use if row.checkpoint in there and _is_test(row)]
    newest = {task: row.dataset for task, row in _newest_by_task(rows).items()}
    best: dict[tuple[str | None, str], EvaluationRow] = {}
    for row in rows:
        rule = RULES[kind_of(row.model)]
        if row.dataset != newest[_task(row)] or not math.isfinite(row.metrics.get(rule.metric, math.nan)):
            continue
        other = best.setdefault(_task(row), row)
        if rule.lost(other.metrics[rule.metric], row.metrics[rule.metric]) < 0:
            best[_task(row)] = row
    return ids | {row.checkpoint for row in best.values()}


def _standing(promotions: Sequence[str]) -> list[str]:
    standing: list[str] = []
    for checkpoint in promotions:
        if checkpoint in standing:
            del standing[standing.index(checkpoint) :]
        standing.append(checkpoint)
    return standing


def kind_of(model: str) -> ModelKind:
    """Return a model's name as its kind; KeyError for an unknown name."""
    for kind in RULES:
        if kind == model:
            return kind
    raise KeyError(model)


def task_name(repository: str | None, split: str) -> str:
    """Name a task for people."""
    return f"{repository or 'all repositories'} ({split})"


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Losses and gains on the steps answered by both, in the metric.

    They are the sums of theorems' losses, of their gains, and of the squares of both.
    """

    steps: int = 0
    before: float = 0.0
    """the metric's sum over these steps, before"""
    lost: float = 0.0
    gained: float = 0.0
    squares: float = 0.0

    def __add__(self, other: _Pairs) -> _Pairs:
        return _Pairs(
            self.steps + other.steps,
            self.before + other.before,
            self.lost + other.lost,
            self.gained + other.gained,
            self.squares + other.squares,
        )

    @property
    def few(self) -> bool:
        return self.steps < FEW

    @property
    def rate(self) -> float:
        """Half of the losses and gains in a step."""
        return (self.lost + self.gained) / (2 * self.steps)

    @property
    def variance(self) -> float:
        """The sampling variance of `rate`."""
        return self.squares / (2 * self.steps) ** 2

    def chance(self, usual: _Usual | None = None) -> float:
        """How often equally good models lose at least as much: the formula at the top.

        `usual` is of the tasks of the same two models; with None this task alone counts.
        """
        if not self.squares:
            return 0.5
        unit = self.squares / (self.lost + self.gained)
        mean, variance = (0.0, 0.0) if usual is None else usual.beside(self)
        a, b = (mean**2 / variance, mean * unit / (self.steps * variance)) if mean else (0.0, 0.0)
        lost, gained, at = self.lost / unit, self.gained / unit + a, 1 / (2 + b)
        return (_beta(lost, gained + 1, at) + _beta(lost + 1, gained, at)) / 2


@dataclass(frozen=True, slots=True)
class _Usual:
    """The variation by chance from one task to the next, over the tasks with enough steps."""

    large: Sequence[_Pairs]
    spread: float
    """the variance of their rates, beyond the variance of the estimates"""

    @staticmethod
    def of(tasks: Iterable[_Pairs | None]) -> _Usual:
        large = [pairs for pairs in tasks if pairs is not None and not pairs.few]
        spread = 0.0
        if len(large) > 1:
            # Each task counts the same: a small one among large ones may be the exception.
            result = statistics.variance(pairs.rate for pairs in large)
            spread = max(0.0, result - statistics.fmean(pairs.variance for pairs in large))
        return _Usual(large, spread)

    def beside(self, one: _Pairs) -> tuple[float, float]:
        """Return the mean rate of the other tasks, and the variance of a task's rate around it; zeros without any."""
        others = sum((pairs for pairs in self.large if pairs is not one), _Pairs())
        if not others.squares:
            return 0.0, 0.0
        return others.rate, self.spread + others.variance


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I(a, b) at x, by its continued fraction (DLMF 8.17.22)."""
    if not a or not b:
        return float(not a)
    # On the other side of the mean the fraction of the other tail converges sooner.
    other = x > (a + 1) / (a + b + 2)
    if other:
        a, b, x = b, a, 1 - x
    fraction = 1.0
    for m in range(50 + 2 * math.isqrt(int(max(a, b))), 0, -1):
        odd = (a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + even / (1 - odd / fraction)
    fraction = 1 - (a + b) * x / ((a + 1) * fraction)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    tail = math.exp(scale) / (a * fraction)
    return 1 - tail if other else tail


@dataclass(frozen=True, slots=True)
class _Test:
    """A loss and its tolerance in the rule's unit. Without `chance` (None) the figure decides."""

    what: str
    lost: float
    allowed: float
    steps: int | None
    chance: float | None

    @property
    def _too_much(self) -> bool:
        return self.lost > self.allowed + _ROUNDING

    def fails(self, level: float) -> bool:
        return self._too_much and (self.chance is None or self.chance < level)

    def __str__(self) -> str:
        text = f"{self.what}, with {self.allowed:g} allowed"
        if self.chance is None or not self._too_much:
            return text
        return f"{text} (over {self.steps} steps; by chance in {100 * self.chance:.2g} % of cases)"


_Compared = Sequence[tuple[TaskChange, _Pairs | None]]


def _compare_tasks(
    after: Iterable[EvaluationRow],
    before: Iterable[EvaluationRow],
    rule: Rule,
    read_blob: Callable[[str], bytes],
) -> _Compared:
    """Set the tasks of two checkpoints side by side, by name.

    If a task has several test sets (it grew), the newest of `before` counts, and the newest measurement of
    `after` on the same one.
    """
    old = _newest_by_task(before)
    new = [row for row in after if _is_test(row)]
    result = [
        _change(row, [other for other in new if _task(other) == _task(row)], rule, read_blob)
        for row in old.values()
    ]
    problem = "the other was not measured on it"
    result += [
        (TaskChange(row.repository, row.split, row.dataset, None, row.metrics, None, problem), None)
        for task, row in _newest_by_task(new).items()
        if task not in old
    ]
    usual = _Usual.of(pairs for _, pairs in result)
    result = [
        (task if pairs is None else replace(task, chance=pairs.chance(usual)), pairs)
        for task, pairs in result
    ]
    return sorted(result, key=lambda one: (one[0].repository or "", one[0].split))


def _change(
    before: EvaluationRow, measured: Sequence[EvaluationRow], rule: Rule, read_blob: Callable[[str], bytes]
) -> tuple[TaskChange, _Pairs | None]:
    same = [row for row in measured if row.dataset == before.dataset]
    after = max(same or measured, key=_age, default=None)
    lost, pairs, problem = None, None, ""
    if after is None:
        problem = "it was not measured on it"
    elif any(not math.isfinite(row.metrics.get(rule.metric, math.nan)) for row in (before, after)):
        problem = f"a measurement has no {rule.metric}"
    else:
        pairs = _pairs(before, after, rule, read_blob)
        if pairs is not None:
            lost = rule.scale * (pairs.lost - pairs.gained) / pairs.steps
        elif same:
            lost = rule.lost(before.metrics[rule.metric], after.metrics[rule.metric])
        else:
            problem = "the test sets differ"
    change = TaskChange(
        before.repository,
        before.split,
        before.dataset,
        before.metrics,
        None if after is None or lost is None else after.metrics,
        lost,
        problem,
        None if pairs is None else pairs.steps,
    )
    return change, pairs


def _pairs(
    before: EvaluationRow, after: EvaluationRow, rule: Rule, read_blob: Callable[[str], bytes]
) -> _Pairs | None:
    """Return the losses and gains on shared theorems; None without any, or without both sides' scores."""
    if before.scores is None or after.scores is None:
        return None
    sign = 1 if rule.lower_is_better else -1
    old, new = (
        {theorem: (steps, total) for theorem, steps, total in json.loads(read_blob(scores))}
        for scores in (before.scores, after.scores)
    )
    both = [
        (steps, total, new[theorem][1])
        for theorem, (steps, total) in old.items()
        if theorem in new and new[theorem][0] == steps
    ]
    if not both:
        return None
    lost = [sign * (now - then) for _, then, now in both]
    return _Pairs(
        sum(steps for steps, _, _ in both),
        math.fsum(then for _, then, _ in both),
        math.fsum(one for one in lost if one > 0),
        -math.fsum(one for one in lost if one < 0),
        math.fsum(one * one for one in lost),
    )


def _failures(tests: Sequence[_Test], level: float) -> list[_Test]:
    each = level / max(1, sum(test.chance is not None for test in tests))
    return [test for test in tests if test.fails(each)]


def _tests(compared: _Compared, rule: Rule, tolerance: float) -> list[_Test]:
    tests = _by_task(compared, rule, tolerance)
    every = [pairs for _, pairs in compared if pairs is not None]
    if len(every) > 1:
        tests.append(_pool(f"on all {len(every)} tasks together", every, rule, tolerance / 2))
    return tests


def _by_task(compared: _Compared, rule: Rule, allowed: float) -> list[_Test]:
    tests = [
        _Test(_fall(task, pairs, rule), task.lost, allowed, task.steps, task.chance)
        for task, pairs in compared
        if task.lost is not None and (pairs is None or not pairs.few)
    ]
    small = [pairs for _, pairs in compared if pairs is not None and pairs.few]
    if small:
        what = f"on {counted(len(small), 'task')} with fewer than {FEW} steps, too few to tell alone,"
        tests.append(_pool(what, small, rule, allowed))
    return tests


def _pool(where: str, several: Sequence[_Pairs], rule: Rule, allowed: float) -> _Test:
    pairs = sum(several, _Pairs())
    lost = rule.scale * (pairs.lost - pairs.gained) / pairs.steps
    what = f"{rule.metric} {where} {rule.worsens} by {lost:.2f} {rule.unit}"
    return _Test(what, lost, allowed, pairs.steps, pairs.chance())


def _tests_before(
    after: Sequence[EvaluationRow],
    in_use: Measured,
    rule: Rule,
    tolerance: float,
    read_blob: Callable[[str], bytes],
) -> list[_Test]:
    """Return the candidate's tests against each other checkpoint ever in use."""
    sets = {row.dataset for row in after}
    earlier: dict[str, list[EvaluationRow]] = {}
    for row in in_use.once_in_use:
        earlier.setdefault(row.checkpoint, []).append(row)
    for row in in_use.evaluations:
        earlier.pop(row.checkpoint, None)
    tests = []
    for checkpoint, rows in earlier.items():
        # For a task with a grown test set, the measurement on the candidate's examples comes first.
        lines = [row for row in rows if row.dataset in sets]
        tasks = {_task(row) for row in lines}
        lines += [row for row in rows if _task(row) not in tasks]
        compared = [one for one in _compare_tasks(after, lines, rule, read_blob) if one[1] is not None]
        tests += [
            replace(test, what=f"against {checkpoint}, once in use, {test.what}")
            for test in _by_task(compared, rule, 2 * tolerance)
        ]
    return tests


def _learned_nothing(compared: _Compared, candidate: Measured, in_use: Measured) -> str:
    """Return the sentence for a candidate without any progress; empty if it learned, or too little tells."""
    own = {(_task(row), row.dataset) for row in in_use.evaluations if row.job == candidate.job}
    pairs = [(task, pairs) for task, pairs in compared if pairs is not None]
    mine = [pair for pair in pairs if ((pair[0].repository, pair[0].split), pair[0].dataset) in own]
    there, everywhere = (sum((one for _, one in some), _Pairs()) for some in (mine, pairs))
    if there.few or there.gained > _ROUNDING or everywhere.gained > everywhere.lost + _ROUNDING:
        return ""
    return (
        f"it learned nothing: on {mine[0][0].name}, of {there.steps} steps, it does better at no theorem than the one "
        "in use, nor on all tasks together"
    )


def _newest_by_task(rows: Iterable[EvaluationRow]) -> dict[tuple[str | None, str], EvaluationRow]:
    return {_task(row): row for row in sorted(filter(_is_test, rows), key=_age)}


def _is_test(row: EvaluationRow) -> bool:
    """A val split chose the weights: their scores on it are no test of them."""
    return row.split.rsplit("/", 1)[-1] not in _NOT_TESTS


def _task(row: EvaluationRow) -> tuple[str | None, str]:
    return row.repository, row.split


def _age(row: EvaluationRow) -> tuple[str, str]:
    return row.recorded_at, row.evaluation


def _fall(task: TaskChange, pairs: _Pairs | None, rule: Rule) -> str:
    metric = (task.before or {})[rule.metric]
    before = rule.scale * (metric if pairs is None else pairs.before / pairs.steps)
    lost = task.lost or 0.0
    after = before + lost if rule.lower_is_better else before - lost
    moved = f"{rule.worsens} by {lost:.2f} {rule.unit}"
    return f"{rule.metric} on {task.name} {moved}, from {before:.2f} to {after:.2f}"
