"""Train a tactic model on a task on top of a checkpoint, measure it on people's steps; the job `train_tactics`.

The configuration is a `TacticsConfig`. The rows are the steps of the task's training split and those of our own
accepted proofs of its repository (`pipeline.models.tactics.accepted`): expert iteration. Beside them rows of earlier
tasks are replayed (`pipeline.models.replay`), with accepted proofs of their repositories. A job started again continues
from the last saved step.

Measures, all in 0..1, each with the bounds of its bootstrap interval, "…_low" and "…_high"; a split without a tactic
step has none:

    tactic@1, tactic@8  the share of the steps whose own tactic is the likeliest one, or among the first eight, of
                        beam search. Tactics are compared as text: another one just as good is a miss, so these
                        are lower bounds of a search's success

A tactic longer than the model's longest answer is a miss in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.models import replay
from pipeline.models.config import TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.errors import NothingToLearnError
from pipeline.models.libraries import device_of, inference_dtype
from pipeline.models.measures import Evaluation, by_theorem, summarise
from pipeline.models.model_files import Checkpoint
from pipeline.models.replay import Selection, replayable
from pipeline.models.running import Reports, make_checkpoint
from pipeline.models.tactics.accepted import AcceptedProofs, count_proofs, read_accepted
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import TacticModel, load_model
from pipeline.models.tactics.requests import Decoding, Request
from pipeline.models.tactics.rows import (
    NO_PREMISES,
    Row,
    RowPremises,
    digest_of,
    drawn,
    read_rows,
)
from pipeline.models.tactics.training import FineTuning
from pipeline.models.training_job import OnStep, TrainingJob
from store.events.models import ModelKind

METRICS = ("tactic@1", "tactic@8")
CANDIDATES = 8
_AT_ONCE = 64


def evaluate(
    model: TacticModel,
    rows: Sequence[Row],
    *,
    seed: int = 3407,
    on_batch: OnStep = lambda _done, _total: None,
) -> Evaluation:
    """Generate tactics for every step with a model, and rate its answers.

    Args:
        model: from `models.load_model`; put into evaluation mode.
        rows: the steps, at least one.
        seed: of the intervals.
        on_batch: takes (steps done, steps in all).
    """
    generator = Generator(model)
    decoding = Decoding(candidates=CANDIDATES, mode="beams")
    rated: list[tuple[float, ...]] = []
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        suggested = generator.suggest([Request(row.state, row.premises, decoding) for row in part])
        for row, suggestions in zip(part, suggested, strict=True):
            found = [one.tactic == row.tactic for one in suggestions.tactics[:CANDIDATES]]
            rated.append((float(any(found[:1])), float(any(found))))
        on_batch(start + len(part), len(rows))
    theorems = [(row.path, row.theorem) for row in rows]
    return Evaluation(
        metrics=summarise(rated, theorems, seed=seed, names=METRICS),
        n=len(rows),
        dataset=digest_of(rows),
        scores=by_theorem([among for _, among in rated], theorems),
    )


def sampled(rows: Sequence[Row], most: int, seed: int) -> tuple[Row, ...]:
    """Return at most `most` rows (0: all), in their order; chosen by the rows' contents and the seed."""
    if not most or len(rows) <= most:
        return tuple(rows)
    numbers = sorted(range(len(rows)), key=lambda number: drawn(rows[number], seed))
    return tuple(rows[number] for number in sorted(numbers[:most]))


def select_rows(
    task: TaskData, config: TacticsConfig, earlier: Sequence[TaskData] = ()
) -> tuple[Selection[Row], dict[str, Any]]:
    """Return the rows to learn for a task and to replay, and a checkpoint's description of them.

    Args:
        task: with a dataset in LeanDojo's form, and accepted proofs beside it.
        config: has the share of replayed rows.
        earlier: the tasks to replay (`pipeline.models.replay.select`). With LoRA by repository no other is replayed.

    Raises:
        LearningError: a dataset cannot be used.
    """
    # The sides of novel_premises follow from the premises of a trace.
    ours = read_accepted(task.dataset) if config.split == "random" else AcceptedProofs()
    before, side = replayable(task, earlier, config), Path(config.split, "train.json")

    def rows_of(name: str, accepted: AcceptedProofs) -> dict[tuple[str, str], Row]:
        """Return an earlier task's rows with accepted proofs; a repository may have these alone."""
        own = accepted.rows.get(name, ())
        if name not in before:
            return _by_content(own)
        try:
            return _by_content((*read_rows(before[name].dataset / side).rows, *own))
        except NothingToLearnError:
            return _by_content(own)

    names = before if config.lora_by_repository else (*before, *ours.rows)
    read = read_rows(task.dataset / side)
    selection = replay.select(
        task.name,
        _by_content((*read.rows, *ours.rows.get(task.name, ()))),
        rows_of(task.name, read_accepted(before[task.name].dataset)) if task.name in before else None,
        # Accepted proofs as the log has them now: one refuted since is not replayed.
        {name: partial(rows_of, name, ours) for name in names},
        config,
    )
    about = {
        **selection.about(),
        "skipped": dict(read.skipped),
        "accepted": {"proofs": count_proofs(selection.rows), "left_out": dict(ours.left_out)},
    }
    return selection, about


def _by_content(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """Return rows by content, the first one of each."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        found.setdefault((row.state, row.tactic), row)
    return found


def show_premises(
    selection: Selection[Row],
    premises: RowPremises,
    task: TaskData,
    config: TacticsConfig,
    earlier: Sequence[TaskData],
) -> tuple[Row, ...]:
    """Return all rows of a selection with premises of their own repositories, as far as these have datasets."""
    tasks = {one.name: one for one in earlier}
    result = premises.shown(selection.own, task, dropout=config.premise_dropout, seed=config.seed)
    for name in selection.counts():
        rows = tuple(row for of, row in selection.replayed if of == name)
        if name in tasks:
            rows = premises.shown(rows, tasks[name], dropout=config.premise_dropout, seed=config.seed)
        result += rows
    return result


def describe_premises(premises: RowPremises, shown: Sequence[Row]) -> dict[str, Any]:
    """Return a checkpoint's description of the premises of its rows."""
    return {"premises": {"of": premises.name, "rows": sum(bool(row.premises) for row in shown)}}


class TacticsJob(TrainingJob[TacticsConfig, TacticModel]):
    """The job; its rows, and those it measures on, show premises."""

    model: ClassVar[ModelKind] = "tactics"

    def __init__(
        self,
        config: TacticsConfig,
        spec: JobSpec[Any],
        reporter: Reporter,
        premises: RowPremises = NO_PREMISES,
    ) -> None:
        super().__init__(config, spec, reporter)
        self._premises = premises

    def measure(self, checkpoint: str, task: TaskData, split: str, on_batch: OnStep) -> Evaluation:
        config = self.measured_with
        read = read_rows(task.dataset / config.split / f"{split}.json").rows
        rows = self._premises.shown(sampled(read, config.eval_steps, config.seed), task)
        return evaluate(self.loaded(checkpoint, task), rows, seed=config.seed, on_batch=on_batch)

    def learn(self, task: TaskData, on_step: OnStep) -> Checkpoint:
        config, premises = self.config, self._premises
        earlier = self.replayed
        selection, about = select_rows(task, config, earlier)
        data = digest_of(selection.rows)
        if premises.name:
            data = hashlib.sha256(f"{data} {premises.name}".encode()).hexdigest()
        step = self.chain.step(task, config, parent=self.order.parent, data=data)
        reports = Reports(on_step, tensorboard=self.tensorboard)
        begin = partial(FineTuning, config, step.start, reports)

        def learned() -> tuple[Sequence[Row], dict[str, Any]]:
            rows = show_premises(selection, premises, task, config, earlier)
            return rows, {"rows": about, **describe_premises(premises, rows)}

        return make_checkpoint(self.chain, step, begin, learned)

    def load(self, source: str) -> TacticModel:
        device = device_of(self.config.device)
        return load_model(source, device=device, dtype=inference_dtype(device))
