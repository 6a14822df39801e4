"""A disk that fills up, for real, while a task is learned: nothing half written, and what was saved is gone on from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.errors import CheckpointError
from pipeline.models.model_files import FISHER
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.fisher import Fisher
from pipeline.models.retriever.learning import learn
from pipeline.models.retriever.retriever import PremiseRetriever
from tests.support.daemon.disk import SmallDisk, small_disk
from tests.support.retrieval import small_config

pytestmark = pytest.mark.timeout(300)


def files_of(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and ".indices" not in path.parts
    }


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", size_bytes=8 * 2**20) as made:
        if not isinstance(made, SmallDisk):
            pytest.skip("nothing may be mounted here")
        yield made


def test_a_disk_that_is_full_when_the_checkpoint_is_written_leaves_the_chain_as_it_was_and_a_repeat_only_writes(
    tmp_path: Path,
    config: RetrieverConfig,
    tasks: list[TaskData],
    disk: SmallDisk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = Chain(tmp_path / "disk" / "chain")
    first = learn(tasks[0], chain, config, parent=None)
    before = files_of(chain.folder)
    save = PremiseRetriever.save

    def save_when_full(self: PremiseRetriever, folder: Path) -> None:
        disk.refuse(os.getpid())
        save(self, folder)

    steps: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(PremiseRetriever, "save", save_when_full)
        with pytest.raises(CheckpointError, match=r"cannot be written.*Make room"):
            learn(
                tasks[1], chain, config, parent=first.checkpoint, on_step=lambda done, _: steps.append(done)
            )
    assert steps == [1, 2, 3, 4, 5]
    kept = {name: at for name, at in files_of(chain.folder).items() if not name.startswith(".runs")}
    assert kept == before
    disk.mend()
    second = learn(
        tasks[1], chain, config, parent=first.checkpoint, on_step=lambda done, _: steps.append(done)
    )
    assert steps == [1, 2, 3, 4, 5]
    elsewhere = Chain(tmp_path / "elsewhere")
    assert learn(tasks[0], elsewhere, config, parent=None).digest == first.digest
    undisturbed = learn(tasks[1], elsewhere, config, parent=first.checkpoint)
    assert undisturbed.digest == second.digest
    # Not the files' digests: safetensors writes metadata in an order of its own.
    one, other = (Fisher.load(made.path(second.checkpoint) / FISHER) for made in (chain, elsewhere))
    torch.testing.assert_close(one.values, other.values, rtol=0, atol=0)


def test_a_disk_that_is_full_while_steps_are_saved_ends_the_run_and_it_goes_on_from_the_last_saved(
    tmp_path: Path, model: Path, tasks: list[TaskData], disk: SmallDisk
) -> None:
    config = small_config(model, checkpoint_every_n_steps=1)
    chain = Chain(tmp_path / "disk" / "chain")
    steps: list[int] = []

    def fill_at_3(done: int, _total: int) -> None:
        steps.append(done)
        if done == 3:
            disk.refuse(os.getpid())

    with pytest.raises(CheckpointError, match=r"step=3\.ckpt cannot be written"):
        learn(tasks[0], chain, config, parent=None, on_step=fill_at_3)
    assert not list(chain.folder.glob("[0-9a-f]*"))
    disk.mend()
    made = learn(tasks[0], chain, config, parent=None, on_step=lambda done, _: steps.append(done))
    assert steps == [1, 2, 3, 3, 4, 5, 6]
    assert learn(tasks[0], Chain(tmp_path / "other"), config, parent=None).digest == made.digest


def test_a_disk_that_is_full_when_training_ends_ends_the_run_and_nothing_is_lost_but_time(
    tmp_path: Path, config: RetrieverConfig, tasks: list[TaskData], disk: SmallDisk
) -> None:
    chain = Chain(tmp_path / "disk" / "chain")

    def fill_at_last(done: int, total: int) -> None:
        if done == total:
            disk.refuse(os.getpid())

    with pytest.raises(CheckpointError, match=r"cannot be written \(No space left"):
        learn(tasks[0], chain, config, parent=None, on_step=fill_at_last)
    assert not list(chain.folder.glob("[0-9a-f]*"))
    disk.mend()
    made = learn(tasks[0], chain, config, parent=None)
    assert learn(tasks[0], Chain(tmp_path / "other"), config, parent=None).digest == made.digest
