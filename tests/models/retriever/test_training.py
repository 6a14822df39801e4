"""One task's run on a tiny encoder: epochs, dropout, precision, and silence."""

from __future__ import annotations

import io
import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipeline.jobs import preemption
from pipeline.models.chain import Chain
from pipeline.models.curve import CURVE
from pipeline.models.datasets import TaskData
from pipeline.models.libraries import tensors_digest
from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.learning import learn
from pipeline.models.retriever.retriever import MEASURES, PremiseRetriever
from pipeline.models.retriever.saving import BestWeights
from pipeline.models.retriever.strategies import Protection
from pipeline.models.retriever.training import data_module, train_task
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

    def scored(self: PremiseRetriever) -> None:
        seen.append({name: value.clone() for name, value in self.encoder.state_dict().items()})
        score = next(scores)
        self.log_dict({"Recall@1_val": score / 2, "Recall@10_val": score, "MRR": score / 100})

    monkeypatch.setattr(PremiseRetriever, "on_validation_epoch_end", scored)
    monkeypatch.setattr(Protection, "remembered", lambda *_: next(kept))
    config = small_config(model, max_epochs=4, against_forgetting="none")
    data = data_module(tasks[0].dataset, config, tokens_of=model)
    made, trained = train_task(model, data, config, run=tmp_path / "run")
    assert tensors_digest(made.encoder.state_dict()) == tensors_digest(seen[best])
    assert trained.validation == {
        "Recall@1_val": given[best] / 2,
        "Recall@10_val": given[best],
        "MRR": pytest.approx(given[best] / 100),
    }
    assert not made.training


def test_processes_that_round_differently_keep_the_same_epoch() -> None:
    for own in (0.1, 0.9):
        best = BestWeights(
            monitor="MRR", highest=1.0, mode="max", every_n_epochs=1, remembered=partial(float, own)
        )
        best.score = 0.6
        trainer: Any = SimpleNamespace(
            sanity_checking=False,
            current_epoch=0,
            callback_metrics={"MRR": 0.5},
            strategy=SimpleNamespace(broadcast=lambda _: 0.6),
        )
        best.on_validation_end(trainer, trainer)
        assert not best.weights


def test_a_single_epoch_is_kept_without_a_validation(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validations: list[str] = []
    monkeypatch.setattr(PremiseRetriever, "on_validation_start", lambda _self: validations.append("begun"))
    monkeypatch.setattr(PremiseRetriever, "validation_step", lambda *_: None)
    zeros = dict.fromkeys(MEASURES, 0.0)
    monkeypatch.setattr(PremiseRetriever, "on_validation_epoch_end", lambda self: self.log_dict(zeros))
    for epochs, begun in ((1, []), (2, ["begun", "begun"])):
        config = small_config(model, max_epochs=epochs, against_forgetting="none")
        data = data_module(tasks[0].dataset, config, tokens_of=model)
        run = tmp_path / str(epochs)
        _, trained = train_task(model, data, config, run=run)
        assert validations == begun
        assert set(trained.validation) == (set(MEASURES) if begun else set())


def test_a_progress_bar_is_drawn_on_a_terminal_and_never_into_a_file(
    tmp_path: Path, tasks: list[TaskData], config: RetrieverConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[bool] = []

    def begun(self: PremiseRetriever) -> None:
        shown.append(self.trainer.progress_bar_callback is not None)
        raise InterruptedError

    monkeypatch.setattr(PremiseRetriever, "on_fit_start", begun)
    for stream in ("stdout", "stderr"):
        terminal = io.StringIO()
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        with monkeypatch.context() as patched:
            patched.setattr(sys, stream, terminal)
            with pytest.raises(InterruptedError):
                learn(tasks[0], Chain(tmp_path / stream), config, parent=None)
    # Lightning draws on the standard output.
    assert shown == [True, False]


def test_dropout_is_on_while_a_task_is_learned(
    tmp_path: Path, tasks: list[TaskData], monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: set[bool] = set()
    forward = PremiseRetriever.forward

    def watched(self: PremiseRetriever, batch: Batch) -> torch.Tensor:
        modes.update(module.training for module in self.encoder.modules())
        return forward(self, batch)

    monkeypatch.setattr(PremiseRetriever, "forward", watched)
    dropping = make_tiny_retriever(tmp_path / "dropping", d_model=32, layers=1, dropout=0.2)
    config = small_config(dropping, max_epochs=2, against_forgetting="none")
    data = data_module(tasks[0].dataset, config, tokens_of=dropping)
    train_task(dropping, data, config, run=tmp_path / "run")
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


def test_a_run_that_is_cut_off_after_any_step_of_an_epoch_takes_all_that_are_left(
    tmp_path: Path, tasks: list[TaskData], model: Path
) -> None:
    config = small_config(model, save_minutes=0.0, against_forgetting="none", num_hard_negatives=0)
    whole = learn(tasks[0], Chain(tmp_path / "whole"), config, parent=None)
    cut = Chain(tmp_path / "cut")

    def train(until: int) -> list[int]:
        steps: list[int] = []

        def on_step(done: int, _total: int) -> None:
            steps.append(done)
            if done == until:
                raise InterruptedError

        learn(tasks[0], cut, config, parent=None, on_step=on_step)
        return steps

    # The step that is cut off is not saved yet.
    for until in range(2, whole.steps + 1):
        with pytest.raises(InterruptedError):
            train(until)
    assert train(0) == [whole.steps]
    assert cut.read(whole.checkpoint).digest == whole.digest


def test_a_run_that_is_cut_off_between_an_epoch_s_last_step_and_its_validation_still_validates_it(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(model, max_epochs=3, save_minutes=0.0, against_forgetting="none")

    epochs: list[int] = []
    validated = PremiseRetriever.on_validation_epoch_end
    begun = PremiseRetriever.on_validation_start

    def run(where: str) -> str:
        data = data_module(tasks[0].dataset, config, tokens_of=model)
        made, *_ = train_task(model, data, config, run=tmp_path / where)
        return tensors_digest(made.encoder.state_dict())

    def cut(self: PremiseRetriever) -> None:
        if self.trainer.current_epoch == 1:
            raise InterruptedError
        begun(self)

    def noted(self: PremiseRetriever) -> None:
        epochs.append(self.trainer.current_epoch)
        validated(self)

    monkeypatch.setattr(PremiseRetriever, "on_validation_epoch_end", noted)
    whole = run("whole")
    assert epochs == [0, 1, 2]
    with monkeypatch.context() as patched:
        patched.setattr(PremiseRetriever, "on_validation_start", cut)
        with pytest.raises(InterruptedError):
            run("cut")
    assert run("cut") == whole
    assert epochs == [0, 1, 2, 0, 1, 2]


def test_a_job_that_is_to_make_way_while_ewc_estimates_does_so_and_learns_nothing(
    tmp_path: Path, tasks: list[TaskData], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    config = small_config(model, max_epochs=1)
    data = data_module(tasks[0].dataset, config, tokens_of=model)
    monkeypatch.setattr(preemption, "wanted", lambda: len(seen) > 1)
    with pytest.raises(preemption.Yielded, match="75"):
        train_task(model, data, config, run=tmp_path / "run", on_held=lambda *done: seen.append(done))
    assert seen == [(0, 8), (1, 8)]
    assert not list(tmp_path.rglob("*.ckpt"))
