"""Training data of the retriever: examples, negatives, and batches drawn from (seed, step) alone.

Reads train.json, val.json and test.json of LeanDojo's datasets, one theorem at a time. A premise of a step is a
positive if the corpus has a declaration at the premise's recorded place.

Negatives are accessible premises the step did not use. As in LeanDojo: at most `in_file` of a pair's negatives come
from the positive's file (if that is the theorem's own, from before the theorem), the others are uniform over the
theorem's other accessible premises, none twice.

Any process can make any step's batch again. A step's batch is shared among all processes of the run; each takes its
part. Pairs of a step and one of its premises are shuffled anew each epoch, sorted by the length of their queries within
windows, and cut; documents are grouped by length when they are embedded. Columns are in LeanDojo's order: the positives
of all pairs, then their first negatives, their second ones, and so on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributed.nn.functional import all_gather

from pipeline.models.datasets import Position, Theorem, theorems
from pipeline.models.errors import DatasetError, NothingToLearnError
from pipeline.models.libraries import exact_float32
from pipeline.models.replay import random_numbers
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Encoder, Texts, Tokens, embed, query_ids
from pipeline.models.text import query_text


@dataclass(frozen=True, slots=True)
class Example:
    """A tactic step: the query is its state before, `positives` are its premises.

    `proof` are the whole proof's premises, its own among them. Both are indices of the corpus, ascending. `start` is
    the theorem's beginning.
    """

    file_path: str
    full_name: str
    start: Position
    query: str
    positives: tuple[int, ...]
    proof: tuple[int, ...]


def read_examples(path: Path, corpus: Corpus) -> tuple[Example, ...]:
    """Return the steps of a split file with a premise of the corpus, in its order: others teach and measure nothing.

    Raises:
        DatasetError: the file is missing, is no split file, or has a theorem of a file the corpus lacks.
    """
    steps: list[Example] = []
    for read, proved in enumerate(theorems(path)):
        if corpus.file(proved.file_path) is None:
            # No premise would be accessible to it.
            raise DatasetError(
                f"{path}: theorem {read} ({proved.full_name}) is of {proved.file_path}, which has no line in "
                f"{corpus.source}. Export the dataset again, or add a line without premises for the file"
            )
        steps += _steps(proved, corpus)
    return tuple(steps)


def dataset_digest(corpus: Corpus, examples: Sequence[Example]) -> str:
    """Return the SHA-256 of the questions, their right answers, and the premises to choose from."""
    digest = hashlib.sha256()
    for file in corpus.files:
        # Imports and positions too: they decide which premises may be chosen.
        digest.update(json.dumps([file.path, file.imports]).encode())
        for premise in file.premises:
            digest.update(json.dumps([premise.full_name, premise.start, premise.end, premise.code]).encode())
    for example in examples:
        asked = [example.file_path, example.full_name, example.start, example.query, example.positives]
        digest.update(json.dumps(asked).encode())
    return digest.hexdigest()


def asked_of(examples: Iterable[Example], corpus: Corpus) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield the query of each step, with the mask of the premises that its theorem may use."""
    for example in examples:
        yield example.query, corpus.accessible(example.file_path, example.start)


def _steps(proved: Theorem, corpus: Corpus) -> list[Example]:
    used: list[tuple[int, ...]] = []
    for step in proved.traced_tactics:
        places = {corpus.locate(cited.def_path, cited.def_pos) for cited in step.annotated_tactic[1]}
        used.append(tuple(sorted(place for place in places if place is not None)))
    proof = tuple(sorted(set().union(*used)))
    place = proved.file_path, proved.full_name, proved.start
    return [
        Example(*place, query_text(step.state_before), positives, proof)
        for step, positives in zip(proved.traced_tactics, used, strict=True)
        if positives
    ]


class NegativeSampler:
    """Draws the negatives of (step, positive) pairs from a corpus."""

    def __init__(self, corpus: Corpus, *, negatives: int, in_file: int) -> None:
        """Args:
        corpus: the premises to draw from.
        negatives: their number for a pair.
        in_file: how many of them come from the positive's file, if it has enough.
        """
        self.negatives = negatives
        self._in_file = in_file
        self._corpus = corpus
        self._firsts = np.array([file.first for file in corpus.files], dtype=np.intp)
        self._sizes = np.array([len(file.premises) for file in corpus.files], dtype=np.intp)

    def draw(self, example: Example, positive: int, rng: np.random.Generator) -> list[int]:
        """Return the indices of `self.negatives` premises, none the positive and none twice.

        If the theorem may use fewer, all of those come first and are then repeated; if it may use the positive alone,
        it is the positive itself, marked by its label.
        """
        if self.negatives == 0:
            return []
        firsts, sizes = self._usable(example.file_path, example.start)
        files = self._corpus.file_of_premise
        at_home = files[firsts] == files[positive]
        ends = np.cumsum(sizes[at_home])
        near = np.repeat(firsts[at_home] - (ends - sizes[at_home]), sizes[at_home])
        near += np.arange(len(near))
        near = rng.permutation(near[near != positive])
        # The others, laid end to end: draw a place on that line.
        firsts, sizes = firsts[~at_home], sizes[~at_home]
        ends = np.cumsum(sizes)
        far = int(sizes.sum())
        taken = near[: self._in_file].tolist()
        places = rng.choice(far, min(self.negatives - len(taken), far), replace=False)
        parts = np.searchsorted(ends, places, side="right")
        taken += (firsts[parts] + places - (ends - sizes)[parts]).tolist()
        taken += near[self._in_file :][: self.negatives - len(taken)].tolist()
        known = taken or [positive]
        return [known[i % len(known)] for i in range(self.negatives)]

    def _usable(self, path: str, start: Position) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return a theorem's accessible premises as ranges: the first of each, and the sizes.

        There is one for each file its own imports, and one for each premise of its own.
        """
        imported = np.flatnonzero(self._corpus.imported_files(path) & (self._sizes > 0))
        own = self._corpus.before(path, start)
        firsts = np.concatenate([self._firsts[imported], own])
        return firsts, np.concatenate([self._sizes[imported], np.ones(len(own), dtype=np.intp)])


_WINDOW = 64
"""Batches sorted by length together. More pads less and shuffles less."""
_EPOCHS, _STEPS = 0, 1  # separate the streams of random numbers


@dataclass(frozen=True, slots=True)
class Batch:
    """One process's part of one step: B queries and C = B * (1 + negatives) documents.

    The documents of all processes of the run are columns of each row, D in number, those of the first process first. If
    the step's rows are no multiple of the processes, the last process's last rows and their documents fill up: they are
    ignored and cost nothing, and the mean over all rows times `scale` is the mean over the others. `label` is 1 where a
    column's premise is a positive of the row's step ("mse") or whole proof ("contrastive"): float32, shape (B, D).
    `ignore` marks columns not counted for a row: bool, shape (B, D). `premises` are the own documents' indices in the
    corpus, `pairs` the rows' numbers. `replayed` are rows of an earlier task, learned in the same step.
    """

    queries: Texts
    documents: Texts
    label: Tensor
    ignore: Tensor
    premises: tuple[int, ...]
    pairs: tuple[int, ...]
    scale: float = 1.0
    replayed: Batch | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return the batch on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Return the batch in page-locked memory. PyTorch's loader calls it."""
        return self._each(lambda tensor: tensor.pin_memory())

    def cosines(self, encoder: Encoder, *, recompute: bool = False) -> Tensor:
        """Return the cosines of the queries and documents: float32 whatever the precision, shape (B, D).

        If several processes share the step, each embeds its own documents, and all are columns in each of them.
        `recompute`: see `encoder.embed`.
        """
        queries = embed(encoder, self.queries, recompute=recompute)
        documents = embed(encoder, self.documents, recompute=recompute)
        if self.label.shape[1] > len(documents):
            # With gradients: another process's loss pulls at this one's documents. DDP takes the mean of the sums.
            documents = torch.cat(all_gather(documents))  # type: ignore[no-untyped-call]
        # In bfloat16 a cosine has two digits, and the temperature multiplies the rounding error by twenty.
        with torch.autocast(documents.device.type, enabled=False), exact_float32():
            return queries.float() @ documents.float().T

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return replace(
            self,
            queries=self.queries.each(change),
            documents=self.documents.each(change),
            label=change(self.label),
            ignore=change(self.ignore),
            replayed=None if self.replayed is None else self.replayed._each(change),
        )


class Batches:
    """The steps of a run, by number."""

    def __init__(
        self,
        corpus: Corpus,
        examples: Sequence[Example],
        tokens: Tokens,
        config: RetrieverConfig,
    ) -> None:
        """Args:
        corpus: the premises.
        examples: the steps to learn, at least one, each with a premise.
        tokens: makes ids of texts.
        config: sizes, negatives, lengths, seed, and the loss of the labels.
        """
        self.corpus = corpus
        self.examples = examples
        self._tokens = tokens
        self._config = config
        self._sampler = NegativeSampler(
            corpus,
            negatives=config.num_negatives,
            in_file=config.num_in_file_negatives,
        )
        self.pairs = [
            (number, positive) for number, example in enumerate(examples) for positive in example.positives
        ]
        """The place of a step, and one of its premises."""
        # A small task has fewer pairs than a step takes.
        self.batch_size = min(config.batch_size, len(self.pairs))
        whole = len(self.pairs) // self.batch_size
        # One with fewer batches than it accumulates would never change a weight.
        self.accumulate = min(config.accumulate_grad_batches, whole)
        self.steps_per_epoch = whole - whole % self.accumulate
        """So that accumulated gradients never cross from one epoch into the next."""
        self._lengths = np.array([len(examples[number].query) for number, _ in self.pairs], dtype=np.int64)
        self._epoch: tuple[int, npt.NDArray[np.int64]] | None = None

    def at(self, step: int, *, rank: int = 0, world: int = 1) -> Batch:
        """Return the part of process `rank` of `world` of a step (from 0, through the epochs)."""
        numbers = self._order(step // self.steps_per_epoch)[step % self.steps_per_epoch]
        # All draws follow from the step alone: each process draws for all, and so knows all columns.
        return self.of(numbers, random_numbers(self._config.seed, _STEPS, step), rank=rank, world=world)

    def of(
        self, numbers: npt.NDArray[np.int64], rng: np.random.Generator, *, rank: int = 0, world: int = 1
    ) -> Batch:
        """Return a process's part of a step, given the numbers of all processes' pairs."""
        pairs = [self.pairs[number] for number in numbers]
        drawn = np.array(
            [
                [positive, *self._sampler.draw(self.examples[example], positive, rng)]
                for example, positive in pairs
            ]
        )
        own = math.ceil(len(pairs) / world)
        places = np.arange(own * world).reshape(world, own)
        # Places without a row repeat the last one, ignored there.
        filling, places = places >= len(pairs), np.minimum(places, len(pairs) - 1)
        # A process's columns are its rows' positives, then each row's first negative, and so on.
        every = drawn[places].transpose(0, 2, 1).reshape(world, -1)
        columns: list[int] = every[rank].tolist()
        rows = [pairs[place] for place in places[rank]]
        label, ignore = self._targets([self.examples[example] for example, _ in rows], every.ravel().tolist())
        ignore[:, np.tile(filling, drawn.shape[1]).ravel()] = True
        ignore[filling[rank]] = True
        label[filling[rank]] = 0
        longest, document_length = self._config.data_max_seq_len, self._config.document_length
        return Batch(
            Texts.of([query_ids(self._tokens, self.examples[number].query, longest) for number, _ in rows]),
            Texts.of([self._tokens(self.corpus[index].serialize(), document_length) for index in columns]),
            label=torch.from_numpy(label),
            ignore=torch.from_numpy(ignore),
            premises=tuple(columns),
            pairs=tuple(map(int, numbers[places[rank]])),
            scale=own * world / len(pairs),
        )

    def _targets(
        self, rows: Sequence[Example], columns: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        label = np.zeros((len(rows), len(columns)), dtype=np.float32)
        ignore = np.zeros((len(rows), len(columns)), dtype=np.bool_)
        columns_of: dict[int, list[int]] = {}
        for column, index in enumerate(columns):
            columns_of.setdefault(index, []).append(column)
        contrastive = self._config.loss == "contrastive"
        for row, example in enumerate(rows):
            for index in example.proof if contrastive else example.positives:
                label[row, columns_of.get(index, [])] = 1
        if contrastive:
            places = np.asarray(columns)
            for row, example in enumerate(rows):
                # A premise out of the theorem's reach is no negative: it may be a later lemma with the same statement.
                allowed = self.corpus.accessible(example.file_path, example.start, places)
                ignore[row] = ~allowed & (label[row] == 0)
            # A premise in two columns counts once.
            ignore[:, [column for all_columns in columns_of.values() for column in all_columns[1:]]] = True
        return label, ignore

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        """Return the pairs of an epoch's steps: shape (steps_per_epoch, batch_size)."""
        if self._epoch is None or self._epoch[0] != epoch:
            rng = random_numbers(self._config.seed, _EPOCHS, epoch)
            size = self.batch_size
            order = rng.permutation(len(self.pairs))[: self.steps_per_epoch * size]
            for start in range(0, len(order), size * _WINDOW):
                window = order[start : start + size * _WINDOW]
                window[:] = window[np.argsort(self._lengths[window], kind="stable")]
            # Sorted windows follow each other from short to long; steps must not.
            self._epoch = (
                epoch,
                order.reshape(self.steps_per_epoch, size)[rng.permutation(self.steps_per_epoch)],
            )
        return self._epoch[1]


@dataclass(frozen=True, slots=True)
class Lesson:
    """A task's premises, the steps to learn, and those of its val split, which choose the best epoch.

    `only_new`: the steps of an earlier version of the task are left out.
    """

    corpus: Corpus
    train: tuple[Example, ...]
    val: tuple[Example, ...]
    only_new: bool = False


def read_lesson(dataset: Path, config: RetrieverConfig, *, learned: Path | None = None) -> Lesson:
    """Return the lesson of an exported dataset.

    `learned`: the folder of an earlier, learned version. Its steps are not learned again with the same premises, if
    that leaves a batch.

    Raises:
        DatasetError: a dataset cannot be used. NothingToLearnError: no step uses a premise.
    """
    corpus = Corpus(dataset / "corpus.jsonl")
    path = dataset / config.split / "train.json"
    train, val = (read_examples(split, corpus) for split in (path, path.with_name("val.json")))
    if not train:
        raise NothingToLearnError(
            f"no step of {path} uses a premise of {corpus.source}, so there is nothing to learn. Export the dataset "
            "again once theorems are traced"
        )
    if learned is not None:
        before = Corpus(learned / "corpus.jsonl")
        known = {
            _content(example, before)
            for example in read_examples(learned / config.split / "train.json", before)
        }
        new = tuple(example for example in train if _content(example, corpus) not in known)
        if sum(len(example.positives) for example in new) >= config.batch_size:
            return Lesson(corpus, new, val, only_new=True)
    return Lesson(corpus, train, val)


def _content(example: Example, corpus: Corpus) -> tuple[str, ...]:
    """Return a step's lesson, whatever its place: its query, and its premises."""
    return example.query, *sorted(corpus[positive].serialize() for positive in example.positives)
