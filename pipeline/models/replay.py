"""Replay: rows of earlier tasks, learned again beside a new task's; of every model.

The rows come out of the frozen datasets of the earlier tasks, which are a job's inputs like its own: the log's content
when each was learned. Each repository has the same share, whatever its size: the same number of each is drawn once for
a task, and the repositories take turns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from itertools import islice, zip_longest
from typing import Any, Generic, Self, TypeVar

import numpy as np

from pipeline.models.config import Config
from pipeline.models.datasets import TaskData

T = TypeVar("T")
_CHOICE, _TURNS, _DRAWS, _ORDER = 3, 4, 5, 6
"""Separate the streams of random numbers, also from those of a retriever's batches."""


class Replay(Generic[T]):
    """Rows of earlier tasks, by the task's name; `T` is a frozen dataclass."""

    def __init__(self, rows: Mapping[str, Sequence[T]], *, seed: int) -> None:
        """Args:
        rows: of each task; a task without any counts as none.
        seed: of the draws.
        """
        self.tasks = {name: tuple(own) for name, own in rows.items() if own}
        self._seed = seed

    @classmethod
    def of_tasks(
        cls,
        earlier: Sequence[TaskData],
        read: Callable[[TaskData, int], Sequence[T]],
        *,
        size: int,
        seed: int,
    ) -> Self:
        """Choose the rows for a task from earlier ones; of several of one name the last counts.

        Args:
            earlier: the tasks.
            read: returns at most a number of rows of a task's training split (`chosen`).
            size: rows in all; 0: none, and nothing is read.
            seed: of the choice.

        Raises:
            LearningError: a dataset cannot be read.
        """
        named = {one.name: one for one in earlier} if size else {}
        each = max(1, size // max(1, len(named)))
        return cls({name: read(one, each) for name, one in named.items()}, seed=seed)

    def __bool__(self) -> bool:
        return bool(self.tasks)

    def digest(self) -> str:
        """Return the SHA-256 of the rows."""
        content = [[name, [astuple(row) for row in own]] for name, own in self.tasks.items()]  # type: ignore[call-overload]  # see the class
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def turn(self, number: int) -> str:
        """Return the task for a turn: each once in a round, in an order that changes."""
        names = tuple(self.tasks)
        rng = _random(self._seed, _TURNS, number // len(names))
        return names[int(rng.permutation(len(names))[number % len(names)])]

    def draws(self, step: int) -> np.random.Generator:
        """Return the random numbers of a step."""
        return np.random.Generator(np.random.Philox(key=[self._seed, _DRAWS], counter=[0, 0, 0, step]))

    def beside(self, new: int, share: float) -> list[tuple[str, T]]:
        """Return rows to learn beside new ones, each with its task's name; none twice.

        Args:
            new: the number of new rows.
            share: of all rows, new and replayed, that of the replayed ones, below 1; less if there are too few.
        """
        wanted = round(new * share / (1 - share))
        shuffled = [
            [(name, own[at]) for at in _random(self._seed, _ORDER, number).permutation(len(own))]
            for number, (name, own) in enumerate(self.tasks.items())
        ]
        in_turn = (one for turn in zip_longest(*shuffled) for one in turn if one is not None)
        return list(islice(in_turn, wanted))


def replayable(task: TaskData, earlier: Sequence[TaskData], config: Config) -> list[TaskData]:
    """Return the earlier tasks to replay in a task's training: with LoRA by repository, those of its own repository."""
    return [one for one in earlier if one.name == task.name or not config.lora_by_repository]


def version_before(task: TaskData, earlier: Sequence[TaskData]) -> TaskData | None:
    """Return the last earlier version of a task: the same repository before it grew."""
    return next((one for one in reversed(earlier) if one.name == task.name), None)


def chosen(rows: Sequence[T], most: int, seed: int) -> Sequence[T]:
    """Return at most `most` rows, each with the same chance, in their order."""
    if len(rows) <= most:
        return rows
    places = _random(seed, _CHOICE).choice(len(rows), most, replace=False)
    return [rows[place] for place in np.sort(places)]


def _random(seed: int, stream: int, number: int = 0) -> np.random.Generator:
    counter: Any = [0, 0, 0, number]
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=counter))
