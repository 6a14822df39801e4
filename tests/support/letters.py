"""A task that a tiny encoder learns in seconds and forgets with the next one: a hidden substitution of letters.

The query "A?abcd" asks for the one among many documents whose letters are those of "abcd", substituted and shuffled.
Each task has a substitution of its own, so what one teaches does not help with the next; its name in the texts
distinguishes them.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.encoder import Encoder, Texts, byte_ids, embed
from pipeline.models.retriever.losses import RowLosses

LETTERS = string.ascii_lowercase
WORD = 4
LONGEST = 64
"""Tokens of a text; none here is as long."""


def letter_pairs(name: str, seed: int, rng: np.random.Generator, count: int) -> list[tuple[str, str]]:
    """Draw queries and the documents they ask for; the substitution follows from the task's name and the seed."""
    hidden = np.random.Generator(np.random.Philox(key=[seed, ord(name)])).permutation(len(LETTERS))
    pairs = []
    for _ in range(count):
        word = rng.choice(len(LETTERS), WORD, replace=False)
        query = "".join(LETTERS[letter] for letter in word)
        document = "".join(LETTERS[hidden[letter]] for letter in rng.permutation(word))
        pairs.append((f"{name}?{query}", f"{name}:{document}"))
    return pairs


@dataclass(frozen=True)
class Letters:
    """Batches of one task; those of a number are always the same."""

    name: str
    seed: int
    rows: int = 32
    steps_per_epoch: int = 150

    def texts(self, step: int) -> list[tuple[str, str]]:
        rng = np.random.Generator(np.random.Philox(key=[self.seed, 99], counter=[0, 0, ord(self.name), step]))
        return letter_pairs(self.name, self.seed, rng, self.rows)

    def at(self, step: int) -> Batch:
        pairs = self.texts(step)
        return Batch(
            Texts.of([byte_ids(query, LONGEST) for query, _ in pairs]),
            Texts.of([byte_ids(document, LONGEST) for _, document in pairs]),
            label=torch.eye(self.rows),
            ignore=torch.zeros(self.rows, self.rows, dtype=torch.bool),
            premises=tuple(range(self.rows)),
            pairs=tuple(range(step * self.rows, (step + 1) * self.rows)),
        )


def scores_of(encoder: Encoder, batch: Batch) -> Tensor:
    """Return the cosines of a batch's queries and documents."""
    return embed(encoder, batch.queries) @ embed(encoder, batch.documents).T


def loss_of(encoder: Encoder, batch: Batch, losses: RowLosses) -> Tensor:
    """Return the mean loss of a batch's rows."""
    return losses(scores_of(encoder, batch), batch.label, batch.ignore).mean()
