"""The rows of a tactic model's training: those of its task, and replayed ones of earlier tasks.

A task's rows are the steps of its trace and those of our own accepted proofs of its repository
(`pipeline.models.tactics.accepted`): expert iteration. Beside them rows of earlier tasks are replayed
(`pipeline.models.replay`), of each repository those of our own accepted proofs first: they are nearest to the model's
own answers, and so move it least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from pipeline.models.config import TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.errors import NothingToLearnError
from pipeline.models.replay import Replay, chosen, replayable, version_before
from pipeline.models.tactics.accepted import NO_SIDE, AcceptedProofs, count_proofs, read_accepted
from pipeline.models.tactics.rows import Row, RowPremises, Rows, read_rows


@dataclass(frozen=True, slots=True)
class Lesson:
    """The rows of a training on a task.

    Attributes:
        own: the task's: those of its trace, or the new ones among them, and those of accepted proofs.
        read: those of its trace, with the numbers of proofs and of unusable steps.
        replayed: those of earlier tasks, each with its task's name.
        datasets: the folders of the earlier tasks, by name.
        left_out: the numbers of unused accepted proofs, by reason.
    """

    own: tuple[Row, ...]
    read: Rows
    replayed: tuple[tuple[str, Row], ...] = ()
    datasets: Mapping[str, Path] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, the task's own first."""
        return (*self.own, *(row for _, row in self.replayed))

    def shown(self, premises: RowPremises, task: TaskData, config: TacticsConfig) -> tuple[Row, ...]:
        """Return all rows, the task's own first, with premises of their own repositories."""
        shown = partial(premises.shown, dropout=config.premise_dropout, seed=config.seed)
        result = shown(self.own, task)
        for name in dict.fromkeys(name for name, _ in self.replayed):
            rows = tuple(row for of, row in self.replayed if of == name)
            # A repository without a dataset has proofs of our own alone.
            dataset = self.datasets.get(name)
            result += rows if dataset is None else shown(rows, TaskData(name, dataset))
        return result

    def about(self) -> dict[str, Any]:
        """Return a checkpoint's description of the rows."""
        return {
            "steps": len(self.own),
            "proofs": self.read.proofs,
            "skipped": dict(self.read.skipped),
            "accepted": {
                "proofs": count_proofs(self.rows),
                "steps": sum(bool(row.proof) for row in self.rows),
                "left_out": dict(self.left_out),
            },
            "replayed": dict(Counter(name for name, _ in self.replayed)),
        }


def lesson(task: TaskData, config: TacticsConfig, earlier: Sequence[TaskData] = ()) -> Lesson:
    """Return the rows to learn for a task, and those to replay.

    Args:
        task: with a dataset in LeanDojo's form, and accepted proofs beside it.
        config: has the number of replayed rows.
        earlier: the tasks to replay. The rows of an earlier version of the task, one of the same name, are not learned
            again, only replayed (`TacticsConfig.only_new`), if the new rows fill a batch. With LoRA by repository no
            other is replayed.

    Raises:
        LearningError: a dataset cannot be used.
    """
    ours, earlier = read_accepted(task.dataset), replayable(task, earlier, config)
    if config.split != "random":
        of_no_side = count_proofs(row for rows in ours.rows.values() for row in rows)
        ours = AcceptedProofs({}, {**ours.left_out, NO_SIDE: of_no_side})

    @cache
    def traced(dataset: Path) -> Sequence[Row]:
        try:
            return read_rows(dataset / config.split / "train.json").rows
        except NothingToLearnError:
            return ()

    read = read_rows(task.dataset / config.split / "train.json")
    own, known = _distinct(read.rows, ours.rows.get(task.name, ())), []
    before = version_before(task, earlier) if config.only_new else None
    if before is not None:
        known = [*traced(before.dataset), *read_accepted(before.dataset).rows.get(task.name, ())]
    new = _distinct((), own, but=known)
    again = before is None or len(new) < config.batch_size
    own = own if again else new
    # An earlier version learned again as a whole has its rows in training.
    datasets = {one.name: one.dataset for one in earlier if one.name != task.name or not again}
    others = () if config.lora_by_repository else ours.rows
    names = [*datasets, *(name for name in others if name not in datasets and name != task.name)]

    def chosen_of(one: TaskData, most: int) -> list[Row]:
        # As the log has them now: a proof refuted since is not replayed.
        rows = list(chosen(_distinct((), ours.rows.get(one.name, ()), but=own), most, config.seed))
        people = traced(one.dataset) if one.name in datasets else ()
        rest = _distinct((), people, but=(*rows, *own))
        return [*rows, *chosen(rest, most - len(rows), config.seed)]

    tasks = [TaskData(name, datasets.get(name, task.dataset)) for name in names]
    size = config.replay_size if config.replay_share else 0
    replay: Replay[Row] = Replay.of_tasks(tasks, chosen_of, size=size, seed=config.seed)
    replayed = replay.beside(len(own), config.replay_share)
    return Lesson(tuple(own), read, tuple(replayed), datasets, ours.left_out)


def _distinct(first: Sequence[Row], then: Sequence[Row], *, but: Sequence[Row] = ()) -> list[Row]:
    """Return the first rows, and then those missing in both them and `but`."""
    known = {(row.state, row.tactic) for row in (*first, *but)}
    return [*first, *(row for row in then if (row.state, row.tactic) not in known)]
