from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

from pipeline.models.retriever.batches import (
    Batch,
    Batches,
    Example,
    read_examples,
)
from pipeline.models.retriever.config import Loss, RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import byte_ids, query_ids
from pipeline.models.retriever.losses import row_losses
from pipeline.models.retriever.replay import draw
from pipeline.models.retriever.training import Parts
from tests.support.retrieval import imports_of, write_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("dataset"))


def batches(
    dataset: Path, change: Callable[[Example], Example] = lambda example: example, **changes: Any
) -> Batches:
    corpus = Corpus(dataset / "corpus.jsonl")
    examples = map(change, read_examples(dataset / "random" / "train.json", corpus))
    return made_of(corpus, tuple(examples), **changes)


def made_of(
    corpus: Corpus,
    examples: Sequence[Example],
    **changes: object,
) -> Batches:
    settings = {
        "loss": "mse",
        "max_seq_len": 64,
        "data_max_seq_len": 64,
        "seed": 7,
        "batch_size": 4,
        **changes,
    }
    return Batches(corpus, examples, byte_ids, RetrieverConfig.from_dict(settings))


def test_a_step_is_the_same_in_every_process_and_after_any_other(dataset: Path) -> None:
    made = batches(dataset)
    for step in range(3 * made.steps_per_epoch):
        one, again = made.at(step), batches(dataset).at(step)
        assert one.premises == again.premises
        assert torch.equal(one.queries.ids, again.queries.ids)
        assert torch.equal(one.label, again.label)
    assert batches(dataset, seed=8).at(0).premises != made.at(0).premises


def test_an_epoch_takes_each_pair_once_and_the_next_in_another_order(dataset: Path) -> None:
    made = batches(dataset)
    epochs = [
        [
            pair
            for step in range(n * made.steps_per_epoch, (n + 1) * made.steps_per_epoch)
            for pair in made.at(step).pairs
        ]
        for n in range(2)
    ]
    assert all(len(set(epoch)) == len(epoch) == made.steps_per_epoch * 4 for epoch in epochs)
    assert len(made.pairs) - len(epochs[0]) < 4
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("loss", ["mse", "contrastive"])
@pytest.mark.parametrize("world", [2, 3, 5, 16])
def test_processes_share_a_step_and_its_loss_whatever_their_number(
    dataset: Path, world: int, loss: Loss
) -> None:
    made = batches(dataset, batch_size=8, loss=loss)
    parts = [made.at(1, rank=rank, world=world) for rank in range(world)]
    assert [pair for part in parts for pair in part.pairs][:8] == list(made.at(1).pairs)
    columns = [premise for part in parts for premise in part.premises]

    def mean(batch: Batch, columns: Sequence[int]) -> float:
        scores = torch.tensor(
            [[(31 * pair + 17 * premise) % 13 / 13 for premise in columns] for pair in batch.pairs]
        )
        return (
            float(row_losses(loss, temperature=0.05)(scores, batch.label, batch.ignore).mean()) * batch.scale
        )

    alone = mean(made.at(1), made.at(1).premises)
    assert fmean(mean(part, columns) for part in parts) == pytest.approx(alone, rel=1e-5)


def test_processes_draw_negatives_of_their_own(dataset: Path) -> None:
    corpus = Corpus(dataset / "corpus.jsonl")
    example = next(one for one in batches(dataset).examples if one.file_path == "Demo/F5.lean")
    drawn = [
        [
            made_of(corpus, [example] * 40, batch_size=2, seed=1).at(step, rank=rank, world=2).premises[1:]
            for step in range(20)
        ]
        for rank in range(2)
    ]
    assert sum(one == other for one, other in zip(*drawn, strict=True)) < 5


def test_columns_are_positives_then_each_rows_first_negatives_and_labels_know_them_all(dataset: Path) -> None:
    made = batches(dataset, lambda one: replace(one, positives=one.positives[:1]))
    for step in range(made.steps_per_epoch):
        batch = made.at(step)
        assert not batch.ignore.any()
        for row, pair in enumerate(batch.pairs):
            example, positive = made.pairs[pair]
            assert batch.premises[row] == positive
            wanted = [float(index in made.examples[example].positives) for index in batch.premises]
            assert batch.label[row].tolist() == wanted


def test_a_pairs_negatives_are_accessible_other_and_each_of_its_own(dataset: Path) -> None:
    made = batches(dataset)
    in_file = 0
    for step in range(4 * made.steps_per_epoch):
        batch = made.at(step)
        for row, pair in enumerate(batch.pairs):
            example = made.examples[made.pairs[pair][0]]
            own = [batch.premises[row + 4 * i] for i in range(4)]
            accessible = made.corpus.accessible(example.file_path, example.start)
            assert all(accessible[index] for index in own)
            assert len(set(own)) == 4
            files = made.corpus.file_of_premise[own]
            in_file += int((files[1:] == files[0]).sum())
            # Where nothing else is accessible, more must come from the file.
            if imports_of(made.corpus, example.file_path):
                assert (files[1:] == files[0]).sum() >= 1
    assert in_file > 0


def test_a_theorem_with_fewer_accessible_premises_than_negatives_gets_what_there_is(tmp_path: Path) -> None:
    tiny = write_dataset(tmp_path, files=1, premises_per_file=2, theorems=10)
    made = batches(tiny, batch_size=1)
    for step in range(made.steps_per_epoch):
        first, *others = made.at(step).premises
        assert set(others) == {1 - first}


def test_contrastive_labels_are_the_proofs_and_what_a_theorem_may_not_use_is_no_negative(
    dataset: Path,
) -> None:
    # Of a proof that uses two premises this step uses the first.
    made = batches(
        dataset, lambda one: replace(one, positives=one.positives[:1]), loss="contrastive", batch_size=8
    )
    ignored = of_another_step = 0
    for step in range(made.steps_per_epoch):
        batch = made.at(step)
        for row, pair in enumerate(batch.pairs):
            example = made.examples[made.pairs[pair][0]]
            accessible = made.corpus.accessible(example.file_path, example.start)
            for column, index in enumerate(batch.premises):
                assert bool(batch.label[row, column]) == (index in example.proof)
                of_another_step += index in example.proof and index not in example.positives
                repeated = index in batch.premises[:column]
                assert bool(batch.ignore[row, column]) == (repeated or not accessible[index])
        ignored += int(batch.ignore.sum())
    assert ignored > 0
    assert of_another_step > 0


def test_what_a_proof_uses_is_a_target_also_where_no_import_leads_to_it(dataset: Path) -> None:
    corpus = Corpus(dataset / "corpus.jsonl")
    first = next(one for one in batches(dataset).examples if one.file_path == "Demo/F0.lean")
    elsewhere = len(corpus) - 1
    assert not corpus.accessible(first.file_path, first.start)[elsewhere]
    used = replace(first, positives=(elsewhere,), proof=(elsewhere,))
    batch = made_of(corpus, [used], batch_size=1, num_negatives=2, seed=1, loss="contrastive").at(0)
    assert batch.label.tolist() == [[1, 0, 0]]
    assert batch.ignore.tolist() == [[False, False, False]]


def test_a_premise_in_two_columns_is_a_target_or_a_negative_once(dataset: Path) -> None:
    made = batches(dataset, loss="contrastive", batch_size=16)
    repeated = 0
    for step in range(made.steps_per_epoch):
        batch = made.at(step)
        for column, index in enumerate(batch.premises):
            if index in batch.premises[:column]:
                assert batch.ignore[:, column].all()
                repeated += 1
    assert repeated > 0


def test_steps_hold_queries_of_like_length_in_no_order_of_length(tmp_path: Path) -> None:
    # Each theorem's state is as long as its word, and the words of a dataset are of one length.
    corpus = Corpus(write_dataset(tmp_path, theorems=2000, files=2) / "corpus.jsonl")
    examples = [
        replace(example, query="x" * (number * 37 % 500 + 1))
        for number, example in enumerate(read_examples(tmp_path / "random" / "train.json", corpus))
    ]
    none = {"num_negatives": 0, "num_in_file_negatives": 0}
    made = made_of(corpus, examples, batch_size=8, data_max_seq_len=1024, seed=1, **none)
    masks = [made.at(step).queries.mask for step in range(made.steps_per_epoch)]
    padding = 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)
    assert padding < 0.05, "as they come, two fifths would be padding"
    longest = [mask.shape[1] for mask in masks]
    rising = sum(one < two for one, two in pairwise(longest)) / (len(longest) - 1)
    assert 0.4 < rising < 0.6


def test_texts_are_cut_where_their_kind_is_cut(dataset: Path) -> None:
    made = batches(dataset, data_max_seq_len=12, max_seq_len=6)
    batch = made.at(0)
    for row, pair in enumerate(batch.pairs):
        query = query_ids(byte_ids, made.examples[made.pairs[pair][0]].query, 12).tolist()
        assert batch.queries.ids[row, : len(query)].tolist() == query
        assert batch.queries.mask[row].sum() == len(query)
    for column, index in enumerate(batch.premises):
        document = byte_ids(made.corpus[index].serialize(), 6).tolist()
        assert batch.documents.ids[column, : len(document)].tolist() == document
        assert batch.documents.mask[column].sum() == len(document) == 6


class InALoader(Batches):
    """Batches that a training's own process never makes."""

    def of(self, *given: Any, **settings: Any) -> Batch:
        assert get_worker_info() is not None
        return super().of(*given, **settings)


def test_loader_processes_give_the_steps_in_order_with_what_each_replays(dataset: Path) -> None:
    made, other = batches(dataset), batches(dataset, seed=8)
    config = RetrieverConfig(against_forgetting="replay", batch_size=4, max_epochs=9)
    past = {"other": InALoader(other.corpus, other.examples, byte_ids, config)}
    parts = Parts(made, past, config)
    drawn = list(DataLoader(parts, batch_size=None, sampler=range(2, 7), num_workers=2))
    assert [batch.pairs for batch in drawn] == [made.at(step).pairs for step in range(2, 7)]
    again = {"other": Batches(other.corpus, other.examples, byte_ids, config)}
    for step, batch in enumerate(drawn, start=2):
        assert batch.replayed is not None
        assert torch.equal(batch.replayed.documents.ids, draw(again, config, step).documents.ids)
    moved = drawn[0].to("meta").replayed
    assert moved is not None
    assert moved.label.device.type == "meta", "it goes where its batch goes"


def test_a_task_with_fewer_pairs_than_a_step_takes_has_one_small_step(dataset: Path) -> None:
    made = batches(dataset, batch_size=1000, accumulate_grad_batches=4)
    assert (made.batch_size, made.accumulate, made.steps_per_epoch) == (len(made.pairs), 1, 1)
    assert sorted(made.at(0).pairs) == list(range(len(made.pairs)))


def test_gradients_are_not_accumulated_from_one_epoch_into_the_next(dataset: Path) -> None:
    made = batches(dataset, batch_size=4, accumulate_grad_batches=5)
    whole = len(made.pairs) // 4
    assert (made.accumulate, made.steps_per_epoch) == (5, whole - whole % 5)
