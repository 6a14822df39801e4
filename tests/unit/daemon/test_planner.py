"""A planner that goes on from turn to turn gives the plan that one would give which finds out all anew."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from daemon.jobs.due import DueJob
from daemon.planning.plan import Planner
from store.events.base import EventBody
from store.log.envelope import NewEvent
from tests.support.daemon.deployment import Deployment
from tests.support.events import REPOSITORY, Story, stage
from tests.support.planning import (
    NO_LEAN,
    NOW,
    SIMULATOR,
    TurnByTurn,
    cancelled,
    commit_scanned,
    created,
    failed,
    interrupted,
    started,
    succeeded,
)

OTHER = "example.org/demo/other"


@pytest.mark.parametrize("seed", range(3))
def test_after_any_events_the_plan_is_the_one_that_is_made_anew(tmp_path: Path, seed: int) -> None:
    rng, story, turns = random.Random(seed), Story(seed), TurnByTurn()
    deployment = Deployment(tmp_path)
    settings = deployment.write(
        repos=[f"https://{REPOSITORY}", f"https://{OTHER}"],
        extra='[train]\ndevice = "cpu"\nnew_theorems = 1\n[prove]\nsorries_per_job = 2\nhours_per_day = 0.1\n',
    )

    async def go() -> int:
        now, seen = NOW, 0
        async with deployment.opened() as parts:

            async def record(bodies: Sequence[EventBody], payloads: Sequence[bytes] = ()) -> None:
                blobs: dict[str, Path] = {}
                for payload in payloads:
                    blobs |= stage(tmp_path / "staging", payload)[1]
                await parts.store.append([NewEvent("story", body) for body in bodies], blobs=blobs)

            await record([*created(repository=OTHER), commit_scanned(1, repository=OTHER)])
            for _ in range(25):
                question = partial(
                    turns.plan,
                    settings=settings,
                    leans=rng.choice([SIMULATOR, SIMULATOR, NO_LEAN]),
                    builds={(OTHER, "a" * 40)} if rng.random() < 0.2 else set(),
                    now=now,
                    trainable=rng.random() < 0.9,
                    running={"models"} if rng.random() < 0.2 else set(),
                )
                plan = await parts.store.ask(question)
                seen += len(plan.due)
                await record(*story.tell())
                for job in rng.sample(plan.due, min(2, len(plan.due))):
                    await record(_some_end(rng, job, now))
                now += timedelta(seconds=rng.choice([0, 1, 60, 7200]))
        return seen

    assert asyncio.run(go()) > 5


def _some_end(rng: random.Random, job: DueJob, now: datetime) -> list[EventBody]:
    end = rng.choice([started, succeeded, failed, interrupted, cancelled])
    if end is failed and rng.random() < 0.7:
        return failed(job, retry_at=now + timedelta(seconds=30))
    return end(job)


def test_what_takes_longer_than_a_turn_has_is_left_to_the_next_ones(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    keys = [f"example.org/demo/{name}" for name in "abc"]
    settings = deployment.write(repos=[f"https://{key}" for key in keys], extra="[trace]\nenabled = false\n")
    planner = Planner(patience_s=0)

    async def go() -> list[tuple[bool, int]]:
        async with deployment.opened() as parts:
            for key in keys:
                await parts.store.append(
                    [NewEvent(f"repository:{key}", body) for body in created(repository=key)]
                )
            found = []
            for _ in range(7):
                plan = await parts.store.ask(
                    lambda view: planner.plan(view, settings=settings, leans=NO_LEAN, now=NOW)
                )
                found.append((plan.complete, len(plan.due)))
            return found

    turns = asyncio.run(go())
    assert [due for _, due in turns] == [1, 2, 3, 3, 3, 3, 3]
    assert [complete for complete, _ in turns].index(True) == 5, (
        "a turn for each repository, and for what it learns"
    )


def test_a_job_has_no_specification_before_it_begins(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    settings = deployment.write(repos=[f"https://{OTHER}"])
    planner = Planner()

    async def go() -> None:
        async with deployment.opened() as parts:
            bodies = created(repository=OTHER)
            await parts.store.append([NewEvent(f"repository:{OTHER}", body) for body in bodies])
            plan = await parts.store.ask(
                lambda view: planner.plan(view, settings=settings, leans=NO_LEAN, now=NOW)
            )
            (job,) = plan.due
            with pytest.raises(ValueError, match="has no specification yet"):
                job.whole_spec  # noqa: B018
            (whole,) = await parts.store.ask(lambda view: planner.complete(view, plan.due))
            assert whole.whole_spec
            await parts.store.append([NewEvent(f"job:{job.job}", body) for body in cancelled(job)])
            assert await parts.store.ask(lambda view: planner.complete(view, plan.due)) == [], "no longer due"

    asyncio.run(go())
