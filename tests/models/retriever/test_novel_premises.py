"""LeanDojo's other split: trained and measured like `random`, and never mixed with it in one chain."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.specs import TrainRetrieverSpec
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.errors import ConfigError
from pipeline.models.measures import METRICS, baselines_of
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.index import Retriever, load_retriever
from pipeline.models.retriever.job import RetrieverJob
from pipeline.models.retriever.learning import learn, measure
from tests.support.retrieval import small_config, write_dataset


@pytest.fixture
def config(model: Path) -> RetrieverConfig:
    return small_config(
        model, batch_size=8, accumulate_grad_batches=1, against_forgetting="replay", split="novel_premises"
    )


def task(folder: Path, name: str, seed: int) -> TaskData:
    """Return a task that has the one split alone: whoever read the other would not find it."""
    dataset = write_dataset(folder / name, seed=seed, theorems=40, files=3)
    (dataset / "random").rename(dataset / "novel_premises")
    return TaskData(name, dataset)


def test_a_chain_learns_replays_and_is_measured_on_it_with_its_baselines(
    tmp_path: Path, config: RetrieverConfig
) -> None:
    tasks = [task(tmp_path, name, seed) for seed, name in enumerate("ab")]
    chain = Chain(tmp_path / "chain")
    first = learn(tasks[0], chain, config, parent=None)
    second = learn(tasks[1], chain, config, parent=first.checkpoint, earlier=tasks[:1])
    of = []
    for made in (first, second):
        found = measure(chain.path(made.checkpoint), tasks[0], config)
        of.append(baselines_of(found.metrics))
    assert of[0].keys() == {"", "bm25", "mepo", "fused"}
    assert all(metrics.keys() >= set(METRICS) for metrics in of[0].values())
    # They learn nothing.
    assert (of[0]["bm25"], of[0]["mepo"]) == (of[1]["bm25"], of[1]["mepo"])
    alone = measure(
        config.model_name,
        tasks[0],
        small_config(Path(config.model_name), split=config.split, baselines=False),
    )
    assert baselines_of(alone.metrics).keys() == {""}


def test_a_checkpoint_s_encoder_is_loaded_once_for_all_its_measurements(
    tmp_path: Path, config: RetrieverConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, chain, no_reporter = task(tmp_path, "a", 1), Chain(tmp_path / "chain"), cast(Any, None)
    made = learn(one, chain, config, parent=None)
    loaded: list[Path | str] = []

    def counted(checkpoint: Path | str, **given: Any) -> Retriever:
        loaded.append(checkpoint)
        return load_retriever(checkpoint, **given)

    monkeypatch.setattr("pipeline.models.retriever.job.load_retriever", counted)
    order = TrainRetrieverSpec(repository="r", chain=chain.folder, parent=None, indices=tmp_path / "indices")
    measuring = RetrieverJob(config, JobSpec("job", "train", 1, tmp_path, order), no_reporter)
    for side in ("test", "val"):
        measuring.measure(made.checkpoint, one, side, lambda _done, _total: None)
    assert loaded == [str(chain.path(made.checkpoint))]


def test_a_chain_of_one_split_is_not_trained_on_the_other(tmp_path: Path, config: RetrieverConfig) -> None:
    novel, chain = task(tmp_path, "a", 1), Chain(tmp_path / "chain")
    first = learn(novel, chain, config, parent=None)
    other = TaskData("b", write_dataset(tmp_path / "b", theorems=40, files=3))
    random = small_config(Path(config.model_name), against_forgetting="replay")
    with pytest.raises(
        ConfigError, match=r"learned from 'novel_premises'.*Set split = 'novel_premises', or begin"
    ):
        learn(other, chain, random, parent=first.checkpoint)
    assert [path.name for path in chain.folder.iterdir() if not path.name.startswith(".")] == [
        first.checkpoint
    ]


def test_the_split_is_part_of_a_checkpoint_s_id_and_of_a_measurement_s_name(config: RetrieverConfig) -> None:
    random = small_config(Path(config.model_name))
    assert random.task_split("test") == "test"
    assert config.task_split("test") == "novel_premises/test"
    assert config.content()["split"] == "novel_premises"
    assert random.content()["split"] == "random"
