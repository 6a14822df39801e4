"""A start that finds no room waits for it and says so; one that fails for another reason, or is to end, does not."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.http.control import ControlServer, SocketInUseError
from daemon.place.lock import FolderError
from daemon.place.paths import Paths
from daemon.place.systemd import Notifier
from daemon.process import run, service
from daemon.process.service import DiskSpaceWait, Service
from daemon.state.store_service import StoreFailedError
from store.backoff import Backoff
from store.errors import DatabaseFullError, DatabaseIOError
from tests.support.daemon.deployment import Deployment

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LOOK_FOR_ROOM", Backoff(0.01, 60.0))
    monkeypatch.setattr(service, "_TURN_S", 0.01)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        yield listener


def stopping(reason: str) -> Any:
    """Return what is asked of the context: why the daemon stops."""
    return SimpleNamespace(stop_reason=reason)


def waits(tmp_path: Path, error: Exception, *found: OSError | None, ends: bool = False) -> tuple[bool, int]:
    """Whether it is worth another try, and how often the disk was looked at; `found` at the looks, in their order."""
    answers = [*found]

    def look(_folder: Path) -> OSError | None:
        return answers.pop(0)

    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    room = DiskSpaceWait(notifier, stopping("asked" if ends else ""), look=look)
    again = asyncio.run(room.regained(tmp_path, error))
    return again, len(found) - len(answers)


def refused() -> FolderError:
    error = FolderError("state: cannot be made", folder=Path("state"))
    error.__cause__ = FULL
    return error


@pytest.mark.parametrize("error", [DatabaseFullError("events.db: full"), refused(), FULL])
def test_what_found_no_room_is_tried_again_when_there_is_some(
    tmp_path: Path, manager: socket.socket, error: Exception
) -> None:
    assert waits(tmp_path, error, FULL, FULL, None) == (True, 3)
    lines = manager.recv(8192).decode().splitlines()
    assert lines == [f"STATUS=waits for room on the disk to start: {error}", "EXTEND_TIMEOUT_USEC=60000000"]


def test_an_error_that_says_nothing_of_room_is_of_a_full_disk_where_the_disk_is_full(tmp_path: Path) -> None:
    assert waits(tmp_path, DatabaseIOError("events.db-shm: I/O error"), FULL, None) == (True, 2)


@pytest.mark.parametrize("look", [None, OSError(errno.EROFS, "Read-only file system")])
def test_a_start_that_fails_for_another_reason_is_not_tried_again(
    tmp_path: Path, look: OSError | None
) -> None:
    assert waits(tmp_path, DatabaseIOError("events.db: I/O error"), look) == (False, 1)


def test_who_is_to_end_waits_no_longer(tmp_path: Path) -> None:
    assert waits(tmp_path, DatabaseFullError("full"), ends=True) == (False, 0)


def looks(*found: OSError | None) -> tuple[DiskSpaceWait, list[Path]]:
    """What waits, and the folders that it has looked at; `found` there, in their order."""
    answers, looked = [*found], []

    def look(folder: Path) -> OSError | None:
        looked.append(folder)
        return answers.pop(0)

    return DiskSpaceWait(Notifier({}), stopping(""), look=look), looked


def test_room_is_looked_for_in_the_folder_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(tmp_path / "state", tmp_path / "cache", tmp_path / "run")
    room, looked = looks(FULL, None)
    tries: list[Path] = []

    def made(folder: Path) -> None:
        tries.append(folder)
        if tries.count(paths.cache) == 1 and folder == paths.cache:
            raise FolderError("cache: no space", folder=folder) from FULL
        folder.mkdir(exist_ok=True)

    monkeypatch.setattr("daemon.process.run.make_folder", made)
    service: Any = SimpleNamespace(settings=SimpleNamespace(paths=paths), room_to_start=room, stop_reason="")
    lock = asyncio.run(run._lock(service))
    assert lock is not None
    lock.release()
    assert looked == [paths.cache, paths.cache]


@pytest.mark.parametrize("full", [True, False])
def test_a_control_socket_that_finds_no_room_is_waited_for_and_one_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    settings = Deployment(tmp_path).write(repos=["https://example.org/demo/logic"])
    service = Service(settings, notifier=Notifier({}))
    service.room_to_start, looked = looks(FULL, None) if full else looks(None)
    listens: Any = object()
    tries: list[Path] = []

    async def start(path: Path, _face: Any, *, control_group: str) -> ControlServer:
        tries.append(path)
        if len(tries) == 1:
            raise SocketInUseError("no") from (FULL if full else None)
        result: ControlServer = listens
        return result

    monkeypatch.setattr("daemon.process.service.ControlServer.start", start)
    if full:
        assert asyncio.run(service._listening(settings, listens)) is listens
        assert looked == [settings.paths.runtime] * 2
    else:
        with pytest.raises(SocketInUseError):
            asyncio.run(service._listening(settings, listens))
    assert tries == [settings.paths.socket] * (2 if full else 1)


@pytest.mark.parametrize("failed", [False, True], ids=["to end", "store failed"])
def test_what_waits_in_the_ledger_is_let_go_where_the_start_is_to_end_or_the_store_failed(
    failed: bool,
) -> None:
    hurried = []

    async def check() -> None:
        if failed:
            raise StoreFailedError("taken away")

    store: Any = SimpleNamespace(
        check=check, hurry=lambda: hurried.append(1), room=SimpleNamespace(problem="full")
    )

    async def go() -> None:
        room = DiskSpaceWait(Notifier({}), stopping("asked"))
        watching = asyncio.ensure_future(room.watch(store))
        for _ in range(200):
            await asyncio.sleep(0.01)
            if hurried:
                break
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(go())
    assert hurried
