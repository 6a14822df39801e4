"""What runs for hours is preempted: for a pause, for a GPU that is gone, for a repository that waits for a slot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import Field

from daemon.planning.admission import Admission
from daemon.scheduling.scheduler import Operator
from pipeline.jobs.specs import Budget, EndpointRung, EndpointSpec, ProveSpec, WholeSpec
from pipeline.lean.pool import PoolLimits
from tests.support.daemon.bench import bench, until
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.nvml import FakeGpu, FakeNvml, gpus_of
from tests.support.planning import LEAN
from tests.support.specs import A_LEAN


class Paid(ProveSpec):
    """A prove job on rung 4 that behaves as told (`tests.support.daemon.job`)."""

    behave: str
    base: None = None
    # A scan's, which the job reads, are others.
    limits: PoolLimits = Field(PoolLimits(), exclude=True)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def paid(sha: str) -> Paid:
    return Paid(
        behave="hang",
        repository="r",
        branch="main",
        sha=sha,
        lean=A_LEAN,
        rung=EndpointRung(endpoint=EndpointSpec(base_url="http://127.0.0.1:1", model="m"), whole=WholeSpec()),
        budget=Budget(1, 1.0, 1.0),
        budget_key="b",
        parallel=1,
        sorries=(),
    )


async def test_what_runs_for_hours_is_preempted_for_a_pause_and_a_training_when_its_gpu_falls_off_the_bus(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    deployment.write(repos=[remote.path], extra="[trace]\nenabled = false\n")
    nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    gpus = gpus_of(tmp_path / "gpus", nvml)
    async with bench(deployment, gpus=gpus) as b:
        work = b.scheduler()
        desk = Operator(b.parts.store, b.runner, work, b.parts.context)
        await b.run(b.due("succeed"))

        async def trains(attempt: int) -> None:
            leases = await gpus.look({})
            b.runner.start(b.due("yield", kind="train", leases=leases, attempt=attempt))
            await until(lambda: b.runner.running()[0].note == "in the region")
            await work.start_due()
            assert [job.job for job in b.runner.running()] == ["train-yield"], "nothing asks for room yet"

        b.runner.start(b.due("hang", kind="prove"))
        b.runner.start(b.due("hang", kind="check"))
        asks = b.due("hang", kind="prove")
        b.runner.start(replace(asks, job="prove-paid", lane="", spec=paid(b.sha)))
        await until(lambda: all(job.pid for job in b.runner.running()))
        await desk.pause("prove", by="ada", reason="hot")
        await work.start_due()
        # The search alone, which is begun again. A check is short, and what an endpoint was asked is paid.
        await until(lambda: [job.job for job in b.runner.running()] == ["check-hang", "prove-paid"])
        await work.start_due()
        for job in ("check-hang", "prove-paid"):
            assert b.runner.cancel(job, by="ada"), "it goes on"
        await until(lambda: not b.runner.running())
        search = await b.row("prove-hang")
        assert search.state == "interrupted", "it is due again"
        assert search.reason == "preempted: paused by ada (hot); `everlean resume prove`"
        await desk.resume("prove", by="ada")

        await trains(1)
        await desk.pause("train", by="ada", reason="")
        await work.start_due()
        await until(lambda: not b.runner.running())
        paused = await b.row("train-yield")
        await desk.resume("train", by="ada")
        await trains(2)
        nvml.gpus[1].lost = True  # of its two
        await work.start_due()
        await until(lambda: not b.runner.running())
        state, lost, lent = work.gpus[1].state, await b.row("train-yield"), list(b.runner.lent)
    assert (paused.state, paused.reason) == (
        "interrupted",
        "preempted: paused by ada; `everlean resume train`; where it was is saved",
    )
    assert (state, lent) == ("lost", [])
    assert (lost.attempt, lost.reason) == (
        2,
        "preempted: GPU 1 (Test GPU) was lost: GPU is lost; where it was is saved",
    )


async def test_no_more_trainings_are_preempted_than_free_the_gpus_that_proofs_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.planning.schedule.LEAST_S", 0.0)
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := trivial\n"})
    deployment.write(repos=[remote.path], extra='[schedule]\npreempt = ["prove"]\n')
    gpus = gpus_of(tmp_path / "gpus", FakeNvml(*(FakeGpu(f"GPU-{name}") for name in "abcd")))
    async with bench(deployment, gpus=gpus) as b:
        work = b.scheduler()
        leases = await gpus.look({})
        for number, own in enumerate((leases[:2], leases[2:3], leases[3:])):
            b.runner.start(b.due("yield", kind="train", leases=own, job=f"train-{number}"))
        await until(lambda: [one.note for one in b.runner.running()] == ["in the region"] * 3)
        await work.start_due()
        ends = []
        for waiting in ((), ("prove a",), ("prove a", "prove b"), ("prove a", "prove b", "prove c")):
            work.admission = Admission(for_gpu=waiting)
            work._preempt()
            ends.append([live.due.job for live in b.runner.attempts if live.asked.is_set()])
        await until(lambda: len(b.runner.running()) == 1)
    assert ends == [[], ["train-0"], ["train-0"], ["train-0", "train-1"]], "the first one frees two"


async def test_a_long_search_makes_room_for_a_repository_that_has_waited_for_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.planning.admission.SHARE_S", 1.0)
    deployment = Deployment(tmp_path)
    large, small = deployment.remote("large"), deployment.remote("small")
    for one in (large, small):
        sha = one.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    settings = deployment.write(
        repos=[large.path, small.path],
        extra="[build]\nenabled = false\n[jobs]\nmax_running = 2\n",
    )
    waits = settings.repos[1]
    async with bench(deployment) as b:
        work = b.scheduler(LEAN)
        b.runner.start(b.due("hang", kind="prove"))
        await until(lambda: b.runner.running()[0].pid)
        b.runner._live["prove-hang"].saved = True  # as if it had recorded an attempt
        await b.parts.poller.poll(waits)
        scan = b.due("succeed")
        spec = scan.whole_spec.model_copy(update={"repository": waits.key})
        b.runner.start(replace(scan, repository=waits.key, spec=spec))
        async with asyncio.timeout(60):
            while "prove-hang" in {job.job for job in b.runner.running()}:
                await work.start_due()
                await asyncio.sleep(0.1)
        stopped = await b.row("prove-hang")
    assert (stopped.state, stopped.reason) == (
        "interrupted",
        f"preempted: trace {waits.key} main {sha[:10]} waits for a slot; what is done stays",
    )
