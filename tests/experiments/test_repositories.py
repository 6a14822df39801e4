"""Generated repositories, traced and exported: what is in the datasets, and that it can be learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.repositories import write_tasks
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.batches import read_examples
from pipeline.models.retriever.corpus import Corpus
from tests.support.exercises.families_repository import RepositorySize

pytestmark = pytest.mark.timeout(300)

SPLITS = ("train", "val", "test")
THEOREMS = 12


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[TaskData]:
    """Two small repositories; not to be changed."""
    return write_tasks(tmp_path_factory.mktemp("tasks"), 1, 2 * [RepositorySize(THEOREMS)])


def theorems(task: TaskData) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for split in SPLITS:
        found += json.loads((task.dataset / "random" / f"{split}.json").read_text(encoding="utf-8"))
    return found


def corpus(task: TaskData) -> dict[str, Any]:
    lines = (task.dataset / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["path"]: record for record in map(json.loads, lines)}


def test_every_step_of_a_solved_theorem_uses_a_premise_that_the_corpus_has(tasks: list[TaskData]) -> None:
    for task in tasks:
        solved = [one for one in theorems(task) if one["full_name"].startswith(f"{task.name}.t1_")]
        assert len(solved) == THEOREMS
        assert all(step["annotated_tactic"][1] for one in solved for step in one["traced_tactics"])
        own = Corpus(task.dataset / "corpus.jsonl")
        for split in SPLITS:
            assert read_examples(task.dataset / "random" / f"{split}.json", own).unplaced == 0


def test_repositories_share_one_library_and_use_it_and_their_own(tasks: list[TaskData]) -> None:
    one, other = map(corpus, tasks)
    assert one["Shared.lean"] == other["Shared.lean"]
    assert one.keys() & other.keys() == {"Shared.lean"}
    for task in tasks:
        sites = {
            use["def_path"]
            for theorem in theorems(task)
            for step in theorem["traced_tactics"]
            for use in step["annotated_tactic"][1]
        }
        assert sites == {"Shared.lean", f"{task.name}/Library.lean"}


def test_a_dataset_follows_from_its_seed(tasks: list[TaskData], tmp_path: Path) -> None:
    (again,) = write_tasks(tmp_path, 1, [RepositorySize(THEOREMS)])
    assert theorems(again) == theorems(tasks[0])
    assert corpus(again) == corpus(tasks[0])


def test_more_repositories_than_there_are_names_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="9 repositories are asked for"):
        write_tasks(tmp_path, 1, 9 * [RepositorySize(10)])
