"""The daemon's periodic work: clocks that jump, runs that are slow, asked for or fail, the end, the docs' table."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import apscheduler.schedulers.base
import pytest

import daemon.process.periodic
from daemon.process.periodic import Periodic, Row, table
from daemon.settings import parse
from daemon.state.context import Context
from daemon.state.store_service import StoreFailedError

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
YEAR_S = 365 * DAY_S


class Shifted(datetime):
    """A wall clock that is set by `by_s` seconds."""

    by_s = 0.0

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return (datetime.now(UTC) + timedelta(seconds=cls.by_s)).astimezone(tz)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(parse(b'[daemon]\nstate_dir = "state"\n', path=tmp_path / "config.toml"))


def row(name: str, run: Callable[[], Awaitable[None]], every_s: float = 0.01, first_s: float = 0.0) -> Row:
    return Row(name, run, lambda: every_s, first_s)


async def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def running(context: Context, rows: list[Row], story: Callable[[Periodic], Awaitable[None]]) -> None:
    """Run a table beside a story, and end it as the daemon does."""

    async def run() -> None:
        periodic = Periodic(context, rows)
        periodic.start()
        try:
            await story(periodic)
        finally:
            periodic.stop()
            await context.end_tasks()

    asyncio.run(run())


@pytest.mark.parametrize("by_s", [20.0, HOUR_S, DAY_S, 10 * YEAR_S])
@pytest.mark.parametrize("sign", [1, -1], ids=["forward", "back"])
def test_the_rhythm_is_the_same_however_far_the_wall_clock_is_set(
    context: Context, monkeypatch: pytest.MonkeyPatch, by_s: float, sign: int
) -> None:
    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Shifted)
    monkeypatch.setattr(daemon.process.periodic, "datetime", Shifted)
    monkeypatch.setattr(Shifted, "by_s", 0.0)
    runs: list[float] = []

    async def note() -> None:
        runs.append(time.monotonic())

    async def story(_: Periodic) -> None:
        await until(lambda: len(runs) >= 2)
        Shifted.by_s = sign * by_s
        jumped, before = time.monotonic(), len(runs)
        await until(lambda: len(runs) >= before + 3)
        assert runs[before + 2] - jumped > 0.15, "nothing is caught up"

    running(context, [row("note", note, 0.1)], story)


def test_a_slow_run_is_overlapped_by_none_and_what_is_asked_for_meanwhile_follows_at_once(
    context: Context,
) -> None:
    at_once, most, runs = 0, 0, 0
    goes_on = asyncio.Event()

    async def slow() -> None:
        nonlocal at_once, most, runs
        at_once, runs = at_once + 1, runs + 1
        most = max(most, at_once)
        await goes_on.wait()
        at_once -= 1

    async def story(periodic: Periodic) -> None:
        await until(lambda: runs)
        for _ in range(3):
            periodic.run_soon("slow")
            await asyncio.sleep(0.02)
        assert (runs, most) == (1, 1)
        goes_on.set()
        await until(lambda: runs >= 2)
        await asyncio.sleep(0.1)
        assert (runs, most) == (2, 1), "asked for three times, once more is enough"
        periodic.run_soon()
        periodic.run_soon()
        await until(lambda: runs >= 3)
        assert most == 1

    running(context, [row("slow", slow, HOUR_S)], story)


def test_the_pause_is_asked_for_after_each_run_and_the_first_is_its_own(context: Context) -> None:
    runs: list[float] = []

    async def note() -> None:
        runs.append(time.monotonic())

    async def story(_: Periodic) -> None:
        began = time.monotonic()
        await until(lambda: len(runs) >= 3)
        assert runs[0] - began > 0.1
        assert runs[1] - runs[0] < runs[2] - runs[1]

    running(context, [Row("note", note, lambda: 0.2 * (len(runs) - 1), first_s=0.15)], story)


def test_a_run_that_fails_is_a_problem_by_name_until_one_ends_well_and_disturbs_no_other_row(
    context: Context,
) -> None:
    broken, ran, others = True, 0, 0

    async def fail() -> None:
        nonlocal ran
        ran += 1
        if broken:
            raise KeyError("x")

    async def other() -> None:
        nonlocal others
        others += 1

    async def story(_: Periodic) -> None:
        nonlocal broken
        await until(lambda: ran >= 2 and others >= 2)
        assert context.problems.get("periodic:polls") == "polls: KeyError: 'x'"
        broken, before, before_others = False, ran, others
        await until(lambda: ran >= before + 2 and others >= before_others + 2)
        assert context.problems.texts() == []

    running(context, [row("polls", fail), row("other", other)], story)


def test_a_store_that_failed_is_no_problem_of_the_row(context: Context) -> None:
    ran = 0

    async def fail() -> None:
        nonlocal ran
        ran += 1
        raise StoreFailedError("the disk is gone")

    async def story(_: Periodic) -> None:
        await until(lambda: ran >= 2)
        assert context.problems.texts() == []

    running(context, [row("plan", fail)], story)


def test_the_end_waits_for_what_runs_and_begins_nothing(context: Context) -> None:
    begun: list[str] = []
    ended: list[str] = []

    async def long() -> None:
        begun.append("long")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            ended.append("long")

    async def short() -> None:
        begun.append("short")

    async def story(periodic: Periodic) -> None:
        await until(lambda: begun)
        periodic.run_soon("short")  # taken up, and not begun yet
        periodic.stop()
        await context.end_tasks()
        assert ended == ["long"]
        periodic.run_soon()
        await asyncio.sleep(0.1)

    running(context, [row("long", long), row("short", short, first_s=HOUR_S)], story)
    assert begun == ["long"]


def test_the_table_in_the_docs_has_each_row() -> None:
    parts = {name: MagicMock() for name in inspect.signature(table).parameters}
    page = Path("docs/architecture.md").read_text(encoding="utf-8")
    section = page.partition("Periodic work\n")[2].partition("\n## ")[0]
    head, *rows = re.findall(r"^\| ([a-z ]+?) +\| ", section, flags=re.MULTILINE)
    assert head == "row"
    assert rows == [one.name for one in table(**parts)]
