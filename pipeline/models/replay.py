"""The rows of a training on a task: its own, and replayed ones of earlier tasks.

Replayed rows come out of the frozen datasets of the earlier tasks, which are a job's inputs like its own: the log's
content when each was learned. Each repository has the same share, whatever its size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from pipeline.models.config import Config, RowsConfig
from pipeline.models.datasets import TaskData

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
_CHOICE = 3
"""Separates this stream of random numbers from those of a retriever's batches."""


@dataclass(frozen=True, slots=True)
class Selection(Generic[T]):
    """The rows of a training: the task's own, and replayed ones, each with its task's name."""

    own: tuple[T, ...]
    replayed: tuple[tuple[str, T], ...]

    @property
    def rows(self) -> tuple[T, ...]:
        """All rows, the task's own first."""
        return (*self.own, *(row for _, row in self.replayed))

    def counts(self) -> dict[str, int]:
        """Return the number of replayed rows of each task."""
        return dict(Counter(name for name, _ in self.replayed))

    def about(self) -> dict[str, Any]:
        """Return a checkpoint's description of the rows."""
        return {"steps": len(self.own), "replayed": self.counts()}


def select(
    task: str,
    own: Mapping[K, T],
    known: Collection[K] | None,
    earlier: Mapping[str, Callable[[], Mapping[K, T]]],
    config: RowsConfig,
    *,
    but: Collection[K] = (),
) -> Selection[T]:
    """Select the rows to learn for a task. All rows are by content: none is learned twice.

    Args:
        task: its name.
        own: its rows.
        known: the contents that an earlier version of the task had. They are replayed, and not learned again
            (`RowsConfig.only_new`), if the new rows fill a batch. None: there was none.
        earlier: reads the rows to replay of each task, an earlier version of this one among them, by its name.
        config: has the share of replayed rows.
        but: contents that are not replayed.
    """
    new = {content: row for content, row in own.items() if content not in (known or ())}
    again = known is None or not config.only_new or len(new) < config.batch_size
    learned = own if again else new
    names = [name for name in earlier if name != task or not again]
    wanted = round(len(learned) * config.replay_share / (1 - config.replay_share))
    replayed: list[tuple[str, T]] = []
    for name in names if wanted else ():
        left = [
            row for content, row in earlier[name]().items() if content not in learned and content not in but
        ]
        replayed += [(name, row) for row in chosen(left, math.ceil(wanted / len(names)), config.seed)]
    return Selection(tuple(learned.values()), tuple(chosen(replayed, wanted, config.seed)))


def replayable(task: TaskData, earlier: Sequence[TaskData], config: Config) -> dict[str, TaskData]:
    """Return the earlier tasks to replay in a task's training, by name; of several versions of a repository the last.

    With LoRA by repository it is the earlier version of the task alone.
    """
    return {one.name: one for one in earlier if one.name == task.name or not config.lora_by_repository}


def chosen(rows: Sequence[T], most: int, seed: int) -> Sequence[T]:
    """Return at most `most` rows, each with the same chance, in their order."""
    if len(rows) <= most:
        return rows
    places = random_numbers(seed, _CHOICE).choice(len(rows), most, replace=False)
    return [rows[place] for place in np.sort(places)]


def random_numbers(seed: int, stream: int, number: int = 0) -> np.random.Generator:
    """Return the random numbers of a stream at a number: of a step, or of a task."""
    counter: Any = [0, 0, 0, number]
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=counter))
