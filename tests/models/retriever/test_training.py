"""One task's run on a tiny encoder: epochs, dropout, precision, and silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipeline.models.chain import Chain
from pipeline.models.curve import CURVE
from pipeline.models.datasets import TaskData
from pipeline.models.libraries import tensors_digest
from pipeline.models.retriever import training
from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.config import MEASURES, RetrieverConfig
from pipeline.models.retriever.learning import learn
from pipeline.models.retriever.training import Learner, data_module, train_task
from tests.models.retriever.conftest import Taught
from tests.support.retrieval import small_config
from tests.support.tiny_models import make_tiny_retriever

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("remembered", "best"),
    [([None] * 4, 1), ([0.9, 0.4, 0.5, 0.8], 3)],
    ids=["the first task", "what is forgotten of earlier ones counts as much"],
)
def test_the_best_epoch_s_weights_are_kept_and_what_is_said_of_them_is_theirs(
    tmp_path: Path,
    tasks: list[TaskData],
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    remembered: list[float | None],
    best: int,
) -> None:
    given = [20.0, 60.0, 40.0, 50.0]
    scores, kept = iter(given), iter(remembered)
    seen: list[dict[str, torch.Tensor]] = []

    def measured(self: training._Trainer) -> tuple[dict[str, float], float | None]:
        seen.append({name: value.clone() for name, value in self.model.encoder.state_dict().items()})
        return {"Recall@1_val": 0.0, "Recall@10_val": next(scores), "MRR": 0.0}, next(kept)

    monkeypatch.setattr(training._Trainer, "_measured", measured)
    config = small_config(model, max_epochs=4, against_forgetting="none")
    data = data_module(tasks[0].dataset, config, tokens_of=model)
    made = train_task(model, data, config, run=tmp_path / "run").encoder
    assert tensors_digest(made.state_dict()) == tensors_digest(seen[best])
    assert not made.training


def test_a_single_epoch_is_kept_without_a_validation(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validations: list[int] = []
    rated = training.evaluate

    def counted(*about: Any, **more: Any) -> Any:
        validations.append(1)
        return rated(*about, **more)

    monkeypatch.setattr(training, "evaluate", counted)
    for epochs, begun in ((1, 0), (2, 2)):
        config = small_config(model, max_epochs=epochs, against_forgetting="none")
        data = data_module(tasks[0].dataset, config, tokens_of=model)
        curve = train_task(model, data, config, run=tmp_path / str(epochs)).curve
        assert len(validations) == begun
        assert [len(curve.points(name)) for name in MEASURES] == [begun] * 3


def test_dropout_is_on_while_a_task_is_learned(
    tmp_path: Path, tasks: list[TaskData], monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: set[bool] = set()
    forward = Learner.forward

    def watched(self: Learner, new: Batch, again: Batch | None) -> torch.Tensor:
        modes.update(module.training for module in self.encoder.modules())
        return forward(self, new, again)

    monkeypatch.setattr(Learner, "forward", watched)
    dropping = make_tiny_retriever(tmp_path / "dropping", d_model=32, layers=1, dropout=0.2)
    config = small_config(dropping, max_epochs=2, against_forgetting="none")
    data = data_module(tasks[0].dataset, config, tokens_of=dropping)
    train_task(dropping, data, config, run=tmp_path / "run")
    assert modes == {True}


@pytest.mark.parametrize(
    "precision",
    ["bf16-true", *(pytest.param(name, marks=pytest.mark.slow) for name in ("64-true", "bf16-mixed"))],
)
def test_whatever_a_run_computes_in_its_checkpoint_is_float32_and_the_next_task_is_pulled_to_it(
    tmp_path: Path, tasks: list[TaskData], model: Path, precision: str
) -> None:
    config = small_config(model, precision=precision, lambda_value=5.0)
    chain = Chain(tmp_path / "chain")
    first = learn(tasks[0], chain, config, parent=None)
    saved = load_file(chain.path(first.checkpoint) / "model.safetensors")
    assert {value.dtype for value in saved.values()} == {torch.float32}
    second = learn(tasks[1], chain, config, parent=first.checkpoint)
    curve = json.loads((chain.path(second.checkpoint) / CURVE).read_text())
    assert curve["ewc/lambda"][-1][0] == second.steps
    assert curve["ewc/penalty"][-1][1] > 0


def test_what_a_run_made_is_not_saved_as_a_checkpoint_once_it_is_damaged(
    tmp_path: Path,
    tasks: list[TaskData],
    taught: Taught,
    config: RetrieverConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = Chain(tmp_path / "own")
    with monkeypatch.context() as patched:
        patched.setattr(Chain, "put", lambda *_, **__: (_ for _ in ()).throw(InterruptedError))
        with pytest.raises(InterruptedError):
            learn(tasks[0], chain, config, parent=None)
    [made] = chain.folder.glob(".runs/*/steps/checkpoint-6/pytorch_model.bin")
    data = bytearray(made.read_bytes())
    data[len(data) // 2] ^= 1
    made.write_bytes(data)
    steps: list[int] = []
    again = learn(tasks[0], chain, config, parent=None, on_step=lambda done, _: steps.append(done))
    assert steps == [1, 2, 3, 4, 5, 6]
    assert again.digest == taught.checkpoints[0].digest


def test_a_run_that_is_cut_off_between_an_epoch_s_last_step_and_its_validation_still_validates_it(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(model, max_epochs=3, save_minutes=0.0, against_forgetting="none")

    validated: list[int] = []
    measure = training._Trainer._measured

    def run(where: str) -> str:
        data = data_module(tasks[0].dataset, config, tokens_of=model)
        return tensors_digest(train_task(model, data, config, run=tmp_path / where).encoder.state_dict())

    def noted(self: training._Trainer) -> tuple[dict[str, float], float | None]:
        validated.append(self.state.global_step)
        return measure(self)

    def cut(self: training._Trainer) -> tuple[dict[str, float], float | None]:
        if self.state.global_step == 12:
            raise LookupError
        return noted(self)

    monkeypatch.setattr(training._Trainer, "_measured", noted)
    whole = run("whole")
    assert validated == [6, 12, 18]
    with monkeypatch.context() as patched:
        patched.setattr(training._Trainer, "_measured", cut)
        with pytest.raises(LookupError):
            run("cut")
    assert run("cut") == whole
    assert validated == [6, 12, 18, 6, 12, 18]
