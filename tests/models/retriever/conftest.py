"""A tiny encoder, small tasks and repositories, and how to learn them, for tests that train."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.model_files import Checkpoint
from pipeline.models.retriever.batches import Lesson
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.learning import learn
from pipeline.models.retriever.training import RetrieverTraining
from pipeline.models.running import NO_REPORTS, Reports, Saves
from store.leandojo import Repository
from tests.support.retrieval import small_config, write_dataset
from tests.support.tiny_models import make_tiny_retriever


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_retriever(tmp_path_factory.mktemp("model"), d_model=32, layers=1)


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[TaskData]:
    folder = tmp_path_factory.mktemp("data")
    return [
        TaskData(name, write_dataset(folder / name, seed=n, alphabet=n, files=3), data_seq=7 + n)
        for n, name in enumerate("ab")
    ]


@pytest.fixture
def config(model: Path) -> RetrieverConfig:
    return small_config(model)


def train_task(
    start: str | Path, lesson: Lesson, config: RetrieverConfig, run: Path, **given: Any
) -> RetrieverTraining:
    """Return the training of a task to its end, with its saves in a folder; `given` is its own or of its reports."""
    reports = Reports(given.pop("on_step", NO_REPORTS.on_step))
    training = RetrieverTraining(config, start, reports, **given)
    training.fit(lesson, Saves(run, 60 * config.save_minutes))
    return training


@dataclass(frozen=True)
class Taught:
    """A chain in which both tasks were learned, one after the other; not to be changed."""

    folder: Path
    checkpoints: tuple[Checkpoint, ...]


@pytest.fixture(scope="session")
def taught(model: Path, tasks: list[TaskData], tmp_path_factory: pytest.TempPathFactory) -> Taught:
    folder = tmp_path_factory.mktemp("taught")
    return Taught(folder, learn_both(tasks, Chain(folder / "chain"), small_config(model)))


def learn_both(tasks: list[TaskData], chain: Chain, config: RetrieverConfig) -> tuple[Checkpoint, Checkpoint]:
    first = learn(tasks[0], chain, config, parent=None)
    return first, learn(tasks[1], chain, config, parent=first.checkpoint, earlier=tasks[:1])


@pytest.fixture
def chain(taught: Taught, tmp_path: Path) -> Chain:
    """A copy of it."""
    return Chain(shutil.copytree(taught.folder / "chain", tmp_path / "chain"))


@pytest.fixture(scope="session")
def repository() -> Callable[[Path, str, int], Repository]:
    """Makes a repository's trace as LeanDojo's database has it, from (a scratch folder, name, number)."""
    return _repository


def _repository(folder: Path, name: str, number: int) -> Repository:
    dataset = write_dataset(folder, seed=number, alphabet=number, prefix=name.title(), files=3, theorems=40)
    url, commit = f"https://example.org/demo/{name}", str(number) * 40
    theorems = [
        {
            **record,
            "url": url,
            "commit": commit,
            "theorem_statement": f"theorem {record['full_name']} : {record['start'][0]} = {number}",
        }
        for split in ("train", "val", "test")
        for record in json.loads((dataset / "random" / f"{split}.json").read_text())
    ]
    return Repository.from_dict(
        {
            "url": url,
            "name": f"demo/{name}",
            "commit": commit,
            "lean_version": "v4.20.0",
            "lean_dojo_version": "4.20.0",
            "metadata": {"date_processed": "2025-01-02T03:04:05"},
            "proven_theorems": theorems,
            "premise_files": [
                json.loads(line) for line in (dataset / "corpus.jsonl").read_text().splitlines()
            ],
            "files_traced": [],
        }
    )
