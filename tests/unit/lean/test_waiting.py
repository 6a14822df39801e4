"""Whose turn it is when a REPL process is free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pipeline.lean.pool import pool
from pipeline.lean.pool.pool import Home, Line


def nowhere(_owner: object) -> Home:
    return Home.NOWHERE


def order(owners: list[str], home: Callable[[object], Home], turns: int) -> str:
    """Return who had the first turns, when each of them joins again after its turn."""

    async def run() -> str:
        line = Line[str]()
        pool = {owner: line.join("a process", owner) for owner in owners}
        had = ""
        for _ in range(turns):
            assert line.call(home)
            (owner,) = [owner for owner, turn in pool.items() if turn.done()]
            had += owner
            pool[owner] = line.join("a process", owner)
        return had

    return asyncio.run(run())


def test_who_came_first_is_first() -> None:
    assert order(["a", "b", "c"], nowhere, 6) == "abcabc"


def test_who_has_states_in_the_free_process_goes_before_others() -> None:
    assert order(["a", "b", "c"], lambda owner: Home.FREE if owner == "b" else Home.NOWHERE, 4) == "bbbb"


def test_no_one_is_overtaken_for_ever() -> None:
    had = order(["a", "b", "c"], lambda owner: Home.FREE if owner == "b" else Home.NOWHERE, 100)
    assert had.count("a") >= 2
    assert had.count("c") >= 1


def test_who_has_states_in_a_busy_process_waits_a_moment_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        line = Line[str]()
        busy, new = line.join("a process", "a"), line.join("a process", "b")

        def home(owner: object) -> Home:
            return Home.BUSY if owner == "a" else Home.NOWHERE

        assert line.call(home)
        assert new.done()
        assert not line.call(home)
        monkeypatch.setattr(pool, "PATIENCE_S", 0.0)
        assert line.call(home)
        assert busy.done()

    asyncio.run(run())


def test_who_left_or_gave_up_gets_no_turn() -> None:
    async def run() -> None:
        line = Line[str]()
        left, gave_up, stays = (line.join("a process", owner) for owner in "abc")
        line.leave(left)
        gave_up.cancel()
        assert line.call(nowhere)
        assert stays.done()
        assert not left.done()
        assert not line.call(nowhere)
        assert not line

    asyncio.run(run())


def test_whether_all_wait_for_the_same_is_told() -> None:
    async def run() -> None:
        line = Line[str]()
        assert not line.wants_only("a process")
        line.join("a process", None)
        assert line.wants_only("a process")
        other = line.join("another", None)
        assert not line.wants_only("a process")
        other.cancel()
        assert line.wants_only("a process")

    asyncio.run(run())
