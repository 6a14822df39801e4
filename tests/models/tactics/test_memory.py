"""What saves memory on a GPU learns the same: gradients that are computed again, an adapter under them, bfloat16."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig

from pipeline.jobs.specs import GrpoSpec
from pipeline.models.config import TacticsConfig
from pipeline.models.errors import ConfigError, ModelError
from pipeline.models.libraries import DType, check_finite
from pipeline.models.running import CHECKPOINTING, Saves
from pipeline.models.tactics import training as tactics_training
from pipeline.models.tactics.grpo import RewardTraining
from pipeline.models.tactics.rows import Row
from pipeline.models.tactics.training import FineTuning
from tests.models.tactics.conftest import Training

ROWS = [Row(f"⊢ p {n}", f"exact h {n}", "t", "A.lean", n) for n in range(4)]


def trained(made: FineTuning) -> dict[str, torch.Tensor]:
    weights = made.found.model.named_parameters()
    return {name: value.detach().clone() for name, value in weights if value.requires_grad}


def test_gradients_that_are_computed_again_are_the_same_also_under_an_adapter(
    tmp_path: Path, training: Training
) -> None:
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    begun = trained(training(adapter=lora))
    learned = []
    for checkpointing in (False, True):
        made = training(adapter=lora, batch_size=2, lr=1e-2)
        made.checkpointing = checkpointing
        made.fit(ROWS, Saves(tmp_path / str(checkpointing)))
        assert getattr(made.found.model, f"is_{CHECKPOINTING}") is checkpointing
        learned.append(trained(made))
    torch.testing.assert_close(*learned)
    assert any(not torch.equal(begun[name], value) for name, value in learned[1].items()), "it has learned"


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_:FutureWarning")  # TRL calls it by its old name
def test_what_is_rewarded_is_learned_the_same_with_gradients_that_are_computed_again(
    tmp_path: Path, causal: Path
) -> None:
    def rewarded(checkpointing: bool) -> tuple[list[str], dict[str, torch.Tensor]]:
        answers: list[str] = []

        def short(completions: list[str], **_: Any) -> list[float]:
            answers.extend(completions)
            return [-float(len(text)) for text in completions]

        config = TacticsConfig(str(causal), max_seq_len=300, device="cpu")
        grpo = GrpoSpec(batch_size=4, num_generations=4, lr=1e-2, max_steps=2)
        made = RewardTraining(config, grpo, short, str(causal))
        made.checkpointing = checkpointing
        made.fit(ROWS, Saves(tmp_path / str(checkpointing)))
        assert getattr(made.found.model, f"is_{CHECKPOINTING}") is checkpointing
        return answers, trained(made)

    answers, kept = rewarded(False)
    again, computed = rewarded(True)
    assert again == answers
    assert len(set(answers)) > 1
    torch.testing.assert_close(computed, kept)


def test_weights_in_bfloat16_are_trained_where_that_is_asked_for(training: Training, saves: Saves) -> None:
    made = training(dtype="bfloat16", batch_size=2, lr=1e-2)
    before = trained(made)
    made.fit(ROWS, saves)
    weights = trained(made)
    assert {value.dtype for value in weights.values()} == {torch.bfloat16}
    check_finite(made.found.model)
    assert any(not torch.equal(before[name], value) for name, value in weights.items()), "it has learned"


SEVEN_BILLION = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 30,
    "vocab_size": 102400,
}
"""The shape of DeepSeek-Prover-V2-7B."""


@pytest.mark.parametrize(
    ("has_gb", "dtype", "adapter", "refused"),
    [
        (80, "float32", False, r"6\.9 billion weights, .* 103\.0G .*float32\), where cpu has 80\.0G\. .*an adapter"),
        (80, "bfloat16", False, ""),
        (24, "bfloat16", False, r"needs at least 51\.5G"),
        (24, "bfloat16", True, ""),
        (8, "bfloat16", True, r"the weights alone, bfloat16\).* Take a smaller model$"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_fit_is_refused_by_arithmetic_before_it_is_loaded(
    causal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training: Training,
    has_gb: int, dtype: DType, adapter: bool, refused: str,
) -> None:  # fmt: skip
    folder = tmp_path / "large"
    shutil.copytree(causal, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "config.json").write_text(json.dumps(SEVEN_BILLION))
    monkeypatch.setattr(tactics_training, "memory_of", lambda _device: has_gb * 2**30)
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM") if adapter else None
    with pytest.raises(ConfigError if refused else ModelError, match=refused or "cannot be loaded"):
        training(start=folder, adapter=lora, dtype=dtype)
