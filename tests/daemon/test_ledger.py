"""The daemon's hands on its store: what it refuses once the store has failed it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from daemon.ledger import Ledger, StoreFailedError
from daemon.testing.house import House
from store.events import DaemonStopped
from store.log import NewEvent


def event(number: int) -> NewEvent:
    return NewEvent("daemon", DaemonStopped(reason="test", pid=number))


def test_after_a_failure_nothing_is_recorded_any_more_even_if_the_store_is_well_again(tmp_path: Path) -> None:
    """What was refused may be half of a plan; only a start from the log begins a new one."""
    house = House(tmp_path)
    settings = house.write(repos=[])
    settings.paths.state.mkdir(parents=True)

    async def scenario() -> None:
        ledger = await Ledger.open(settings.paths)
        try:
            assert (await ledger.append([event(1)])).versions == {"daemon": 1}
            aside = tmp_path / "aside.db"
            settings.paths.events_db.rename(aside)
            with pytest.raises(StoreFailedError, match="put it back"):
                await ledger.append([event(2)])
            assert ledger.failed.is_set()
            aside.rename(settings.paths.events_db)
            with pytest.raises(StoreFailedError, match="nothing is recorded any more"):
                await ledger.append([event(3)])
            with pytest.raises(StoreFailedError):
                await ledger.set_poll_state("r", checked_at="", next_due_at="", outcome="", etag=None)
        finally:
            await ledger.close()

    asyncio.run(scenario())
    assert [item.data["pid"] for item in house.events()] == [1]
