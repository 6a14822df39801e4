"""One task's run on a tiny encoder: epochs, dropout, precision, and silence."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipeline.jobs import preemption
from pipeline.models import running
from pipeline.models.chain import Chain
from pipeline.models.curve import CURVE
from pipeline.models.datasets import TaskData
from pipeline.models.errors import CheckpointError
from pipeline.models.libraries import tensors_digest
from pipeline.models.retriever import batches, training
from pipeline.models.retriever.batches import read_lesson
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, embed
from pipeline.models.retriever.index import Retriever
from pipeline.models.retriever.learning import learn
from pipeline.models.retriever.training import RetrieverTraining, mixed_precision, validate
from pipeline.models.running import Reports
from store.files import sync_tree
from tests.models.retriever.conftest import train_task
from tests.support.retrieval import small_config, write_dataset
from tests.support.tiny_models import make_tiny_retriever

pytestmark = pytest.mark.timeout(300)


class CutOffError(Exception):
    """The end of a run from outside."""


class Validations:
    """Says how good an epoch is in place of a validation, and how much it remembers; notes the weights of each."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        scores: Sequence[float],
        remembered: Sequence[float | None] = (None,) * 9,
    ) -> None:
        self.weights: list[str] = []
        self._scores, self._remembered = iter(scores), iter(remembered)
        monkeypatch.setattr(training, "validate", self._validate)
        monkeypatch.setattr(training, "remembered", lambda *_: next(self._remembered))

    def _validate(self, retriever: Retriever, *_: Any, **__: Any) -> dict[str, float]:
        self.weights.append(tensors_digest(retriever.encoder.state_dict()))
        score = next(self._scores)
        return {"Recall@1_val": score / 2, "Recall@10_val": score, "MRR": score / 100}


def run(task: TaskData, config: RetrieverConfig, folder: Path, **given: Any) -> RetrieverTraining:
    return train_task(config.model_name, read_lesson(task.dataset, config), config, folder, **given)


@pytest.mark.parametrize(
    ("remembered", "best"),
    [([None] * 4, 1), ([0.9, 0.4, 0.5, 0.8], 3)],
    ids=["the first task", "what is forgotten of earlier ones counts as much"],
)
def test_the_best_epoch_s_weights_are_kept(
    tmp_path: Path,
    tasks: list[TaskData],
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    remembered: list[float | None],
    best: int,
) -> None:
    seen = Validations(monkeypatch, [20.0, 60.0, 40.0, 50.0], remembered)
    config = small_config(model, max_epochs=4, against_forgetting="none")
    trained = run(tasks[0], config, tmp_path / "run")
    assert len(seen.weights) == 4
    assert tensors_digest(trained.encoder.state_dict()) == seen.weights[best]
    assert [score for _, score in trained.curve.measured["Recall@10_val"]] == [20.0, 60.0, 40.0, 50.0]
    assert not trained.encoder.training


def test_training_stops_after_epochs_without_a_better_one(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Validations(monkeypatch, [20.0, 60.0, 40.0, 60.0])
    config = small_config(model, max_epochs=9, early_stopping_patience=2, against_forgetting="none")
    trained = run(tasks[0], config, tmp_path / "run")
    assert trained.curve.measured["loss"][-1][0] == 4 * trained.curve.measured["MRR"][0][0]
    assert tensors_digest(trained.encoder.state_dict()) == seen.weights[1]


def test_processes_that_round_differently_keep_the_same_epoch(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = iter([60.0, 40.0])

    def of_first(own: tuple[dict[str, float], float]) -> tuple[dict[str, float], float]:
        score = next(first)
        return {**own[0], "Recall@10_val": score}, score / 100

    monkeypatch.setattr(training, "of_first", of_first)
    seen = Validations(monkeypatch, [59.9, 60.1])
    trained = run(tasks[0], small_config(model, max_epochs=2), tmp_path / "run")
    assert tensors_digest(trained.encoder.state_dict()) == seen.weights[0]


def test_a_single_epoch_is_kept_without_a_validation(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epochs, validations in ((1, 0), (2, 2)):
        seen = Validations(monkeypatch, [0.0, 0.0])
        config = small_config(model, max_epochs=epochs, against_forgetting="none")
        trained = run(tasks[0], config, tmp_path / str(epochs))
        assert len(seen.weights) == validations
        assert "ewc/penalty" not in trained.curve.measured


def test_dropout_is_on_while_a_task_is_learned(
    tmp_path: Path, tasks: list[TaskData], monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: set[bool] = set()

    def watched(encoder: Encoder, *given: Any, **named: Any) -> torch.Tensor:
        modes.update(module.training for module in encoder.modules())
        return embed(encoder, *given, **named)

    monkeypatch.setattr(batches, "embed", watched)
    dropping = make_tiny_retriever(tmp_path / "dropping", d_model=32, layers=1, dropout=0.2)
    config = small_config(dropping, max_epochs=2, against_forgetting="none")
    run(tasks[0], config, tmp_path / "run")
    assert modes == {True}


def test_whatever_a_run_computes_in_its_checkpoint_is_float32_and_the_next_task_is_pulled_to_it(
    tmp_path: Path, tasks: list[TaskData], model: Path
) -> None:
    config = small_config(model, precision="bf16-mixed", lambda_value=5.0)
    chain = Chain(tmp_path / "chain")
    first = learn(tasks[0], chain, config, parent=None)
    saved = load_file(chain.path(first.checkpoint) / "model.safetensors")
    assert {value.dtype for value in saved.values()} == {torch.float32}
    second = learn(tasks[1], chain, config, parent=first.checkpoint)
    curve = json.loads((chain.path(second.checkpoint) / CURVE).read_text())
    assert curve["ewc/lambda"][-1][0] == second.steps
    assert curve["ewc/penalty"][-1][1] > 0


def test_the_gradients_of_a_step_s_many_passes_are_added_up_in_float32(model: Path) -> None:
    weight = torch.ones(1, 1, requires_grad=True)
    with mixed_precision(small_config(model, precision="bf16-mixed"), torch.device("cpu")):
        passes = [torch.nn.functional.linear(torch.ones(1, 1), weight) for _ in range(1000)]
    assert passes[0].dtype == torch.bfloat16
    (gradient,) = torch.autograd.grad(torch.cat(passes).float().sum(), weight)
    assert gradient.item() == 1000.0


def test_a_run_that_is_cut_off_after_any_step_of_an_epoch_takes_all_that_are_left(
    tmp_path: Path, tasks: list[TaskData], model: Path
) -> None:
    config = small_config(model, save_minutes=0.0, against_forgetting="none")
    whole = learn(tasks[0], Chain(tmp_path / "whole"), config, parent=None)
    cut = Chain(tmp_path / "cut")

    def train(until: int) -> list[int]:
        steps: list[int] = []

        def on_step(done: int, _total: int) -> None:
            steps.append(done)
            if done == until:
                raise CutOffError

        learn(tasks[0], cut, config, parent=None, reports=Reports(on_step))
        return steps

    # The step that is cut off is not saved yet.
    for until in range(2, whole.steps + 1):
        with pytest.raises(CutOffError):
            train(until)
    assert train(0) == [whole.steps]
    assert cut.read(whole.checkpoint).about["digest"] == whole.about["digest"]


def test_a_run_that_is_cut_off_between_an_epoch_s_last_step_and_its_validation_still_validates_it(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(model, max_epochs=3, save_minutes=0.0, against_forgetting="none")
    validated: list[dict[str, float]] = []

    def noted(*given: Any, **named: Any) -> dict[str, float]:
        validated.append(validate(*given, **named))
        return validated[-1]

    def cut(*given: Any, **named: Any) -> dict[str, float]:
        if len(validated) == 4:
            raise CutOffError
        return noted(*given, **named)

    monkeypatch.setattr(training, "validate", noted)
    whole = run(tasks[0], config, tmp_path / "whole").encoder
    with monkeypatch.context() as patched:
        patched.setattr(training, "validate", cut)
        with pytest.raises(CutOffError):
            run(tasks[0], config, tmp_path / "cut")
    again = run(tasks[0], config, tmp_path / "cut").encoder
    assert tensors_digest(again.state_dict()) == tensors_digest(whole.state_dict())
    assert validated[3:] == validated[:3]


def test_a_job_that_is_to_make_way_while_ewc_estimates_does_so_and_learns_nothing(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    config = small_config(model, max_epochs=1)
    monkeypatch.setattr(preemption, "wanted", lambda: len(seen) > 1)
    with pytest.raises(preemption.Yielded, match="75"):
        run(tasks[0], config, tmp_path / "run", on_held=lambda *done: seen.append(done))
    assert seen == [(0, 8), (1, 8)]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "refusal",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("basic_ios::clear: iostream error"),  # PyTorch's
        Exception("No space left on device (os error 28)"),  # a tokenizer's
    ],
)
def test_a_preempted_run_that_cannot_be_saved_fails_and_does_not_yield(
    tmp_path: Path,
    tasks: list[TaskData],
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Exception,
) -> None:
    def full(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(torch, "save", full)
    monkeypatch.setattr(preemption, "wanted", lambda: True)
    with pytest.raises(CheckpointError, match=r"cannot be written .*Make room"):
        run(tasks[0], small_config(model, against_forgetting="none"), tmp_path / "run")


def test_a_repository_with_fewer_pairs_than_a_step_takes_is_learned_in_one(
    config: RetrieverConfig, tmp_path: Path
) -> None:
    few = TaskData("few", write_dataset(tmp_path / "few", seed=3, files=2, theorems=8))
    made = learn(few, Chain(tmp_path / "chain"), replace(config, batch_size=32), parent=None)
    assert made.steps == 1


def test_the_next_step_does_not_wait_for_the_disk(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    went_on, flush = threading.Event(), sync_tree

    def flush_later(folder: Path) -> None:
        assert went_on.wait(60)
        flush(folder)

    monkeypatch.setattr(running, "sync_tree", flush_later)
    config = small_config(model, save_minutes=0.0, against_forgetting="none")

    def on_step(done: int, _total: int) -> None:
        if done == 2:
            went_on.set()

    run(tasks[0], config, tmp_path / "run", on_step=on_step)


def test_a_save_that_the_disk_refused_fails_the_run_and_the_one_before_is_gone_on_from(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    config = small_config(model, save_minutes=0.0, against_forgetting="none")
    whole = run(tasks[0], config, tmp_path / "whole").encoder
    steps: list[int] = []

    def on_step(done: int, _total: int) -> None:
        steps.append(done)
        if done == 3:
            monkeypatch.setattr(running, "sync_tree", full)

    with pytest.raises(CheckpointError, match="No space left on device"):
        run(tasks[0], config, tmp_path / "run", on_step=on_step)
    monkeypatch.undo()
    again = run(tasks[0], config, tmp_path / "run", on_step=lambda done, _total: steps.append(done)).encoder
    assert steps == [1, 2, 3, 4, 3, 4, 5, 6]
    assert tensors_digest(again.state_dict()) == tensors_digest(whole.state_dict())


def test_a_run_whose_best_weights_a_disk_has_damaged_begins_again(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(model, max_epochs=2, against_forgetting="none")
    Validations(monkeypatch, [40.0, 30.0] * 2)
    whole = run(tasks[0], config, tmp_path / "run").encoder
    assert len([*(tmp_path / "run").glob("checkpoint-*")]) == 2
    (tmp_path / "run" / "checkpoint-6" / "weights.pt").write_bytes(b"")
    steps: list[int] = []
    again = run(tasks[0], config, tmp_path / "run", on_step=lambda done, _total: steps.append(done)).encoder
    assert steps == [*range(1, 13)]
    assert tensors_digest(again.state_dict()) == tensors_digest(whole.state_dict())


def test_a_save_that_a_disk_has_damaged_is_passed_over(
    tmp_path: Path, tasks: list[TaskData], model: Path
) -> None:
    config = small_config(model, save_minutes=0.0, against_forgetting="none")
    run(tasks[0], config, tmp_path / "run")
    (saved,) = (tmp_path / "run").glob("checkpoint-*/weights.pt")
    data = bytearray(saved.read_bytes())
    data[len(data) // 2] ^= 1
    steps: list[int] = []
    for damaged in (False, True):
        if damaged:
            saved.write_bytes(data)
        run(tasks[0], config, tmp_path / "run", on_step=lambda done, _total: steps.append(done))
    assert steps == [1, 2, 3, 4, 5, 6]
