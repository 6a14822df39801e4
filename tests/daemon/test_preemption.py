"""What runs for hours is preempted: for a pause, for a GPU that is gone, for a repository that waits for a slot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from daemon.control_client import request
from daemon.scheduler import Operator, Scheduler
from pipeline.jobs.specs import Budget, EndpointRung, EndpointSpec, ProveSpec, WholeSpec
from pipeline.lean.backend import find_leans, simulator
from pipeline.lean.pool import PoolLimits
from store.view.rows import JobRow
from tests.support.daemon.bench import bench, until
from tests.support.daemon.deployment import Deployment, NoTasks
from tests.support.daemon.nvml import FakeGpu, FakeNvml, gpus_of

NO_LEAN = find_leans(backend="none", repl="", sandbox="none")


class Paid(ProveSpec):
    """A prove job on rung 4 that behaves as told (`tests.support.daemon.job`)."""

    behave: str
    base: None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def paid(sha: str) -> Paid:
    return Paid(
        behave="hang",
        repository="r",
        branch="main",
        sha=sha,
        lean=simulator(),
        limits=PoolLimits(),
        rung=EndpointRung(endpoint=EndpointSpec(base_url="http://127.0.0.1:1", model="m"), whole=WholeSpec()),
        budget=Budget(1, 1.0, 1.0),
        budget_key="b",
        parallel=1,
        sorries=(),
    )


def test_what_runs_for_hours_is_preempted_for_a_pause_and_a_training_when_its_gpu_falls_off_the_bus(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    deployment.write(repos=[remote.path], extra="[trace]\nenabled = false\n")
    nvml = FakeNvml(FakeGpu("GPU-a"))
    gpus = gpus_of(tmp_path / "gpus", nvml)

    async def go() -> tuple[JobRow, str, JobRow, list[str]]:
        async with bench(deployment, gpus=gpus) as b:
            upkeep: Any = SimpleNamespace(
                cache_bytes=0, advisories=(), sweep_cache=lambda _: asyncio.sleep(0)
            )
            work = Scheduler(
                store=b.parts.store,
                runner=b.runner,
                upkeep=upkeep,
                engine=b.engine,
                context=NoTasks(b.parts.settings),
                leans=NO_LEAN,
            )
            desk = Operator(b.parts.store, b.runner, work, b.parts.context)
            await b.run(b.due("succeed"))

            async def trains(attempt: int) -> None:
                (gpu,) = await gpus.look({})
                b.runner.start(b.due("yield", kind="train", gpu=True, attempt=attempt), gpu)
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
            # The search alone: its journal has what it found. A check is short, and what an endpoint was asked is paid.
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
            nvml.gpus[0].lost = True
            await work.start_due()
            await until(lambda: not b.runner.running())
            return paused, work.gpus[0].state, await b.row("train-yield"), list(b.runner.lent)

    paused, state, lost, lent = asyncio.run(go())
    assert (paused.state, paused.reason) == (
        "interrupted",
        "preempted: paused by ada; `everlean resume train`; where it was is saved",
    )
    assert (state, lent) == ("lost", [])
    assert (lost.attempt, lost.reason) == (
        2,
        "preempted: GPU 0 (Test GPU) was lost: GPU is lost; where it was is saved",
    )


def test_a_long_trace_keeps_another_repository_waiting_for_its_share_only_and_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    large, good = deployment.remote("large"), deployment.remote("good")
    lines = "".join(f"theorem t{i} : {i} = {i} := by\n  rfl\n" for i in range(16))
    large.commit("large", {f"L{n}.lean": f"namespace L{n}\n{lines}end L{n}\n" for n in range(100)})
    good.commit("good", {"G.lean": "theorem g : 1 = 1 := by\n  rfl\n"})
    settings = deployment.write(
        repos=[large.path, good.path],
        extra='[lean]\nbackend = "simulator"\n[schedule]\nshare = "1s"\n[prove]\nenabled = false\n',
    )
    big, small = (repo.key for repo in settings.repos)

    def traced(repository: str) -> list[str]:
        events = deployment.events("file_traced")
        return [event.data["path"] for event in events if event.data["repository"] == repository]

    with deployment.daemon():
        deployment.wait_for(lambda: traced(big) and traced(small), what="a trace that is under way")
        sha = good.commit("more", {"H.lean": "theorem h : 2 = 2 := by\n  rfl\n"})
        request(settings.paths, "POST", "/poll", {"repository": small})
        deployment.wait_for(lambda: "H.lean" in traced(small), what="the other's trace", seconds=30)
        assert len(traced(big)) < 100, "it is not waited for"
        deployment.wait_for(
            lambda: big in {event.data["repository"] for event in deployment.events("commit_traced")},
            what="the large trace's end",
            seconds=120,
        )
    # On a slow machine each makes room for the other more than once.
    ended = [event.data["reason"] for event in deployment.events("job_interrupted")]
    what = f"trace {small} main {sha[:10]}"
    assert f"preempted: {what} waits for a slot; what is done stays" in ended
    assert len(traced(big)) == len(set(traced(big))) == 100, "each file is traced once"
