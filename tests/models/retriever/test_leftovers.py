"""Leftovers of abandoned jobs are removed from a chain's folder."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.models.chain import Chain
from pipeline.models.datasets import dataset_of, keep_datasets
from store.files import beside


def test_datasets_of_other_jobs_are_removed(tmp_path: Path) -> None:
    for job in ("train-a", "train-b", "train-c"):
        place = dataset_of(tmp_path, job)
        (place / "random").mkdir(parents=True)
        (place / "random" / "test.json").write_text("[]")
    keep_datasets(tmp_path, {"train-a", "train-c"})
    assert [dataset_of(tmp_path, job).exists() for job in ("train-a", "train-b", "train-c")] == [
        True,
        False,
        True,
    ]
    keep_datasets(tmp_path / "none", ())


def test_what_runs_have_saved_goes_unless_a_process_is_at_it(tmp_path: Path) -> None:
    chain, held, left = Chain(tmp_path), "0" * 16, "1" * 16
    (chain.run(left) / "steps").mkdir(parents=True)
    half = beside(chain.path(left))
    half.mkdir()  # of a process killed while it wrote the checkpoint
    with chain.making(held):
        pid = os.fork()  # a lock keeps out other processes, not one's own
        if pid == 0:
            chain.drop_runs()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert (chain.run(held).exists(), chain.run(left).exists()) == (True, False)
        assert not half.exists()
    chain.drop_runs()
    assert not chain.run(held).exists()


def test_a_checkpoint_is_kept_alone_after_a_kill_amid_the_removal_of_others(tmp_path: Path) -> None:
    chain, kept, half = Chain(tmp_path), "0" * 16, "1" * 16
    (chain.path(kept)).mkdir()
    (chain.path(half)).mkdir()
    (chain.path(half) / "model.safetensors").touch()  # its checkpoint.json went first
    (tmp_path / "tensorboard").mkdir()
    chain.run(half).mkdir(parents=True)
    chain.keep_only(kept)
    assert {path.name for path in tmp_path.iterdir()} == {kept, "tensorboard", ".runs"}
    assert not chain.run(half).exists()
