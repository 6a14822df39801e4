"""Room on the disk: when it is looked for, what is released by whom, and how long attempts are apart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from daemon.state.store_service import DiskSpace, takes_some

STATE, JOBS = Path("state"), Path("jobs")


class Disk:
    def __init__(self) -> None:
        self.now = 0.0
        self.full = {STATE, JOBS}
        self.room = DiskSpace(clock=lambda: self.now, has_room=lambda folder: folder not in self.full)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_a_full_disk_is_reported_until_a_write_there_succeeds(disk: Disk) -> None:
    assert disk.room.problem == ""
    disk.room.lost("events.db: full", STATE)
    disk.room.lost("spec.json: full", JOBS)
    assert "events.db: full; spec.json: full" in disk.room.problem
    disk.room.found(STATE)
    assert "events.db" not in disk.room.problem
    assert "spec.json" in disk.room.problem
    disk.room.found(JOBS)
    assert disk.room.problem == ""


def test_the_disk_is_asked_once_a_pause_and_only_what_has_room_is_named(disk: Disk) -> None:
    disk.room.lost("full", STATE)
    disk.room.lost("full", JOBS)
    disk.full = {JOBS}
    assert disk.room.look() == []  # just tried
    disk.now = 1.0
    assert disk.room.look() == [STATE]
    assert disk.room.look() == []
    disk.now = 2.0
    assert disk.room.look() == [STATE]


def test_room_that_is_gone_at_once_is_looked_for_less_and_less_often(disk: Disk) -> None:
    pauses = []
    for _ in range(9):
        disk.room.lost("full", STATE)
        lost_at = disk.now
        disk.full = set()
        while not disk.room.look():
            disk.now += 0.5
        pauses.append(disk.now - lost_at)
        disk.room.found(STATE)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    disk.now += 1000.0
    disk.room.lost("full", STATE)
    disk.now += 1.0
    assert disk.room.look() == [STATE]


def test_whoever_waits_is_woken_also_by_a_try_that_came_between_its_failure_and_its_wait() -> None:
    async def scenario() -> None:
        room = DiskSpace(has_room=lambda _: True)
        before = room.moment
        room.try_again()
        await asyncio.wait_for(room.regained(before), timeout=1)
        late = asyncio.ensure_future(room.regained(room.moment))
        await asyncio.sleep(0)
        assert room.waited_for
        room.try_again()
        await asyncio.wait_for(late, timeout=1)
        assert not room.waited_for

    asyncio.run(scenario())


def test_a_try_leaves_nothing_behind_and_asks_where_a_folder_that_is_not_there_would_be_made(
    tmp_path: Path,
) -> None:
    assert takes_some(tmp_path)
    assert takes_some(tmp_path / "jobs" / "one")
    assert list(tmp_path.iterdir()) == []
    assert not takes_some(Path("/proc/self"))
