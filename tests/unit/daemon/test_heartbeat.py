"""When the service manager is told that the daemon is well, and when it is not; and what the main loop turns for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from daemon.place.systemd import Notifier
from daemon.process.main_loop import Heartbeat
from daemon.scheduling.scheduler import Scheduler
from daemon.state.store_service import StoreService
from store.events.jobs import JobInterrupted, WorkPaused
from store.log.envelope import NewEvent
from tests.support.events import attempt, declaration, place, scanned


class Watched(Notifier):
    def __init__(self) -> None:
        super().__init__({"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "160000"})
        self.pings = 0
        self.lines: list[str] = []

    def watchdog(self) -> bool:
        self.pings += 1
        return True

    def status(self, status: str) -> bool:
        self.lines.append(status)
        return True


class Store:
    """What a heartbeat asks of the store."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.cpu_s: Callable[[], float] = lambda: 0.0

    async def check(self) -> None:
        await self.answers.wait()

    def writer_cpu_s(self) -> float:
        return self.cpu_s()


class Served:
    """The control server, as far as it serves."""

    def __init__(self, serves: list[bool]) -> None:
        self._serves = serves

    @property
    def serves(self) -> bool:
        return self._serves[0]


def run(scenario: Callable[[Heartbeat, Watched, Store, list[bool]], Any]) -> None:
    async def go() -> None:
        notifier, store, serves = Watched(), Store(), [True]
        heart = Heartbeat(notifier, cast(StoreService, store), cast(Any, Served(serves)))
        await scenario(heart, notifier, store, serves)

    asyncio.run(go())


def test_a_beat_pings_where_the_writer_answers_and_the_socket_is_served() -> None:
    async def scenario(heart: Heartbeat, notifier: Watched, store: Store, serves: list[bool]) -> None:
        await heart.beat()
        assert notifier.pings == 1
        serves[0] = False
        await heart.beat()
        await heart.beat()
        assert notifier.pings == 1
        assert len(notifier.lines) == 1  # told once
        serves[0] = True
        await heart.beat()
        assert notifier.pings == 2

    run(scenario)


def test_a_writer_that_hangs_is_not_pinged_for_and_one_that_computes_is() -> None:
    async def scenario(heart: Heartbeat, notifier: Watched, store: Store, serves: list[bool]) -> None:
        store.answers.clear()
        beat = asyncio.ensure_future(heart.beat())
        await asyncio.sleep(0.15)
        assert notifier.pings == 0
        assert "NOT WELL" in notifier.lines[0]
        loop = asyncio.get_running_loop()
        store.cpu_s = loop.time  # as much CPU as time passes
        async with asyncio.timeout(20):
            while notifier.pings < 2:  # noqa: ASYNC110 - nothing tells of a ping
                await asyncio.sleep(0.01)
        store.answers.set()
        await beat

    run(scenario)


def test_a_step_s_answer_and_its_error_come_through_and_a_cancelled_one_is_not_left_running() -> None:
    async def scenario(heart: Heartbeat, notifier: Watched, store: Store, serves: list[bool]) -> None:
        async def answers() -> int:
            await asyncio.sleep(0.05)
            return 7

        async def fails() -> int:
            raise ValueError("no")

        assert await heart.during(answers()) == 7
        with pytest.raises(ValueError, match="no"):
            await heart.during(fails())
        ended = asyncio.Event()

        async def for_ever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        waiting = asyncio.ensure_future(heart.during(for_ever()))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(ended.wait(), timeout=1)

    run(scenario)


def test_what_a_running_job_records_is_no_news_to_the_plan_but_a_search_s_first_where_another_is_overdue() -> (
    None
):
    attempts = [
        SimpleNamespace(due=SimpleNamespace(job=job), saved=job == "prove-old")
        for job in ("prove-old", "prove-new")
    ]
    runner = SimpleNamespace(attempts=attempts, runs=lambda job: job in ("prove-old", "prove-new"))
    overdue: list[str] = []
    work = cast(
        Scheduler,
        SimpleNamespace(
            _runner=runner,
            for_slot=SimpleNamespace(overdue=lambda **_: overdue),
        ),
    )

    def tried(job: str) -> NewEvent:
        scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
        body = attempt("a", place(scan, scan.sorries[0], blob="b" * 40), commit="a" * 40)
        return NewEvent("repository:r", body.model_copy(update={"job": job}))

    assert not Scheduler.has_news(work, [tried("prove-old"), tried("prove-new")])
    overdue.append("other")
    assert not Scheduler.has_news(work, [tried("prove-old")])
    assert Scheduler.has_news(work, [tried("prove-new")])
    paused = NewEvent("work", WorkPaused(work="all", by="ada", reason=""))
    assert Scheduler.has_news(work, [tried("prove-old"), paused])

    def ended(job: str) -> NewEvent:
        body = JobInterrupted(job=job, attempt=1, reason="")
        return NewEvent(f"job:{job}", body)

    assert not Scheduler.has_news(work, [ended("prove-old")]), "the runner tells once its slot is free"
    assert Scheduler.has_news(work, [ended("prove-dead")])
