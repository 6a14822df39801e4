from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import torch

from pipeline.models.datasets import TaskData
from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.config import Loss, RetrieverConfig
from pipeline.models.retriever.encoder import byte_ids
from pipeline.models.retriever.replay import ReplayPair, ReplayRows
from tests.support.retrieval import write_dataset


def pairs(task: str, n: int) -> list[ReplayPair]:
    return [ReplayPair(f"{task} ⊢ {number}", f"theorem <a>{task}.{number}</a>") for number in range(n)]


def drawn(
    rows: ReplayRows, step: int, count: int, *, negatives: int = 0, loss: Loss = "mse", rank: int = 0
) -> Batch:
    made = rows.batch(
        step,
        count,
        negatives=negatives,
        tokens=byte_ids,
        max_seq_len=64,
        document_length=32,
        loss=loss,
        rank=rank,
    )
    assert made is not None
    return made


def texts(ids: torch.Tensor) -> list[str]:
    return [bytes(int(byte) - 3 for byte in row if byte > 1).decode() for row in ids]


def dataset(folder: Path, name: str, theorems: int) -> TaskData:
    return TaskData(name, write_dataset(folder / name, prefix=name, theorems=theorems, held_out=0.1))


def test_every_repository_has_the_same_share_of_the_rows_whatever_its_size(tmp_path: Path) -> None:
    earlier = [dataset(tmp_path, "Small", 20), dataset(tmp_path, "Large", 200)]
    rows = ReplayRows.of(earlier, RetrieverConfig(replay_size=20))
    assert {name: len(own) for name, own in rows.tasks.items()} == {"Small": 10, "Large": 10}


def test_every_repository_has_its_turn_as_often_as_any_other() -> None:
    rows = ReplayRows({"A": pairs("A", 5), "B": pairs("B", 500), "C": pairs("C", 50)}, seed=0)
    turns = [rows.turn(number) for number in range(30)]
    for start in range(0, 30, 3):
        assert set(turns[start : start + 3]) == {"A", "B", "C"}
    assert len({tuple(turns[start : start + 3]) for start in range(0, 30, 3)}) > 1, "not always in one order"


def test_rows_and_negatives_of_a_step_are_of_one_repository() -> None:
    rows = ReplayRows({"A": pairs("A", 50), "B": pairs("B", 50)}, seed=0)
    seen = Counter[str]()
    for step in range(6):
        made = drawn(rows, step, 4, negatives=2)
        (queries,) = {text[0] for text in texts(made.context_ids)}
        (documents,) = {text.removeprefix("theorem <a>")[0] for text in texts(made.premise_ids)}
        assert queries == documents
        seen[queries] += 1
    assert seen == {"A": 3, "B": 3}


def test_rows_are_those_of_the_training_split_alone(tmp_path: Path) -> None:
    task = dataset(tmp_path, "A", 60)
    rows = ReplayRows.of([task], RetrieverConfig(replay_size=10**6))
    states = {
        split: {
            step["state_before"]
            for theorem in json.loads((task.dataset / "random" / f"{split}.json").read_text())
            for step in theorem["traced_tactics"]
        }
        for split in ("train", "test")
    }
    queries = {pair.query for pair in rows.tasks["A"]}
    assert queries == states["train"]
    assert not states["test"] <= queries


def test_of_two_versions_of_a_task_the_last_counts(tmp_path: Path) -> None:
    first, last = dataset(tmp_path / "1", "A", 40), dataset(tmp_path / "2", "A", 80)
    config = RetrieverConfig(replay_size=1000)
    both = ReplayRows.of([first, last], config)
    assert both.tasks == ReplayRows.of([last], config).tasks
    assert both.tasks != ReplayRows.of([first], config).tasks


def test_the_same_datasets_give_the_same_rows_and_another_seed_others(tmp_path: Path) -> None:
    earlier = [dataset(tmp_path, "A", 100)]
    found = [
        ReplayRows.of(earlier, RetrieverConfig(replay_size=10, seed=seed)).digest() for seed in (0, 0, 1)
    ]
    assert found[0] == found[1] != found[2]


def test_a_batch_is_leandojos_layout_of_texts() -> None:
    own = pairs("A", 20)
    made = drawn(ReplayRows({"A": own}, seed=0), 5, 4, negatives=2)
    assert made.context_ids.shape[0] == 4
    assert made.premise_ids.shape[0] == 12
    assert made.label.shape == made.ignore.shape == (4, 12)
    assert torch.equal(made.label[:, :4], torch.eye(4)), "the first columns are the rows' own documents"
    assert texts(made.context_ids) == [own[place].query for place in made.pairs]
    assert texts(made.premise_ids)[:4] == [own[place].document for place in made.pairs]


def test_a_batch_depends_on_seed_step_and_rank_alone() -> None:
    rows = ReplayRows({"A": pairs("A", 50)}, seed=0)
    first = drawn(rows, 3, 6).pairs
    drawn(rows, 9, 6)
    assert drawn(rows, 3, 6).pairs == first
    assert len({first, drawn(rows, 4, 6).pairs, drawn(rows, 3, 6, rank=1).pairs}) == 3
    assert len(set(first)) == 6, "no pair twice"


def test_every_document_that_a_query_is_known_to_need_is_a_positive() -> None:
    shared = [ReplayPair("q", "one"), ReplayPair("q", "two"), ReplayPair("other", "three")]
    losses: tuple[Loss, ...] = ("mse", "contrastive")
    for loss in losses:
        made = drawn(ReplayRows({"A": shared}, seed=0), 0, 9, negatives=3, loss=loss)
        assert len(made) == 3, "all of them where there are fewer"
        documents = texts(made.premise_ids)
        for row, place in enumerate(made.pairs):
            needed = {"one", "two"} if shared[place].query == "q" else {"three"}
            assert made.label[row].bool().tolist() == [text in needed for text in documents]
        repeated = [text in documents[:at] for at, text in enumerate(documents)]
        assert any(repeated)
        assert made.ignore.tolist() == [repeated if loss == "contrastive" else [False] * len(documents)] * 3


def test_queries_and_documents_are_cut_each_at_its_own_length() -> None:
    made = drawn(ReplayRows({"A": [ReplayPair("q" * 90, "d" * 90)]}, seed=0), 0, 1, negatives=1)
    assert made.context_ids.shape == (1, 64)
    assert made.premise_ids.shape == (2, 32)


def test_without_rows_there_is_no_batch(tmp_path: Path) -> None:
    for rows in (ReplayRows({"A": []}, seed=0), ReplayRows.of([], RetrieverConfig())):
        assert not rows
        assert (
            rows.batch(0, 2, negatives=0, tokens=byte_ids, max_seq_len=9, document_length=9, loss="mse")
            is None
        )
