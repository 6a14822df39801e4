"""Supervised fine-tuning: what is learned to the token, repository by repository, through kills and full disks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.trainer import base_trainer

from pipeline.models.errors import (
    CheckpointError,
    ConfigError,
    DivergedError,
    ModelError,
    NothingToLearnError,
)
from pipeline.models.libraries import computes_in_bfloat16
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.grpo import GRPOTrainer
from pipeline.models.tactics.job import token_accuracies
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.prompt import SYSTEM
from pipeline.models.tactics.requests import Request
from pipeline.models.tactics.rows import Row, Rows
from pipeline.models.tactics.training import IGNORED, SFTTrainer, encode
from store.leandojo import DynamicDatabase
from tests.support.tiny_models import make_tiny_causal, make_tiny_seq2seq

MULTI_LINE = "have h : p := by\n  simp\n  exact foo\nexact h"
MakeTrainer = Callable[..., SFTTrainer]


def rows(*pairs: tuple[str, str]) -> Rows:
    return Rows(tuple(Row(state, tactic, "t", "A.lean", 0) for state, tactic in pairs), 1, {})


def lora() -> LoraConfig:
    return LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def trainer(tmp_path: Path, causal: Path, said: list[str]) -> MakeTrainer:
    def make(**changes: Any) -> SFTTrainer:
        given: dict[str, Any] = {
            "model_name": str(causal),
            "output_dir": str(tmp_path / "outputs"),
            "batch_size": 8,
            "lr": 1e-3,
            "max_seq_len": 400,
            "device": "cpu",
            "say": said.append,
        }
        return SFTTrainer(**{**given, **changes})

    return make


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict())


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ---- what is learned


def test_the_loss_is_on_the_tactic_and_its_end_mark_alone(trainer: MakeTrainer) -> None:
    made = trainer()
    found = made.loaded()
    data = rows(("h : p\n⊢ p", "exact h"), ("⊢ q", MULTI_LINE))
    examples, dropped = encode(data, found.prompts, answer_length=found.lengths.answer)
    assert dropped == 0
    # What TRL makes of it, down to the batch that the loss is taken of.
    trl = made.trainer(examples)
    (batch,) = trl.get_train_dataloader()
    learned: dict[str, str] = {}
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        shown = [token for token, label in zip(ids, labels, strict=True) if label == IGNORED]
        answered = [token for token, label in zip(ids, labels, strict=True) if label != IGNORED]
        assert answered == [label for label in labels if label != IGNORED]
        learned[str(made.tokenizer.decode(answered))] = str(made.tokenizer.decode(shown)).replace(
            "<|pad|>", ""
        )
    assert learned == {
        "exact h<|im_end|>": found.prompts.text("h : p\n⊢ p"),
        f"{MULTI_LINE}<|im_end|>": found.prompts.text("⊢ q"),
    }
    assert all(text.startswith(f"<|im_start|>system\n{SYSTEM}") for text in learned.values())


def test_the_model_is_trained_on_the_very_prompt_that_it_is_asked_with(trainer: MakeTrainer) -> None:
    found = trainer().loaded()
    state = "\n".join([*(f"h{number} : p" for number in range(200)), "⊢ goal"])
    (example,), _ = encode(rows((state, "simp")), found.prompts, answer_length=found.lengths.answer)
    assert example["input_ids"] == found.prompts.ids(state) + found.prompts.answer_ids("simp")
    assert len(found.prompts.ids(state)) <= found.lengths.prompt == 300


def test_a_tactic_that_is_too_long_is_dropped_counted_and_said(trainer: MakeTrainer, said: list[str]) -> None:
    made = trainer()
    just, over = "x" * 99, "x" * 100
    fitted = made.fit(rows(("⊢ p", just), ("⊢ p", over), ("⊢ q", "simp")))
    assert (fitted.rows, fitted.dropped, fitted.steps) == (2, 1, 1)
    assert said == [
        "1 of 3 steps are dropped: their tactics have more than 100 tokens, a quarter of max_seq_len"
    ]
    with pytest.raises(NothingToLearnError, match=r"all 1 steps are dropped. Set max_seq_len higher"):
        made.fit(rows(("⊢ p", over)))


def test_a_loss_that_is_no_number_ends_the_run_and_leaves_the_folder(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase
) -> None:
    with pytest.raises(DivergedError, match=r"training has diverged. Train with a smaller learning rate"):
        trainer(lr=1e30).train(database.repositories, database, tmp_path / "merged")
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == [".lock"]


def test_training_sends_no_telemetry_and_writes_only_its_own_files(
    tmp_path: Path,
    trainer: MakeTrainer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(base_trainer, "send_telemetry", lambda **given: sent.append(given))
    monkeypatch.delenv("CI", raising=False)
    steps: list[tuple[int, int]] = []
    made = trainer(batch_size=1, on_step=lambda done, total: steps.append((done, total)))
    made.fit(rows(("⊢ p", "simp"), ("⊢ q", "rfl")))
    assert sent == []
    assert steps == [(1, 2), (2, 2)]
    assert capsys.readouterr().out == ""


# ---- repository by repository


def test_each_repository_leaves_a_whole_model_that_anyone_can_load(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase, causal: Path, said: list[str]
) -> None:
    folder = tmp_path / "outputs"
    seen: list[tuple[int, dict[str, torch.Tensor]]] = []
    export = database.export_merged_data

    def exporting(repositories: Any, output_path: Any, **given: Any) -> None:
        if (folder / "config.json").exists():
            AutoTokenizer.from_pretrained(folder)
            seen.append((len(repositories), weights(folder)))
        export(repositories, output_path, **given)

    database.export_merged_data = exporting  # type: ignore[method-assign]
    learned = trainer().train(database.repositories, database, tmp_path / "merged")
    ((number, after_one),) = seen
    assert number == 2
    assert not same(after_one, weights(causal))
    assert not same(after_one, weights(folder))
    assert [item.commit[0] for item in learned] == ["3", "5"]
    first, second = (item.fitted for item in learned)
    assert first is not None
    assert second is not None
    assert first.rows < second.rows  # with those before it
    assert all(str(item) in said for item in learned)
    about = json.loads((folder / "checkpoint.json").read_text())
    assert about["kind"] == "sft"
    assert about["repositories"] == [{"url": item.url, "commit": item.commit} for item in learned]
    assert about["files"].keys() == {path.name for path in folder.iterdir() if path.is_file()} - {
        "checkpoint.json",
        ".lock",
    }
    assert load_model(folder).lengths.prompt == 300


def test_a_run_that_is_cut_off_loses_one_repository_at_most(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase, said: list[str]
) -> None:
    export = database.export_merged_data

    def failing(repositories: Any, output_path: Any, **given: Any) -> None:
        if len(repositories) == 2:
            raise KeyboardInterrupt
        export(repositories, output_path, **given)

    database.export_merged_data = failing  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        trainer().train(database.repositories, database, tmp_path / "merged")
    after_one = weights(tmp_path / "outputs")

    database.export_merged_data = export  # type: ignore[method-assign]
    again = trainer()
    assert same(dict(again.model.state_dict()), after_one)
    learned = again.train(database.repositories, database, tmp_path / "merged")
    assert [item.commit[0] for item in learned] == ["5"]
    assert any("learned before" in line for line in said)
    assert trainer().train(database.repositories, database, tmp_path / "merged") == []


def test_a_repository_without_a_step_to_learn_from_is_said_and_the_others_go_on(
    tmp_path: Path, trainer: MakeTrainer, said: list[str], make_repository: Any
) -> None:
    made = DynamicDatabase(tmp_path / "other.json")
    made.add_repository(make_repository("sorrys", [[("⊢ p", "sorry")]] * 9))
    made.add_repository(make_repository("two", [[("⊢ p", "simp"), ("⊢ q", "exact sorry")]] * 9))
    first, second = trainer().train(made.repositories, made, tmp_path / "merged")
    assert first.fitted is None
    assert second.fitted is not None
    assert "0 steps of" in said[0]
    assert said[1].endswith("nothing to learn")
    assert "sorry left out" in said[2]


# ---- adapters


def test_an_adapter_is_saved_alone_and_loads_with_its_base(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase, causal: Path, said: list[str]
) -> None:
    folder = tmp_path / "outputs"
    made = trainer(lora_config=lora(), lr=1e-2)
    made.train(database.repositories[:1], database, tmp_path / "merged")
    trained, total = made.model.get_nb_trainable_parameters()
    assert f"an adapter is trained: {trained:,} of {total:,} weights ({trained / total:.2%})" in said
    assert (folder / "adapter_model.safetensors").exists()
    assert not (folder / "model.safetensors").exists()
    assert not (folder / "README.md").exists()
    found = load_model(folder)
    assert isinstance(found.model, PeftModel)
    assert found.base == str(causal)
    ids = torch.tensor([found.prompts.ids("⊢ p")])
    with torch.no_grad():
        logits = made.model.eval()(ids).logits
        assert torch.equal(found.model.eval()(ids).logits, logits)
        assert not torch.allclose(load_model(causal).model.eval()(ids).logits, logits)
    again = trainer(lora_config=lora(), lr=1e-2)
    assert any(value.requires_grad for value in again.model.parameters())
    (second,) = again.train(database.repositories, database, tmp_path / "merged")
    assert second.commit[0] == "5"
    assert same(weights(causal), dict(again.model.unload().state_dict()))


def test_an_adapter_finds_its_base_from_any_folder_and_leaves_the_caller_s_settings_alone(
    tmp_path: Path, trainer: MakeTrainer, causal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(causal.parent)
    config = lora()
    made = trainer(model_name=causal.name, lora_config=config)
    made.loaded()
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


def test_a_model_without_a_tokenizer_is_refused(tmp_path: Path, causal: Path, trainer: MakeTrainer) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((causal / name).read_bytes())
    with pytest.raises(ModelError, match=r"has no tokenizer .* Copy the one of the model"):
        trainer(model_name=bare)


def test_a_model_that_is_not_there_or_not_whole_is_refused(
    tmp_path: Path, causal: Path, trainer: MakeTrainer
) -> None:
    with pytest.raises(ModelError, match="nowhere cannot be loaded"):
        trainer(model_name=str(tmp_path / "nowhere"))
    broken = make_tiny_causal(tmp_path / "broken", hidden=32, layers=1)
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="broken cannot be loaded"):
        trainer(model_name=broken).loaded()


def test_a_model_without_a_chat_template_is_asked_in_plain_text_and_that_is_said(
    tmp_path: Path, trainer: MakeTrainer, said: list[str]
) -> None:
    plain = make_tiny_causal(tmp_path / "plain", hidden=32, layers=1, chat_template=False)
    assert trainer(model_name=plain).loaded().prompts.kind == "plain"
    assert said == [f"{plain} has no chat template: it gets plain text, here and by the provers"]


def test_a_model_with_fewer_positions_than_max_seq_len_gets_what_it_takes(
    causal: Path, trainer: MakeTrainer, said: list[str]
) -> None:
    lengths = trainer(max_seq_len=4096).loaded().lengths
    assert (lengths.prompt, lengths.answer) == (300, 100)
    assert said == [f"{causal} takes 400 tokens, which is less than max_seq_len: so many it is"]


@pytest.mark.parametrize(
    "lora_config", [None, pytest.param(lora(), marks=pytest.mark.slow)], ids=["whole", "adapter"]
)
def test_an_encoder_decoder_learns_to_answer_and_loads_again(
    tmp_path: Path, trainer: MakeTrainer, lora_config: LoraConfig | None
) -> None:
    folder = make_tiny_seq2seq(tmp_path / "byt5", d_model=64, layers=1)
    pairs = rows(("h : p\n⊢ p", "exact h"), ("⊢ q → q", "intro h"), ("⊢ 1 = 1", "rfl"))
    made = trainer(
        model_name=folder,
        lora_config=lora_config,
        epochs_per_repo=60,
        lr=1e-2 if lora_config is None else 5e-2,
    )
    found = made.fit(pairs)
    assert found.steps == 60
    made.write(tmp_path / "learned")
    loaded = load_model(tmp_path / "learned")
    assert loaded.prompts.kind == "seq2seq"
    assert loaded.is_adapter == (lora_config is not None)
    known = token_accuracies(loaded, pairs.rows)
    assert min(known) > max(token_accuracies(load_model(folder), pairs.rows)), known
    if lora_config is None:
        answers = Generator(loaded).suggest([Request(row.state) for row in pairs.rows])
        assert [answer.tactics[0].tactic for answer in answers] == [row.tactic for row in pairs.rows]


def test_a_reward_trains_no_encoder_decoder(tmp_path: Path) -> None:
    folder = make_tiny_seq2seq(tmp_path / "byt5", layers=1)
    made = GRPOTrainer(folder, lambda **_: [], output_dir=tmp_path / "out", device="cpu")
    with pytest.raises(ConfigError, match="is an encoder-decoder; this trainer takes causal"):
        made.loaded()


def test_the_folder_of_the_model_to_begin_with_is_not_trained_into(
    trainer: MakeTrainer, causal: Path
) -> None:
    with pytest.raises(ConfigError, match=r"is the model to begin with.* name another folder"):
        trainer(output_dir=causal).loaded()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0: it takes a number above 0"),
        ({"lr": float("nan")}, "lr is nan: it takes a finite number"),
        ({"warmup_steps": -1}, "warmup_steps is -1"),
        ({"dtype": "float16"}, "dtype is 'float16': it takes one of 'auto', 'float32' or 'bfloat16'"),
        ({"device": "tpu"}, "device is 'tpu': it takes auto, cpu, cuda, or one of several"),
    ],
)
def test_a_setting_that_is_not_taken_is_named(
    trainer: MakeTrainer, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        trainer(**change)


def test_two_processes_do_not_train_into_one_folder(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase
) -> None:
    folder = tmp_path / "outputs"
    folder.mkdir()
    program = (
        "import fcntl, sys\n"
        f"lock = open({str(folder / '.lock')!r}, 'w')\n"
        "fcntl.lockf(lock, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(CheckpointError, match="another process trains into"):
            trainer().train(database.repositories, database, tmp_path / "merged")
        other.communicate()
