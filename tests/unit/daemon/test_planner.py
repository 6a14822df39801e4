"""A planner that goes on from turn to turn gives the plan that one would give which finds out all anew."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from daemon.jobs.due import DueJob
from daemon.planning.plan import Plan, Planner
from daemon.planning.repository import RepositoryJobs
from daemon.settings import Repo
from pipeline.lean.build.build_cache import BuildKey
from store.events.base import EventBody
from tests.support.events import REPOSITORY, Story, attempt, declaration, place, scanned, sha
from tests.support.planning import (
    LEAN,
    NO_LEAN,
    NOW,
    World,
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


def tell(world: World, story: Story) -> list[EventBody]:
    bodies, payloads = story.tell()
    for payload in payloads:
        world.stage(payload)
    world.tell(bodies)
    return bodies


@pytest.mark.parametrize("seed", range(3))
def test_after_any_events_the_plan_is_the_one_that_is_made_anew(tmp_path: Path, seed: int) -> None:
    rng, story, world = random.Random(seed), Story(seed), World(tmp_path)
    world.settings = world.deployment.write(
        repos=[f"https://{REPOSITORY}", f"https://{OTHER}"],
        extra='[train]\ndevice = "cpu"\nnew_theorems = 1\n[prove]\nsorries_per_job = 2\nhours_per_day = 0.1\n',
    )
    now, seen, lanes = NOW, 0, set[str]()
    builds = [BuildKey(REPOSITORY, sha("commit", number)) for number in range(25)]
    world.tell(created(repository=OTHER), commit_scanned(1, repository=OTHER))
    for _ in range(25):
        plan = world.plan(
            leans=rng.choice([LEAN, LEAN, NO_LEAN]),
            builds={one for one in builds if rng.random() < 0.8},
            now=now,
            trainable=rng.random() < 0.9,
            running=rng.choice([set(), set(), lanes, {"models"}]),
        )
        seen += len(plan.due)
        lanes = {job.lane for job in plan.due if job.kind == "prove"}
        tell(world, story)
        for job in rng.sample(plan.due, min(2, len(plan.due))):
            world.tell(_some_end(rng, job, now))
        now += timedelta(seconds=rng.choice([0, 1, 60, 7200]))
    assert seen >= 5


def _some_end(rng: random.Random, job: DueJob, now: datetime) -> list[EventBody]:
    end = rng.choice([started, succeeded, failed, interrupted, cancelled])
    if end is failed and rng.random() < 0.7:
        return failed(job, retry_at=now + timedelta(seconds=30))
    return end(job)


def test_what_a_search_says_is_planned_for_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, planner, looks, world = Story(2), Planner(), list[str](), World(tmp_path)
    quiet = "[trace]\nenabled = false\n[build]\nenabled = false\n"
    settings = world.deployment.write(repos=[f"https://{REPOSITORY}"], extra=quiet)
    find = RepositoryJobs.of

    def counted(self: RepositoryJobs, repo: Repo) -> list[DueJob]:
        looks.append(repo.key)
        return find(self, repo)

    def turn(bodies: Sequence[EventBody], *running: str) -> Plan:
        planner.changed(bodies)
        return planner.plan(world.view, settings=settings, leans=LEAN, now=NOW, running=running)

    monkeypatch.setattr(RepositoryJobs, "of", counted)
    world.tell()
    plan, result = turn([]), list[int]()
    while not (jobs := [job for job in plan.due if job.kind == "prove"]):
        plan = turn(tell(world, story))
    (began, ended), lane = succeeded(jobs[0]), jobs[0].lane
    said = attempt("a", AT, commit="a" * 40).model_copy(update={"repository": jobs[0].repository})
    for bodies, running in (([began, said], [lane]), ([], [lane]), ([ended], [])):
        looks.clear()
        turn(bodies, *running)
        result.append(len(looks))
    assert result == [0, 0, 1]


def test_what_takes_longer_than_a_turn_has_is_left_to_the_next_ones(tmp_path: Path) -> None:
    world, planner, keys = (
        World(tmp_path),
        Planner(patience_s=0),
        [f"example.org/demo/{name}" for name in "abc"],
    )
    world.settings = world.deployment.write(
        repos=[f"https://{key}" for key in keys], extra="[trace]\nenabled = false\n"
    )
    world.tell(*(created(repository=key) for key in keys))
    turns = [planner.plan(world.view, settings=world.settings, leans=NO_LEAN, now=NOW) for _ in range(7)]
    assert [len(plan.due) for plan in turns] == [1, 2, 3, 3, 3, 3, 3]
    assert [plan.complete for plan in turns].index(True) == 5, (
        "a turn for each repository, and for what it learns"
    )


def test_a_job_has_no_specification_before_it_begins(tmp_path: Path) -> None:
    world, planner = World(tmp_path), Planner()
    world.tell(created(repository=REPOSITORY))
    plan = planner.plan(world.view, settings=world.settings, leans=NO_LEAN, now=NOW)
    (job,) = plan.due
    with pytest.raises(ValueError, match="has no specification yet"):
        job.whole_spec  # noqa: B018
    (whole,) = planner.complete(world.view, plan.due)
    assert whole.whole_spec
    world.tell(cancelled(job))
    assert planner.complete(world.view, plan.due) == [], "no longer due"
