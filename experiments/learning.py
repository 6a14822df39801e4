"""Learn tasks one after another, in several ways and orders, and measure every task so far after each.

The training and the measuring are the product's: `pipeline.models.retriever.learning`; of forgetting see
`experiments.lifelong`. In the log a trial has one figure a task and checkpoint, "NAME after K"; with the same tasks,
seed and first weights the arms differ in the way of learning alone.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from experiments.file import Arm, ExperimentError, Learning, Letters, Order, Pretrained, TinyModel
from experiments.lab import Lab, Trial, TrialResult, as_text
from experiments.lifelong import averages, lifelong_metrics
from experiments.results import Result, gain, mean_at, with_interval
from experiments.tasks import asked_alone, base_of, contents, joined, make_tasks, ordered
from pipeline.models.adapters import model_for
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.measures import BOUNDS, METRICS, RETRIEVED, rate
from pipeline.models.retriever.baselines import BM25
from pipeline.models.retriever.batches import asked_of, read_examples
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.learning import learn, measure
from pipeline.report.charts import Series, line_chart
from tests.support.tiny_models import make_tiny_retriever

LEARNING = "learning"


@dataclass(frozen=True, slots=True)
class _Arm:
    """An arm in one order of the tasks."""

    label: str
    name: str
    arm: Arm
    order: Order


def _arms(experiment: Learning) -> list[_Arm]:
    """Return the rows of the table. With several orders, the label names it."""
    result = []
    for (name, arm), order in product(experiment.arms.items(), experiment.orders):
        in_turn = arm.learned == "in turn"
        if not in_turn and order != experiment.orders[0]:
            continue
        shown = [name] if len(experiment.arms) > 1 or len(experiment.orders) == 1 else []
        shown += [order] if len(experiment.orders) > 1 and in_turn else []
        result.append(_Arm(", ".join(shown), name, arm, order))
    return result


def _trial(experiment: Learning, one: _Arm, seed: int) -> Trial:
    arm = one.arm
    follows_from = (
        as_text(experiment.tasks),
        *contents(experiment.tasks),
        *(contents(experiment.model.base) if isinstance(experiment.model, Pretrained) else ()),
        experiment.model if isinstance(experiment.model, str) else as_text(experiment.model),
        json.dumps({**experiment.training, **arm.training}, sort_keys=True),
        arm.learned,
        one.order,
    )
    return Trial(one.label, seed, follows_from)


Matrix = list[list[float]]
"""R: row j has a task's metric in percent after its own and after each later task, in the order of learning."""


def run(experiment: Learning, lab: Lab) -> Result:
    """Measure the missing figures, and return the result of all of them.

    Raises:
        ExperimentError: a task cannot be made, or there is no such metric.
        LearningError: a task cannot be learned or measured.
    """
    result = _measured(experiment, lab)
    return (
        _front(experiment, result)
        if isinstance(experiment.model, Pretrained)
        else _result(experiment, result)
    )


def matrices(experiment: Learning, lab: Lab) -> dict[str, list[Matrix]]:
    """Measure the missing figures, and return each seed's matrix by arm.

    Raises:
        ExperimentError, LearningError: as `run`.
    """
    result = _measured(experiment, lab)
    return {label: [_matrix(trial, experiment.metric) for trial in each] for label, each in result.items()}


def _measured(experiment: Learning, lab: Lab) -> dict[str, list[TrialResult]]:
    arms = {_trial(experiment, one, seed): one for seed in experiment.seeds for one in _arms(experiment)}
    for trial in lab.each([*arms]):
        _Run(experiment, arms[trial], trial, lab).run()
    rows: dict[str, list[TrialResult]] = {}
    for trial, one in arms.items():
        result = lab.finished(trial)
        assert result is not None
        rows.setdefault(one.label, []).append(result)
    return rows


def halves(rows: Matrix) -> tuple[float, float]:
    """Return the mean over the first half of the tasks, and over the second, right after each was learned."""
    learned = [row[0] for row in rows]
    middle = len(learned) // 2
    return statistics.fmean(learned[:middle] or learned), statistics.fmean(learned[middle:])


def final(rows: Matrix) -> float:
    """Return the mean over all tasks after the last one."""
    return statistics.fmean(row[-1] for row in rows)


# ---- the result

_MEANING = """{metric} in percent on the tasks' held-out steps, mean over the seeds with Student's 95% interval.
*Learned*: of a task right after it was learned, over the first and over the second half of the tasks. *Final*: of all
tasks after the last one. *Gain*: the paired difference of final to the first row, "within" where its interval has zero
in it. *Forgetting* (FM, Chaudhry et al. 2018): the best that a task ever had less what it has at the end; *transfer*
(BWT, Lopez-Paz and Ranzato 2017): what it has at the end less what it had right after it was learned. The chart has the
average over the tasks seen so far."""


def _result(experiment: Learning, results: Mapping[str, Sequence[TrialResult]]) -> Result:
    metric = experiment.metric
    measured = {label: [_matrix(trial, metric) for trial in each] for label, each in results.items()}
    ends = {label: [final(rows) for rows in each] for label, each in measured.items()}
    first = next(iter(ends.values()))
    rows, lines = [], []
    for label, each in measured.items():
        # Arms with everything at once were measured at the end alone.
        along = all(len(row) == len(rows_) - j for rows_ in each for j, row in enumerate(rows_))
        textbook = [lifelong_metrics(one, [0.0] * len(one)).textbook for one in each] if along else []
        several = along and all(len(one) > 1 for one in each)
        learned = [halves(one) for one in each] if along else []
        messages = [with_interval([one[half] for one in learned]) for half in (0, 1)]
        messages.append(with_interval(ends[label]))
        messages.append("" if ends[label] is first else gain(ends[label], first))
        messages += [
            with_interval([one[name] for one in textbook]) if several else "" for name in ("FM", "BWT")
        ]
        seconds = sum(trial.seconds for trial in results[label]) / len(results[label])
        rows.append((label, *messages, f"{seconds:.0f}"))
        n = len(each[0])
        curves: list[Sequence[float | None]] = [
            averages(one) if along else [*[None] * (n - 1), final(one)] for one in each
        ]
        lines.append(Series(label, tuple(mean_at(curves, k) for k in range(n))))
    n = len(next(iter(measured.values()))[0])
    letters = isinstance(experiment.tasks, Letters)
    chart = line_chart(
        "experiment",
        f"Average {metric} of the tasks learned so far" + (" (letters, no Lean)" if letters else ""),
        positions=[f"{k + 1} learned" if k in (0, n - 1) else str(k + 1) for k in range(n)],
        lines=lines,
        unit="percent",
        highest=100.0,
    )
    head = (
        "",
        "learned: first half",
        "second half",
        "final",
        "gain",
        "forgetting",
        "transfer",
        "processor s a seed",
    )
    total = sum(trial.seconds for each in results.values() for trial in each)
    return Result(head, tuple(rows), chart, _MEANING.format(metric=metric), total, without_lean=letters)


def _matrix(trial: TrialResult, metric: str) -> Matrix:
    n = len(trial.order)
    rows = []
    for j, name in enumerate(trial.order):
        row: list[float] = []
        for k in range(j, n):
            one = trial.figures.get(f"{name} after {k + 1}")
            if one is not None:
                row.append(_percent(one, metric))
        rows.append(row)
    return rows


def _percent(figures: Mapping[str, float], metric: str) -> float:
    if metric not in figures:
        raise ExperimentError(f"metric is {metric!r}: the log has {', '.join(sorted(figures))}")
    return 100 * figures[metric]


# ---- the result of a chain that began with a trained model

_FRONT_MEANING = """{metric} in percent, mean over the seeds with Student's 95% interval; of a seed the mean over its
orders. *Right after*: of a task right after it was learned. *Final*: of all tasks after the last one. *Forgetting*:
right after, less final. *Base*: of what the first weights had learned. *Choice*: final and base, each of the tasks and
the base alike, on the statements that are held out for choices and are in no other column. *Gain*: the paired
differences of final and of base to the first row, "within" where the interval has zero in it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The figures of an arm for one seed: recall in percent, averaged over the orders."""

    after: float
    final: float
    base: float
    choice: float


def _front(experiment: Learning, results: Mapping[str, Sequence[TrialResult]]) -> Result:
    arms = {one.label: one for one in _arms(experiment)}
    by_arm: dict[str, list[list[_Kept]]] = {}
    seconds: dict[str, list[float]] = {}
    for label, trials in results.items():
        own = by_arm.setdefault(arms[label].name, [[] for _ in trials])
        for place, trial in zip(own, trials, strict=True):
            place.append(_figures_of(trial, experiment.metric))
        seconds.setdefault(arms[label].name, []).extend(trial.seconds for trial in trials)
    kept = {
        name: [_Kept(*map(statistics.fmean, zip(*map(_columns, orders), strict=True))) for orders in each]
        for name, each in by_arm.items()
    }
    first = next(iter(kept.values()))
    rows = []
    for name, each in kept.items():
        shown = [
            [one.after for one in each],
            [one.final for one in each],
            [one.after - one.final for one in each],
        ]
        shown += [[one.base for one in each], [one.choice for one in each]]
        gains = ["", ""]
        if each is not first:
            gains = [
                gain([one.final for one in each], [one.final for one in first]),
                gain([one.base for one in each], [one.base for one in first]),
            ]
        cells = [*map(with_interval, shown), *gains]
        rows.append((name, *cells, f"{statistics.fmean(seconds[name]):.0f}"))
    values: dict[str, Callable[[_Kept], float]] = {
        "final": lambda one: one.final,
        "forgetting": lambda one: one.after - one.final,
        "base": lambda one: one.base,
    }
    lines = [
        Series(title, tuple(statistics.fmean(value(one) for one in each) for each in kept.values()))
        for title, value in values.items()
    ]
    chart = line_chart(
        "experiment",
        f"{experiment.metric}: what a chain has at the end, what it forgot, and what is kept of the base",
        positions=list(kept),
        lines=lines,
        unit="percent",
    )
    head = (
        "",
        "right after",
        "final",
        "forgetting",
        "base",
        "choice",
        "gain of final",
        "gain of base",
        "processor s",
    )
    total = sum(trial.seconds for each in results.values() for trial in each)
    return Result(head, tuple(rows), chart, _FRONT_MEANING.format(metric=experiment.metric), total)


def _columns(one: _Kept) -> tuple[float, float, float, float]:
    return one.after, one.final, one.base, one.choice


def _figures_of(trial: TrialResult, metric: str) -> _Kept:
    n = len(trial.order)

    def of(what: str) -> float:
        return _percent(trial.figures[what], metric)

    final = [of(f"{name} after {n}") for name in trial.order]
    # For tasks learned at once, or not at all, nothing was measured on the way.
    own = (f"{name} after {k}" for k, name in enumerate(trial.order, start=1))
    after = [of(what) if what in trial.figures else end for what, end in zip(own, final, strict=True)]
    chosen = [of(f"{name} for choices") for name in (*trial.order, _BASE)]
    return _Kept(
        statistics.fmean(after), statistics.fmean(final), of(f"{_BASE} after {n}"), statistics.fmean(chosen)
    )


_BASE = "base"


# ---- one trial


class _Run:
    """One trial: the tasks of a seed in an order, learned in one way."""

    def __init__(self, experiment: Learning, one: _Arm, trial: Trial, lab: Lab) -> None:
        self._arm, self._trial, self._lab, seed = one.arm, trial, lab, trial.seed
        self._keep = experiment.keep_checkpoints
        self._tasks_folder = lab.folder / "tasks" / str(seed)
        tasks = make_tasks(experiment.tasks, self._tasks_folder, seed, lab.say)
        self._tasks = ordered(tasks, one.order, seed)
        self._folder = lab.folder / "trials" / trial.identity
        self._chain = Chain(self._folder / "chain")
        model = experiment.model
        self._base: TaskData | None = None
        if isinstance(model, Pretrained):
            self._base, model = _pretrain(experiment, model, lab)
        elif isinstance(model, TinyModel):
            place = lab.folder / "models" / f"{model.d_model}x{model.layers}-{seed}"
            model = str(make_tiny_retriever(place, seed=seed, d_model=model.d_model, layers=model.layers))
        self._config = experiment.config(one.arm, model, seed)

    def run(self) -> None:
        names = [task.name for task in self._tasks]
        self._lab.say(f"  {', '.join(names)}")
        match self._arm.learned:
            case "in turn":
                self._in_turn()
            case "together":
                self._together()
            case "apart":
                self._apart()
            case "never" | "by words":
                self._at_the_end(dict.fromkeys(names, self._config.model_name))
        self._lab.finish(self._trial, names)
        if not self._keep:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _in_turn(self) -> None:
        parent: str | None = None
        for k, task in enumerate(self._tasks):
            parent = self._learn(task, parent, self._tasks[:k])
            # A repository's own adapter where each has one, else the checkpoint.
            models = {one.name: model_for(self._chain.path(parent), one.name) for one in self._tasks[: k + 1]}
            if k + 1 == len(self._tasks):
                self._at_the_end(models)
            elif self._base is not None:
                self._measure(task, models[task.name], k)
            else:
                for earlier in self._tasks[: k + 1]:
                    self._measure(earlier, models[earlier.name], k)

    def _apart(self) -> None:
        """Learn each task from the first weights, left unchanged."""
        learned = {task.name: self._learn(task, None, ()) for task in self._tasks}
        self._at_the_end({name: str(self._chain.path(checkpoint)) for name, checkpoint in learned.items()})

    def _at_the_end(self, models: Mapping[str, str]) -> None:
        """Measure every task with its model, and the retention of the base."""
        last = len(self._tasks) - 1
        for task in self._tasks:
            self._measure(task, models[task.name], last)
        if self._base is None:
            return
        apart = len(set(models.values())) > 1
        kept = self._config.model_name if apart else models[self._tasks[0].name]
        self._measure(self._base, kept, last)
        for task, model in ((self._base, kept), *((task, models[task.name]) for task in self._tasks)):
            self._measured(f"{task.name} for choices", task, model, "val")

    def _together(self) -> None:
        """Learn everything at once: as many steps as the arms in turn take in all."""
        everything = joined(self._tasks, self._tasks_folder.with_name(f"{self._trial.seed}-joined"))
        result = str(self._chain.path(self._learn(everything, None, ())))
        self._at_the_end(dict.fromkeys((one.name for one in self._tasks), result))

    def _learn(self, task: TaskData, parent: str | None, earlier: Sequence[TaskData]) -> str:
        """Return the checkpoint of a task: made now, or found, or continued from its run's last saved step."""
        began = time.process_time()
        result = learn(task, self._chain, self._config, parent=parent, earlier=earlier)
        spent = time.process_time() - began
        self._learning(task, result.steps, spent)
        return result.checkpoint

    def _learning(self, task: TaskData, steps: int, seconds: float) -> None:
        self._lab.once(
            self._trial, f"{LEARNING} {task.name}", lambda: {"steps": steps, "processor_seconds": seconds}
        )

    def _measure(self, task: TaskData, model: str, after: int) -> None:
        self._measured(f"{task.name} after {after + 1}", task, model, "test")

    def _measured(self, what: str, task: TaskData, model: str, split: str) -> None:
        target = task if self._base is None else asked_alone(task)

        def found() -> Mapping[str, float]:
            if self._arm.learned == "by words":
                return _by_words(target, split, self._config)
            # After one checkpoint's first measurement, all others find its premises embedded.
            indices = (
                None
                if self._config.model_name.startswith(str(self._lab.folder))
                else self._folder / "indices"
            )
            metrics = measure(model, target, self._config, split=split, indices=indices).metrics
            return {name: value for name, value in metrics.items() if not name.endswith(BOUNDS)}

        self._lab.once(self._trial, what, found)


def _by_words(task: TaskData, split: str, config: RetrieverConfig) -> Mapping[str, float]:
    """Return BM25's results on a task's split, by the measures' own names."""
    corpus = Corpus(task.dataset / "corpus.jsonl")
    examples = read_examples(task.dataset / config.split / f"{split}.json", corpus)
    words = BM25(corpus)
    rated = [
        rate(one.positives, words.rank(query, allowed, RETRIEVED))
        for one, (query, allowed) in zip(examples, asked_of(examples, corpus), strict=True)
    ]
    return dict(zip(METRICS, np.mean(rated, axis=0).tolist(), strict=True))


def _pretrain(experiment: Learning, model: Pretrained, lab: Lab) -> tuple[TaskData, str]:
    """Return the base's task and the model trained on it, made once for all trials."""
    name = hashlib.sha256("".join((as_text(model), *contents(model.base))).encode()).hexdigest()[:16]
    place = lab.folder / "models" / name
    base = base_of(model.base, place / "task")
    files = (base.dataset / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [one["code"] for line in files for one in json.loads(line)["premises"]]
    start = str(make_tiny_retriever(place / "start", d_model=model.d_model, layers=model.layers, texts=texts))
    options = {
        **experiment.training,
        **model.training,
        "against_forgetting": "none",
        "model_name": start,
        "seed": 0,
    }
    chain = Chain(place / "chain")
    result = learn(base, chain, RetrieverConfig.from_dict(options), parent=None)
    return base, str(chain.path(result.checkpoint))
