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
from daemon.planning.plan import Plan, Planner
from daemon.planning.repository import RepositoryJobs
from daemon.settings import Repo
from pipeline.lean.build.build_cache import BuildKey
from store.events.base import EventBody
from store.log.envelope import NewEvent
from tests.support.daemon.deployment import Deployment
from tests.support.events import REPOSITORY, Story, attempt, declaration, place, scanned, sha, stage
from tests.support.planning import (
    LEAN,
    NO_LEAN,
    NOW,
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
SCAN = scanned("A.lean", [declaration("a")], with_sorry=["a"])
AT = place(SCAN, SCAN.sorries[0], blob="b" * 40)


@pytest.mark.parametrize("seed", range(3))
def test_after_any_events_the_plan_is_the_one_that_is_made_anew(tmp_path: Path, seed: int) -> None:
    rng, story, turns = random.Random(seed), Story(seed), TurnByTurn()
    deployment = Deployment(tmp_path)
    settings = deployment.write(
        repos=[f"https://{REPOSITORY}", f"https://{OTHER}"],
        extra='[train]\ndevice = "cpu"\nnew_theorems = 1\n[prove]\nsorries_per_job = 2\nhours_per_day = 0.1\n',
    )

    async def go() -> int:
        now, seen, lanes = NOW, 0, set[str]()
        builds = [BuildKey(REPOSITORY, sha("commit", number)) for number in range(25)]
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
                    leans=rng.choice([LEAN, LEAN, NO_LEAN]),
                    builds={one for one in builds if rng.random() < 0.8},
                    now=now,
                    trainable=rng.random() < 0.9,
                    running=rng.choice([set(), set(), lanes, {"models"}]),
                )
                plan = await parts.store.ask(question)
                seen += len(plan.due)
                lanes = {job.lane for job in plan.due if job.kind == "prove"}
                await record(*story.tell())
                for job in rng.sample(plan.due, min(2, len(plan.due))):
                    await record(_some_end(rng, job, now))
                now += timedelta(seconds=rng.choice([0, 1, 60, 7200]))
        return seen

    assert asyncio.run(go()) >= 5


def test_what_a_search_says_is_planned_for_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = "[trace]\nenabled = false\n[build]\nenabled = false\n"
    settings = Deployment(tmp_path).write(repos=[f"https://{REPOSITORY}"], extra=quiet)
    story, planner, looks = Story(2), Planner(), list[str]()
    find = RepositoryJobs.of

    def counted(self: RepositoryJobs, repo: Repo) -> list[DueJob]:
        looks.append(repo.key)
        return find(self, repo)

    monkeypatch.setattr(RepositoryJobs, "of", counted)

    async def go() -> list[int]:
        async with Deployment(tmp_path).opened() as parts:

            async def turn(bodies: Sequence[EventBody], *running: str) -> Plan:
                planner.changed(bodies)
                return await parts.store.ask(
                    lambda view: planner.plan(view, settings=settings, leans=LEAN, now=NOW, running=running)
                )

            plan, found = await turn([]), list[int]()
            while not (jobs := [job for job in plan.due if job.kind == "prove"]):
                bodies, payloads = story.tell()
                blobs: dict[str, Path] = {}
                for payload in payloads:
                    blobs |= stage(tmp_path / "staging", payload)[1]
                await parts.store.append([NewEvent("story", body) for body in bodies], blobs=blobs)
                plan = await turn(bodies)
            (began, ended), lane = succeeded(jobs[0]), jobs[0].lane
            said = attempt("a", AT, commit="a" * 40).model_copy(update={"repository": jobs[0].repository})
            for bodies, running in (([began, said], [lane]), ([], [lane]), ([ended], [])):
                looks.clear()
                await turn(bodies, *running)
                found.append(len(looks))
            return found

    assert asyncio.run(go()) == [0, 0, 1]


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
