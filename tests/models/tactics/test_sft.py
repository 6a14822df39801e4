"""Supervised fine-tuning: what is learned to the token, from which models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig

from pipeline.jobs.specs import GrpoSpec
from pipeline.models.config import TacticsConfig
from pipeline.models.errors import ConfigError, ModelError, NothingToLearnError
from pipeline.models.libraries import computes_in_bfloat16
from pipeline.models.running import Reports, Saves
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.grpo import RewardTraining
from pipeline.models.tactics.models import TacticModel, load_model
from pipeline.models.tactics.prompt import SYSTEM
from pipeline.models.tactics.requests import Request
from pipeline.models.tactics.rows import Row
from pipeline.models.tactics.training import IGNORED, collated, encode
from tests.models.tactics.conftest import Training
from tests.support.tiny_models import make_tiny_causal, make_tiny_seq2seq

MULTI_LINE = "have h : p := by\n  simp\n  exact foo\nexact h"


def rows(*pairs: tuple[str, str]) -> list[Row]:
    return [Row(state, tactic, "t", "A.lean", 0) for state, tactic in pairs]


def loss_of(found: TacticModel, of: list[Row]) -> float:
    """Return a model's loss on rows."""
    examples = encode(of, found.prompts, answer_length=found.answer_length)
    with torch.inference_mode():
        return float(found.model(**collated(examples, pad=int(found.tokenizer.pad_token_id))).loss)


def lora() -> LoraConfig:
    return LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")


# ---- what is learned


def test_the_loss_is_on_the_tactic_and_its_end_mark_alone(training: Training, saves: Saves) -> None:
    made = training()
    found = made.found
    data = rows(("h : p\n⊢ p", "exact h"), ("⊢ q", MULTI_LINE))
    examples = encode(data, found.prompts, answer_length=found.answer_length)
    assert len(examples) == len(data)
    # Down to the batch that the loss is taken of.
    (batch,) = made.trainer(examples, saves).get_train_dataloader()
    learned: dict[str, str] = {}
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        shown = [token for token, label in zip(ids, labels, strict=True) if label == IGNORED]
        answered = [token for token, label in zip(ids, labels, strict=True) if label != IGNORED]
        assert answered == [label for label in labels if label != IGNORED]
        learned[str(found.tokenizer.decode(answered))] = str(found.tokenizer.decode(shown)).replace(
            "<|pad|>", ""
        )
    assert learned == {
        "exact h<|im_end|>": found.tokenizer.decode(found.prompts.ids("h : p\n⊢ p")),
        f"{MULTI_LINE}<|im_end|>": found.tokenizer.decode(found.prompts.ids("⊢ q")),
    }
    assert all(text.startswith(f"<|im_start|>system\n{SYSTEM}") for text in learned.values())


def test_the_model_is_trained_on_the_very_prompt_that_it_is_asked_with(training: Training) -> None:
    found = training().found
    state = "\n".join([*(f"h{number} : p" for number in range(200)), "⊢ goal"])
    (example,) = encode(rows((state, "simp")), found.prompts, answer_length=found.answer_length)
    assert example["input_ids"] == found.prompts.ids(state) + found.prompts.answer_ids("simp")
    assert len(found.prompts.ids(state)) <= found.prompts.max_length == 300


def test_a_tactic_that_is_too_long_is_dropped_counted_and_said(training: Training, saves: Saves) -> None:
    made = training()
    just, over = "x" * 99, "x" * 100
    fitted = made.fit(rows(("⊢ p", just), ("⊢ p", over), ("⊢ q", "simp")), saves)
    assert (fitted.rows, fitted.dropped, fitted.steps) == (2, 1, 1)
    (warning,) = fitted.warnings
    assert warning == (
        "1 of 3 steps were left out: their tactics have more than 100 tokens, a quarter of max_seq_len"
    )
    with pytest.raises(NothingToLearnError, match=r"all 1 steps are dropped. Set max_seq_len higher"):
        made.fit(rows(("⊢ p", over)), saves)


def test_a_tokenizer_that_pads_at_the_left_changes_nothing(training: Training, saves: Saves) -> None:
    pairs = rows(("⊢ p", "simp"), ("h : p ∧ q\n⊢ q ∧ p", "exact ⟨h.2, h.1⟩"))
    right, left = training(), training()
    left.found.tokenizer.padding_side = "left"
    assert right.fit(pairs, saves) == left.fit(pairs, Saves(saves.folder / "left"))


def test_training_prints_nothing_and_reports_each_step(
    training: Training, saves: Saves, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[tuple[int, int]] = []
    made = training(batch_size=1)
    made.reports = Reports(on_step=lambda done, total: steps.append((done, total)))
    made.fit(rows(("⊢ p", "simp"), ("⊢ q", "rfl")), saves)
    assert steps == [(1, 2), (2, 2)]
    assert capsys.readouterr().out == ""


# ---- adapters


def test_the_learning_rate_is_that_of_what_is_trained_unless_it_is_said(
    tmp_path: Path, training: Training, saves: Saves
) -> None:
    def rate(**changes: Any) -> float:
        return float(training(**changes).arguments(saves)["learning_rate"])

    assert (rate(lr=0.0), rate(lr=0.0, adapter=lora())) == (2e-5, 2e-4)
    assert (rate(lr=1e-3), rate(lr=1e-3, adapter=lora())) == (1e-3, 1e-3)
    training(adapter=lora()).write(tmp_path / "adapter")
    assert rate(lr=0.0, start=tmp_path / "adapter") == 2e-4


def test_an_adapter_finds_its_base_from_any_folder_and_leaves_the_caller_s_settings_alone(
    tmp_path: Path, training: Training, causal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(causal.parent)
    config = lora()
    made = training(start=Path(causal.name), adapter=config)
    made.write(tmp_path / "adapter")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_model(tmp_path / "adapter").base == str(causal)
    assert config.base_model_name_or_path is None


def test_a_gpu_that_only_emulates_bfloat16_does_not_compute_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def emulated(including_emulation: bool = True) -> bool:
        return including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", emulated)
    assert not computes_in_bfloat16(torch.device("cuda"))


# ---- bad input


def test_a_model_without_a_tokenizer_is_refused(tmp_path: Path, causal: Path, training: Training) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((causal / name).read_bytes())
    with pytest.raises(ModelError, match=r"has no tokenizer .* Copy the one of the model"):
        training(start=bare)


def test_a_model_that_is_not_there_or_not_whole_is_refused(
    tmp_path: Path, causal: Path, training: Training
) -> None:
    with pytest.raises(ModelError, match="nowhere cannot be loaded"):
        training(start=tmp_path / "nowhere")
    broken = make_tiny_causal(tmp_path / "broken", hidden=32, layers=1)
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="broken cannot be loaded"):
        training(start=broken)


def test_a_model_without_a_chat_template_keeps_the_one_of_its_training(
    tmp_path: Path, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    plain = make_tiny_causal(tmp_path / "plain", hidden=32, layers=1, chat_template=False)
    made = training(start=plain)
    assert f"{plain} has no chat template: it gets plain text" in caplog.text
    made.write(tmp_path / "written")
    caplog.clear()
    assert load_model(tmp_path / "written").prompts.ids("⊢ p") == made.found.prompts.ids("⊢ p")
    assert "no chat template" not in caplog.text


def test_a_model_with_fewer_positions_than_max_seq_len_gets_what_it_takes(
    causal: Path, training: Training, said: list[str]
) -> None:
    found = training(max_seq_len=4096).found
    assert (found.prompts.max_length, found.answer_length) == (300, 100)
    assert said == [f"{causal} takes 400 tokens, which is less than max_seq_len: so many it is"]


@pytest.mark.parametrize(
    "lora_config", [None, pytest.param(lora(), marks=pytest.mark.slow)], ids=["whole", "adapter"]
)
def test_an_encoder_decoder_learns_to_answer_and_loads_again(
    tmp_path: Path, training: Training, saves: Saves, lora_config: LoraConfig | None
) -> None:
    folder = make_tiny_seq2seq(tmp_path / "byt5", d_model=64, layers=1)
    pairs = rows(("h : p\n⊢ p", "exact h"), ("⊢ q → q", "intro h"), ("⊢ 1 = 1", "rfl"))
    made = training(start=folder, adapter=lora_config, epochs=60, lr=1e-2 if lora_config is None else 5e-2)
    found = made.fit(pairs, saves)
    assert found.steps == 60
    made.write(tmp_path / "learned")
    loaded = load_model(tmp_path / "learned")
    assert loaded.prompts.kind == "seq2seq"
    assert loaded.is_adapter == (lora_config is not None)
    assert loss_of(loaded, pairs) < loss_of(load_model(folder), pairs) / 2
    if lora_config is None:
        answers = Generator(loaded).suggest([Request(row.state) for row in pairs])
        assert [answer.tactics[0].tactic for answer in answers] == [row.tactic for row in pairs]


def test_a_reward_trains_no_encoder_decoder(tmp_path: Path) -> None:
    folder = make_tiny_seq2seq(tmp_path / "byt5", layers=1)
    with pytest.raises(ConfigError, match="is an encoder-decoder; this training takes causal"):
        RewardTraining(TacticsConfig(device="cpu"), GrpoSpec(), lambda **_: [], str(folder))
