from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipeline.models.errors import CheckpointError
from pipeline.models.retriever.encoder import byte_ids
from pipeline.models.retriever.strategies import ReplayBuffer, ReplayPair


def pairs(task: str, n: int) -> list[ReplayPair]:
    return [ReplayPair(task, f"{task} ⊢ {number}", f"theorem <a>{task}.{number}</a>") for number in range(n)]


def test_it_never_holds_more_than_its_size_and_counts_what_it_was_offered() -> None:
    buffer = ReplayBuffer(10, seed=0)
    buffer.offer(pairs("A", 7))
    assert buffer.pairs == pairs("A", 7)
    buffer.offer(pairs("B", 500))
    assert (len(buffer), buffer.seen) == (10, 507)


def test_the_same_offers_leave_the_same_buffer_and_another_seed_another() -> None:
    kept = []
    for seed in (0, 0, 1):
        buffer = ReplayBuffer(10, seed=seed)
        buffer.offer(pairs("A", 100))
        buffer.offer(pairs("B", 100))
        kept.append(buffer.pairs)
    assert kept[0] == kept[1] != kept[2]


def test_every_pair_that_was_ever_offered_has_the_same_chance() -> None:
    tasks: list[str] = []
    for seed in range(300):
        buffer = ReplayBuffer(20, seed=seed)
        for task, n in (("A", 50), ("B", 100), ("C", 50)):
            buffer.offer(pairs(task, n))
        tasks += [pair.task for pair in buffer.pairs]
    share = {task: tasks.count(task) / len(tasks) for task in "ABC"}
    # 6,000 draws: one standard deviation is below 0.007.
    assert share == {
        "A": pytest.approx(0.25, abs=0.03),
        "B": pytest.approx(0.5, abs=0.03),
        "C": pytest.approx(0.25, abs=0.03),
    }


def test_it_survives_a_file_and_goes_on_as_if_it_had_not_been_one(tmp_path: Path) -> None:
    buffer = ReplayBuffer(10, seed=3)
    buffer.offer(pairs("A\u2028\n", 100))
    buffer.save(tmp_path / "replay.jsonl")
    read = ReplayBuffer.load(tmp_path / "replay.jsonl")
    assert (read.pairs, read.seen, read.size, read.seed) == (buffer.pairs, 100, 10, 3)
    for one in (buffer, read):
        one.offer(pairs("B", 100))
    assert read.pairs == buffer.pairs


def test_files_that_are_no_buffer_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "replay.jsonl"
    buffer = ReplayBuffer(10, seed=3, pairs=pairs("A", 3), seen=3)
    buffer.save(path)
    whole = path.read_text("utf-8")
    for text, complaint in (
        ("", "no replay buffer can be read"),
        ("{}\n", "no replay buffer can be read"),
        (whole.replace("replay-1", "replay-9"), "is of the format unsorry-replay-9"),
        (whole.rpartition("{")[0], "2 of 3 pairs"),
        (whole[:-10], "line 4 is no pair"),
        (whole.replace('"query"', '"question"', 1), "line 2 is no pair"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(CheckpointError, match=complaint):
            ReplayBuffer.load(path)
    with pytest.raises(CheckpointError, match="no replay buffer can be read"):
        ReplayBuffer.load(tmp_path / "missing")


def test_a_batch_is_leandojos_layout_of_texts() -> None:
    buffer = ReplayBuffer(20, seed=0, pairs=pairs("A", 20), seen=20)
    made = buffer.batch(5, 4, negatives=2, tokens=byte_ids, max_seq_len=64, document_length=64, loss="mse")
    assert made is not None
    assert made.context_ids.shape[0] == 4
    assert made.premise_ids.shape[0] == 12
    assert made.label.shape == made.ignore.shape == (4, 12)
    assert torch.equal(made.label[:, :4], torch.eye(4)), "the first columns are the rows' own documents"
    for row, place in enumerate(made.pairs):
        text = bytes(int(byte) - 3 for byte in made.context_ids[row] if byte > 1).decode()
        assert text == buffer.pairs[place].query
        column = bytes(int(byte) - 3 for byte in made.premise_ids[row] if byte > 1).decode()
        assert column == buffer.pairs[place].document


def test_a_batch_depends_on_seed_step_and_rank_alone() -> None:
    buffer = ReplayBuffer(50, seed=0, pairs=pairs("A", 50), seen=50)

    def drawn(step: int, rank: int = 0) -> tuple[int, ...]:
        made = buffer.batch(
            step, 6, negatives=1, tokens=byte_ids, max_seq_len=64, document_length=64, loss="mse", rank=rank
        )
        assert made is not None
        return made.pairs

    first = drawn(3)
    drawn(9)
    assert drawn(3) == first
    assert len({first, drawn(4), drawn(3, rank=1)}) == 3
    assert len(set(first)) == 6, "no pair twice"


def test_every_document_that_a_query_is_known_to_need_is_a_positive() -> None:
    shared = [ReplayPair("A", "q", "one"), ReplayPair("A", "q", "two"), ReplayPair("A", "other", "three")]
    buffer = ReplayBuffer(5, seed=0, pairs=shared, seen=3)
    for loss in ("mse", "contrastive"):
        made = buffer.batch(0, 9, negatives=3, tokens=byte_ids, max_seq_len=64, document_length=64, loss=loss)
        assert made is not None
        assert len(made) == 3, "all of them where there are fewer"
        texts = [bytes(int(byte) - 3 for byte in row if byte > 1).decode() for row in made.premise_ids]
        for row, place in enumerate(made.pairs):
            expected = [
                text in ({"one", "two"} if shared[place].query == "q" else {"three"}) for text in texts
            ]
            assert made.label[row].bool().tolist() == expected
        repeated = [text in texts[:at] for at, text in enumerate(texts)]
        assert any(repeated)
        assert made.ignore.tolist() == [repeated if loss == "contrastive" else [False] * len(texts)] * 3


def test_queries_and_documents_are_cut_each_at_its_own_length() -> None:
    buffer = ReplayBuffer(5, seed=0, pairs=[ReplayPair("A", "q" * 90, "d" * 90)], seen=1)
    made = buffer.batch(0, 1, negatives=1, tokens=byte_ids, max_seq_len=64, document_length=32, loss="mse")
    assert made is not None
    assert made.context_ids.shape == (1, 64)
    assert made.premise_ids.shape == (2, 32)


def test_what_is_offered_after_a_batch_is_known_to_the_next() -> None:
    buffer = ReplayBuffer(5, seed=0, pairs=[ReplayPair("A", "q", "one")], seen=1)

    def labels() -> list[list[float]]:
        made = buffer.batch(0, 9, negatives=0, tokens=byte_ids, max_seq_len=9, document_length=9, loss="mse")
        assert made is not None
        return made.label.tolist()

    assert labels() == [[1.0]]
    buffer.offer([ReplayPair("A", "q", "two")])
    assert labels() == [[1.0, 1.0], [1.0, 1.0]]


def test_an_empty_buffer_has_no_batch() -> None:
    assert (
        ReplayBuffer(5, seed=0).batch(
            0, 2, negatives=0, tokens=byte_ids, max_seq_len=9, document_length=9, loss="mse"
        )
        is None
    )


def test_a_smaller_size_keeps_a_choice_and_a_larger_one_keeps_all() -> None:
    buffer = ReplayBuffer(50, seed=0)
    buffer.offer(pairs("A", 200))
    small = buffer.resized(10)
    assert (len(small), small.size, small.seen) == (10, 10, 200)
    assert set(small.pairs) < set(buffer.pairs)
    assert buffer.resized(90).pairs == buffer.pairs
    assert small.pairs != buffer.pairs[:10], "not the first ten"
