"""A training takes two GPUs, makes way for a proof that waits for one, and goes on with the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from daemon.place.answers import LiveJob
from daemon.results.models import Models
from daemon.scheduling.scheduler import Operator
from pipeline.jobs.kinds import KINDS
from tests.support.daemon.bench import bench, until
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.nvml import FakeGpu, FakeNvml, gpus_of
from tests.support.daemon.traced_project import TracedProject
from tests.support.tiny_models import make_tiny_retriever

# Five processes load torch one after the other.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG = """
[daemon]
state_dir = "state"
[lean]
sandbox = "none"
as_root = true
[schedule]
preempt = ["prove"]
[train]
device = "auto"
gpus = 2
new_theorems = 1
[train.retriever]
model_name = "{retriever}"
batch_size = 2
max_epochs = 12
early_stopping_patience = 100
fisher_samples = 2
max_seq_len = 64
data_max_seq_len = 64
num_workers = 0
[train.tactics]
model_name = "{generator}"
[prove]
rungs = [2]
seconds_per_sorry = "20s"
nodes_per_sorry = 2
[prove.generator]
candidates = 4
[[repos]]
url = "{url}"
"""


async def test_a_training_on_two_gpus_makes_way_for_a_proof_and_goes_on_with_one(
    study: TracedProject, says_rfl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.planning.schedule.LEAST_S", 0.0)
    retriever = make_tiny_retriever(tmp_path / "retriever", d_model=32, layers=1)
    study.config.write_text(CONFIG.format(retriever=retriever, generator=says_rfl, url=study.url))
    gpus = gpus_of(tmp_path / "gpus", FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b")))
    modules = {name: kind.module for name, kind in KINDS.items()}
    leased: list[tuple[str, int]] = []
    async with bench(Deployment(study.folder), gpus=gpus, modules=modules, forked=False) as b:
        work = b.scheduler()
        await work.look_around()
        desk = Operator(b.parts.store, b.runner, work, b.parts.context)

        async def turn() -> None:
            """Start what is due, and note who got how many GPUs."""
            before = b.runner.attempts
            await work.start_due()
            new = [live.due for live in b.runner.attempts if live not in before]
            leased.extend((due.kind, len(due.leases)) for due in new if due.leases)

        def any_ended(runs: Sequence[LiveJob]) -> bool:
            return bool({one.job for one in runs} - {one.job for one in b.runner.running()})

        await desk.pause("prove", by="ada", reason="")
        await turn()
        await until(lambda: any(one.progress and one.progress.done > 1 for one in b.runner.running()), 200)
        await desk.resume("prove", by="ada")
        await turn()
        while runs := b.runner.running():
            await until(partial(any_ended, runs), 200)
            await turn()
        await Models(b.parts.store, chain_root=study.paths.models, tolerance=lambda _: 0).settle()
    assert leased == [("train", 2), ("prove", 1), ("train", 1)]
    (ended,) = study.events("job_interrupted")
    assert ended.data["reason"] == "preempted: prove four at rung 2 waits for its GPU; where it was is saved"
    assert not study.events("job_failed")
    (made,), (promoted,) = study.events("checkpoint_saved"), study.events("checkpoint_promoted")
    assert promoted.data["checkpoint"] == made.data["checkpoint"]
