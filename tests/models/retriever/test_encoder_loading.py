"""A folder that is no whole checkpoint is an error that names it, and never half a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.models.errors import ModelError
from pipeline.models.libraries import tensors_digest
from pipeline.models.retriever.encoder import load_encoder, load_tokens


@pytest.fixture
def copied(model: Path, tmp_path: Path) -> Path:
    return shutil.copytree(model, tmp_path / "copied")


@pytest.mark.parametrize(
    "config", [None, [], 3, "t5", {}, {"model_type": ["t5"]}, {"d_model": "x"}, {"dense_act_fn": "x"}]
)
def test_a_config_that_is_none_is_refused(copied: Path, config: Any) -> None:
    path = copied / "config.json"
    if isinstance(config, dict) and config:
        config = {**json.loads(path.read_text()), **config}
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=f"{copied} cannot be loaded .*Name a folder"):
        load_encoder(copied)


@pytest.mark.parametrize("config", ["[]", "{", ""])
def test_a_tokenizer_that_is_none_is_refused(copied: Path, config: str) -> None:
    (copied / "tokenizer_config.json").write_text(config)
    with pytest.raises(ModelError, match=f"the tokenizer of {copied} cannot be loaded"):
        load_tokens(copied)


def test_a_folder_without_its_tokenizers_files_is_no_model_that_reads_everything_as_unknown(
    copied: Path,
) -> None:
    (copied / "tokenizer_config.json").unlink()
    with pytest.raises(ModelError, match=f"{copied} has no tokenizer"):
        load_tokens(copied)


def test_a_weights_digest_is_of_names_types_shapes_and_bytes(model: Path) -> None:
    state = load_encoder(model).state_dict()
    name, tensor = next((name, tensor) for name, tensor in state.items() if tensor.dim() == 2)
    changed = tensor.clone()
    changed[0, 0] += 1e-6
    others = [
        {**state, name: changed},
        {**state, name: tensor.to(torch.bfloat16)},
        {**state, name: tensor.reshape(-1, 1)},
        {key + ("x" if key == name else ""): value for key, value in state.items()},
    ]
    digests = {tensors_digest(other) for other in (state, *others)}
    assert len(digests) == 5
    assert tensors_digest(dict(reversed(state.items()))) == tensors_digest(state)
