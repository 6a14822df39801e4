"""The files of a model's folder: those behind a training, and those that differ from the saved ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.models.errors import CheckpointError
from pipeline.models.model_files import read_checkpoint, start_of
from tests.support.models import describe


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def test_what_training_begins_with_is_every_part_of_the_weights_the_pooling_the_tokenizer_and_its_template(
    tmp_path: Path,
) -> None:
    files = {
        "model.safetensors.index.json": "index",
        "model-00002-of-00002.safetensors": "a part",
        "tokenizer.json": "tokens",
        "chat_template.jinja": "template",
        "1_Pooling/config.json": "pooling",
    }
    (tmp_path / "1_Pooling").mkdir()
    write(tmp_path, {**files, "notes.txt": "mine"})
    before = start_of(tmp_path)
    for name in files:
        write(tmp_path, {**files, name: "another"})
        assert start_of(tmp_path) != before, name
    write(tmp_path, {**files, "notes.txt": "others"})
    assert start_of(tmp_path) == before
    assert start_of(tmp_path / "Qwen" / "Qwen3") == ""


def test_a_file_that_is_not_what_was_saved_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"config.json": "new", "model.safetensors": "new"})
    describe(tmp_path)
    assert read_checkpoint(tmp_path, verify=True) is not None
    (tmp_path / "model.safetensors").write_text("bent")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not what was saved"):
        read_checkpoint(tmp_path, verify=True)
    (tmp_path / "checkpoint.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"checkpoint\.json cannot be read"):
        read_checkpoint(tmp_path)
