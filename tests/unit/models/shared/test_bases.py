"""Which model an adapter was put on, through moves and copies of the folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.models.adapters import ADAPTER, base_of
from pipeline.models.errors import ModelError


def model(folder: Path, config: str = "{}") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config)
    return folder


def adapter(folder: Path, base: Path | str) -> Path:
    folder.mkdir(parents=True)
    (folder / ADAPTER).write_text(json.dumps({"base_model_name_or_path": str(base)}))
    return folder


def test_a_state_folder_that_is_moved_or_copied_has_its_own_base(tmp_path: Path) -> None:
    chain = tmp_path / "state" / "models" / "tactics"
    a, b = "a" * 16, "b" * 16
    result = adapter(chain / b, model(chain / a))
    assert base_of(result) == str(chain / a)
    copy = shutil.copytree(tmp_path / "state", tmp_path / "copy") / "models" / "tactics"
    assert base_of(copy / b) == str(copy / a), "and not the original, which is still there"
    moved = (tmp_path / "state").rename(tmp_path / "moved") / "models" / "tactics"
    assert base_of(moved / b) == str(moved / a)


def test_an_adapter_that_is_moved_alone_finds_its_base_where_it_was(tmp_path: Path) -> None:
    base = model(tmp_path / "models" / "base")
    result = adapter(tmp_path / "outputs" / "adapter", base).rename(tmp_path / "adapter")
    assert base_of(result) == str(base)
    # Another model of the same name beside it is not taken for it.
    model(tmp_path / "other" / "base", '{"another": "model"}')
    assert base_of(result.rename(tmp_path / "other" / "adapter")) == str(base)


def test_a_base_of_the_hub_has_its_name(tmp_path: Path) -> None:
    result = adapter(tmp_path / "adapter", "Qwen/Qwen3-0.6B")
    assert base_of(result) == "Qwen/Qwen3-0.6B"
    assert base_of("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"


def test_what_is_no_adapter_is_its_own_base(tmp_path: Path) -> None:
    whole = model(tmp_path / "whole")
    assert base_of(whole) == str(whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"adapter_config\.json cannot be read"),
        ('{"base_model_name_or_path": null}', r"names no model that is there \(None\)"),
        (
            '{"base_model_name_or_path": "/nowhere"}',
            r"\(/nowhere\) as the adapter's base: set base_model_name",
        ),
    ],
)
def test_an_adapter_without_its_base_is_named(tmp_path: Path, text: str, message: str) -> None:
    result = adapter(tmp_path / "adapter", model(tmp_path / "base"))
    (result / ADAPTER).write_text(text)
    with pytest.raises(ModelError, match=message):
        base_of(result)
