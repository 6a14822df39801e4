from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from pipeline.lean.tactic_text import Step
from pipeline.models.errors import CheckpointError, ConfigError, ModelError
from pipeline.models.progress.model import ProgressModel, step_ids
from tests.models.progress.conftest import Trained
from tests.support.tiny_models import make_tiny_causal

STEPS = [Step(f"⊢ {'p ∧ ' * number}q", "simp", "intro h\n" * number) for number in range(9)]


def test_predictions_come_in_the_order_of_the_steps_however_they_are_batched(trained: Trained) -> None:
    model = ProgressModel(trained.folder, device="cpu")
    alone = [value for step in STEPS for value in model.predict([step])]
    shuffled = [5, 2, 8, 0, 1, 7, 3, 6, 4]
    together = model.predict([STEPS[number] for number in shuffled])
    assert together == pytest.approx([alone[number] for number in shuffled], abs=1e-4)
    assert len(set(alone)) > 5
    assert model.predict([]) == []


def test_a_prediction_is_the_head_s_number_from_zero(trained: Trained, tmp_path: Path) -> None:
    folder = shutil.copytree(trained.folder, tmp_path / "model")
    (folder / "checkpoint.json").unlink()  # as LeanDojo-v2 leaves a model
    loaded = AutoModelForSequenceClassification.from_pretrained(folder)
    found = ProgressModel(folder, device="cpu")
    with torch.no_grad():
        expected = float(loaded(torch.tensor([step_ids(STEPS[3], found.tokenizer)])).logits)
    assert found.predict([STEPS[3]]) == pytest.approx([max(expected, 0.0)], abs=1e-5)
    with torch.no_grad():
        loaded.classifier.bias -= 100.0
    loaded.save_pretrained(folder)
    assert ProgressModel(folder, device="cpu").predict(STEPS) == [0.0] * len(STEPS)
    with torch.no_grad():
        loaded.classifier.bias += float("nan")
    loaded.save_pretrained(folder)
    assert ProgressModel(folder, device="cpu").predict(STEPS) == [float("inf")] * len(STEPS)


def test_a_step_of_any_length_has_a_prediction(trained: Trained) -> None:
    found = ProgressModel(trained.folder, device="cpu").predict(
        [Step("h : p\n" * 5000 + "⊢ q", "simp"), Step("⊢ q", "x" * 9000), Step("", "")]
    )
    assert len(found) == 3


def test_a_model_without_the_head_is_refused_instead_of_guessing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"lacks 1 weights of a .*score\.weight"):
        ProgressModel(make_tiny_causal(tmp_path), device="cpu")


def test_weights_that_are_not_what_was_trained_are_refused(
    trained: Trained, model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(trained.folder, tmp_path / "model")
    shutil.copy(model / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="is not what was saved"):
        ProgressModel(folder, device="cpu")


def test_a_gpu_that_is_not_there_is_said(trained: Trained) -> None:
    with pytest.raises(ConfigError, match="no GPU here"):
        ProgressModel(trained.folder, device="cuda")
