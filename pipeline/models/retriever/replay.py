"""Replay: rows of earlier tasks, learned again beside a new task's.

The rows come out of the frozen datasets of the earlier tasks, which are a job's inputs like its own: what the log had
when each was learned. Each repository has the same share, whatever its size: of `replay_size` rows in all, as many of
each are drawn once for a task, and the steps take the repositories in turns. All rows of a step are of one repository,
and so are their negatives: told apart from another repository's premises, a document is found by that one's names.

They are texts, not indices: each dataset numbers its premises anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import torch

from pipeline.models.datasets import TaskData
from pipeline.models.errors import EmptySplitError
from pipeline.models.retriever.batches import Batch, read_examples
from pipeline.models.retriever.config import Loss, RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Tokens, tensors_of

_CHOICE, _TURNS, _DRAWS = 3, 4, 5  # separate the streams of random numbers, also from those of the batches


@dataclass(frozen=True, slots=True)
class ReplayPair:
    """A query and a document that it needs, as the encoder reads them."""

    query: str
    document: str


class ReplayRows:
    """Rows of earlier tasks, by the task's name."""

    def __init__(self, rows: Mapping[str, Sequence[ReplayPair]], *, seed: int) -> None:
        """Args:
        rows: of each task; a task without any counts as none.
        seed: decides which are drawn in a step.
        """
        self.tasks = {name: tuple(own) for name, own in rows.items() if own}
        self._seed = seed
        self._needed = {name: _documents_of(own) for name, own in self.tasks.items()}

    @classmethod
    def of(cls, earlier: Sequence[TaskData], config: RetrieverConfig) -> ReplayRows:
        """Choose the rows for a task from the training splits of earlier ones; of several of one name the last
        counts.

        Raises:
            LearningError: a dataset cannot be read.
        """
        named = {one.name: one for one in earlier}
        each = max(1, config.replay_size // max(1, len(named)))
        return cls(
            {name: _chosen(one, each, config.seed) for name, one in named.items()},
            seed=config.seed,
        )

    def __bool__(self) -> bool:
        return bool(self.tasks)

    def digest(self) -> str:
        """Return the SHA-256 of the rows."""
        content = [[name, list(map(astuple, own))] for name, own in self.tasks.items()]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def batch(
        self,
        step: int,
        rows: int,
        *,
        negatives: int,
        tokens: Tokens,
        max_seq_len: int,
        document_length: int,
        loss: Loss,
        rank: int = 0,
    ) -> Batch | None:
        """Return a step's replayed batch in LeanDojo's layout; None where there is no row.

        Rows are drawn without repetition, from (seed, step, rank) alone. Negatives are documents of the repository's
        other rows; one that a row's query is known to need is a positive. Its columns are of no corpus: `premises` are
        all -1. `pairs` are places among the repository's rows.

        Args:
            step: of the training run.
            rows: how many pairs; all of the repository's where there are fewer.
            negatives: columns a row beside its positive.
            tokens: makes ids of texts.
            max_seq_len: the longest query, in tokens.
            document_length: the longest document.
            loss: which labels: with "contrastive" a document in two columns counts once.
            rank: of the process.
        """
        if not self.tasks:
            return None
        name = self.turn(step + rank)
        pairs, needed = self.tasks[name], self._needed[name]
        rng = np.random.Generator(np.random.Philox(key=[self._seed, _DRAWS], counter=[0, 0, rank, step]))
        own = rng.choice(len(pairs), min(rows, len(pairs)), replace=False)
        places = [*own, *rng.integers(len(pairs), size=negatives * len(own))]
        documents = [pairs[place].document for place in places]
        label = np.zeros((len(own), len(documents)), dtype=np.float32)
        for row, place in enumerate(own):
            label[row] = [document in needed[pairs[place].query] for document in documents]
        first = {document: place for place, document in reversed(list(enumerate(documents)))}
        repeated = [loss == "contrastive" and first[document] != at for at, document in enumerate(documents)]
        return Batch(
            *tensors_of([tokens(pairs[place].query, max_seq_len) for place in own]),
            *tensors_of([tokens(document, document_length) for document in documents]),
            label=torch.from_numpy(label),
            ignore=torch.tensor(repeated).expand(len(own), -1).contiguous(),
            premises=(-1,) * len(documents),
            pairs=tuple(map(int, own)),
        )

    def turn(self, number: int) -> str:
        """Return the task whose turn it is: each once in as many turns as there are, in an order that changes."""
        names = tuple(self.tasks)
        rng = np.random.Generator(
            np.random.Philox(key=[self._seed, _TURNS], counter=[0, 0, 0, number // len(names)])
        )
        return names[int(rng.permutation(len(names))[number % len(names)])]


def _chosen(task: TaskData, most: int, seed: int) -> Sequence[ReplayPair]:
    """Return at most so many pairs of a task's training split, each with the same chance, in their order."""
    corpus = Corpus(task.dataset / "corpus.jsonl")
    try:
        examples = read_examples(task.dataset / "random" / "train.json", corpus).with_premises
    except EmptySplitError:
        return ()
    places = [(example, positive) for example in examples for positive in example.positives]
    if len(places) > most:
        rng = np.random.Generator(np.random.Philox(key=[seed, _CHOICE]))
        places = [places[place] for place in np.sort(rng.choice(len(places), most, replace=False))]
    return [ReplayPair(example.query, corpus[positive].serialize()) for example, positive in places]


def _documents_of(pairs: Iterable[ReplayPair]) -> Mapping[str, set[str]]:
    needed: dict[str, set[str]] = {}
    for pair in pairs:
        needed.setdefault(pair.query, set()).add(pair.document)
    return needed
