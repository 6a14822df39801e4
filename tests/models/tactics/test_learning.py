"""A task on top of a checkpoint: saved on the way and gone on with, through full disks, and found after a move."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedModel

from pipeline.models.chain import Chain, Checkpoint
from pipeline.models.config import TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.errors import CheckpointError
from pipeline.models.model_files import begun, file_digest, weights_digest, weights_of
from pipeline.models.tactics.job import learn
from pipeline.models.tactics.models import load_model
from tests.support.daemon.disk import SmallDisk, small_disk


@pytest.fixture
def task(tmp_path: Path) -> TaskData:
    """Eleven proofs of one step."""
    theorems = [
        {
            "url": "https://example.org/demo/one",
            "commit": "a" * 40,
            "file_path": "A.lean",
            "full_name": f"t{number}",
            "theorem_statement": None,
            "start": [number + 1, 1],
            "end": [number + 1, 9],
            "traced_tactics": [
                {
                    "tactic": "rfl",
                    "annotated_tactic": ["", []],
                    "state_before": f"⊢ {number}",
                    "state_after": "",
                }
            ],
        }
        for number in range(11)
    ]
    (tmp_path / "task" / "random").mkdir(parents=True)
    (tmp_path / "task" / "random" / "train.json").write_text(json.dumps(theorems))
    return TaskData("example.org/demo/one", tmp_path / "task")


@pytest.fixture
def config(causal: Path) -> TacticsConfig:
    return TacticsConfig(model_name=str(causal), batch_size=1, lr=1e-3, max_seq_len=400, device="cpu")


def cut_off(at: int) -> Any:
    def on_step(done: int, _total: int) -> None:
        if done == at:
            raise KeyboardInterrupt

    return on_step


def test_a_run_that_goes_on_tells_the_loss_of_all_its_steps(
    tmp_path: Path, task: TaskData, config: TacticsConfig
) -> None:
    whole = learn(task, Chain(tmp_path / "whole"), config, parent=None)
    chain = Chain(tmp_path / "cut")
    each = replace(config, save_minutes=0.0)
    for at in (4, 8):
        with pytest.raises(KeyboardInterrupt):
            learn(task, chain, each, parent=None, on_step=cut_off(at))
    (run,) = (chain.folder / ".runs").iterdir()
    assert [path.name for path in (run / "steps").iterdir()] == ["checkpoint-7"], "one is kept"
    made = learn(task, chain, config, parent=None)
    assert made.checkpoint == whole.checkpoint
    assert made.files["model.safetensors"] == whole.files["model.safetensors"]
    assert made.about["fitted"]["steps"] == 11
    assert made.about["fitted"]["measures"]["loss"] == pytest.approx(
        whole.about["fitted"]["measures"]["loss"], rel=1e-4
    )


def test_a_disk_that_is_full_at_the_end_costs_no_step(
    tmp_path: Path, task: TaskData, config: TacticsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", size_bytes=16 * 2**20) as disk:
        if not isinstance(disk, SmallDisk):
            pytest.skip("nothing may be mounted here")
        chain = Chain(tmp_path / "disk" / "chain")
        put = Chain.put

        def when_full(self: Chain, *given: Any) -> Checkpoint:
            disk.refuse(os.getpid())
            return put(self, *given)

        with monkeypatch.context() as patched:
            patched.setattr(Chain, "put", when_full)
            with pytest.raises(
                CheckpointError, match=r"cannot be written to .*continues from the saved files"
            ):
                learn(task, chain, config, parent=None)
        disk.mend()
        steps: list[int] = []
        made = learn(task, chain, config, parent=None, on_step=lambda done, _: steps.append(done))
        assert steps == []
        assert not list((chain.folder / ".runs").iterdir())
        whole = learn(task, Chain(tmp_path / "whole"), config, parent=None)
        assert made.files["model.safetensors"] == whole.files["model.safetensors"]


def test_a_disk_that_is_full_on_the_way_leaves_what_was_saved_before(
    tmp_path: Path, task: TaskData, config: TacticsConfig
) -> None:
    with small_disk(tmp_path / "disk", size_bytes=16 * 2**20) as disk:
        if not isinstance(disk, SmallDisk):
            pytest.skip("nothing may be mounted here")
        chain = Chain(tmp_path / "disk" / "chain")

        def fills(done: int, _total: int) -> None:
            if done == 5:
                disk.refuse(os.getpid())

        each = replace(config, save_minutes=0.0)
        with pytest.raises(CheckpointError, match=r"steps cannot be written .*continues from the last step"):
            learn(task, chain, each, parent=None, on_step=fills)
        disk.mend()
        steps: list[int] = []
        learn(task, chain, config, parent=None, on_step=lambda done, _: steps.append(done))
        assert steps == [*range(5, 12)]


def test_an_adapter_on_a_checkpoint_is_found_with_it_after_the_state_folder_has_moved(
    tmp_path: Path, task: TaskData, config: TacticsConfig
) -> None:
    state = tmp_path / "state"
    chain = Chain(state / "models" / "tactics")
    first = learn(task, chain, config, parent=None)
    adapter = replace(config, lora=True, lora_rank=2)
    second = learn(task, chain, adapter, parent=first.checkpoint)
    moved = Chain(state.rename(tmp_path / "elsewhere") / "models" / "tactics")
    found = load_model(moved.path(second.checkpoint))
    assert (found.is_adapter, found.base) == (True, str(moved.path(first.checkpoint)))
    moved.read(second.checkpoint, verify=True)
    third = learn(task, moved, replace(adapter, seed=1), parent=second.checkpoint)
    assert load_model(moved.path(third.checkpoint)).base == str(moved.path(first.checkpoint))


def test_of_a_model_in_several_parts_every_part_counts(
    tmp_path: Path, task: TaskData, config: TacticsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = PreTrainedModel.save_pretrained

    def in_parts(self: PreTrainedModel, folder: Any, **given: Any) -> None:
        save(self, folder, **{**given, "max_shard_size": "30KB"})

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", in_parts)
    chain = Chain(tmp_path / "chain")
    made = learn(task, chain, config, parent=None)
    names = weights_of(made.files)
    assert len(names) > 2
    folder = chain.path(made.checkpoint)
    assert begun(folder) == weights_digest(made.files)
    copy = shutil.copytree(folder, tmp_path / "copy")
    part = copy / names[-1]
    part.write_bytes(part.read_bytes() + b" ")
    assert file_digest(copy / names[0]) == made.files[names[0]], "the index is the same"
    assert begun(copy) != begun(folder)
