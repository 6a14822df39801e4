from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import EvalLoopOutput

from pipeline.models.curve import CURVE, read_curve
from pipeline.models.errors import ConfigError, DatasetError, ModelError
from pipeline.models.progress.model import ProgressModel
from pipeline.models.progress.steps import Row, read_dataset
from pipeline.models.trainers import ProgressTrainer
from tests.models.progress.conftest import Trained
from tests.support.tiny_models import TinyKind, make_tiny


def trainer(data: Path, model: Path, out: Path, **changes: Any) -> ProgressTrainer:
    arguments: dict[str, Any] = {"epochs": 3, "learning_rate": 3e-3, "device": "cpu"}
    return ProgressTrainer(data, str(model), out, **{**arguments, **changes})


def held_out(data: Path, *, seed: int = 42) -> tuple[Row, ...]:
    return read_dataset(data, eval_ratio=0.2, seed=seed).held_out


def mse(model: Path, rows: tuple[Row, ...]) -> float:
    found = ProgressModel(model, device="cpu").predict([row.step for row in rows])
    return sum((value - row.steps_remaining) ** 2 for value, row in zip(found, rows, strict=True)) / len(rows)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_trained_model_is_far_better_than_a_constant_on_proofs_it_has_not_seen(
    data: Path, trained: Trained
) -> None:
    measures = trained.made.measures
    assert trained.made.rows + len(held_out(data)) == 100
    assert measures["mse"] < 0.2 * measures["constant_mse"]
    # Predictions are at least 0, the Trainer's are as they come.
    assert mse(trained.folder, held_out(data)) == pytest.approx(measures["mse"], abs=0.05)
    said = json.loads((trained.folder / "checkpoint.json").read_text(encoding="utf-8"))
    assert said["about"]["fitted"]["measures"] == measures


def test_the_best_epoch_is_kept_and_not_the_last_nor_the_worst(
    data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    class Scripted(Trainer):  # type: ignore[misc]
        def evaluation_loop(self, *arguments: Any, **named: Any) -> EvalLoopOutput:
            found = super().evaluation_loop(*arguments, **named)
            seen.append(found.metrics["eval_loss"])
            found.metrics["eval_loss"] = [5.0, 1.0, 3.0][len(seen) - 1]
            return found

    monkeypatch.setattr("pipeline.models.progress.training.Trainer", Scripted)
    made = trainer(data, model, tmp_path / "out").train()
    assert made.measures["mse"] == 1.0
    assert len(seen) == 3
    kept = mse(tmp_path / "out", held_out(data))
    assert min(seen, key=lambda value: abs(value - kept)) == seen[1]
    assert abs(seen[1] - seen[2]) > 2 * abs(seen[1] - kept), "the epochs can be told apart"


def test_a_run_of_other_settings_is_not_gone_on_with(data: Path, model: Path, tmp_path: Path) -> None:
    class Counted(TrainerCallback):  # type: ignore[misc]
        steps = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.steps += 1
            if state.global_step == 15:
                raise KeyboardInterrupt

    out, other, same = tmp_path / "out", Counted(), Counted()
    with pytest.raises(KeyboardInterrupt):
        trainer(data, model, out, epochs=2, callbacks=[Counted()]).train()
    made = trainer(data, model, out, epochs=1, callbacks=[other]).train()
    assert other.steps == made.steps == math.ceil(made.rows / 8)
    assert not list((tmp_path / "out.chain" / ".runs").iterdir())
    assert trainer(data, model, out, epochs=1, callbacks=[same]).train() == made
    assert same.steps == 0, "it is there"


def test_a_run_killed_after_a_part_of_an_epoch_ends_as_another(
    data: Path, model: Path, tmp_path: Path
) -> None:
    class Kill(TrainerCallback):  # type: ignore[misc]
        def on_train_end(self, *_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(data, model, tmp_path / "killed", epochs=1.5, callbacks=[Kill()]).train()
    again, whole = (trainer(data, model, tmp_path / name, epochs=1.5).train() for name in ("killed", "whole"))
    assert again == whole
    assert again.steps == math.ceil(1.5 * math.ceil(again.rows / 8))
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


def test_training_goes_on_from_a_trained_model_and_replaces_one_that_is_there(
    data: Path, model: Path, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    trainer(data, model, out, epochs=1, learning_rate=1e-4).train()
    before = weights(out)
    made = trainer(data, trained.folder, out, epochs=1, learning_rate=1e-4).train()
    first = read_curve((trained.folder / CURVE).read_bytes())["eval_loss"][0]
    assert made.measures["mse"] < first[1], "it does not begin anew"
    assert weights(out) not in (weights(trained.folder), before)
    ProgressModel(out, device="cpu")
    assert capsys.readouterr().out == "", "a job's stdout is not the Trainer's to write on"


@pytest.mark.parametrize("kind", ["seq2seq", "causal"])
def test_any_text_model_gets_a_head(data: Path, tmp_path: Path, kind: TinyKind) -> None:
    base = make_tiny(kind, tmp_path / "base")
    made = trainer(data, base, tmp_path / "out", epochs=1).train()
    assert made.measures["mse"] < 10 * made.measures["constant_mse"]
    assert mse(tmp_path / "out", held_out(data)) == pytest.approx(made.measures["mse"], rel=0.3)


def test_texts_are_as_long_in_use_as_in_training_and_no_longer_than_the_model_takes(
    data: Path, model: Path, tmp_path: Path
) -> None:
    for asked, taken in ((4096, 512), (100, 100)):
        trainer(data, model, tmp_path / "out", epochs=1, max_length=asked).train()
        assert ProgressModel(tmp_path / "out", device="cpu").tokenizer.model_max_length == taken


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"eval_ratio": 1.0}, "eval_ratio is 1.0: it takes a number between 0 and 1"),
        ({"max_length": "512"}, "max_length is '512'"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(
    data: Path, model: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        trainer(data, model, tmp_path, **changes)


def test_a_model_or_data_that_cannot_be_used_is_named(data: Path, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere cannot be loaded"):
        trainer(data, tmp_path / "nowhere", tmp_path / "out").train()
    bare = shutil.copytree(model, tmp_path / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bare / name).unlink()
    with pytest.raises(ModelError, match="bare has no tokenizer"):
        trainer(data, bare, tmp_path / "out").train()
    with pytest.raises(ModelError, match="weights of a T5ForSequenceClassification"):
        trainer(data, make_tiny("encoder", tmp_path / "encoder"), tmp_path / "out").train()
    with pytest.raises(DatasetError, match="cannot be read"):
        trainer(tmp_path / "none.jsonl", model, tmp_path / "out").train()
