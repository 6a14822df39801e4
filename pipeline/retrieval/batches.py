"""The batches of a training run, each drawn from (seed, step) alone: any step can be made again, in any process.

A step's batch is what every process of the run takes together; each takes its part. Pairs of a step and one premise
that it uses are shuffled anew each epoch, sorted by length within windows so that little is padding, and cut. Columns
are LeanDojo's: the positives of all pairs, then their first negatives, their second ones, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from pipeline.retrieval.config import Loss
from pipeline.retrieval.corpus import Corpus
from pipeline.retrieval.encoder import Tokens
from pipeline.retrieval.errors import DatasetError
from pipeline.retrieval.examples import Example
from pipeline.retrieval.negatives import NegativeSampler
from pipeline.retrieval.text import padded

_WINDOW = 64
"""Batches that are sorted by length together. More pads less and shuffles less."""
_EPOCHS, _STEPS = 0, 1  # separate the streams of random numbers


@dataclass(frozen=True, slots=True)
class Batch:
    """One process's part of one step: B queries and C = B * (1 + negatives) documents.

    `label` is 1 where a column's premise is a positive of the row's step ("mse") or whole proof ("contrastive"):
    float32, shape (B, C). `ignore` marks columns that say nothing to a row: bool, shape (B, C). Ids and masks are
    int64, shape (B, length) and (C, length). `premises` are the columns' indices in the corpus, `pairs` the rows'
    numbers.
    """

    context_ids: Tensor
    context_mask: Tensor
    premise_ids: Tensor
    premise_mask: Tensor
    label: Tensor
    ignore: Tensor
    premises: tuple[int, ...]
    pairs: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.pairs)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return the batch on a device. Lightning calls it."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Return the batch in page-locked memory. PyTorch's loader calls it."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Any) -> Batch:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return replace(
            self, **{name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        )


class Batches(IterableDataset[Batch]):
    """The steps from `start_step` to `end_step` of one process of `world`, as an iterable and by number."""

    def __init__(
        self,
        corpus: Corpus,
        examples: Sequence[Example],
        tokens: Tokens,
        *,
        batch_size: int,
        negatives: int,
        in_file_negatives: int,
        max_seq_len: int,
        document_length: int | None = None,
        seed: int,
        loss: Loss = "mse",
        multiple_of: int = 1,
        rank: int = 0,
        world: int = 1,
        start_step: int = 0,
        end_step: int | None = None,
    ) -> None:
        """Args:
            corpus: the premises.
            examples: the steps to learn; those without a premise are left out.
            tokens: makes ids of texts.
            batch_size: B, pairs of a step in each process.
            negatives: negatives a pair.
            in_file_negatives: at most so many of them from the positive's file.
            max_seq_len: the longest query, in tokens with the end mark.
            document_length: the longest document; None for the same.
            seed: decides order and negatives.
            loss: which labels.
            multiple_of: an epoch has a multiple of so many steps (or, where it has fewer in all, what it has), so that
                accumulated gradients never cross from one epoch into the next.
            rank, world: which process of how many this is.
            start_step, end_step: the steps to iterate over; no end means for ever.

        Raises:
            DatasetError: no step uses a premise of the corpus, or there are fewer pairs than one step takes.
        """
        super().__init__()
        self.corpus = corpus
        self.examples = tuple(example for example in examples if example.positives)
        self._tokens = tokens
        self._batch_size = batch_size
        self._sampler = NegativeSampler(corpus, negatives=negatives, in_file=in_file_negatives)
        self._max_seq_len = max_seq_len
        self._document_length = document_length or max_seq_len
        self._seed = seed
        self._loss = loss
        self._rank, self._world = rank, world
        self.start_step, self.end_step = start_step, end_step
        self.pairs = [
            (number, positive)
            for number, example in enumerate(self.examples)
            for positive in example.positives
        ]
        if not self.pairs:
            raise DatasetError(
                f"no step of the dataset uses a premise of {corpus.source}, so there is nothing to learn. Is the "
                "corpus of the same export?"
            )
        self.steps_per_epoch = len(self.pairs) // (batch_size * world)
        if self.steps_per_epoch == 0:
            raise DatasetError(
                f"the dataset has {len(self.pairs)} pairs of a step and a premise, and one training step takes "
                f"{batch_size * world}: lower the batch size, or train when more is traced"
            )
        if self.steps_per_epoch >= multiple_of:
            self.steps_per_epoch -= self.steps_per_epoch % multiple_of
        lengths = [len(example.query) for example in self.examples]
        self._lengths = np.array([lengths[number] for number, _ in self.pairs], dtype=np.int64)
        self._epoch: tuple[int, npt.NDArray[np.int64]] | None = None

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        step = self.start_step + (worker.id if worker else 0)
        stride = worker.num_workers if worker else 1
        while self.end_step is None or step < self.end_step:
            yield self.at(step)
            step += stride

    def at(self, step: int) -> Batch:
        """Return this process's part of a step (from 0, through the epochs)."""
        numbers = self._order(step // self.steps_per_epoch)[step % self.steps_per_epoch]
        own = numbers[self._rank * self._batch_size : (self._rank + 1) * self._batch_size]
        rng = _generator(self._seed, _STEPS, step * self._world + self._rank)
        rows = [self.pairs[number] for number in own]
        drawn = [self._sampler.draw(self.examples[example], positive, rng) for example, positive in rows]
        columns = [positive for _, positive in rows]
        columns += [row[i] for i in range(self._sampler.negatives) for row in drawn]
        label, ignore = self._targets([self.examples[example] for example, _ in rows], columns)
        context_ids, context_mask = padded(
            [self._tokens(self.examples[example].query, self._max_seq_len) for example, _ in rows]
        )
        premise_ids, premise_mask = padded(
            [self._tokens(self.corpus[index].serialize(), self._document_length) for index in columns]
        )
        return Batch(
            context_ids=torch.from_numpy(context_ids),
            context_mask=torch.from_numpy(context_mask),
            premise_ids=torch.from_numpy(premise_ids),
            premise_mask=torch.from_numpy(premise_mask),
            label=torch.from_numpy(label),
            ignore=torch.from_numpy(ignore),
            premises=tuple(columns),
            pairs=tuple(map(int, own)),
        )

    def _targets(
        self, rows: Sequence[Example], columns: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        label = np.zeros((len(rows), len(columns)), dtype=np.float32)
        ignore = np.zeros((len(rows), len(columns)), dtype=np.bool_)
        standing: dict[int, list[int]] = {}
        for column, index in enumerate(columns):
            standing.setdefault(index, []).append(column)
        contrastive = self._loss == "contrastive"
        for row, example in enumerate(rows):
            for index in example.proof if contrastive else example.positives:
                label[row, standing.get(index, [])] = 1
        if contrastive:
            places = np.asarray(columns)
            for row, example in enumerate(rows):
                # What a theorem may not use is no negative: it may be a later lemma that says the same.
                allowed = self.corpus.accessible_of(example.file_path, example.start, places)
                ignore[row] = ~allowed & (label[row] == 0)
            # A premise that stands in two columns counts once.
            ignore[:, [column for all_columns in standing.values() for column in all_columns[1:]]] = True
        return label, ignore

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        """Return the pairs of an epoch's steps: shape (steps_per_epoch, batch_size * world)."""
        if self._epoch is None or self._epoch[0] != epoch:
            rng = _generator(self._seed, _EPOCHS, epoch)
            size = self._batch_size * self._world
            order = rng.permutation(len(self.pairs))[: self.steps_per_epoch * size]
            for start in range(0, len(order), size * _WINDOW):
                window = order[start : start + size * _WINDOW]
                window[:] = window[np.argsort(self._lengths[window], kind="stable")]
            # Sorted windows follow each other from short to long; what a step sees must not.
            self._epoch = (
                epoch,
                order.reshape(self.steps_per_epoch, size)[rng.permutation(self.steps_per_epoch)],
            )
        return self._epoch[1]


def _generator(seed: int, stream: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, 0, number]))
