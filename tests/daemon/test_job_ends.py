"""How jobs end that do not end by themselves: cancelled, making way, out of memory, without their GPU."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from daemon.jobs.limits import Cgroups, NoCgroupsError
from daemon.place.lock import holder
from pipeline.jobs import preemption
from store.view.rows import JobRow
from tests.support.daemon.bench import Bench, bench, until
from tests.support.daemon.cgroup import FakeTree
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.nvml import FakeGpu, FakeNvml, gpus_of


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    deployment.write(repos=[remote.path])
    return deployment


def run(deployment: Deployment, behave: str, **limits: Any) -> JobRow:
    async def go() -> JobRow:
        async with bench(deployment, **limits) as b:
            return await b.run(b.due(behave))

    return asyncio.run(go())


def said(b: Bench) -> str:
    return b.runner.running()[0].note if b.runner.running() else ""


def family(deployment: Deployment, job: str) -> list[int]:
    stderr = deployment.folder / "state" / "jobs" / job / "1" / "stderr.log"
    lines = stderr.read_text(encoding="utf-8").splitlines() if stderr.exists() else []
    return [int(word) for line in lines if line.startswith("children") for word in line.split()[1:]]


async def test_a_cancelled_job_is_ended_with_its_family_and_recorded_as_cancelled(
    deployment: Deployment,
) -> None:
    async with bench(deployment) as b:
        b.runner.start(b.due("hang"))
        await until(lambda: family(deployment, "scan-hang"))
        assert b.runner.cancel("scan-hang", by="ada")
        await until(lambda: not b.runner.running())
        assert not b.runner.cancel("scan-hang", by="ada")
        row = await b.row("scan-hang")
    assert (row.state, row.message, row.retry_at) == ("cancelled", "cancelled by ada", None)
    assert row.seconds is not None
    assert not any(psutil.pid_exists(pid) for pid in family(deployment, "scan-hang"))
    assert not deployment.events("job_failed", "job_interrupted")


async def test_a_training_that_is_preempted_keeps_its_helpers_to_save_with_and_is_due_again(
    deployment: Deployment,
) -> None:
    async with bench(deployment) as b:
        b.runner.start(b.due("yield", kind="train"))
        await until(lambda: said(b) == "in the region")
        b.runner.preempt("train-yield", "quiet hours until 06:00")
        await until(lambda: not b.runner.running())
        row = await b.row("train-yield")
    assert row.state == "interrupted"
    assert row.reason == "preempted: quiet hours until 06:00; where it was is saved"
    stderr = (deployment.folder / "state" / "jobs" / "train-yield" / "1" / "stderr.log").read_text()
    assert "preempted: with its helper" in stderr


async def test_a_daemon_that_stops_lets_a_training_save_too(deployment: Deployment) -> None:
    async with bench(deployment) as b:
        b.runner.start(b.due("yield", kind="train"))
        await until(lambda: said(b) == "in the region")
        await b.runner.stop(deadline_s=10)
        result = await b.row("train-yield")
    assert result.reason == "the daemon stopped; where it was is saved"


async def test_a_training_that_does_not_end_within_its_grace_is_killed_and_is_due_again(
    deployment: Deployment,
) -> None:
    async with bench(deployment) as b:
        b.runner.grace_s = 0.3
        b.runner.start(b.due("stubborn", kind="train"))
        await until(lambda: family(deployment, "train-stubborn"))
        b.runner.preempt("train-stubborn", "paused by ada")
        await until(lambda: not b.runner.running())
        row = await b.row("train-stubborn")
    assert (row.state, row.reason) == ("interrupted", "preempted: paused by ada")


def test_a_family_that_holds_more_than_the_job_may_is_ended_and_says_how_much(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.jobs.limits.LOOK_EVERY_S", 0.1)
    row = run(deployment, "share_memory", memory_bytes=2**28)
    assert (row.state, row.reason) == ("failed", "out_of_memory")
    assert "with all that it started it held 0." in row.message
    assert "more than its 0.2G" in row.message
    assert row.remedy == "raise [jobs] memory"


def test_the_kernels_own_word_says_that_it_killed_a_job_for_its_memory(
    deployment: Deployment, tmp_path: Path
) -> None:
    tree = FakeTree(tmp_path, kills=1, at_limit=3, peak_bytes=2**29)
    row = run(deployment, "killed", memory_bytes=2**29, cgroups=tree.cgroups())
    assert (row.state, row.reason) == ("failed", "out_of_memory")
    assert "the kernel killed it for its memory" in row.message
    assert "it reached its 0.5G" in row.message
    assert [path.name for path in tree.top.iterdir() if path.is_dir()] == ["daemon"], "its group is gone"


async def test_a_job_is_in_a_group_of_its_own_with_its_limit(deployment: Deployment, tmp_path: Path) -> None:
    tree = FakeTree(tmp_path)
    async with bench(deployment, cgroups=tree.cgroups()) as b:
        b.runner.start(b.due("hang"))
        await until(lambda: family(deployment, "scan-hang"))
        group = tree.top / "job-scan-hang-1"
        names = ("memory.max", "memory.oom.group", "cgroup.procs")
        limit, together, pid = ((group / name).read_text() for name in names)
        assert pid == str(b.runner.running()[0].pid)
        result = limit, together, (tree.top / "cgroup.subtree_control").read_text()
    assert result == (str(2**32), "1", "+memory")


def test_groups_are_not_ours_to_make_where_another_user_is_in_ours(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path / "others")
    (tree.top / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    with pytest.raises(NoCgroupsError, match="other processes than ours"):
        tree.cgroups()
    assert not (tree.top / "daemon").exists()
    with pytest.raises(NoCgroupsError, match="no memory controller; the unit's Delegate= has to name memory"):
        FakeTree(tmp_path / "bare", memory=False).cgroups()
    (tmp_path / "v1").write_text("4:memory:/x\n")
    with pytest.raises(NoCgroupsError, match="no cgroup v2"):
        Cgroups.take(root=tmp_path, own=tmp_path / "v1")


def test_the_real_kernel_kills_a_job_at_the_limit_of_its_group_and_says_so(deployment: Deployment) -> None:
    try:
        cgroups = Cgroups.take()
    except NoCgroupsError as error:
        pytest.skip(str(error))
    row = run(deployment, "share_memory", memory_bytes=2**28, cgroups=cgroups)
    assert (row.state, row.reason) == ("failed", "out_of_memory")


async def test_a_job_sees_the_gpus_that_it_leases_and_no_other_and_the_kernel_takes_them_back(
    deployment: Deployment,
) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"), FakeGpu("GPU-c"))
    gpus = gpus_of(deployment.folder / "gpus", nvml)
    async with bench(deployment, gpus=gpus) as b:
        first, *others = await gpus.look({})
        b.runner.start(b.due("hang", leases=tuple(others)))
        await until(lambda: family(deployment, "scan-hang"))
        held = {holder(gpus.lock(gpu.uuid)) for gpu in others}
        states = [gpu.state for gpu in await gpus.look(b.runner.lent)]
        pid = b.runner.running()[0].pid
        assert pid is not None
        assert held == {pid}
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not b.runner.running())
        left = {holder(gpus.lock(gpu.uuid)) for gpu in others}
        row = await b.run(b.due("environment", leases=(others[1], first)))
    assert (left, states) == ({None}, ["free", "lent", "lent"])
    assert row.summary["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-c,GPU-a"


def test_a_job_without_a_gpu_sees_none(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert run(deployment, "environment").summary["environment"]["CUDA_VISIBLE_DEVICES"] == ""


async def test_a_job_whose_gpu_fell_off_the_bus_is_no_failure_and_says_why_it_ended(
    deployment: Deployment,
) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"))
    gpus = gpus_of(deployment.folder / "gpus", nvml)
    async with bench(deployment, gpus=gpus) as b:
        leases = await gpus.look({})
        nvml.gpus[0].lost = True
        row = await b.run(b.due("defect", leases=leases))
    assert (row.state, row.reason) == ("interrupted", "GPU 0 (Test GPU) was lost: GPU is lost")


def test_a_region_is_nothing_to_a_program_that_is_no_job() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with preemption.region():
        preemption.listen()
        assert signal.getsignal(signal.SIGTERM) is before
        assert not preemption.wanted()


def test_processes_that_work_together_end_their_region_together() -> None:
    before = signal.getsignal(signal.SIGTERM)
    preemption.arm()
    try:
        with pytest.raises(preemption.Yielded), preemption.region(lambda _own: True):
            assert not preemption.wanted(), "another process was asked"
    finally:
        preemption.arm()
        signal.signal(signal.SIGTERM, before)


NEVER_CLEANED_UP = """
import asyncio
from pipeline.jobs import preemption

async def stubborn():
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

async def work():
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    print("at work", flush=True)
    await task

preemption.CLEANUP_S = 0.2
preemption.arm()
asyncio.run(work())
"""


def test_a_job_that_is_told_to_end_ends_also_where_its_clean_up_does_not() -> None:
    with subprocess.Popen([sys.executable, "-c", NEVER_CLEANED_UP], stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"at work\n"
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=30) == -signal.SIGALRM
