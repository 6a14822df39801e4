"""What keeps the server running holds it to its memory and notices that its GPU is lost, and says so.

The server itself is one that does nothing; the real one is in tests/serve/test_daemon_child.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from daemon import serving
from daemon.cgroups import Cgroups
from daemon.gpus import Gpus
from daemon.serve_order import order_of, whole_bytes
from daemon.serve_process import ServeRun
from daemon.serving import PROBLEM, Patience, Serving
from daemon.settings import Settings
from daemon.testing.bench import until
from daemon.testing.cgroup import FakeTree
from daemon.testing.house import House
from daemon.testing.nvml import FakeGpu, FakeNvml


@dataclass
class Kept:
    """A server that is being kept."""

    serving: Serving
    gpus: Gpus
    problems: dict[str, str]
    settings: Settings

    @property
    def pid(self) -> int | None:
        pid: int | None = self.serving.status()["pid"]
        return pid

    async def up(self) -> psutil.Process:
        await until(lambda: self.serving.is_up)
        assert self.pid is not None
        return psutil.Process(self.pid)

    async def look(self) -> None:
        """Have somebody look at the GPUs, as each plan does."""
        await self.gpus.look({})


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(ServeRun, "module", "daemon.testing.server")
    monkeypatch.setattr(ServeRun, "gpu_every_s", 0.02)
    monkeypatch.setattr(serving, "why_not_servable", lambda _: "")
    monkeypatch.setattr(serving, "_LOOK_AGAIN_S", 0.05)
    (tmp_path / "state").mkdir()
    return House(tmp_path)


@asynccontextmanager
async def kept(
    house: House, *, device: str = "cpu", nvml: FakeNvml | None = None, cgroups: Cgroups | None = None
) -> AsyncIterator[Kept]:
    settings = house.write(repos=[], extra=f'[serve]\nenabled = true\ndevice = "{device}"\n')
    gpus = Gpus(house.folder / "gpus", library=lambda: nvml, is_there=lambda: nvml is not None, visible="0,1")
    problems: dict[str, str] = {}
    one = Serving(
        settings=lambda: settings,
        gpus=gpus,
        problems=problems,
        cgroups=cgroups,
        patience=Patience(first_rest=0.02, steady=0.2),
    )
    task = asyncio.create_task(one.run())
    try:
        yield Kept(one, gpus, problems, settings)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gpus.close()


def ends(main: Coroutine[Any, Any, None]) -> list[str]:
    """Run it, and return why servers ended meanwhile."""
    with capture_logs() as logs:
        asyncio.run(main)
    return [str(entry["reason"]) for entry in logs if entry["event"] == "serve_ended"]


def test_one_whose_gpu_is_lost_is_ended_says_so_and_waits_for_a_gpu(house: House) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"))

    async def main() -> None:
        async with kept(house, device="cuda", nvml=nvml) as one:
            process = await one.up()
            assert process.environ()["CUDA_VISIBLE_DEVICES"] == "GPU-a"
            assert one.serving.status()["device"] == "GPU 0 (Test GPU)"
            nvml.gpus[0].lost = True
            await one.look()
            await until(lambda: one.serving.status()["state"] == "blocked")
            assert not process.is_running()
            status = one.serving.status()
            assert status["reason"] == "no GPU is free (GPU 0 (Test GPU) is lost: GPU is lost)"
            assert "nvidia-smi --gpu-reset" in status["remedy"]
            assert 'device = "cpu"' in status["remedy"]
            nvml.gpus[0].lost = False
            assert (await one.up()).pid != process.pid
            await until(lambda: not one.problems)

    assert ends(main()) == ["the server ended, once: GPU 0 (Test GPU) was lost: GPU is lost"]


def test_one_that_may_goes_on_without_its_gpu_on_another_one_and_then_on_the_processor(house: House) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    shown = []

    async def main() -> None:
        async with kept(house, device="auto", nvml=nvml) as one:
            for lost in nvml.gpus:
                process = await one.up()
                shown.append(process.environ()["CUDA_VISIBLE_DEVICES"])
                lost.lost = True
                await one.look()
                await until(lambda before=process.pid: one.pid not in (None, before))  # type: ignore[misc] # a loop's value bound early
            process = await one.up()
            shown.append(process.environ()["CUDA_VISIBLE_DEVICES"])
            assert one.serving.status()["device"] == "cpu"
            nvml.gpus[0].lost = False
            await one.look()
            await until(lambda: not one.problems)
            assert one.pid == process.pid, "it stays where it is"

    asyncio.run(main())
    assert shown == ["GPU-a", "GPU-b", ""]


def test_one_for_which_a_gpu_that_works_is_only_busy_waits_for_it(house: House) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a", users={1: 2**30}))

    async def main() -> None:
        async with kept(house, device="auto", nvml=nvml) as one:
            await until(lambda: one.serving.status()["state"] == "blocked")
            assert "GPU 0 (Test GPU) is busy: used by process 1" in one.serving.status()["reason"]
            nvml.gpus[0].users = {}
            await one.up()
            assert one.serving.status()["device"] == "GPU 0 (Test GPU)"

    asyncio.run(main())


def test_one_that_ends_since_its_gpu_is_lost_says_that_and_not_its_status(house: House) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"))

    async def main() -> None:
        async with kept(house, device="cuda", nvml=nvml) as one:
            process = await one.up()
            nvml.gpus[0].lost = True  # and nobody has looked yet
            process.send_signal(signal.SIGABRT)
            await until(lambda: one.serving.status()["state"] == "blocked")

    assert ends(main()) == ["the server ended, once: GPU 0 (Test GPU) was lost: GPU is lost"]


def test_it_is_in_a_control_group_of_its_own_with_room_for_what_it_starts(house: House) -> None:
    tree = FakeTree(house.folder)

    async def main() -> None:
        async with kept(house, cgroups=tree.cgroups()) as one:
            process = await one.up()
            group = tree.top / "job-serve"
            most = whole_bytes(one.settings, order_of(one.settings, scratch="x"))
            jobs, lean = one.settings.jobs.memory_bytes, one.settings.lean.repl_memory_bytes
            assert most == 2**34 + 2 * (jobs + 2 * lean)
            assert (group / "memory.max").read_text() == str(most)
            assert (group / "cgroup.procs").read_text() == str(process.pid)
            await until(lambda: one.serving.status()["memory"]["held_bytes"])
            memory = one.serving.status()["memory"]
            assert (memory["by"], memory["limit_bytes"]) == ("control group", most)
            assert 2**20 < memory["held_bytes"] < 2**30
        assert not group.exists()

    asyncio.run(main())


def test_what_the_kernel_killed_for_its_memory_is_said_with_the_setting_that_helps(house: House) -> None:
    tree = FakeTree(house.folder, kills=1, at_limit=1)

    async def main() -> None:
        async with kept(house, cgroups=tree.cgroups()) as one:
            os.kill((await one.up()).pid, signal.SIGKILL)
            await until(lambda: one.problems)
            assert "the kernel killed it for its memory" in one.problems[PROBLEM]
            assert "raise [serve] memory" in one.problems[PROBLEM]

    asyncio.run(main())


def test_without_groups_it_is_looked_at_and_ended_where_it_holds_too_much(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "whole_bytes", lambda *_: 2**20)

    async def main() -> None:
        async with kept(house) as one:
            await until(lambda: one.problems)
            assert "with all that it started it held 0.0G, more than its 0.0G" in one.problems[PROBLEM]
            assert "raise [serve] memory" in one.problems[PROBLEM]
            assert one.serving.status()["state"] in ("resting", "starting", "running")

    asyncio.run(main())
