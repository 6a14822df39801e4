"""LeanDojo's trainers of tactic models: repository by repository, through kills, into a folder that is always whole."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl.trainer import base_trainer

from pipeline.jobs.specs import GrpoSpec
from pipeline.models import trainers
from pipeline.models.errors import CheckpointError, ConfigError, DivergedError, ModelError
from pipeline.models.model_files import read_checkpoint
from pipeline.models.tactics.models import load_model
from pipeline.models.trainers import GRPOTrainer, ProgressTrainer, SFTTrainer
from store.leandojo import DynamicDatabase
from tests.support.lean.scripted import Script, in_process

MakeTrainer = Callable[..., SFTTrainer]


def lora() -> LoraConfig:
    return LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")


@pytest.fixture
def trainer(tmp_path: Path, causal: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> MakeTrainer:
    monkeypatch.setattr(trainers, "print", said.append, raising=False)

    def make(**changes: Any) -> SFTTrainer:
        given: dict[str, Any] = {
            "model_name": str(causal),
            "output_dir": str(tmp_path / "outputs"),
            "batch_size": 8,
            "lr": 1e-3,
            "max_seq_len": 400,
            "device": "cpu",
        }
        return SFTTrainer(**{**given, **changes})

    return make


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict())


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def checkpoints(folder: Path) -> list[str]:
    """The checkpoints that a trainer keeps."""
    return [path.parent.name for path in folder.with_name(f"{folder.name}.chain").glob("*/checkpoint.json")]


class Stopped(TrainerCallback):  # type: ignore[misc]
    """Ends a run after a step, and counts steps."""

    def __init__(self, after: int = 10**9) -> None:
        self.after = after
        self.steps: list[int] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.steps.append(state.global_step)
        if state.global_step == self.after:
            raise KeyboardInterrupt


# ---- repository by repository


def test_each_repository_leaves_a_whole_model_that_anyone_can_load(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase, causal: Path, said: list[str]
) -> None:
    folder = tmp_path / "outputs"
    folder.mkdir()
    seen: list[tuple[int, dict[str, torch.Tensor]]] = []
    export = database.export_merged_data

    def exporting(repositories: Any, output_path: Any, **given: Any) -> None:
        if (folder / "config.json").exists():
            AutoTokenizer.from_pretrained(folder)
            seen.append((len(repositories), weights(folder)))
        export(repositories, output_path, **given)

    database.export_merged_data = exporting  # type: ignore[method-assign]
    first, second = trainer().train(database.repositories, database, tmp_path / "merged")
    ((number, after_one),) = seen
    assert number == 2
    assert not same(after_one, weights(causal))
    assert not same(after_one, weights(folder))
    assert first.about["fitted"]["rows"] < second.about["fitted"]["rows"]  # with those before it
    assert read_checkpoint(folder) == second
    assert [name.partition("@")[2][0] for name in second.learned] == ["3", "5"]
    assert second.files.keys() == {path.name for path in folder.iterdir()} - {"checkpoint.json"}
    assert load_model(folder).prompts.max_length == 300
    assert checkpoints(folder) == [second.checkpoint], "the earlier model is replaced"
    assert sum(" rows, " in line for line in said) == 2


def test_a_run_that_is_cut_off_goes_on_and_ends_as_one_that_was_not(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase, said: list[str]
) -> None:
    whole = trainer(output_dir=tmp_path / "whole")
    whole.train(database.repositories, database, tmp_path / "merged")
    stopped = trainer(batch_size=8, callbacks=[Stopped(after=5)])
    with pytest.raises(KeyboardInterrupt):
        stopped.train(database.repositories, database, tmp_path / "merged")
    assert len(checkpoints(tmp_path / "outputs")) == 1, "the first repository's model is there"
    heard = Stopped()
    (learned,) = trainer(callbacks=[heard]).train(database.repositories, database, tmp_path / "merged")
    assert any("learned before" in line for line in said)
    assert same(weights(tmp_path / "outputs"), weights(tmp_path / "whole"))
    assert trainer().train(database.repositories, database, tmp_path / "merged") == []
    # Another setting begins anew, in the place of that model.
    assert len(trainer(lr=2e-3).train(database.repositories[:1], database, tmp_path / "merged")) == 1
    assert checkpoints(tmp_path / "outputs") != [learned.checkpoint]


def test_a_damaged_model_is_named_and_trained_again_once_it_is_removed(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase
) -> None:
    (made,) = trainer().train(database.repositories[:1], database, tmp_path / "merged")
    folder = tmp_path / "outputs.chain" / made.checkpoint
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"without {folder} it is trained again"):
        trainer().train(database.repositories[:1], database, tmp_path / "merged")
    shutil.rmtree(folder)
    (again,) = trainer().train(database.repositories[:1], database, tmp_path / "merged")
    assert again.files == made.files


def test_a_repository_without_a_step_to_learn_from_is_said_and_the_others_go_on(
    tmp_path: Path, trainer: MakeTrainer, said: list[str], make_repository: Any
) -> None:
    made = DynamicDatabase(tmp_path / "other.json")
    made.add_repository(make_repository("sorrys", [[("⊢ p", "sorry")]] * 9))
    made.add_repository(make_repository("two", [[("⊢ p", "simp"), ("⊢ q", "exact sorry")]] * 9))
    (second,) = trainer().train(made.repositories, made, tmp_path / "merged")
    assert [name.partition("@")[0][-3:] for name in second.learned] == ["two"]
    assert "has no step to learn from: 0 steps of" in said[0]
    assert "sorry left out" in said[1]


def test_a_loss_that_is_no_number_ends_the_run_and_leaves_no_model(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase
) -> None:
    with pytest.raises(DivergedError, match=r"training has diverged. Train with a smaller learning rate"):
        trainer(lr=1e30).train(database.repositories, database, tmp_path / "merged")
    assert not (tmp_path / "outputs").exists()
    assert checkpoints(tmp_path / "outputs") == []


def test_an_adapter_is_saved_alone_loads_with_its_base_and_is_trained_further(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase, causal: Path, said: list[str]
) -> None:
    folder = tmp_path / "outputs"
    before = weights(causal)
    trainer(lora_config=lora(), lr=1e-2).train(database.repositories[:1], database, tmp_path / "merged")
    assert any("an adapter is trained: " in line for line in said)
    assert (folder / "adapter_model.safetensors").exists()
    assert not (folder / "model.safetensors").exists()
    assert not (folder / "README.md").exists()
    found = load_model(folder)
    assert isinstance(found.model, PeftModel)
    assert found.base == str(causal)
    ids = torch.tensor([found.prompts.ids("⊢ p")])
    with torch.no_grad():
        first = found.model.eval()(ids).logits
        assert not torch.allclose(load_model(causal).model.eval()(ids).logits, first)
    (second,) = trainer(lora_config=lora(), lr=1e-2).train(
        database.repositories, database, tmp_path / "merged"
    )
    assert second.parent is not None
    with torch.no_grad():
        assert not torch.allclose(load_model(folder).model.eval()(ids).logits, first)
    assert same(weights(causal), before)


def test_an_adapter_does_not_move_to_a_model_that_takes_its_base_s_place(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase
) -> None:
    base, adapter = tmp_path / "outputs", tmp_path / "adapter"
    trainer().train(database.repositories[:1], database, tmp_path / "merged")
    trainer(model_name=base, output_dir=adapter, lora_config=lora()).train(
        database.repositories[:1], database, tmp_path / "merged"
    )
    assert load_model(adapter).base == str(base.resolve())
    trainer(lr=2e-3).train(database.repositories[:1], database, tmp_path / "merged")
    with pytest.raises(ModelError, match="names no model that is there"):
        load_model(adapter)


# ---- with a reward


def test_training_with_lean_leaves_a_model_that_says_what_judged_it(
    tmp_path: Path, causal: Path, database: DynamicDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(base_trainer, "send_telemetry", lambda **given: sent.append(given))
    monkeypatch.delenv("CI", raising=False)
    in_process(monkeypatch, Script())

    def train(**changes: Any) -> int:
        made = GRPOTrainer(
            str(causal), "lean", tmp_path / "outputs", batch_size=4, device="cpu",
            max_seq_len=300, lr=1e-3, grpo=GrpoSpec(num_generations=4, max_steps=1, **changes),
        )  # fmt: skip
        assert made.wants_places
        made.places = lambda _row: None
        return len(made.train(database.repositories[:1], database, tmp_path / "merged"))

    assert train() == 1
    made = read_checkpoint(tmp_path / "outputs")
    assert made is not None
    assert made.about["fitted"]["measures"]["unjudged"] == 0
    assert load_model(tmp_path / "outputs").prompts.kind == "causal"
    assert sent == []
    assert train() == 0
    assert train(temperature=0.9) == 1


# ---- bad input


def test_a_folder_that_would_be_lost_is_not_trained_into(
    tmp_path: Path,
    trainer: MakeTrainer,
    database: DynamicDatabase,
    causal: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match=r"is the model to begin with.* name another folder"):
        trainer(output_dir=causal).train(database.repositories, database, tmp_path / "merged")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    (tmp_path / "elsewhere").symlink_to("mine")
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "disk")
    for name in ("mine", "mine/notes.txt", "elsewhere", "disk"):
        with pytest.raises(ConfigError, match=r"no link to a model .*: name another folder, or move it away"):
            trainer(output_dir=tmp_path / name).train(database.repositories, database, tmp_path / "merged")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs_per_repo": 0}, "epochs_per_repo is 0: input should be greater than 0"),
        ({"batch_size": 0}, "batch_size is 0: input should be greater than 0"),
        ({"lr": float("nan")}, "lr is nan: input should be a finite number"),
        ({"lr": 0.0}, "lr is 0.0: input should be greater than 0"),
        ({"dtype": "float16"}, "dtype is 'float16': input should be 'auto', 'float32' or 'bfloat16'"),
        ({"device": "tpu"}, "device is 'tpu': input should be 'auto', 'cpu' or 'cuda'"),
        ({"report_to": "paper"}, "report_to is 'paper'"),
    ],
)
def test_a_setting_that_is_not_taken_is_named(
    trainer: MakeTrainer, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        trainer(**change)


def test_a_model_of_another_kind_is_not_replaced(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase, causal: Path
) -> None:
    trainer().train(database.repositories[:1], database, tmp_path / "merged")
    progress = ProgressTrainer(tmp_path / "steps.jsonl", str(causal), tmp_path / "outputs", device="cpu")
    with pytest.raises(ConfigError, match=r"outputs holds a model of another kind.*: name another folder"):
        progress.train()


def test_an_error_of_a_reward_is_its_own(tmp_path: Path, causal: Path, database: DynamicDatabase) -> None:
    def reward(**_: Any) -> list[float]:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    of_leandojo = (str(causal), reward, tmp_path / "outputs", 1, 2, 1e-3, lora())
    spec = GrpoSpec(num_generations=2, max_steps=1)
    made = GRPOTrainer(*of_leandojo, device="cpu", max_seq_len=300, grpo=spec)
    assert (made.config.batch_size, made.config.lr, made.lora_config) == (2, 1e-3, lora())
    with pytest.raises(ConnectionRefusedError):
        made.train(database.repositories[:1], database, tmp_path / "merged")


def test_a_reward_that_is_none_is_refused(causal: Path) -> None:
    wrong: Any = "coq"
    with pytest.raises(ConfigError, match="reward_func is 'coq': it takes a function, or \"lean\""):
        GRPOTrainer(causal, wrong)


def test_two_processes_do_not_train_into_one_folder(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase
) -> None:
    folder = tmp_path / "outputs.chain"
    folder.mkdir()
    program = (
        "import fcntl, sys\n"
        f"lock = open({str(folder / 'lock')!r}, 'w')\n"
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
