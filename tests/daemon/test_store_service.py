"""The daemon's hands on its store: what it refuses once the store has failed it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from daemon.store_service import NoRoomError, StoreFailedError, StoreService
from store.errors import DatabaseFullError
from store.events.service import DaemonStopped
from store.log.envelope import NewEvent
from store.log.log import EventLog
from store.view.rebuild import verify
from store.view.view import View
from tests.support.daemon.deployment import Deployment


def event(number: int) -> NewEvent:
    return NewEvent("daemon", DaemonStopped(reason="test", pid=number))


def test_after_a_failure_nothing_is_recorded_any_more_even_if_the_store_is_well_again(tmp_path: Path) -> None:
    """What was refused may be half of a plan; only a start from the log begins a new one."""
    deployment = Deployment(tmp_path)
    settings = deployment.write(repos=[])
    settings.paths.state.mkdir(parents=True)

    async def scenario() -> None:
        store = await StoreService.open(settings.paths)
        try:
            assert (await store.append([event(1)])).versions == {"daemon": 1}
            aside = tmp_path / "aside.db"
            settings.paths.events_db.rename(aside)
            with pytest.raises(StoreFailedError, match="put it back"):
                await store.append([event(2)])
            assert store.failed.is_set()
            aside.rename(settings.paths.events_db)
            with pytest.raises(StoreFailedError, match="nothing is recorded any more"):
                await store.append([event(3)])
            with pytest.raises(StoreFailedError):
                await store.set_poll_state("r", checked_at="", next_due_at="", outcome="", etag=None)
        finally:
            await store.close()

    asyncio.run(scenario())
    assert [item.data["pid"] for item in deployment.events()] == [1]


def test_an_anchor_that_was_removed_is_made_anew_with_a_warning(tmp_path: Path) -> None:
    settings = Deployment(tmp_path).write(repos=[])
    settings.paths.state.mkdir(parents=True)
    anchor = settings.paths.state / "events.db-anchor"

    async def warned() -> list[str]:
        with capture_logs() as lines:
            store = await StoreService.open(settings.paths)
            await store.append([event(1)])
            await store.close()
        return [line["event"] for line in lines]

    assert asyncio.run(warned()) == []
    anchor.unlink()
    assert asyncio.run(warned()) == ["anchor_made"]
    assert anchor.exists()
    assert asyncio.run(warned()) == []


@pytest.mark.parametrize("full", [(EventLog, "append"), (View, "catch_up")], ids=["log", "view"])
def test_who_waits_outlasts_a_full_disk_and_who_does_not_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: tuple[type, str]
) -> None:
    deployment = Deployment(tmp_path)
    settings = deployment.write(repos=[])
    settings.paths.state.mkdir(parents=True)
    owner, name = full
    real = getattr(owner, name)

    def refuses(*_arguments: object, **_options: object) -> None:
        raise DatabaseFullError("events.db: full; free some space")

    async def scenario() -> None:
        store = await StoreService.open(settings.paths, patient=True)
        store.room._has_room = lambda _: getattr(owner, name) is real
        try:
            monkeypatch.setattr(owner, name, refuses)
            if owner is EventLog:
                with pytest.raises(NoRoomError, match="free some space"):
                    await store.append([event(1)])
            else:
                await store.append([event(1)])  # it is in the log, and the view follows later
            assert "free some space" in store.room.problem
            waiting = asyncio.ensure_future(store.append([event(2)], wait=True))
            await asyncio.sleep(1.2)
            await store.check()
            await asyncio.sleep(0)
            assert waiting.done() == (owner is View)
            assert store.failure is None
            monkeypatch.setattr(owner, name, real)
            for _ in range(40):
                await store.check()
                if waiting.done() and not store.room.problem:
                    break
                await asyncio.sleep(0.1)
            await asyncio.wait_for(waiting, timeout=5)
            assert store.room.problem == ""
            await store.append([event(3)])
            # Whoever ends does not wait.
            monkeypatch.setattr(owner, name, refuses)
            if owner is EventLog:
                late = asyncio.ensure_future(store.append([event(4)], wait=True))
                await asyncio.sleep(0.1)
                store.hurry()
                with pytest.raises(NoRoomError):
                    await asyncio.wait_for(late, timeout=5)
            monkeypatch.setattr(owner, name, real)
        finally:
            await store.close()

    asyncio.run(scenario())
    assert sorted(item.data["pid"] for item in deployment.events()) == [1, 2, 3][owner is EventLog :]
    assert verify(settings.paths.events_db, settings.paths.database_db).differences == ()


def test_to_a_ledger_that_is_not_patient_a_full_disk_is_a_failure_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Deployment(tmp_path).write(repos=[])
    settings.paths.state.mkdir(parents=True)

    def refuses(*_arguments: object, **_options: object) -> None:
        raise DatabaseFullError("events.db: full")

    async def scenario() -> None:
        store = await StoreService.open(settings.paths)
        monkeypatch.setattr(EventLog, "append", refuses)
        try:
            with pytest.raises(StoreFailedError) as caught:
                await store.append([event(1)], wait=True)
            assert not isinstance(caught.value, NoRoomError)
            assert store.failure is not None
        finally:
            await store.close()

    asyncio.run(scenario())
