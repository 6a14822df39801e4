"""A model's folder through kills: it is always a whole model, the earlier one or the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.errors import CheckpointError
from pipeline.models.model_files import read_about, start_of
from pipeline.models.trainer_folder import publish, settle

OLD = {"config.json": "old", "model.safetensors": "old", "adapter_config.json": "old"}
NEW = {"config.json": "new", "model.safetensors": "new", "tokenizer.json": "new"}


def writing(files: dict[str, str]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).write_text(text)

    return write


def content(folder: Path) -> dict[str, str]:
    return {
        path.name: path.read_text()
        for path in folder.iterdir()
        if path.is_file() and path.name != "checkpoint.json"
    }


def test_a_new_model_takes_the_place_of_the_earlier_one_with_nothing_of_it_left(tmp_path: Path) -> None:
    publish(tmp_path, writing(OLD), {"kind": "sft"})
    (tmp_path / "notes.txt").write_text("mine")
    publish(tmp_path, writing(NEW), {"kind": "grpo"})
    assert content(tmp_path) == {**NEW, "notes.txt": "mine"}
    about = read_about(tmp_path, verify=True)
    assert about is not None
    assert about["kind"] == "grpo"
    assert about["files"].keys() == NEW.keys()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set()
    # Of a model that nothing here describes as well.
    (tmp_path / "checkpoint.json").unlink()
    publish(tmp_path, writing(OLD), {})
    assert content(tmp_path) == {**OLD, "notes.txt": "mine"}


def test_what_training_begins_with_is_every_part_of_the_weights_the_tokenizer_and_its_template(
    tmp_path: Path,
) -> None:
    files = {
        "model.safetensors.index.json": "index",
        "model-00002-of-00002.safetensors": "a part",
        "tokenizer.json": "tokens",
        "chat_template.jinja": "template",
    }
    writing({**files, "notes.txt": "mine"})(tmp_path)
    before = start_of(tmp_path)
    for name in files:
        writing({**files, name: "another"})(tmp_path)
        assert start_of(tmp_path) != before, name
    writing({**files, "notes.txt": "others"})(tmp_path)
    assert start_of(tmp_path) == before
    assert start_of(tmp_path / "Qwen" / "Qwen3") == ""


def test_a_process_that_is_killed_anywhere_leaves_one_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    steps = 0
    renames: dict[str, Any] = {name: getattr(Path, name) for name in ("replace", "rename", "unlink", "rmdir")}

    def run(until: int) -> tuple[Path, bool]:
        """Publish into a folder that has a model, and be killed before one of the changes to the folder."""
        nonlocal steps
        folder = tmp_path / str(until)
        folder.mkdir()
        publish(folder, writing(OLD), {"kind": "old"})
        steps = 0

        def counted(name: str) -> Callable[..., Any]:
            def change(path: Path, *given: Any, **named: Any) -> Any:
                nonlocal steps
                steps += 1
                if steps == until:
                    raise Killed
                return renames[name](path, *given, **named)

            return change

        with monkeypatch.context() as patched:
            for name in renames:
                patched.setattr(Path, name, counted(name))
            try:
                publish(folder, writing(NEW), {"kind": "new"})
            except Killed:
                return folder, False
        return folder, True

    found = set()
    for until in range(1, 100):
        folder, done = run(until)
        settle(folder)
        about = read_about(folder, verify=True)
        assert about is not None
        found.add(about["kind"])
        assert content(folder) == (NEW if about["kind"] == "new" else OLD)
        if done:
            break
    assert found == {"old", "new"}
    assert until > 5


def test_a_file_that_is_not_what_was_saved_is_named(tmp_path: Path) -> None:
    publish(tmp_path, writing(NEW), {})
    (tmp_path / "model.safetensors").write_text("bent")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not what was saved"):
        read_about(tmp_path, verify=True)
    (tmp_path / "checkpoint.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"checkpoint\.json cannot be read"):
        read_about(tmp_path)
