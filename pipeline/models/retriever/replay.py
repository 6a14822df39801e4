"""Steps of a retriever's earlier tasks: learned again as at first, and the examples of EWC's estimate.

All rows of a step are of one repository, and so are their negatives: a document could be told from another repository's
premises by names alone. A replayed step has the positives of its whole proof, premises out of its theorem's reach are
no negatives of it, by the code of the first time (`batches.Batches`). It lacks most of its corpus: hundreds of
repositories' do not fit into memory. So of each the premises of the chosen steps are kept, and `_AROUND` times as many
others as a step's pairs have negatives, drawn for each from all its theorem may use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pipeline.models.datasets import TaskData
from pipeline.models.replay import chosen, random_numbers
from pipeline.models.retriever.batches import (
    Batch,
    Batches,
    Lesson,
    NegativeSampler,
    read_examples,
)
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Tokens

_AROUND = 2
_TURNS, _DRAWS, _NEGATIVES = 4, 5, 7
"""Separate the streams of random numbers, also from `pipeline.models.replay`'s."""


def choose(earlier: Sequence[TaskData], config: RetrieverConfig) -> dict[str, Lesson]:
    """Return the steps to replay in a task's training, by the name of their task, each with its premises.

    They come from the training splits of earlier tasks; of several of one name the last counts.

    Raises:
        LearningError: a dataset cannot be read.
    """
    named = {one.name: one for one in earlier}
    most = max(1, config.replay_size // max(1, len(named)))
    lessons = {name: _chosen(task, most, config) for name, task in named.items()}
    return {name: lesson for name, lesson in lessons.items() if lesson.train}


def batches_of(rows: Mapping[str, Lesson], tokens: Tokens, config: RetrieverConfig) -> dict[str, Batches]:
    """Return the maker of each task's batches."""
    return {name: Batches(own.corpus, own.train, tokens, config) for name, own in rows.items()}


def draw(
    past: Mapping[str, Batches], config: RetrieverConfig, step: int, *, rank: int = 0, world: int = 1
) -> Batch:
    """Return a process's part of a step's replayed pairs, none twice, of the task whose turn it is.

    As many as make the share of the step's pairs, with small batches at least one, or all there are. Each task has its
    turn once in a round, in an order that changes.
    """
    names = tuple(past)
    order = random_numbers(config.seed, _TURNS, step // len(names)).permutation(len(names))
    own = past[names[order[step % len(names)]]]
    rng = random_numbers(config.seed, _DRAWS, step)
    count = max(1, round(config.batch_size * config.replay_share))
    numbers = rng.choice(len(own.pairs), min(count, len(own.pairs)), replace=False)
    return own.of(numbers, rng, rank=rank, world=world)


def _chosen(task: TaskData, most: int, config: RetrieverConfig) -> Lesson:
    """Return at most `most` steps of a task's training split, drawn uniformly, in order, with their premises."""
    corpus = Corpus(task.dataset / "corpus.jsonl")
    examples = chosen(read_examples(task.dataset / config.split / "train.json", corpus), most, config.seed)
    sampler = NegativeSampler(
        corpus,
        negatives=_AROUND * config.num_negatives,
        in_file=_AROUND * config.num_in_file_negatives,
    )
    rng = random_numbers(config.seed, _NEGATIVES)
    needed: set[int] = set()
    for example in examples:
        needed.update(example.proof)
        for positive in example.positives:
            needed.update(sampler.draw(example, positive, rng))
    # NumPy would make an array of a list at each search.
    kept = np.array(sorted(needed), dtype=np.int64)

    def places(indices: Sequence[int]) -> tuple[int, ...]:
        return tuple(np.searchsorted(kept, indices).tolist())

    rows = tuple(
        replace(example, positives=places(example.positives), proof=places(example.proof))
        for example in examples
    )
    return Lesson(corpus.only(kept.tolist(), {example.file_path for example in examples}), rows, ())
