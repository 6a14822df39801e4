"""A script of LeanDojo's: a database, a configuration, `RetrievalTrainer`. Small repositories, a tiny encoder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from pipeline.models.chain import Chain
from pipeline.models.errors import CheckpointError, DatasetError, DivergedError
from pipeline.models.retriever import PremiseRetriever, RetrievalTrainer, TrainingConfig
from pipeline.models.retriever.compat import LearnedRepository
from store.leandojo import DynamicDatabase, Repository
from tests.support.retrieval import small_config, write_dataset

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def database(
    tmp_path_factory: pytest.TempPathFactory, repository: Callable[[Path, str, int], Repository]
) -> DynamicDatabase:
    folder = tmp_path_factory.mktemp("database")
    made = DynamicDatabase(folder / "dynamic_database.json")
    for number, name in enumerate(("ark", "bee", "cat"), start=1):
        made.add_repository(repository(folder / name, name, number))
    return made


@dataclass(frozen=True)
class Learned:
    """What learning two repositories one after the other left and said; not to be changed."""

    folder: Path
    links: list[LearnedRepository]
    said: list[str]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, database: DynamicDatabase, model: Path) -> Learned:
    folder = tmp_path_factory.mktemp("learned")
    said: list[str] = []
    config = TrainingConfig.from_dict(small_config(model).to_dict())
    made = RetrievalTrainer(config, checkpoints=folder / "checkpoints", say=said.append)
    return Learned(folder, made.train(database.repositories[:2], database, folder / "data"), said)


@pytest.fixture
def trainer(tmp_path: Path, model: Path) -> Callable[..., RetrievalTrainer]:
    def make(**changes: Any) -> RetrievalTrainer:
        config = TrainingConfig.from_dict({**small_config(model).to_dict(), **changes})
        return RetrievalTrainer(config, checkpoints=tmp_path / "checkpoints", say=lambda _: None)

    return make


@pytest.fixture
def continued(tmp_path: Path, learned: Learned, trainer: Callable[..., RetrievalTrainer]) -> RetrievalTrainer:
    """A trainer that goes on with a copy of what was learned; the data is in `data` beside it."""
    for name in ("checkpoints", "data"):
        shutil.copytree(learned.folder / name, tmp_path / name)
    return trainer()


def test_each_repository_is_a_task_that_begins_at_the_one_before_it(
    tmp_path: Path,
    database: DynamicDatabase,
    learned: Learned,
    continued: RetrievalTrainer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made, repos, tasks = continued, database.repositories[:2], learned.links
    links = [one.checkpoint for one in tasks]
    assert [link.parent for link in links] == [None, links[0].checkpoint]
    assert made.head == links[1].checkpoint
    assert [one.task for one in tasks] == [f"{repo.url}@{repo.commit}" for repo in repos]
    assert all(link.data_seq > 0 for link in links)
    for one, line in zip(tasks, learned.said, strict=True):
        assert one.scores is not None
        assert 0 <= one.scores.r1 <= one.scores.r10 <= 100
        assert 0 < one.scores.mrr <= 1
        assert line.startswith(one.task)
        assert f"R@10 = {one.scores.r10:.2f} %, MRR = {one.scores.mrr:.4f}" in line
    own = [json.loads((one.dataset / "metadata.json").read_text())["repositories"] for one in tasks]
    assert [[item["url"] for item in items] for items in own] == [[repo.url] for repo in repos]

    scores = made.evaluate(tmp_path / "data")
    assert set(scores) == {f"demo_ark_{'1' * 40}", f"demo_bee_{'2' * 40}"}
    assert scores[f"demo_bee_{'2' * 40}"].r10 == tasks[1].scores.r10  # type: ignore[union-attr] # seen above
    assert capsys.readouterr().out == ""
    RetrievalTrainer(made.config, made.chain.folder).evaluate(tmp_path / "data")
    assert "R@1 = " in capsys.readouterr().out


def test_a_call_that_is_repeated_or_was_cut_off_goes_on_and_makes_nothing_twice(
    tmp_path: Path,
    database: DynamicDatabase,
    learned: Learned,
    continued: RetrievalTrainer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, repos, whole = continued, database.repositories, learned.links
    before = sorted(path.name for path in made.chain.folder.iterdir())
    again = made.train(repos[:2], database, tmp_path / "data")
    assert [one.checkpoint for one in again] == [one.checkpoint for one in whole]
    assert sorted(path.name for path in made.chain.folder.iterdir()) == before
    longer = made.train(repos, database, tmp_path / "data")
    assert [one.checkpoint for one in longer[:2]] == [one.checkpoint for one in whole]
    assert longer[2].checkpoint.parent == whole[1].checkpoint.checkpoint

    with monkeypatch.context() as patched:
        patched.setattr(made.chain, "folder", tmp_path / "cut")
        forward = PremiseRetriever.forward
        patched.setattr(
            PremiseRetriever,
            "forward",
            lambda self, batch: forward(self, batch) * (float("nan") if self.trainer.global_step == 2 else 1),
        )
        with pytest.raises(DivergedError):
            made.train(repos[:2], database, tmp_path / "data")
    resumed = RetrievalTrainer(made.config, tmp_path / "cut", say=lambda _: None)
    assert [one.checkpoint.digest for one in resumed.train(repos[:2], database, tmp_path / "data")] == [
        one.checkpoint.digest for one in whole
    ]


def test_the_repositories_of_the_chain_are_replayed_in_one_call_or_in_several(
    tmp_path: Path, database: DynamicDatabase, trainer: Callable[..., RetrievalTrainer]
) -> None:
    made, repos = trainer(against_forgetting="replay"), database.repositories
    whole = made.train(repos, database, tmp_path / "data")
    several = RetrievalTrainer(made.config, tmp_path / "several", say=lambda _: None)
    for repo in repos:
        [last] = several.train([repo], database, tmp_path / "other" / repo.commit)
    assert last.checkpoint.digest == whole[2].checkpoint.digest
    assert last.checkpoint.data == whole[2].checkpoint.data
    plain = trainer(against_forgetting="none").train(repos[:2], database, tmp_path / "data")
    assert plain[0].checkpoint.data == whole[0].checkpoint.data, "nothing is before the first"
    assert plain[1].checkpoint.data != whole[1].checkpoint.data


def test_another_repository_begins_at_head_and_a_newer_file_changes_nothing(
    tmp_path: Path, database: DynamicDatabase, trainer: Callable[..., RetrievalTrainer]
) -> None:
    made, repos = trainer(), database.repositories
    [first] = made.train(repos[:1], database, tmp_path / "data")
    shutil.copytree(made.chain.path(first.checkpoint.checkpoint), made.chain.folder / ("f" * 16))
    torch.save({}, made.chain.folder / "newest.ckpt")
    [second] = made.train(repos[1:2], database, tmp_path / "data")
    assert second.checkpoint.parent == first.checkpoint.checkpoint
    assert second.checkpoint.base == first.checkpoint.base == made.config.model_name


def test_a_checkpoint_that_is_named_is_begun_at_instead_of_head(
    tmp_path: Path, database: DynamicDatabase, learned: Learned, continued: RetrievalTrainer, model: Path
) -> None:
    made, repos = continued, database.repositories
    first, second = learned.links
    link = made.chain.path(first.checkpoint.checkpoint)
    [branched] = made.train(repos[2:], database, tmp_path / "data", model_checkpoint_path=link)
    assert branched.checkpoint.parent == first.checkpoint.checkpoint
    assert made.head == branched.checkpoint.checkpoint != second.checkpoint.checkpoint

    encoder = PremiseRetriever.load_hf(model, 64, "cpu").encoder.state_dict()
    weights = {f"encoder.{name}": value * 1.5 for name, value in encoder.items()}
    torch.save({"state_dict": weights}, tmp_path / "leandojo.ckpt")
    for _ in range(2):
        [theirs] = made.train(repos[:1], database, tmp_path / "data", tmp_path / "leandojo.ckpt")
        assert theirs.checkpoint.parent is None
        assert theirs.checkpoint.digest != first.checkpoint.digest
        imported = PremiseRetriever.load_hf(theirs.checkpoint.base, 64, "cpu").encoder.state_dict()
        assert all(
            torch.equal(imported[name.removeprefix("encoder.")], value) for name, value in weights.items()
        )
    with pytest.raises(CheckpointError, match=r"none\.ckpt cannot be read"):
        made.train(repos[:1], database, tmp_path / "data", tmp_path / "none.ckpt")


def test_a_checkpoint_of_leandojo_s_that_cannot_be_kept_is_an_error_and_leaves_nothing(
    tmp_path: Path,
    database: DynamicDatabase,
    trainer: Callable[..., RetrievalTrainer],
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = PremiseRetriever.load_hf(model, 64, "cpu").encoder.state_dict()
    torch.save(
        {"state_dict": {f"encoder.{name}": value for name, value in encoder.items()}}, tmp_path / "a.ckpt"
    )

    def full(_self: PremiseRetriever, folder: Path) -> None:
        folder.mkdir(parents=True)
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(PremiseRetriever, "save", full)
    made = trainer()
    with pytest.raises(CheckpointError, match=r"cannot be written \(No space left on device\)\. Make room"):
        made.train(database.repositories[:1], database, tmp_path / "data", tmp_path / "a.ckpt")
    assert not list((made.chain.folder / ".imported").iterdir())


def test_leandojo_s_default_model_that_was_never_fetched_is_named_with_how_to_fetch_it(
    tmp_path: Path, database: DynamicDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("We couldn't connect to the hub")

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", refused)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", refused)
    made = RetrievalTrainer(checkpoints=tmp_path / "checkpoints")
    name = "kaiyuy/leandojo-lean4-retriever-byt5-small"
    said = rf"{name} cannot be loaded \(We couldn't connect.*hf download {name}`, or name a folder"
    with pytest.raises(CheckpointError, match=said):
        made.train(database.repositories[:1], database, tmp_path / "data")
    with pytest.raises(CheckpointError, match=said):
        PremiseRetriever.load(name, "cpu", False, made.config.get_model_config())
    with pytest.raises(CheckpointError, match="there is no such folder"):
        PremiseRetriever.load(tmp_path / "none", "cpu", False, made.config.get_model_config())


def test_merged_tasks_hold_all_repositories_so_far(
    tmp_path: Path, database: DynamicDatabase, trainer: Callable[..., RetrievalTrainer]
) -> None:
    learned = trainer(single_repo=False).train(database.repositories[:2], database, tmp_path / "data")
    assert [one.dataset.name for one in learned] == [
        f"merged_with_demo_ark_{'1' * 40}",
        f"merged_with_demo_bee_{'2' * 40}",
    ]
    lines = [len((one.dataset / "corpus.jsonl").read_text().splitlines()) for one in learned]
    assert lines == [3, 6]


def test_evaluating_without_a_dataset_or_a_head_that_is_there_is_an_error_that_says_so(
    tmp_path: Path, trainer: Callable[..., RetrievalTrainer]
) -> None:
    made = trainer()
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DatasetError, match="has no dataset"):
        made.evaluate(tmp_path / "nothing")
    write_dataset(tmp_path / "data" / "deep" / "one")
    assert set(made.evaluate(tmp_path / "data")) == {"deep/one"}
    empty = write_dataset(tmp_path / "data" / "empty")
    (empty / "random" / "test.json").write_text("[]")
    assert set(made.evaluate(tmp_path / "data")) == {"deep/one"}
    Chain(made.chain.folder).folder.mkdir(exist_ok=True)
    (made.chain.folder / "HEAD").write_text("0" * 16 + "\n")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        made.evaluate(tmp_path / "data")
