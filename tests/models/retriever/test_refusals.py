"""What cannot be learned from, or has diverged, is an error that says so and leaves no checkpoint."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.errors import ConfigError, DatasetError, DivergedError, ModelError
from pipeline.models.retriever import training
from pipeline.models.retriever.batches import Batch, read_lesson
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, load_encoder
from pipeline.models.retriever.ewc import ElasticWeights
from pipeline.models.retriever.learning import learn
from tests.models.retriever.conftest import train_task
from tests.support.retrieval import small_config
from tests.support.tiny_models import make_tiny_retriever

pytestmark = pytest.mark.timeout(300)


def test_a_checkpoint_of_another_architecture_is_refused(
    tmp_path: Path, config: RetrieverConfig, tasks: list[TaskData], model: Path
) -> None:
    mixed = shutil.copytree(make_tiny_retriever(tmp_path / "wide", d_model=64, layers=1), tmp_path / "mixed")
    shutil.copy(model / "config.json", mixed)
    with pytest.raises(ModelError, match="cannot be loaded"):
        learn(tasks[0], Chain(tmp_path / "chain"), small_config(mixed), parent=None)
    deeper = make_tiny_retriever(tmp_path / "deeper", d_model=32, layers=2)
    shutil.copy(model / "model.safetensors", deeper)
    with pytest.raises(ModelError, match="not a whole checkpoint"):
        learn(tasks[0], Chain(tmp_path / "chain"), small_config(deeper), parent=None)
    bert = tmp_path / "bert"
    bert.mkdir()
    (bert / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match=r"bert|tokenizer"):
        learn(tasks[0], Chain(tmp_path / "chain"), small_config(bert), parent=None)
    (mixed / "model.safetensors").write_bytes(b"\x01" * 100)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_encoder(mixed)
    assert not list((tmp_path / "chain").glob("[0-9a-f]*"))


def test_a_dataset_that_is_torn_is_named(
    tmp_path: Path, config: RetrieverConfig, tasks: list[TaskData]
) -> None:
    torn = shutil.copytree(tasks[0].dataset, tmp_path / "torn")
    (torn / "random" / "val.json").write_text("[{")
    with pytest.raises(DatasetError, match=r"val\.json"):
        learn(TaskData("x", torn), Chain(tmp_path / "chain"), config, parent=None)


def test_a_gradient_that_is_no_number_in_the_last_step_leaves_no_checkpoint(
    tmp_path: Path, config: RetrieverConfig, tasks: list[TaskData], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter(range(6))

    def spoil(_self: ElasticWeights, encoder: Encoder, _size: float, *, measured: bool) -> None:
        if measured and next(steps) == 0:  # the last step alone, of a task as small as this one
            next(encoder.parameters()).grad.fill_(float("nan"))

    monkeypatch.setattr(ElasticWeights, "on_gradients", spoil)
    chain = Chain(tmp_path / "chain")
    with pytest.raises(DivergedError, match="grad_norm of step 6 is nan"):
        learn(tasks[0], chain, config, parent=None)
    assert not list(chain.folder.glob("[0-9a-f]*"))


def test_a_gpu_that_is_not_there_is_named(tmp_path: Path, tasks: list[TaskData], model: Path) -> None:
    chain = Chain(tmp_path / "chain")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no GPU here"):
            learn(tasks[0], chain, small_config(model, device="cuda"), parent=None)


@pytest.mark.parametrize(("epochs", "read_at"), [(1, 3), (99, 10)], ids=["a short run", "a long run"])
def test_a_loss_that_is_no_number_ends_a_run_when_it_is_read_in_a_long_one_with_others(
    tmp_path: Path,
    tasks: list[TaskData],
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    epochs: int,
    read_at: int,
) -> None:
    done: list[int] = []
    losses = iter(range(1, 1000))

    def lost(self: training._Loss, batch: Batch) -> dict[str, torch.Tensor]:
        step = next(losses)
        return {"loss": next(self.parameters()).sum() * 0 + (math.nan if step == 3 else 0.5)}

    monkeypatch.setattr(training._Loss, "forward", lost)
    config = small_config(model, max_epochs=epochs, against_forgetting="none")
    unmeasured = replace(read_lesson(tasks[0].dataset, config), val=())
    with pytest.raises(DivergedError, match=f"loss of step {read_at} is nan"):
        train_task(
            model, unmeasured, config, tmp_path / "run", on_step=lambda step, _total: done.append(step)
        )
    assert done == list(range(1, read_at + 1))
