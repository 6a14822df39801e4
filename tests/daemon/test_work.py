"""What is due begins only where it can be recorded, and is due again by a clock that no one sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.jobs.gpus import Gpu, Gpus
from daemon.jobs.history import Retries
from daemon.scheduling.scheduler import Scheduler
from tests.support.daemon.bench import Bench, bench, until
from tests.support.daemon.deployment import Deployment, NoTasks
from tests.support.planning import NO_LEAN


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    deployment.write(repos=[remote.path])
    return deployment


class Looks(Gpus):
    """The last that a turn waits for before jobs begin; in the meantime something else may happen."""

    def meanwhile(self) -> None:
        """What happens."""

    async def look(self, lent: Any) -> tuple[Gpu, ...]:
        await asyncio.sleep(0)
        self.meanwhile()
        return ()


@asynccontextmanager
async def working(deployment: Deployment) -> AsyncIterator[tuple[Scheduler, Bench, Looks]]:
    """The plan and its beginning, on a bench whose one commit is due to be scanned."""
    gpus = Looks(deployment.folder / "gpus")
    async with bench(deployment, gpus=gpus, retry_base_s=60.0) as b:
        upkeep: Any = SimpleNamespace(cache_bytes=0, advisories=(), sweep_cache=lambda _: asyncio.sleep(0))
        yield (
            Scheduler(
                store=b.parts.store,
                runner=b.runner,
                upkeep=upkeep,
                engine=b.engine,
                context=NoTasks(b.parts.settings),
                leans=NO_LEAN,
            ),
            b,
            gpus,
        )


async def test_what_finds_no_room_while_the_plan_is_made_keeps_it_from_beginning(
    deployment: Deployment,
) -> None:
    """A job that the disk refused has left by then, and the plan has it as due again."""
    async with working(deployment) as (work, b, gpus):
        room = b.parts.store.room
        gpus.meanwhile = lambda: room.lost("full", deployment.folder)  # type: ignore[method-assign] # once in this turn
        await work.start_due()
        planned, begun = [due.kind for due in work.plan.due], len(b.runner.running())
        room.found(deployment.folder)
        gpus.meanwhile = lambda: None  # type: ignore[method-assign]
        await work.start_due()
        again = [job.kind for job in b.runner.running()]
        await until(lambda: not b.runner.running())
        result = [*planned], [*again], begun
    assert result == (["scan"], ["scan"], 0)
    assert len(deployment.events("job_started")) == 1


async def test_a_job_that_has_begun_is_not_due_any_more_also_after_its_end_and_before_the_next_turn(
    deployment: Deployment,
) -> None:
    async with working(deployment) as (work, b, _):
        await work.start_due()
        result = [len(b.runner.running()), len(work.plan.due)]
        await until(lambda: not b.runner.running())
        answer = [*result, len(work.plan.due)]
    assert answer == [1, 0, 0]


@pytest.mark.parametrize("set_s", [-3600.0, 3600.0], ids=["back", "forward"])
async def test_a_clock_that_is_set_neither_delays_a_second_try_nor_brings_it_forward(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, set_s: float
) -> None:
    clock = SimpleNamespace(always_s=0.0, wall_s=0.0)
    real = datetime

    class Set(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.now(tz) + timedelta(seconds=clock.wall_s + clock.always_s)

    # The scan is a job of the tests and not told how to behave: a failure that may pass.
    async with working(deployment) as (work, b, _):
        b.runner.retries = Retries(elapsed=lambda: clock.always_s)
        await work.start_due()
        (due,) = (live.due for live in b.runner.attempts)
        await until(lambda: not b.runner.running())
        result = []

        async def planned() -> None:
            b.runner.start = lambda *_: None  # type: ignore[method-assign] # the plan is what counts
            await work.start_due()
            result.append([one.attempt for one in work.plan.due if one.job == due.job])

        monkeypatch.setattr("daemon.scheduling.scheduler.datetime", Set)
        clock.wall_s = set_s
        await planned()
        assert 40.0 < work.until_due_s() < 75.0
        clock.always_s = 47.0
        await planned()
        clock.always_s = 73.0  # a minute, give or take a fifth
        await planned()
    assert result == [[], [], [2]]
    (failed,) = deployment.events("job_failed")
    waits = datetime.fromisoformat(failed.data["retry_at"]) - datetime.fromisoformat(failed.recorded_at)
    assert timedelta(seconds=47) < waits < timedelta(seconds=73), "for people, by the clock as it was"
