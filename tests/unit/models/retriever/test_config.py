from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.errors import ConfigError
from pipeline.models.retriever.config import AgainstForgetting, RetrieverConfig, TrainingConfig
from tests.support.leandojo_peer import FOLDER, PACKAGE, needs_peer

# LeanDojo-v2 1.0.9, lean_agent/config.py.
LEANDOJO: dict[str, Any] = {
    "run_progressive_training": True,
    "single_repo": True,
    "num_repos": 1,
    "max_epochs": 1,
    "model_name": "kaiyuy/leandojo-lean4-retriever-byt5-small",
    "lr": 1e-3,
    "warmup_steps": 1000,
    "max_seq_len": 512,
    "num_retrieved": 100,
    "batch_size": 1,
    "eval_batch_size": 64,
    "accumulate_grad_batches": 4,
    "num_gpus": 1,
    "num_workers": 4,
    "precision": "bf16-mixed",
    "gradient_clip_val": 1.0,
    "num_negatives": 3,
    "num_in_file_negatives": 1,
    "data_max_seq_len": 1024,
    "tokenizer_model_name": "google/byt5-small",
    "lambda_value": 0.1,
    "timeout_seconds": 31_449_600,
    "early_stopping_patience": 5,
    "early_stopping_monitor": "Recall@10_val",
    "early_stopping_mode": "max",
    "checkpoint_save_top_k": -1,
    "checkpoint_every_n_epochs": 1,
    "checkpoint_monitor": "Recall@10_val",
    "checkpoint_mode": "max",
    "log_every_n_steps": 1,
    "num_sanity_val_steps": 0,
    "seed": 3407,
}
OTHER: dict[str, Any] = {
    "max_epochs": 7,
    "lr": 0.25,
    "loss": "contrastive",
    "model_name": "ein Modell ⊢",
    "single_repo": False,
}


def test_every_field_of_leandojo_s_is_there_with_its_default() -> None:
    ours = TrainingConfig()
    assert {name: getattr(ours, name) for name in LEANDOJO} == LEANDOJO
    assert set(LEANDOJO) <= {item.name for item in fields(TrainingConfig)}


@needs_peer
def test_the_list_above_is_that_of_leandojo_itself() -> None:
    source = FOLDER / PACKAGE / "lean_agent" / "config.py"
    classes = [node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)]
    result = next(node for node in classes if node.name == "TrainingConfig")
    theirs = [node.target.id for node in result.body
              if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]  # fmt: skip
    assert theirs == list(LEANDOJO)


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (TrainingConfig.to_yaml, TrainingConfig.from_yaml),
        (TrainingConfig.to_json, TrainingConfig.from_json),
    ],
    ids=["yaml", "json"],
)
@pytest.mark.parametrize("values", [{}, OTHER], ids=["defaults", "others"])
def test_a_configuration_comes_back_from_a_file_as_it_went_in(
    tmp_path: Path,
    write: Callable[[TrainingConfig, Path], None],
    read: Callable[[Path], TrainingConfig],
    values: dict[str, Any],
) -> None:
    write(TrainingConfig(**values), tmp_path / "file")
    assert read(tmp_path / "file") == TrainingConfig(**values)


def test_a_file_may_hold_some_fields_or_none(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text("lr: 0.5\n")
    assert TrainingConfig.from_yaml(path) == TrainingConfig(lr=0.5)
    path.write_text("")
    assert TrainingConfig.from_yaml(path) == TrainingConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("num_negative: 1", "is num_negatives meant?"),
        ("early_stopping_monitor: MRR", "input should be 'Recall@10_val'"),
        ("checkpoint_mode: min", "input should be 'max'"),
        ("lr: 1e-3", "write 1.0e-3"),
        ("loss: mean", "'mse' or 'contrastive'"),
        ("replay_share: 1.0", "less than 1"),
        ("num_in_file_negatives: 9", "0 to num_negatives"),
        ("num_workers: -1", "greater than or equal to 0"),
        ("- 1", "must be a mapping, not list"),
        ("{", "is no YAML"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_is_taken(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)) as raised:
        TrainingConfig.from_yaml(path)
    assert said in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json cannot be read"):
        TrainingConfig.from_json(tmp_path / "none.json")


def test_a_whole_number_for_a_fraction_is_the_same_setting_in_every_way(tmp_path: Path) -> None:
    (tmp_path / "whole.yaml").write_text("lr: 1\n")
    whole, fraction = TrainingConfig.from_yaml(tmp_path / "whole.yaml"), TrainingConfig(lr=1.0)
    assert json.dumps(whole.to_dict()) == json.dumps(fraction.to_dict())


def test_documents_are_as_long_as_both_of_leandojo_s_lengths_allow() -> None:
    assert TrainingConfig().document_length == 512
    assert TrainingConfig(max_seq_len=2048, data_max_seq_len=256).document_length == 256


def test_lambda_is_none_where_training_is_not_progressive() -> None:
    assert TrainingConfig(lambda_value=3.0).translated().lambda_value == 3.0
    other = TrainingConfig(lambda_value=3.0, run_progressive_training=False)
    assert other.translated().lambda_value == 0.0


@pytest.mark.parametrize(
    ("setting", "ways"),
    [
        ("none", set()),
        ("ewc", {"ewc"}),
        ("replay+average", {"replay", "average"}),
        ("ewc+replay+average", {"ewc", "replay", "average"}),
    ],
)
def test_each_way_against_forgetting_is_a_switch(setting: AgainstForgetting, ways: set[str]) -> None:
    assert RetrieverConfig(against_forgetting=setting).ways == ways


def test_leandojo_s_configuration_is_translated_into_ours() -> None:
    theirs = TrainingConfig(lr=0.5, num_repos=3, single_repo=False)
    ours = RetrieverConfig(
        lr=0.5,
        batch_size=1,
        accumulate_grad_batches=4,
        precision="bf16-mixed",
        loss="mse",
        against_forgetting="ewc",
        lambda_value=0.1,
        only_new=False,
    )
    assert theirs.translated() == ours
    assert type(theirs.translated()) is RetrieverConfig


def test_the_defaults_are_those_of_contrastive_training_in_large_batches() -> None:
    ours = RetrieverConfig()
    assert (ours.loss, ours.batch_size, ours.accumulate_grad_batches) == ("contrastive", 32, 1)
    assert (ours.precision, ours.gradient_checkpointing) == ("auto", "auto")


@pytest.mark.parametrize("name", LEANDOJO.keys() - {item.name for item in fields(RetrieverConfig)})
def test_a_job_of_the_daemon_takes_no_field_that_is_leandojo_s_alone(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is no field"):
        RetrieverConfig.from_dict({name: LEANDOJO[name]})
