"""A script of LeanDojo's: a database, a configuration, `RetrievalTrainer`. Small repositories, a tiny encoder."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.models import trainers
from pipeline.models.chain import Chain
from pipeline.models.errors import CheckpointError, ConfigError, DatasetError, ModelError
from pipeline.models.model_files import Checkpoint
from pipeline.models.retriever.config import TrainingConfig
from pipeline.models.retriever.encoder import byte_ids, load_encoder, load_tokens
from pipeline.models.trainers import RetrievalTrainer
from store.leandojo import DynamicDatabase, Repository
from tests.support.retrieval import small_config, step, theorem, write_dataset

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


def head(trainer: RetrievalTrainer) -> str:
    """The checkpoint that HEAD is a link to."""
    return (trainer.chain.folder / "HEAD").resolve().name


@dataclass(frozen=True)
class Learned:
    """What learning two repositories one after the other left and said; not to be changed."""

    folder: Path
    links: list[Checkpoint]
    said: list[str]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, database: DynamicDatabase, model: Path) -> Learned:
    folder = tmp_path_factory.mktemp("learned")
    config = TrainingConfig.from_dict(small_config(model, against_forgetting="ewc").to_dict())
    made = RetrievalTrainer(config, checkpoints=folder / "checkpoints")
    with redirect_stdout(StringIO()) as said:
        links = made.train(database.repositories[:2], database, folder / "data")
    return Learned(folder, links, said.getvalue().splitlines())


@pytest.fixture
def trainer(tmp_path: Path, model: Path) -> Callable[..., RetrievalTrainer]:
    def make(**changes: Any) -> RetrievalTrainer:
        config = TrainingConfig.from_dict(
            {**small_config(model, against_forgetting="ewc").to_dict(), **changes}
        )
        return RetrievalTrainer(config, checkpoints=tmp_path / "checkpoints")

    return make


@pytest.fixture
def continued(tmp_path: Path, learned: Learned, trainer: Callable[..., RetrievalTrainer]) -> RetrievalTrainer:
    """A trainer that goes on with a copy of what was learned; the data is in `data` beside it."""
    for name in ("checkpoints", "data"):
        shutil.copytree(learned.folder / name, tmp_path / name, symlinks=True)
    return trainer()


def test_each_repository_is_learned_with_those_before_it_from_the_checkpoint_before_it(
    tmp_path: Path,
    database: DynamicDatabase,
    learned: Learned,
    continued: RetrievalTrainer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made, repos, links = continued, database.repositories[:2], learned.links
    assert [link.parent for link in links] == [None, links[0].checkpoint]
    assert head(made) == links[1].checkpoint
    assert [link.task for link in links] == [f"{repo.url}@{repo.commit}" for repo in repos]
    assert all(link.data_seq > 0 for link in links)
    for link, made_, measured in zip(links, learned.said[::2], learned.said[1::2], strict=True):
        assert made_ == f"{link.task}: checkpoint {link.checkpoint}"
        assert re.fullmatch(rf"{link.task}: R@1 = .* %, R@10 = .* %, MRR = 0\..* \(\d+ steps\)", measured)
    own = json.loads((learned.folder / "data" / "metadata.json").read_text())["repositories"]
    assert [item["url"] for item in own] == [repo.url for repo in repos]
    assert {"corpus.jsonl", "random"} <= {path.name for path in (learned.folder / "data").iterdir()}

    ((name, found),) = made.evaluate(tmp_path).items()
    assert name == "data"
    assert 0 <= found.metrics["recall@1"] <= found.metrics["recall@10"] <= 1
    assert capsys.readouterr().out.strip() == learned.said[3].replace(links[1].task, "data")


def test_a_call_that_is_repeated_makes_nothing_twice_and_one_more_repository_begins_at_head(
    tmp_path: Path, database: DynamicDatabase, learned: Learned, continued: RetrievalTrainer
) -> None:
    made, repos, whole = continued, database.repositories, learned.links
    before = sorted(path.name for path in made.chain.folder.iterdir())
    assert made.train(repos[:2], database, tmp_path / "data") == []
    assert sorted(path.name for path in made.chain.folder.iterdir()) == before
    # What lies beside and is newer changes nothing.
    shutil.copytree(made.chain.path(whole[0].checkpoint), made.chain.folder / ("f" * 16))
    torch.save({}, made.chain.folder / "newest.ckpt")
    [third] = made.train(repos, database, tmp_path / "data")
    assert third.parent == whole[1].checkpoint
    assert third.base == whole[0].base == made.config.model_name
    other = RetrievalTrainer(replace(made.config, lr=1e-4), made.chain.folder)
    [again] = other.train(repos[:1], database, tmp_path / "data")
    assert again.parent == third.checkpoint, "learned again with other settings"


@pytest.mark.parametrize("content", [[], [theorem("t", 99, step("simp", "⊢ a"))]])
def test_a_repository_without_a_step_to_learn_is_said_and_the_others_go_on(
    content: list[Any],
    tmp_path: Path,
    database: DynamicDatabase,
    trainer: Callable[..., RetrievalTrainer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    export = database.export_merged_data

    def exporting(repositories: Any, output_path: Path, **given: Any) -> None:
        export(repositories, output_path, **given)
        if len(repositories) == 1:
            path = json.loads((output_path / "corpus.jsonl").read_text().splitlines()[0])["path"]
            written = [{**one, "file_path": path} for one in content]
            (output_path / "random" / "train.json").write_text(json.dumps(written))

    monkeypatch.setattr(database, "export_merged_data", exporting)
    [second] = trainer().train(database.repositories[:2], database, tmp_path / "data")
    assert (second.task, second.parent) == (f"https://example.org/demo/bee@{'2' * 40}", None)
    assert "there is nothing to learn" in capsys.readouterr().out


def test_several_gpus_are_refused_where_no_program_can_be_started_again(
    trainer: Callable[..., RetrievalTrainer], database: DynamicDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainers, "device_of", lambda _name: torch.device("cuda"))
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(ConfigError, match=r"num_gpus is 2: .*interactive one cannot\. Run it as a script"):
        trainer(num_gpus=2).train(database.repositories, database)


def test_replay_is_refused_where_all_is_learned_again(trainer: Callable[..., RetrievalTrainer]) -> None:
    with pytest.raises(ConfigError, match=r'nothing is left to replay\. Take "ewc"'):
        trainer(against_forgetting="replay+average")


def test_a_checkpoint_that_is_named_is_begun_at_instead_of_head(
    tmp_path: Path, database: DynamicDatabase, learned: Learned, continued: RetrievalTrainer
) -> None:
    made, repos = continued, database.repositories
    first, second = learned.links
    link = made.chain.path(first.checkpoint)
    [branched] = made.train(repos[2:], database, tmp_path / "data", model_checkpoint_path=link)
    assert branched.parent == first.checkpoint
    assert head(made) == branched.checkpoint != second.checkpoint


def test_leandojo_s_newest_checkpoint_is_begun_at_where_there_is_no_head(
    tmp_path: Path,
    database: DynamicDatabase,
    trainer: Callable[..., RetrievalTrainer],
    model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    encoder = load_encoder(model).state_dict()
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for age, factor in enumerate((1.5, 2.0)):
        weights = {f"encoder.{name}": value * factor for name, value in encoder.items()}
        saved = {"state_dict": weights, "hyper_parameters": {"model_name": str(model)}}
        torch.save(saved, folder / f"{factor}.ckpt")
        os.utime(folder / f"{factor}.ckpt", (1000 - age, 1000 - age))
    made = trainer()
    [first] = made.train(database.repositories[:1], database, tmp_path / "data")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"training begins at {folder / '1.5.ckpt'}, which LeanDojo wrote"
    assert first.base == str(folder / "1.5.ckpt")
    begun = load_encoder(first.base).state_dict()
    assert all(torch.equal(begun[name], value * 1.5) for name, value in encoder.items())
    assert made.train(database.repositories[:1], database, tmp_path / "data") == []
    [named] = made.train(database.repositories[:1], database, tmp_path / "data", folder / "1.5.ckpt")
    assert named == first
    found, tokenizer = (
        load_encoder(made.chain.path(first.checkpoint)),
        load_tokens(made.chain.path(first.checkpoint)),
    )
    assert found.state_dict().keys() == encoder.keys()
    assert tokenizer is byte_ids
    with pytest.raises(ModelError, match=r"none\.ckpt cannot be loaded"):
        made.train(database.repositories[:1], database, tmp_path / "data", tmp_path / "none.ckpt")


def test_leandojo_s_default_model_that_was_never_fetched_is_named_with_how_to_fetch_it(
    tmp_path: Path, database: DynamicDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("We couldn't connect to the hub")

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", refused)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", refused)
    made = RetrievalTrainer(checkpoints=tmp_path / "checkpoints")
    name = "kaiyuy/leandojo-lean4-retriever-byt5-small"
    said = rf"{name} cannot be loaded \(We couldn't connect.*hf download {name}`\. Name a folder"
    with pytest.raises(ModelError, match=said):
        made.train(database.repositories[:1], database, tmp_path / "data")
    with pytest.raises(ModelError, match=r"couldn't connect.*hf download bert-base-uncased`"):
        load_encoder("bert-base-uncased")
    with pytest.raises(ModelError, match="there is no such file or folder"):
        load_encoder(tmp_path / "none")


def test_a_relative_folder_is_that_of_the_trainer_s_making(
    tmp_path: Path, database: DynamicDatabase, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = TrainingConfig.from_dict(small_config(model, against_forgetting="ewc").to_dict())
    trainer = RetrievalTrainer(config, "checkpoints")
    monkeypatch.chdir("/")
    (made,) = trainer.train(database.repositories[:1], database, tmp_path / "data")
    assert (tmp_path / "checkpoints" / "HEAD" / "checkpoint.json").is_file()
    assert head(trainer) == made.checkpoint


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
    (made.chain.folder / "HEAD").symlink_to("0" * 16)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        made.evaluate(tmp_path / "data")
