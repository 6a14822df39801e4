"""Replay of the retriever: pairs of earlier tasks, and batches of them.

All rows of a step are of one repository, and so are their negatives: told apart from another repository's premises, a
document is found by that one's names. They are texts, not indices: each dataset numbers its premises anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.models.datasets import TaskData
from pipeline.models.errors import EmptySplitError
from pipeline.models.replay import Replay, chosen
from pipeline.models.retriever.batches import Batch, read_examples
from pipeline.models.retriever.config import Loss, RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Tokens, query_ids, tensors_of


@dataclass(frozen=True, slots=True)
class ReplayPair:
    """A query and a document that it needs, as the encoder reads them."""

    query: str
    document: str


class ReplayRows(Replay[ReplayPair]):
    """Pairs of earlier tasks, by the task's name."""

    def __init__(self, rows: Mapping[str, Sequence[ReplayPair]], *, seed: int) -> None:
        """As `Replay`."""
        super().__init__(rows, seed=seed)
        self._needed = {name: _documents_of(own) for name, own in self.tasks.items()}

    @classmethod
    def of(cls, earlier: Sequence[TaskData], config: RetrieverConfig) -> ReplayRows:
        """Choose the rows for a task from the training splits of earlier ones; of several of one name the last
        counts.

        Raises:
            LearningError: a dataset cannot be read.
        """

        def read(task: TaskData, most: int) -> Sequence[ReplayPair]:
            return _chosen(task, most, config)

        return cls.of_tasks(earlier, read, size=config.replay_size, seed=config.seed)

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
        rng = self.draws(step, rank)
        own = rng.choice(len(pairs), min(rows, len(pairs)), replace=False)
        places = [*own, *rng.integers(len(pairs), size=negatives * len(own))]
        documents = [pairs[place].document for place in places]
        label = np.zeros((len(own), len(documents)), dtype=np.float32)
        for row, place in enumerate(own):
            label[row] = [document in needed[pairs[place].query] for document in documents]
        first = {document: place for place, document in reversed(list(enumerate(documents)))}
        repeated = [loss == "contrastive" and first[document] != at for at, document in enumerate(documents)]
        return Batch(
            *tensors_of([query_ids(tokens, pairs[place].query, max_seq_len) for place in own]),
            *tensors_of([tokens(document, document_length) for document in documents]),
            label=torch.from_numpy(label),
            ignore=torch.tensor(repeated).expand(len(own), -1).contiguous(),
            premises=(-1,) * len(documents),
            pairs=tuple(map(int, own)),
        )


def _chosen(task: TaskData, most: int, config: RetrieverConfig) -> Sequence[ReplayPair]:
    """Return at most so many pairs of a task's training split, each with the same chance, in their order."""
    corpus = Corpus(task.dataset / "corpus.jsonl")
    try:
        examples = read_examples(task.dataset / config.split / "train.json", corpus).with_premises
    except EmptySplitError:
        return ()
    places = [(example, positive) for example in examples for positive in example.positives]
    return [
        ReplayPair(example.query, corpus[positive].serialize())
        for example, positive in chosen(places, most, config.seed)
    ]


def _documents_of(pairs: Iterable[ReplayPair]) -> Mapping[str, set[str]]:
    needed: dict[str, set[str]] = {}
    for pair in pairs:
        needed.setdefault(pair.query, set()).add(pair.document)
    return needed
