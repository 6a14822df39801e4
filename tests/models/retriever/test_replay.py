from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch

from pipeline.models.datasets import TaskData
from pipeline.models.retriever.batches import Batch, Lesson, dataset_digest, read_examples
from pipeline.models.retriever.config import Loss, RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import byte_ids
from pipeline.models.retriever.replay import batches_of, choose, draw
from tests.support.retrieval import rows_of_texts, write_dataset


def pairs(task: str, n: int) -> list[tuple[str, str]]:
    return [(f"{task} ⊢ {number}", f"theorem {task}.{number}") for number in range(n)]


def drawn(
    rows: Mapping[str, Lesson],
    step: int,
    count: int,
    *,
    negatives: int = 0,
    loss: Loss = "mse",
    rank: int = 0,
    world: int = 1,
    length: int = 64,
) -> Batch:
    config = RetrieverConfig(
        against_forgetting="replay",
        batch_size=2 * count,
        replay_share=0.5,
        num_negatives=negatives,
        num_in_file_negatives=0,
        data_max_seq_len=64,
        max_seq_len=length,
        loss=loss,
    )
    return draw(batches_of(rows, byte_ids, config), config, step, rank=rank, world=world)


def texts(ids: torch.Tensor) -> list[str]:
    return [bytes(int(byte) - 3 for byte in row if byte > 1).decode() for row in ids]


def with_steps_of_one_premise(task: TaskData) -> TaskData:
    """Give each premise that a theorem uses a step of its own."""
    path = task.dataset / "random" / "train.json"
    theorems = json.loads(path.read_text())
    for theorem in theorems:
        (step,) = theorem["traced_tactics"]
        theorem["traced_tactics"] = [
            {**step, "state_before": f"{theorem['full_name']} {number}", "annotated_tactic": ["", [used]]}
            for number, used in enumerate(step["annotated_tactic"][1])
        ]
    path.write_text(json.dumps(theorems))
    return task


def dataset(folder: Path, name: str, theorems: int) -> TaskData:
    return TaskData(name, write_dataset(folder / name, prefix=name, theorems=theorems, held_out=0.1))


def digest(rows: Mapping[str, Lesson]) -> str:
    return dataset_digest(rows["A"].corpus, rows["A"].train)


def test_every_repository_has_the_same_share_of_the_rows_whatever_its_size(tmp_path: Path) -> None:
    earlier = [dataset(tmp_path, "Small", 20), dataset(tmp_path, "Large", 200)]
    rows = choose(earlier, RetrieverConfig(replay_size=20))
    assert {name: len(own.train) for name, own in rows.items()} == {"Small": 10, "Large": 10}


def test_every_repository_has_its_turn_as_often_as_any_other() -> None:
    rows = rows_of_texts({"A": pairs("A", 5), "B": pairs("B", 500), "C": pairs("C", 50)})
    turns = [texts(drawn(rows, step, 1).queries.ids)[0][0] for step in range(30)]
    for start in range(0, 30, 3):
        assert set(turns[start : start + 3]) == {"A", "B", "C"}
    assert len({tuple(turns[start : start + 3]) for start in range(0, 30, 3)}) > 1, "not always in one order"


def test_rows_and_negatives_of_a_step_are_of_one_repository() -> None:
    rows = rows_of_texts({"A": pairs("A", 50), "B": pairs("B", 50)})
    seen = Counter[str]()
    for step in range(6):
        made = drawn(rows, step, 4, negatives=2)
        (queries,) = {text[0] for text in texts(made.queries.ids)}
        (documents,) = {text.removeprefix("theorem ")[0] for text in texts(made.documents.ids)}
        assert queries == documents
        seen[queries] += 1
    assert seen == {"A": 3, "B": 3}


def test_rows_are_those_of_the_training_split_alone(tmp_path: Path) -> None:
    task = dataset(tmp_path, "A", 60)
    rows = choose([task], RetrieverConfig(replay_size=10**6))
    states = {
        split: {
            step["state_before"]
            for theorem in json.loads((task.dataset / "random" / f"{split}.json").read_text())
            for step in theorem["traced_tactics"]
        }
        for split in ("train", "test")
    }
    queries = {step.query for step in rows["A"].train}
    assert queries == states["train"]
    assert not states["test"] <= queries


def test_of_two_versions_of_a_task_the_last_counts(tmp_path: Path) -> None:
    first, last = dataset(tmp_path / "1", "A", 40), dataset(tmp_path / "2", "A", 80)
    config = RetrieverConfig(replay_size=1000)
    both = choose([first, last], config)
    assert digest(both) == digest(choose([last], config))
    assert digest(both) != digest(choose([first], config))


def test_the_same_datasets_give_the_same_rows_and_another_seed_others(tmp_path: Path) -> None:
    earlier = [dataset(tmp_path, "A", 100)]
    found = [digest(choose(earlier, RetrieverConfig(replay_size=10, seed=seed))) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]


def test_a_batch_is_leandojos_layout_of_texts() -> None:
    own = pairs("A", 20)
    made = drawn(rows_of_texts({"A": own}), 5, 4, negatives=2)
    assert made.queries.ids.shape[0] == 4
    assert made.documents.ids.shape[0] == 12
    assert made.label.shape == made.ignore.shape == (4, 12)
    assert torch.equal(made.label[:, :4], torch.eye(4)), "the first columns are the rows' own documents"
    assert texts(made.queries.ids) == [own[place][0] for place in made.pairs]
    assert texts(made.documents.ids)[:4] == [own[place][1] for place in made.pairs]


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    rows = rows_of_texts({"A": pairs("A", 50)})
    first = drawn(rows, 3, 6).pairs
    drawn(rows, 9, 6)
    assert drawn(rows, 3, 6).pairs == first
    assert first != drawn(rows, 4, 6).pairs
    assert len(set(first)) == 6, "no pair twice"


def test_processes_share_the_rows_of_a_step() -> None:
    rows = rows_of_texts({"A": pairs("A", 50), "B": pairs("B", 50)})
    alone = drawn(rows, 3, 7, negatives=2)
    parts = [drawn(rows, 3, 7, negatives=2, rank=rank, world=3) for rank in range(3)]
    assert tuple(place for part in parts for place in part.pairs)[:7] == alone.pairs
    assert {premise for part in parts for premise in part.premises} == set(alone.premises)


def test_a_replayed_row_has_the_positives_and_the_mask_of_one_that_is_learned_first(tmp_path: Path) -> None:
    task = with_steps_of_one_premise(dataset(tmp_path, "A", 60))
    corpus = Corpus(task.dataset / "corpus.jsonl")
    learned = read_examples(task.dataset / "random" / "train.json", corpus)
    example_of = {example.query: example for example in learned}
    index_of = {premise.serialize(): index for index, premise in enumerate(corpus)}
    rows = choose([task], RetrieverConfig(replay_size=30))
    of_another_step = ignored = 0
    for step in range(8):
        made = drawn(rows, step, 8, negatives=3, loss="contrastive")
        columns = [index_of[text] for text in texts(made.documents.ids)]
        for row, query in enumerate(texts(made.queries.ids)):
            example = example_of[query]
            accessible = corpus.accessible(example.file_path, example.start)
            for column, index in enumerate(columns):
                assert bool(made.label[row, column]) == (index in example.proof)
                again = index in columns[:column]
                late = not accessible[index] and index not in example.proof
                assert bool(made.ignore[row, column]) == (again or late)
                of_another_step += index in example.proof and index not in example.positives
                ignored += late
    assert of_another_step
    assert ignored


def test_queries_and_documents_are_cut_each_at_its_own_length() -> None:
    made = drawn(rows_of_texts({"A": [("q" * 90, "d" * 90)]}), 0, 1, negatives=1, length=32)
    assert made.queries.ids.shape == (1, 64)
    assert made.documents.ids.shape == (2, 32)


def test_a_task_that_taught_nothing_has_no_turn(tmp_path: Path) -> None:
    nothing = dataset(tmp_path, "A", 20)
    (nothing.dataset / "random" / "train.json").write_text("[]")
    assert choose([nothing], RetrieverConfig()) == {}
