"""Which model an adapter was put on, through moves and copies of the folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.models.adapters import ADAPTER, BASE, base_of, name_base
from pipeline.models.errors import ModelError


def model(folder: Path, config: str = "{}") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config)
    return folder


def adapter(folder: Path, base: Path | str) -> Path:
    folder.mkdir(parents=True)
    (folder / ADAPTER).write_text(json.dumps({"base_model_name_or_path": str(base)}))
    name_base(folder, str(base))
    return folder


def test_a_state_folder_that_is_moved_or_copied_has_its_own_base(tmp_path: Path) -> None:
    chain = tmp_path / "state" / "models" / "tactics"
    result = adapter(chain / "b", model(chain / "a"))
    assert base_of(result) == str(chain / "a")
    copy = shutil.copytree(tmp_path / "state", tmp_path / "copy") / "models" / "tactics"
    assert base_of(copy / "b") == str(copy / "a"), "and not the original, which is still there"
    moved = (tmp_path / "state").rename(tmp_path / "moved") / "models" / "tactics"
    assert base_of(moved / "b") == str(moved / "a")


def test_an_adapter_that_is_moved_alone_finds_its_base_where_it_was(tmp_path: Path) -> None:
    base = model(tmp_path / "models" / "base")
    result = adapter(tmp_path / "outputs" / "adapter", base).rename(tmp_path / "adapter")
    assert base_of(result) == str(base)
    # Another model on the way that led to it is not taken for it.
    model(tmp_path / "other" / "models" / "base", '{"another": "model"}')
    (tmp_path / "other" / "outputs").mkdir()
    assert base_of(result.rename(tmp_path / "other" / "outputs" / "adapter")) == str(base)


def test_a_base_of_the_hub_has_its_name(tmp_path: Path) -> None:
    result = adapter(tmp_path / "adapter", "Qwen/Qwen3-0.6B")
    assert not (result / BASE).exists()
    assert base_of(result) == "Qwen/Qwen3-0.6B"
    assert base_of("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"


def test_what_is_no_adapter_is_its_own_base(tmp_path: Path) -> None:
    whole = model(tmp_path / "whole")
    name_base(whole, str(whole))
    assert (base_of(whole), [path.name for path in whole.iterdir()]) == (str(whole), ["config.json"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (BASE, "{", r"base\.json cannot be read .* adapter_config\.json has the base too"),
        (BASE, '{"path": "../a"}', r"base\.json cannot be read \('config'\)"),
        (ADAPTER, "[]", r"adapter_config\.json cannot be read"),
        (ADAPTER, '{"base_model_name_or_path": null}', "does not say which model the adapter was put on"),
    ],
)
def test_an_adapter_that_does_not_say_its_base_is_named(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    result = adapter(tmp_path / "adapter", model(tmp_path / "base"))
    if name == ADAPTER:
        (result / BASE).unlink()
    (result / name).write_text(text)
    with pytest.raises(ModelError, match=message):
        base_of(result)
