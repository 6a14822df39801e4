"""Rows of a retriever's earlier tasks: learned again as at first, and the examples of EWC's estimate.

All rows of a step are of one repository, and so are their negatives: a document could be told from another repository's
premises by names alone. A replayed row has the positives of its whole proof, premises out of its theorem's reach are no
negatives of it, by the code of the first time (`batches.Batches`). It
lacks most of its corpus: hundreds of repositories' do not fit into memory. So of each the premises of the chosen rows
are kept, and `_AROUND` times as many others as a row has negatives, drawn for each row from all its theorem may use.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Protocol

import numpy as np

from pipeline.models.datasets import TaskData
from pipeline.models.errors import NothingToLearnError
from pipeline.models.replay import chosen, random_numbers
from pipeline.models.retriever.batches import (
    Batch,
    Batches,
    Example,
    NegativeSampler,
    dataset_digest,
    read_examples,
)
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Tokens

_AROUND = 2
_TURNS, _DRAWS, _NEGATIVES = 4, 5, 7
"""Separate the streams of random numbers, also from `pipeline.models.replay`'s."""


@dataclass(frozen=True, slots=True)
class ReplayPair:
    """A step and one of its premises, as indices of its task's corpus in `ReplayRows`."""

    example: Example
    positive: int


class Draw(Protocol):
    """Returns a process's part of a step's replayed pairs."""

    def __call__(self, step: int, *, rank: int, world: int) -> Batch: ...


class ReplayRows:
    """Pairs of earlier tasks, by the task's name."""

    def __init__(
        self, rows: Mapping[str, Sequence[ReplayPair]], corpora: Mapping[str, Corpus], *, seed: int
    ) -> None:
        """Args:
        rows: of each task; a task without any counts as none.
        corpora: the premises of each task's rows.
        seed: of the draws.
        """
        self.tasks = {name: tuple(own) for name, own in rows.items() if own}
        self._corpora = corpora
        self._seed = seed

    @classmethod
    def of(cls, earlier: Sequence[TaskData], config: RetrieverConfig) -> ReplayRows:
        """Choose the rows for a task from the training splits of earlier ones; of several of one name the last counts.

        Raises:
            LearningError: a dataset cannot be read.
        """
        named = {one.name: one for one in earlier} if config.replay_size else {}
        most = max(1, config.replay_size // max(1, len(named)))
        rows: dict[str, Sequence[ReplayPair]] = {}
        corpora: dict[str, Corpus] = {}
        for name, task in named.items():
            rows[name], corpora[name] = _chosen(task, most, config)
        return cls(rows, corpora, seed=config.seed)

    def __bool__(self) -> bool:
        return bool(self.tasks)

    def digest(self) -> str:
        """Return the SHA-256 of the rows and of the premises beside them."""
        content = [[name, [astuple(row) for row in own]] for name, own in self.tasks.items()]
        parts = [json.dumps(content), *(dataset_digest(self._corpora[name], ()) for name in self.tasks)]
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def turn(self, number: int) -> str:
        """Return the task for a turn: each once in a round, in an order that changes."""
        names = tuple(self.tasks)
        rng = random_numbers(self._seed, _TURNS, number // len(names))
        return names[int(rng.permutation(len(names))[number % len(names)])]

    def batches(self, tokens: Tokens, config: RetrieverConfig) -> dict[str, Batches]:
        """Return the maker of each task's batches; a pair's number is its place among the task's rows."""
        made = {}
        for name, rows in self.tasks.items():
            corpus, examples = self._corpora[name], tuple(row.example for row in rows)
            pairs = [(place, row.positive) for place, row in enumerate(rows)]
            made[name] = Batches(corpus, examples, tokens, config, pairs=pairs)
        return made

    def draw(
        self, batches: Mapping[str, Batches], config: RetrieverConfig, step: int, *, rank: int, world: int
    ) -> Batch:
        """Return a process's part of a step's replayed pairs, none twice, of the task whose turn it is.

        As many as make the share of the step's pairs, with small batches at least one, or all there are.
        """
        count = max(1, round(config.batch_size * config.replay_share))
        own, rng = batches[self.turn(step)], random_numbers(self._seed, _DRAWS, step)
        numbers = rng.choice(len(own.pairs), min(count, len(own.pairs)), replace=False)
        return own.of(numbers, rng, rank=rank, world=world)


def _chosen(task: TaskData, most: int, config: RetrieverConfig) -> tuple[Sequence[ReplayPair], Corpus]:
    """Return at most `most` pairs of a task's training split, drawn uniformly, in order, with their premises."""
    corpus = Corpus(task.dataset / "corpus.jsonl")
    try:
        examples = read_examples(task.dataset / config.split / "train.json", corpus)
    except NothingToLearnError:
        return (), corpus.only((), ())
    places = [(example, positive) for example in examples for positive in example.positives]
    pairs = chosen(places, most, config.seed)
    sampler = NegativeSampler(
        corpus,
        negatives=_AROUND * config.num_negatives,
        in_file=_AROUND * config.num_in_file_negatives,
    )
    rng = random_numbers(config.seed, _NEGATIVES)
    needed = {index for example, _ in pairs for index in example.proof}
    needed.update(index for pair in pairs for index in sampler.draw(*pair, rng))
    kept = np.array(sorted(needed), dtype=np.int64)

    def place(*indices: int) -> tuple[int, ...]:
        return tuple(np.searchsorted(kept, indices).tolist())

    rows = [
        ReplayPair(
            replace(example, positives=place(*example.positives), proof=place(*example.proof)),
            *place(positive),
        )
        for example, positive in pairs
    ]
    return rows, corpus.only(kept.tolist(), {example.file_path for example, _ in pairs})
