"""Trackers and callbacks of a researcher: passed through, and none where nobody asks."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from pipeline.models.config import TacticsConfig
from pipeline.models.curve import CURVE, read_curve
from pipeline.models.errors import ConfigError
from pipeline.models.running import Reports, Saves, Training, trackers
from pipeline.models.tactics.grpo import as_documented
from pipeline.models.tactics.rows import Row
from pipeline.models.tactics.training import FineTuning
from tests.support.tiny_models import make_tiny_causal


def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "pipeline.models.running.get_available_reporting_integrations", lambda: ["tensorboard", "wandb"]
    )
    assert trackers("none") == trackers([]) == []
    assert trackers(["tensorboard", "wandb"]) == ["tensorboard", "wandb"]
    with pytest.raises(
        ConfigError, match=r"report_to is 'mlflow'.*installed trackers \(tensorboard, wandb\)"
    ):
        trackers(["mlflow"])
    with pytest.raises(ConfigError, match="report_to is 'all'"):
        trackers("all")


def test_a_callback_is_told_of_the_run_and_trackers_are_off_unless_named(tmp_path: Path) -> None:
    class Heard(TrainerCallback):  # type: ignore[misc]
        losses: list[float]

        def on_train_begin(self, args: Any, *_: Any, **__: Any) -> None:
            self.losses, self.report_to = [], args.report_to

        def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
            self.losses += [logs["loss"]] if logs and "loss" in logs else []

    heard, out = Heard(), tmp_path / "out"
    model = str(make_tiny_causal(tmp_path / "tiny"))
    config = TacticsConfig(model, batch_size=2, max_seq_len=400, device="cpu")
    training = FineTuning(config, model, Reports(callbacks=[heard]))
    rows = [Row(f"⊢ p{n}", "simp", "t", "A.lean", 0) for n in range(6)]
    training.fit(rows, Saves(tmp_path / "saves"))
    training.write(out)
    assert heard.report_to == []
    assert [value for _, value in read_curve((out / CURVE).read_bytes())["loss"]] == pytest.approx(
        heard.losses
    )
    assert len(heard.losses) == 3


def test_a_reward_without_a_name_has_one_that_every_tracker_takes() -> None:
    assert as_documented(lambda **_: [0.0]).__name__ == "lambda"


def test_a_run_of_w_and_b_ends_with_its_training_unless_the_caller_began_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finished: list[Any] = []
    wandb: Any = SimpleNamespace(run=None, finish=lambda: finished.append(wandb.run))
    monkeypatch.setitem(sys.modules, "wandb", wandb)

    class Trains:
        state = SimpleNamespace(global_step=1, log_history=[])
        model = torch.nn.Linear(1, 1)
        callback_handler = SimpleNamespace(callbacks=[])

        def remove_callback(self, _callback: Any) -> None: ...

        def add_callback(self, _callback: Any) -> None: ...

        def _save_checkpoint(self) -> None: ...

        def train(self, **_: Any) -> None:
            wandb.run = wandb.run or "of the training"

    training: Any = SimpleNamespace(reports=Reports(trackers=["wandb"]))
    Training.drive(training, Trains(), Saves(tmp_path))
    assert finished == ["of the training"]
    wandb.run = "of the caller"
    Training.drive(training, Trains(), Saves(tmp_path))
    assert finished == ["of the training"]
