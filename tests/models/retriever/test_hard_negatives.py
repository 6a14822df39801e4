"""Hard negatives: what the model, as a task finds it, takes for a premise of a step and is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.batches import Batches, Lesson, read_lesson
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import byte_ids, load_encoder
from pipeline.models.retriever.index import HARD, Retriever, embed_texts, hard_negatives
from pipeline.models.retriever.learning import learn
from tests.support.retrieval import write_dataset


@pytest.fixture
def lesson(tasks: list[TaskData], config: RetrieverConfig) -> Lesson:
    return read_lesson(tasks[0].dataset, config)


def mined(lesson: Lesson, model: Path) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    return hard_negatives(Retriever(load_encoder(model), byte_ids, 64, 64), lesson.corpus, lesson.train)


def test_they_are_the_nearest_of_the_premises_that_a_theorem_may_use_and_does_not(
    lesson: Lesson, model: Path
) -> None:
    found, encoder = mined(lesson, model), load_encoder(model)
    vectors = embed_texts(encoder, byte_ids, [one.serialize() for one in lesson.corpus.all_premises], 64)
    for row, example in zip(found[:10], lesson.train, strict=False):
        scores = vectors @ embed_texts(encoder, byte_ids, [example.query], 64)[0]
        everything = np.arange(len(lesson.corpus))
        allowed = lesson.corpus.accessible(example.file_path, example.start, everything)
        allowed[list(example.proof)] = False
        best = sorted(everything[allowed], key=lambda place: -float(scores[place]))[:HARD]
        assert row[row >= 0].tolist() == best


def test_a_pair_gets_as_many_as_the_configuration_says_and_they_change_from_step_to_step(
    lesson: Lesson, config: RetrieverConfig, model: Path
) -> None:
    hard = mined(lesson, model)
    drawn = set()
    batches = Batches(lesson.corpus, lesson.train, byte_ids, config, hard=hard)
    for step in range(6):
        batch = batches.at(step)
        last = batch.premises[-len(batch) :]
        for pair, negative in zip(batch.pairs, last, strict=True):
            number, positive = batches.pairs[pair]
            assert negative in hard[number].tolist()
            assert negative != positive
            drawn.add((number, negative))
        # None of them twice.
        for row in range(len(batch)):
            assert len(set(batch.premises[row :: len(batch)])) == 4
    assert len(drawn) > len({number for number, _ in drawn})


@pytest.mark.parametrize(
    "none",
    [{"num_hard_negatives": 0}, {"num_negatives": 1, "num_in_file_negatives": 1}],
    ids=["as it was set", "no place for them"],
)
def test_without_them_a_step_is_what_it_was(
    lesson: Lesson, config: RetrieverConfig, model: Path, none: dict[str, int]
) -> None:
    changed = replace(config, **none)  # type: ignore[arg-type]
    without, beside = (
        Batches(lesson.corpus, lesson.train, byte_ids, changed, hard=hard)
        for hard in (None, mined(lesson, model))
    )
    assert without.at(0).premises == beside.at(0).premises


def test_a_repository_with_fewer_pairs_than_a_step_takes_is_learned_in_one(
    config: RetrieverConfig, tmp_path: Path
) -> None:
    few = TaskData("few", write_dataset(tmp_path / "few", seed=3, files=2, theorems=8))
    made = learn(few, Chain(tmp_path / "chain"), replace(config, batch_size=32), parent=None)
    assert made.steps == 1
