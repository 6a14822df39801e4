"""A repository that was learned before and grew: what is trained is what is new, and replay has the rest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.batches import read_lesson
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.learning import learn, measure, plan
from tests.support.retrieval import embedded, small_config, write_dataset

NEW = 12


@pytest.fixture
def config(model: Path) -> RetrieverConfig:
    return small_config(model, batch_size=4, accumulate_grad_batches=1, against_forgetting="replay")


@pytest.fixture
def versions(tmp_path: Path) -> tuple[TaskData, TaskData]:
    """A repository before and after its last theorems."""
    after = write_dataset(tmp_path / "after", theorems=80, held_out=0.1)
    change(after, numbered)
    before = tmp_path / "before"
    shutil.copytree(after, before)
    change(before, lambda theorems: theorems[:-NEW])
    return TaskData("A", before), TaskData("A", after)


def numbered(theorems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make every state another one, as in no generated dataset."""
    for number, theorem in enumerate(theorems):
        for step in theorem["traced_tactics"]:
            step["state_before"] = f"n{number} : Nat\n{step['state_before']}"
    return theorems


def change(dataset: Path, to: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    path = dataset / "random" / "train.json"
    path.write_text(json.dumps(to(json.loads(path.read_text()))))


def names(dataset: Path, config: RetrieverConfig, learned: Path | None) -> list[str]:
    return [example.full_name for example in read_lesson(dataset, config, learned=learned).train]


def test_only_the_new_theorems_are_to_be_learned(
    versions: tuple[TaskData, TaskData], config: RetrieverConfig
) -> None:
    before, after = (version.dataset for version in versions)
    new = names(after, config, before)
    assert len(new) == NEW
    assert names(after, config, None) == names(before, config, None) + new


def test_what_moved_is_not_new_and_what_needs_another_premise_is(
    versions: tuple[TaskData, TaskData], config: RetrieverConfig
) -> None:
    before, after = (version.dataset for version in versions)

    def moved(theorems: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first, second, *others = theorems
        first["start"], first["full_name"] = [first["start"][0] + 1, 1], "Moved.elsewhere"
        second["traced_tactics"][0]["state_before"] += "\nn : Nat"
        return [second, *others, first]

    change(after, moved)
    new = names(after, config, before)
    assert "Moved.elsewhere" not in new
    assert len(new) == NEW + 1


def test_the_second_version_takes_steps_for_what_is_new_alone_and_replays_the_first(
    versions: tuple[TaskData, TaskData], config: RetrieverConfig, tmp_path: Path
) -> None:
    before, after = versions
    chain = Chain(tmp_path / "chain")
    first = learn(before, chain, config, parent=None)
    second = learn(after, chain, config, parent=first.checkpoint, earlier=[before])
    pairs = sum(
        len(example.positives) for example in read_lesson(after.dataset, config, learned=before.dataset).train
    )
    assert second.steps == pairs // config.batch_size
    assert first.steps > 3 * second.steps
    without = plan(after, chain, config, parent=first.checkpoint, earlier=[])[0]
    alone = plan(after, chain, small_config(config.model_name, only_new=False), parent=first.checkpoint)[0]
    assert len({second.checkpoint, without.checkpoint, alone.checkpoint}) == 3


@pytest.mark.parametrize("only_new", [True, False])
def test_where_nothing_is_new_or_all_is_asked_for_the_whole_is_learned_and_does_not_replay_itself(
    versions: tuple[TaskData, TaskData], model: Path, tmp_path: Path, only_new: bool
) -> None:
    before, after = versions
    config = small_config(model, batch_size=4, against_forgetting="replay", only_new=only_new)
    same = after if only_new else before
    chain = Chain(tmp_path / "chain")
    first = learn(before, chain, config, parent=None)
    replayed = plan(after, chain, config, parent=first.checkpoint, earlier=[same])[0]
    alone = plan(after, chain, config, parent=first.checkpoint, earlier=[])[0]
    assert replayed.checkpoint == alone.checkpoint


def test_the_index_embeds_the_premises_that_are_new_and_no_other(
    versions: tuple[TaskData, TaskData], config: RetrieverConfig, model: Path, tmp_path: Path
) -> None:
    before, after = versions
    lines = [json.loads(line) for line in (after.dataset / "corpus.jsonl").read_text().splitlines()]
    added = {
        **lines[0]["premises"][-1],
        "full_name": "Demo.new",
        "code": "theorem new : 1",
        "start": [90, 1],
        "end": [90, 9],
    }
    lines[0]["premises"].append(added)
    (after.dataset / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = sum(len(line["premises"]) for line in lines) - 1
    there = []
    for task in (before, after, after):
        measure(model, task, config, indices=tmp_path / "indices")
        there.append(embedded(tmp_path / "indices"))
    assert there == [known, known + 1, known + 1]
