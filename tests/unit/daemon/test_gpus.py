"""Which GPU is free: NVML's word, whoever holds its lock, and what becomes of one that falls off the bus."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from pathlib import Path

import pytest

from daemon.jobs.gpus import Gpus
from pipeline.jobs.gpu_lock import take
from pipeline.jobs.protocol import JobError
from tests.support.daemon.nvml import FakeGpu, FakeNvml, gpus_of

GIB = 2**30


def states(found: Gpus, **lent: str) -> list[tuple[str, str, str]]:
    return [
        (gpu.uuid, gpu.state, gpu.detail)
        for gpu in found.seen({k.replace("_", "-"): v for k, v in lent.items()})
    ]


def test_a_gpu_that_no_one_uses_is_free_and_one_of_ours_is_lent(tmp_path: Path) -> None:
    gpus = gpus_of(tmp_path, FakeNvml(FakeGpu("GPU-a", used_bytes=GIB // 2), FakeGpu("GPU-b")))
    assert states(gpus, GPU_b="train it") == [("GPU-a", "free", ""), ("GPU-b", "lent", "train it")]


def test_a_foreign_process_makes_it_busy_and_is_named(tmp_path: Path) -> None:
    users = FakeGpu("GPU-a", users={2**22 + 5: 3 * GIB, 2**22 + 6: None})
    hidden = FakeGpu("GPU-b", used_bytes=3 * GIB)
    (_, a, why), (_, b, unseen) = states(gpus_of(tmp_path, FakeNvml(users, hidden)))
    assert (a, why) == ("busy", "used by process 4194309 with 3.0G, process 4194310")
    assert (b, unseen) == ("busy", "3.0G of its memory is held by a process that cannot be seen")


def test_a_gpu_whose_lock_someone_holds_is_not_free(tmp_path: Path) -> None:
    gpus = gpus_of(tmp_path, FakeNvml(FakeGpu("GPU-a")))
    with take(gpus.lock("GPU-a")):
        assert states(gpus) == [("GPU-a", "lent", f"process {os.getpid()}, which holds its lock")]
    assert states(gpus) == [("GPU-a", "free", "")]


def test_who_joins_a_look_that_began_before_a_gpu_was_taken_finds_it_taken(tmp_path: Path) -> None:
    gpus = gpus_of(tmp_path, FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"), FakeGpu("GPU-c")))

    async def main() -> list[str]:
        began = asyncio.create_task(gpus.look({}))
        await asyncio.sleep(0)
        joined = await gpus.look({"GPU-a": "prove it", "GPU-b": "train it"})
        await began
        return [gpu.state for gpu in joined]

    assert asyncio.run(main()) == ["lent", "lent", "free"]


def test_a_gpu_that_falls_off_the_bus_is_lost_under_its_name_until_it_answers_again(tmp_path: Path) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    gpus = gpus_of(tmp_path, nvml)
    gpus.seen({})
    nvml.gpus[0].lost = True
    lost, other = gpus.seen({"GPU-a": "train it"})
    assert (lost.uuid, lost.state, lost.detail) == ("GPU-a", "lost", "GPU is lost")
    assert "reset the GPU" in lost.remedy
    assert other.state == "free"
    nvml.gpus[0].lost = False
    assert states(gpus)[0] == ("GPU-a", "free", "")


def test_a_gpu_that_is_not_listed_any_more_is_lost_too(tmp_path: Path) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    gpus = gpus_of(tmp_path, nvml)
    gpus.seen({})
    del nvml.gpus[1]
    assert states(gpus) == [("GPU-a", "free", ""), ("GPU-b", "lost", "Invalid Argument")]


def test_a_driver_that_goes_away_takes_all_gpus_with_it_and_one_that_comes_back_brings_them(
    tmp_path: Path,
) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"))
    gpus = gpus_of(tmp_path, nvml)
    gpus.seen({})
    nvml.loaded = False
    assert states(gpus) == [("GPU-a", "lost", "Driver Not Loaded")]
    nvml.loaded = True
    assert states(gpus) == [("GPU-a", "free", "")]


def test_only_those_that_the_daemon_may_see_are_lent(tmp_path: Path) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a1"), FakeGpu("GPU-b2"))
    assert [uuid for uuid, *_ in states(gpus_of(tmp_path, nvml, visible="1"))] == ["GPU-b2"]
    assert [uuid for uuid, *_ in states(gpus_of(tmp_path, nvml, visible="GPU-a"))] == ["GPU-a1"]
    assert states(gpus_of(tmp_path, nvml, visible="")) == []


def test_without_nvml_there_is_one_nameless_gpu_which_one_job_has_at_a_time(tmp_path: Path) -> None:
    gpus = gpus_of(tmp_path, None)
    assert states(gpus) == [("", "free", "")]
    assert [gpu.state for gpu in gpus.seen({"": "train it"})] == ["lent"]


def test_without_a_device_file_there_is_none(tmp_path: Path) -> None:
    assert Gpus(tmp_path, library=lambda: None, is_there=lambda: False).seen({}) == ()


def test_a_driver_that_hangs_does_not_stop_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    class Stuck(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's name
            if hangs.is_set():
                goes_on.wait(60)
            return super().nvmlDeviceGetCount()

    gpus = gpus_of(tmp_path, Stuck(FakeGpu("GPU-a")))

    async def go() -> list[str]:
        first = (await gpus.look({}))[0].state
        hangs.set()
        monkeypatch.setattr("daemon.jobs.gpus._ANSWERS_WITHIN_S", 0.05)
        second, third = (await gpus.look({}))[0], (await gpus.look({}))[0]
        monkeypatch.setattr("daemon.jobs.gpus._ANSWERS_WITHIN_S", 60.0)
        goes_on.set()
        assert gpus._looking is not None
        await gpus._looking
        return [first, second.state, second.detail, third.state, (await gpus.look({}))[0].state]

    assert asyncio.run(go()) == [
        "free",
        "busy",
        "the driver has not answered for 0.05 s",
        "lost",
        "free",
    ]


def test_a_job_waits_for_the_lock_of_its_gpu_and_gives_up_with_the_holders_number(tmp_path: Path) -> None:
    lock = tmp_path / "gpus" / "GPU-a.lock"
    with take(lock), pytest.raises(JobError, match=f"GPU-a is held by {os.getpid()}") as caught:
        take(lock, patience_s=0.01)
    assert (caught.value.reason, caught.value.deterministic) == ("gpu_taken", False)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_part_of_a_gpu_is_lent_without_a_name(tmp_path: Path) -> None:
    gpus = gpus_of(tmp_path, FakeNvml(FakeGpu("GPU-a")), visible="MIG-4d1c")
    assert [(gpu.uuid, gpu.state) for gpu in gpus.seen({})] == [("", "free")]
